"""Budgets: never overshot, nobody starves at the edge, a restart forgets nothing, a raise goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from team.clients import Outcome
from team.config import Budget, Settings, UserSettings
from team.gateway import counting
from team.gateway.books import LOST
from team.gateway.budget import Accounts, Amount, Busy, Spent, Who
from team.gateway.gateway import Gateway
from team.gateway.prices import usd
from team.ledger import Kind, Ledger
from team.rehearsal.model import ScriptedModel
from team.rehearsal.script import Fixed, Step
from tests.gateway.conftest import PRICED, Make, Seat, World, message

SCRIPT = Fixed([Step("All is done. " * 20)])
FIXED = {"input_tokens": 1000, "output_tokens": 50, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}


class Fake:
    """A provider that bills every request the same, whatever was in it."""

    def __init__(self, usage: dict[str, int], seconds: float = 0.01, counts: int | None = None) -> None:
        self.usage, self.seconds, self.counts = usage, seconds, counts
        self.requests = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if request.path.endswith("count_tokens"):
            if self.counts is None:
                return web.json_response({"type": "error"}, status=404)
            return web.json_response({"input_tokens": self.counts})
        self.requests += 1
        await asyncio.sleep(self.seconds)
        return web.json_response({"type": "message", "content": [], "usage": self.usage})


def cost_of(usage: dict[str, int]) -> float:
    """Dollars."""
    i, o, w, r = (usage[k] for k in FIXED)
    return (i * 3 + o * 15 + w * 3.75 + r * 0.3) / 1e6


async def loop_until_refused(seat: Seat, body: dict[str, Any]) -> dict[str, Any]:
    while True:
        status, said = await seat.ask(body)
        if status != 200:
            assert status == 403, said
            return said


def check_at_rest(made: World) -> None:
    accounts = made.gateway.books.accounts
    assert accounts.reserved() == Amount() and accounts.waiting() == 0


@pytest.mark.parametrize(
    ("usage", "counts"), [(FIXED, None), (FIXED, 25), (dict.fromkeys(FIXED, 40) | {"output_tokens": 64}, 60)]
)
async def test_16_loops_with_a_budget_for_20_and_a_half(world: Make, usage: dict[str, int], counts: int | None) -> None:
    fake = Fake(usage, counts=counts)
    one = cost_of(usage)
    made = await world(fake.answer, seats=16, budget={"usd": 20.5 * one})
    said = await asyncio.gather(*(loop_until_refused(s, message()) for s in made.seats))
    assert 19 <= fake.requests <= 20
    assert all(s["error"]["type"] == "team_budget" and "team_budget" in s["error"]["message"] for s in said)
    assert all(s.ended[0][0] is Outcome.OUT_OF_BUDGET for s in made.seats)
    spent = made.gateway.books.accounts.spent()
    assert usd(spent.pico) == pytest.approx(fake.requests * one) and usd(spent.pico) <= 20.5 * one
    check_at_rest(made)
    assert "budget of the team" in made.gateway.exhausted("agent-01", "worker")
    before = fake.requests
    made.gateway.set_budget(Budget(usd=30 * one))
    assert made.gateway.exhausted("agent-01", "worker") == ""
    assert (await made.seat.ask())[0] == 200 and fake.requests == before + 1


@pytest.mark.parametrize("counts", [True, False], ids=["it-can-count", "it-cannot-count"])
async def test_the_scripted_model_at_the_edge(world: Make, monkeypatch: pytest.MonkeyPatch, counts: bool) -> None:
    if not counts:
        monkeypatch.setattr(counting, "_AT", {})
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url, seats=16, budget={"usd": 1.0})
        await made.seat.ask(message("x" * 4000, max_tokens=32_000))
        one = usd(made.gateway.books.accounts.spent().pico)
        made.gateway.set_budget(Budget(usd=20.5 * one))
        bodies = [message("x" * 4000 + f" {s.caller.agent}", max_tokens=32_000) for s in made.seats]
        await asyncio.gather(*(loop_until_refused(s, b) for s, b in zip(made.seats, bodies, strict=True)))
        assert 19 <= model.totals.answered <= 20
        assert usd(made.gateway.books.accounts.spent().pico) <= 20.5 * one
        check_at_rest(made)


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        ({"session": {"tokens": 9000}}, "session agent-01.1"),
        ({"agent": {"tokens": 9000}}, "agent agent-01"),
        ({"roles": {"worker": {"tokens": 9000}}}, "role worker"),
        ({"day": {"tokens": 9000}}, "the day"),
        ({"tokens": 9000}, "the team"),
    ],
)
async def test_every_kind_of_limit(world: Make, budget: dict[str, Any], name: str) -> None:
    fake = Fake(FIXED)
    made = await world(fake.answer, seats=2, budget=budget, roles=("worker", "review"))
    said = await loop_until_refused(made.seat, message())
    assert name in said["error"]["message"] and fake.requests == 2
    others_too = name in ("the day", "the team")
    assert (await made.seats[1].ask())[0] == (403 if others_too else 200)


async def test_the_smaller_budget_wins(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    user = UserSettings.model_validate({"budget": {"usd": 5, "day": {"tokens": 10}}})
    gateway = Gateway(ledger, Settings.model_validate({"budget": {"usd": 50, "tokens": 7}}), user)
    assert (gateway.budget.usd, gateway.budget.tokens, gateway.budget.day.tokens) == (5, 7, 10)
    gateway.set_budget(Budget(usd=3))
    assert gateway.budget.usd == 3
    ledger.close()


async def test_a_model_without_a_price_is_refused_under_a_budget_in_dollars_alone(world: Make) -> None:
    fake = Fake(FIXED)
    made = await world(fake.answer, budget={"tokens": 10**9})
    assert (await made.seat.ask({**message(), "model": "other"}))[0] == 200
    made.gateway.set_budget(Budget(usd=1))
    status, said = await made.seat.ask({**message(), "model": "other"})
    assert status == 403 and "gateway.prices" in said["error"]["message"] and fake.requests == 1
    assert made.calls()[0].data["input"] == 1000 and made.calls()[0].data["cost"] == 0


async def test_a_restart_remembers_and_books_what_was_under_way_as_reserved(tmp_path: Path, world: Make) -> None:
    fake = Fake(FIXED)
    made = await world(fake.answer, budget={"usd": 1})
    await made.seat.ask()
    told = {"call": "lost", "role": "worker", "day": "2026-01-01", "path": "/v1/messages", "model": "scripted"}
    made.ledger.append(
        Kind.MODEL_RESERVED, agent="agent-01", session="agent-01.1", input=100, output=64, cost=0.25, **told
    )
    async with Gateway(made.ledger, Settings(), UserSettings.model_validate({"gateway": PRICED})) as again:
        spent = again.books.accounts.spent()
        assert usd(spent.pico) == pytest.approx(0.25 + cost_of(FIXED)) and spent.tokens == 164 + 4250
        assert usd(again.books.accounts.spent(("day", "2026-01-01")).pico) == 0.25
    lost = made.calls()[-1]
    assert lost.data["error"] == LOST and lost.data["unknown"] is True and lost.data["booked"] == 0.25
    async with Gateway(made.ledger, Settings(), UserSettings()) as third:
        assert third.books.accounts.spent() == spent


async def test_an_answer_at_the_edge_is_shortened_rather_than_refused(world: Make) -> None:
    seen: list[int] = []

    async def provider(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.path.endswith("count_tokens"):
            return web.json_response({"input_tokens": 20})
        seen.append(body["max_tokens"])
        usage = {"input_tokens": 20, "output_tokens": min(400, body["max_tokens"])}
        return web.json_response({"type": "message", "usage": usage})

    made = await world(provider, budget={"usd": 0.05})  # 32,000 tokens would cost 0.48
    for _ in range(3):
        assert (await made.seat.ask(message(max_tokens=32_000)))[0] == 200
    assert all(400 <= n < 3400 for n in seen)


async def test_where_a_provider_cannot_count_a_dense_request_does_not_pass_the_limit(world: Make) -> None:
    """What was seen so far tells nothing: text of four bytes a token, then one where each byte is a token."""

    async def provider(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("count_tokens"):
            return web.json_response({}, status=404)
        body = await request.json()
        text = body["messages"][0]["content"]
        tokens = len(text) if text.isdigit() else len(text) // 4
        usage = {"input_tokens": 0, "output_tokens": 1, "cache_creation_input_tokens": tokens}
        return web.json_response({"type": "message", "usage": usage})

    made = await world(provider, budget={"usd": 0.2})
    for _ in range(10):
        assert (await made.seat.ask(message("word " * 1600)))[0] == 200
    left = 0.2 - usd(made.gateway.books.accounts.spent().pico)
    assert 10_000 * 3.75e-6 * 1.25 < left < 40_000 * 3.75e-6  # by what was seen it would fit
    assert (await made.seat.ask(message("7" * 40_000)))[0] == 403
    assert (await made.seat.ask(message("word " * 1600)))[0] == 200
    assert usd(made.gateway.books.accounts.spent().pico) <= 0.2
    check_at_rest(made)


async def test_many_at_once_get_shorter_answers_rather_than_wait_for_each_other(world: Make) -> None:
    fake, together = Fake(FIXED), asyncio.Barrier(12)

    async def provider(request: web.Request) -> web.StreamResponse:
        if fake.requests >= 8:  # answered when all are here, and not one after another
            async with asyncio.timeout(30):
                await together.wait()
        return await fake.answer(request)

    made = await world(provider, seats=12)
    body = message(max_tokens=128_000)  # would cost 1.92
    for _ in range(8):
        await made.seat.ask(message())
    made.gateway.set_budget(Budget(usd=2.0))
    assert [status for status, _ in await asyncio.gather(*(s.ask(body) for s in made.seats))] == [200] * 12
    assert usd(made.gateway.books.accounts.spent().pico) <= 2.0
    check_at_rest(made)


async def test_who_waits_too_long_gets_an_answer_that_is_tried_again(world: Make) -> None:
    fake = Fake(FIXED, seconds=1.0)
    made = await world(fake.answer, seats=2, budget={"usd": 0.03}, gateway={"patience": 0.2})
    body = message(max_tokens=1500)
    first = asyncio.create_task(made.seats[0].ask(body))
    await asyncio.sleep(0.1)
    assert (await made.seats[1].ask(body))[0] == 429 and made.seats[1].ended == []
    assert (await first)[0] == 200
    check_at_rest(made)


requests = st.lists(
    st.tuples(
        st.integers(0, 3),  # session
        st.integers(1, 60),  # worst case
        st.floats(0, 1),  # how much of it is really spent
        st.floats(0, 0.01),  # when it asks
        st.floats(0, 0.01),  # how long it takes
        st.booleans(),  # whether its client is killed while it waits
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests, st.integers(0, 300), st.integers(0, 120))
def test_no_interleaving_passes_a_limit(
    plan: list[tuple[int, int, float, float, float, bool]], team: int, own: int
) -> None:
    asyncio.run(_interleave(plan, team, own))


async def _interleave(plan: list[tuple[int, int, float, float, float, bool]], team: int, own: int) -> None:
    limits = Budget.model_validate({"tokens": team, "session": {"tokens": own}})
    accounts = Accounts(limits, lambda: "today")

    def check() -> None:
        for scope, most in [(("team", ""), team), *((("session", f"s{n}"), own) for n in range(4))]:
            assert (accounts.spent(scope) + accounts.reserved(scope)).tokens <= most

    async def request(n: int, worst: int, share: float, at: float, takes: float) -> None:
        await asyncio.sleep(at)

        async def tighten(room: Amount) -> Amount | None:
            await asyncio.sleep(0.001)
            return Amount(0, room.tokens) if room.tokens > worst // 2 else None

        try:
            got = await accounts.reserve(Who(f"a{n}", "worker", f"s{n}"), Amount(0, worst), Amount(), tighten, 5)
        except Spent:
            return
        check()
        try:
            await asyncio.sleep(takes)
        finally:
            accounts.settle(got, Amount(0, int(got.worst.tokens * share)))
            check()

    tasks = [asyncio.create_task(request(n, worst, share, at, takes)) for n, worst, share, at, takes, _ in plan]
    for task, (*_, at, _takes, killed) in zip(tasks, plan, strict=True):
        if killed:
            asyncio.get_running_loop().call_later(at + 0.002, task.cancel)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert result is None or isinstance(result, asyncio.CancelledError), result
    assert accounts.waiting() == 0
    for n in range(4):
        assert accounts.reserved(("session", f"s{n}")) == Amount()
    assert accounts.reserved() == Amount()
    check()


async def test_a_new_day_has_a_budget_of_its_own() -> None:
    today = "2026-01-01"
    who, tokens = Who("a", "worker", "a.1"), Amount(0, 60)
    accounts = Accounts(Budget.model_validate({"day": {"tokens": 100}}), lambda: today)

    async def never(room: Amount) -> Amount | None:
        return None

    late = await accounts.reserve(who, tokens, tokens, never, 1)
    accounts.book(who, today, Amount(0, 40))
    with pytest.raises(Busy, match="the day 2026-01-01"):
        await accounts.reserve(who, tokens, tokens, never, 0.01)
    today = "2026-01-02"
    assert accounts.exhausted(who) == ""
    accounts.settle(late, tokens)  # begun yesterday, and yesterday's
    assert (accounts.spent(("day", "2026-01-01")).tokens, accounts.spent(("day", today)).tokens) == (100, 0)
    accounts.settle(await accounts.reserve(who, tokens, tokens, never, 1), tokens)
    assert accounts.reserved() == Amount() and accounts.spent(("day", today)).tokens == 60


async def test_first_come_first_served_even_for_a_large_request() -> None:
    accounts = Accounts(Budget(tokens=100), lambda: "today")
    order: list[str] = []

    async def never(room: Amount) -> Amount | None:
        return None

    async def ask(name: str, worst: int) -> None:
        got = await accounts.reserve(Who(name, "worker", name), Amount(0, worst), Amount(), never, 5)
        order.append(name)
        await asyncio.sleep(0.01)
        accounts.settle(got, Amount())

    await asyncio.gather(ask("first", 60), ask("large", 90), *(ask(f"small-{n}", 20) for n in range(5)))
    assert order[:2] == ["first", "large"] and len(order) == 7
    with pytest.raises(Spent):
        await accounts.reserve(Who("a", "b", "c"), Amount(0, 101), Amount(), never, 5)
    held = await accounts.reserve(Who("a", "b", "c"), Amount(0, 100), Amount(), never, 5)
    with pytest.raises(Busy):
        await accounts.reserve(Who("a", "b", "c"), Amount(0, 1), Amount(), never, 0.01)
    accounts.settle(held, Amount())


async def test_an_hour_in_the_cache_is_priced_however_it_is_spelt(world: Make) -> None:
    usage = dict.fromkeys(FIXED, 0) | {"output_tokens": 1, "cache_creation_input_tokens": 10_000}
    fake = Fake({**usage, "cache_creation": {"ephemeral_1h_input_tokens": 10_000}}, counts=10_000)  # type: ignore[dict-item]
    made = await world(fake.answer, budget={"usd": 0.05})
    body = message("word " * 8000, max_tokens=16, cache_control={"type": "ephemeral", "ttl": "1h"})
    status, _ = await made.seat.ask(json.dumps(body).replace('"1h"', '"\\u0031\\u0068"').encode())
    assert status == 403 and not fake.requests


async def test_one_absurd_request_does_not_end_the_team(world: Make) -> None:
    fake = Fake(FIXED, counts=10)
    made = await world(fake.answer, seats=2, budget={"usd": 10})
    assert (await made.seats[1].ask())[0] == 200
    thinking = {"type": "enabled", "budget_tokens": 10**9 - 1}
    assert (await made.seat.ask(message(max_tokens=10**9, thinking=thinking)))[0] == 403
    assert made.seat.ended and not made.gateway.exhausted("agent-02", "worker")
    assert (await made.seats[1].ask())[0] == 200


async def test_a_mark_of_too_little_goes_when_something_fits(world: Make) -> None:
    fake = Fake(FIXED)
    made = await world(fake.answer, seats=2, budget={"usd": 3})
    assert (await made.seat.ask(message("x" * (2 << 20))))[0] == 403  # before anything was seen
    assert made.gateway.exhausted("agent-02", "worker")
    assert (await made.seats[1].ask())[0] == 200
    assert not made.gateway.exhausted("agent-02", "worker")


@pytest.mark.parametrize("bounds", [{"max_tokens": 100_000, "max_completion_tokens": 1}, {"max_tokens": 0}])
async def test_chat_has_one_bound_of_its_answer(world: Make, bounds: dict[str, int]) -> None:
    fake = Fake(FIXED)
    made = await world(fake.answer, budget={"usd": 10})
    status, said = await made.seat.ask({"model": "gpt-5", "messages": [], **bounds}, "/v1/chat/completions")
    assert status == 400, said
    assert not fake.requests
