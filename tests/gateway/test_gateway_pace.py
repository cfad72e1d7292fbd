"""Limits of the provider, refused keys, and sessions that go round in circles."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from team.clients import Outcome
from team.config import Breaker as BreakerSettings
from team.config import Budget
from team.gateway import reset
from team.gateway.breaker import Breaker, Broken, repeated
from team.gateway.pace import Pace, TooLong
from team.ledger import Kind
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import Fixed, Step
from tests.gateway.conftest import Make, message

SCRIPT = Fixed([Step("Done.")])


class Moody:
    """A provider that answers with ``moods``, one after another, then well."""

    def __init__(self, *moods: tuple[int, dict[str, str], str]) -> None:
        self.moods = deque(moods)
        self.seen: list[tuple[float, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("tokens"):  # it cannot count
            return web.json_response({}, status=404)
        self.seen.append((time.time(), request.headers.get("x-api-key", "")))
        if self.moods:
            status, headers, text = self.moods.popleft()
            return web.json_response(
                {"type": "error", "error": {"type": "e", "message": text}}, status=status, headers=headers
            )
        return web.json_response({"type": "message", "usage": {"input_tokens": 1, "output_tokens": 1}})


async def test_after_a_429_the_whole_fleet_waits_and_nobody_notices(world: Make) -> None:
    moody = Moody((429, {"retry-after": "1"}, "slow down"))
    made = await world(moody.answer, seats=4)
    held = asyncio.Event()
    made.seat.caller.say = lambda text: held.set()
    first = asyncio.create_task(made.seat.ask())
    await asyncio.wait_for(held.wait(), 30)
    answers = await asyncio.gather(first, *(s.ask() for s in made.seats for _ in range(3)))
    assert [status for status, _ in answers] == [200] * 13
    assert len(moody.seen) == 14, "whoever waits asks once"
    (paused,) = (event.data for event in made.ledger.events(Kind.MODEL_PAUSED))
    assert min(at for at, _ in moody.seen[1:]) >= paused["until"] - 0.05
    assert all(s.ended == [] for s in made.seats)
    assert 0 < paused["seconds"] <= 1 and "429" in paused["reason"]
    assert made.gateway.books.accounts.reserved().tokens == 0


async def test_529_for_a_while_then_recovery(world: Make) -> None:
    model = ScriptedModel(SCRIPT, fault=Fault("529", seconds=1.5))
    async with model.running() as url:
        made = await world(url)
        assert (await made.seat.ask())[0] == 200
        assert 1 <= model.statuses[529] <= 3


async def test_a_pause_longer_than_patience_is_a_retryable_answer(world: Make) -> None:
    moody = Moody((429, {"retry-after": "30"}, "slow down"))
    made = await world(moody.answer, gateway={"patience": 0.3})
    for _ in range(2):
        async with made.seat.http.post(made.seat.url + "/v1/messages", json=message()) as answer:
            assert answer.status == 429 and int(answer.headers["retry-after"]) <= 30
        assert made.gateway.paused_until(), "it was answered only when the pause was over"
    assert len(moody.seen) == 1 and made.seat.ended == []


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_for_openais_clients_not_now_is_503_and_no_is_400(world: Make, path: str) -> None:
    """Codex never asks again after a 429, and six times after a 403."""
    moody = Moody((429, {"retry-after": "30"}, "slow down"))
    made = await world(moody.answer, gateway={"patience": 0.3}, budget={"tokens": 0})
    body = {"model": "scripted", "input": "hi", "messages": []}
    body.pop("messages" if "responses" in path else "input")
    status, said = await made.seat.ask(body, path)
    assert status == 400 and said["error"]["code"] == "team_budget"
    assert made.seat.ended[0][0] is Outcome.OUT_OF_BUDGET
    made.gateway.set_budget(Budget())
    async with made.seat.http.post(made.seat.url + path, json=body) as answer:
        error = (await answer.json())["error"]
        assert answer.status == 503 and int(answer.headers["retry-after"]) <= 30
        assert error["code"] == "rate_limit_error" and "holds until" in error["message"]


async def test_a_pause_of_hours_ends_the_session_without_a_strike(world: Make) -> None:
    moody = Moody((429, {}, f"usage limit reached|{int(time.time()) + 7200}"))
    made = await world(moody.answer)
    assert (await made.seat.ask())[0] == 429
    outcome, reason = made.seat.ended[0]
    assert outcome is Outcome.RATE_LIMITED and not outcome.strike and "holds until" in reason
    assert made.gateway.paused_until() == pytest.approx(time.time() + 7200, abs=5)


@pytest.mark.parametrize(
    ("headers", "message", "wait"),
    [
        ({"retry-after": "7"}, "", 7),
        ({"retry-after-ms": "250"}, "", 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:10:00 GMT"}, "", 600),
        ({"anthropic-ratelimit-unified-reset": "90"}, "", 90),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "1970-01-01T00:01:00Z",
                "anthropic-ratelimit-requests-remaining": "9",
                "anthropic-ratelimit-requests-reset": "1970-01-01T09:00:00Z",
            },
            "",
            60,
        ),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({}, "Please try again in 20.5s.", 20.5),
        ({}, "try again in 1 hour and 5 minutes", 3900),
        ({}, "limit reached|1000000000", None),
        ({}, "your limit resets 3am (UTC)", 3 * 3600),
        ({}, "resets at 2:30 AM UTC", 2.5 * 3600),
        ({}, "until 1970-01-01T00:00:30Z", 30),
        ({}, "slow down", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "1e30"}, "", None),
    ],
)
def test_when_to_ask_again(headers: dict[str, str], message: str, wait: float | None) -> None:
    assert reset.seconds(headers, message, 0.0) == wait


async def test_recovery_is_gradual_and_in_order(tmp_path: Path) -> None:
    pace = Pace(tmp_path / "k.json")
    pace.hold(0.5, "429")
    running, most, order = 0, [], []

    async def one(n: int) -> None:
        nonlocal running
        async with pace.turn(5, 60):
            running += 1
            most.append(running)
            order.append(n)
            await asyncio.sleep(0.01)
            running -= 1
            pace.worked()

    await asyncio.gather(*(one(n) for n in range(20)))
    assert most[0] == 1 and order == list(range(20)) and 2 <= max(most) <= 16


async def test_projects_on_one_machine_share_the_pause(tmp_path: Path) -> None:
    one, other = Pace(tmp_path / "k.json"), Pace(tmp_path / "k.json")
    assert other.left() == 0
    one.hold(30, "429")
    assert 29 < other.left() <= 30
    with pytest.raises(TooLong):
        async with other.turn(0.05, 60):
            pass
    assert other.waiting() == 0


def test_backing_off_when_nobody_says_how_long(tmp_path: Path) -> None:
    now = 1000.0
    pace = Pace(tmp_path / "k.json", lambda: now)
    waits = []
    for _ in range(8):
        waits.append(pace.hold(None, "529").until - now)
        assert pace.hold(None, "529").until - now == waits[-1]  # others that were under way
        now += waits[-1]
    assert waits == [2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_refused_stops_the_team(world: Make, status: int) -> None:
    model = ScriptedModel(SCRIPT, fault=Fault(str(status)))
    async with model.running() as url:
        made = await world(url, seats=3)
        answers = await asyncio.gather(*(s.ask() for s in made.seats))
        assert all(got == status for got, _ in answers) and model.statuses[status] <= 6
        assert sum(len(s.stopped) for s in made.seats) == 1
        assert f"refuses the key ({status})" in next(r for s in made.seats for r in s.stopped)
        before = model.statuses[status]
        assert (await made.seat.ask())[0] == 403 and model.statuses[status] == before


async def test_a_single_forbidden_request_does_not_stop_the_team(world: Make) -> None:
    moody = Moody()
    made = await world(moody.answer)
    await made.seat.ask()
    moody.moods.extend([(403, {}, "not this model")] * 2)
    assert (await made.seat.ask())[0] == 403 and made.seat.stopped == []
    assert (await made.seat.ask())[0] == 200


async def test_a_command_gives_the_key_and_a_new_one_when_it_is_refused(world: Make, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.write_text(f"#!/bin/sh\necho x >> {tmp_path}/count; echo sk-key-number-$(wc -l < {tmp_path}/count)\n")
    vault.chmod(vault.stat().st_mode | stat.S_IXUSR)
    moody = Moody()
    made = await world(moody.answer, key=None, gateway={"key_command": [str(vault)]})
    await made.seat.ask()
    moody.moods.append((401, {}, "expired"))
    assert (await made.seat.ask())[0] == 200
    assert [key for _, key in moody.seen] == ["sk-key-number-1", "sk-key-number-1", "sk-key-number-2"]
    assert made.seat.stopped == [] and "sk-key-number" not in json.dumps([e.data for e in made.ledger.events()])


def looped(times: int, command: str = "make") -> dict[str, Any]:
    """A conversation in which the same call was made so many times."""
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": command}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for _ in range(times):
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [{"type": "tool_result"}]}]
    return message() | {"messages": turns}


def test_repeated_calls_in_every_api() -> None:
    assert repeated(looped(4), 9)[1] == 4
    call = {"type": "function_call", "name": "shell", "arguments": "{}"}
    assert repeated({"input": [call, {"type": "function_call_output"}, call]}, 9)[1] == 2
    chat = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    assert repeated({"messages": [chat, chat, {"role": "tool", "content": "x"}]}, 9) == ("f: {}", 2)
    assert repeated({"messages": None}, 9) == ("", 0)


def test_the_breaker_warns_then_ends_but_not_for_polling() -> None:
    breaker = Breaker(BreakerSettings())
    assert breaker.look(looped(2)) == "" and "3 times running" in breaker.look(looped(3))
    assert breaker.look(looped(3)) == ""  # said once
    with pytest.raises(Broken, match="5 times"):
        breaker.look(looped(5))
    assert breaker.look(looped(9, "sleep 5; git pull")) == ""
    for name in ("write_stdin", "wait", "wait_agent"):  # of Codex
        call = {"type": "function_call", "name": name, "arguments": '{"session_id": 1, "chars": ""}'}
        assert breaker.look({"input": [call] * 9}) == ""
    for name in ("BashOutput", "TaskOutput"):  # of Claude Code
        block = {"type": "tool_use", "name": name, "input": {"bash_id": "1"}}
        assert breaker.look({"messages": [{"role": "assistant", "content": [block]}] * 9}) == ""
    few = Breaker(BreakerSettings(turns=2))
    few.look(message())
    few.look(message())
    with pytest.raises(Broken, match="2 model calls"):
        few.look(message())


async def test_a_session_that_goes_round_in_circles_ends_as_failed(world: Make) -> None:
    moody = Moody()
    made = await world(moody.answer)
    for times in range(1, 5):
        assert (await made.seat.ask(looped(times)))[0] == 200
    assert any("round in circles" in line for line in made.seat.log)
    status, said = await made.seat.ask(looped(5))
    assert status == 403 and "make" in said["error"]["message"]
    assert made.seat.ended[0][0] is Outcome.FAILED and len(moody.seen) == 4
