"""What ``team cost`` counts, from ledgers as the gateway writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from team import cost, usage_export
from team.cost import money, short
from team.errors import TeamError
from team.gateway.prices import usd
from team.ledger import Kind, Ledger

NOON = 1_792_152_000.0  # 2026-10-16 12:00 UTC
MODEL = "claude-sonnet-5"


class Book:
    """A ledger in which the test is the gateway and upstream."""

    def __init__(self, path: Path) -> None:
        self.now = NOON
        self.ledger = Ledger(path, clock=lambda: self.now)
        self._n = 0

    def call(
        self, agent: str = "agent-01", task: str | None = None, role: str = "worker", n: int = 1, **data: Any
    ) -> None:
        self._n += 1
        who: dict[str, Any] = {"agent": agent, "session": f"{agent}.{n}", "task": task}
        facts: dict[str, Any] = {
            "call": self._n,
            "role": role,
            "model": MODEL,
            "cost": 0.01,
            "billed": True,
            "status": 200,
        }
        self.ledger.append(Kind.MODEL_RESERVED, **who, **{**facts, "cost": 0.5})
        self.ledger.append(Kind.MODEL_CALL, **who, **{**facts, "input": 10, "output": 5, **data})

    def reserve(self, agent: str = "agent-01", cost: float = 0.5) -> None:
        self._n += 1
        facts: dict[str, Any] = {"call": self._n, "role": "worker", "model": MODEL, "cost": cost, "billed": True}
        self.ledger.append(Kind.MODEL_RESERVED, agent=agent, session=f"{agent}.1", **facts)

    def claim(self, task: str, session: str) -> None:
        self.ledger.append(Kind.CLAIM, agent=session.split(".")[0], session=session, task=task)

    def land(self, session: str | None, kind: str = "work", **data: Any) -> None:
        self.ledger.append(Kind.LANDING_DONE, session=session, kind=kind, **data)

    def release(self, task: str, session: str, pushed: str | None = "abc") -> None:
        self.ledger.append(Kind.RELEASE, session=session, task=task, pushed=pushed)

    def report(self, by: str = "agent", *, running: bool = False) -> cost.Report:
        return cost.report(self.ledger.events(*cost.KINDS), by, running=running)

    def calls(self) -> list[cost.Call]:
        return list(cost.calls(self.ledger.events(*cost.KINDS), running=False))


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "ledger.db")
    yield book
    book.ledger.close()


def test_calls_are_added_up_by_what_was_asked_for(book: Book) -> None:
    book.call("agent-01", "parser", input=100, output=10, cache_write=7, cache_read=3, cost=0.1)
    book.call("agent-01", "parser", input=1, output=1, cost=0.2)
    book.call("review-01", role="review", model="claude-opus-5", cost=0.4)
    by_agent = book.report()
    assert list(by_agent.rows) == ["review-01", "agent-01"]  # the dearest first
    first = by_agent.rows["agent-01"]
    assert first.tokens == {"input": 101, "output": 11, "cache_write": 7, "cache_read": 3}
    assert (first.calls, first.all_tokens, usd(first.cost)) == (2, 122, 0.3)
    assert usd(by_agent.total.cost) == 0.7  # exact: no float drift
    assert set(book.report("role").rows) == {"worker", "review"}
    assert set(book.report("task").rows) == {"parser", "(no task)"}
    assert set(book.report("model").rows) == {MODEL, "claude-opus-5"}
    assert set(book.report("session").rows) == {"agent-01.1", "review-01.1"}
    assert len(book.report("day").rows) == 1


def test_billed_and_list_price_are_kept_apart(book: Book) -> None:
    book.call(cost=0.25)
    book.call(cost=0.75, billed=False)
    total = book.report().total
    assert (usd(total.billed), usd(total.unbilled)) == (0.25, 0.75)


def test_a_call_that_broke_off_is_booked_as_reserved_and_said_so(book: Book) -> None:
    book.call(cost=0.02, booked=0.5, unknown=True, error="the client went away")
    total = book.report().total
    assert (total.unknown, usd(total.cost), usd(total.unknown_most), total.failed) == (1, 0.02, 0.48, 1)


def test_a_call_that_was_under_way_when_the_gateway_was_killed(book: Book) -> None:
    """The next gateway settles it with what was reserved; no provider ever told those tokens."""
    book.call(status=0, unknown=True, input=5000, output=900, cost=0.5, booked=0.5, error="the gateway ended")
    total = book.report().total
    assert (total.unknown, total.all_tokens, total.cost, usd(total.unknown_most)) == (1, 0, 0, 0.5)


def test_a_reservation_that_was_never_settled(book: Book) -> None:
    book.ledger.append(Kind.TEAM_STARTED, pid=1)
    book.reserve(cost=0.5)
    under_way = book.report(running=True).total
    assert (under_way.running, usd(under_way.reserved), under_way.unknown) == (1, 0.5, 0)
    book.ledger.append(Kind.TEAM_STARTED, pid=2)  # its gateway was killed: nobody knows any more
    lost = book.report(running=True).total
    assert (lost.running, lost.unknown, usd(lost.unknown_most), lost.calls) == (0, 1, 0.5, 1)
    assert book.report(running=False).total.unknown == 1


def test_tries_and_first_tries(book: Book) -> None:
    # Finished by its first session, in one landing that also took and gave back the lock.
    book.land("agent-01.1", claims=["one"])
    book.claim("one", "agent-01.1")
    book.release("one", "agent-01.1")
    # The first session dies after it landed something; the second one finishes.
    book.claim("two", "agent-02.1")
    book.land("agent-02.1")
    book.ledger.append(Kind.SESSION_ENDING, session="agent-02.1", outcome="crashed")
    book.release("two", "agent-02.1", pushed=None)
    book.claim("two", "agent-03.1")
    book.land("agent-03.1")
    book.land("agent-03.1", kind="release")
    book.release("two", "agent-03.1")
    # Given back without work: not finished.
    book.claim("three", "agent-01.2")
    book.release("three", "agent-01.2")
    # The session ended as done with its lock still there.
    book.claim("four", "agent-04.1")
    book.land("agent-04.1")
    book.ledger.append(Kind.SESSION_ENDING, session="agent-04.1", outcome="done")
    book.release("four", "agent-04.1", pushed=None)
    book.land(None)  # the person's own
    work = book.report().work
    assert (work.landed, dict(work.tries)) == (4, {"one": 1, "two": 2, "four": 1})
    assert work.first_try_rate == pytest.approx(2 / 3)
    assert work.tries_per_task == pytest.approx(4 / 3)


def test_a_task_that_is_claimed_again_after_it_was_finished_begins_anew(book: Book) -> None:
    for n in (1, 2):
        book.claim("weekly", f"agent-0{n}.1")
        book.land(f"agent-0{n}.1")
        book.release("weekly", f"agent-0{n}.1")
    assert book.report().work.tries == [("weekly", 1), ("weekly", 1)]


def test_what_the_money_bought(book: Book) -> None:
    book.call(task="one", input=900, output=100, cost=0.3)
    book.call(input=1000, output=0, cost=0.1)
    book.claim("one", "agent-01.1")
    book.land("agent-01.1")
    book.land("agent-01.1")
    book.release("one", "agent-01.1")
    made = book.report()
    assert (made.tokens_per_landed, made.cost_per_task, made.tokens_per_task) == (1000, 300_000_000_000, 1000)
    document = cost.as_json(made)
    assert (document["landed_commits"], document["cost_per_task_usd"], document["first_try_rate"]) == (2, 0.3, 1.0)
    assert document["rows"][0]["agent"] == "agent-01"


def test_nothing_yet(book: Book) -> None:
    made = book.report()
    assert (made.rows, made.tokens_per_landed, made.cost_per_task, made.work.first_try_rate) == ({}, None, None, None)


def test_what_an_agent_may_have_written_is_cleaned(book: Book) -> None:
    book.call(task="x\x1b[2J", model="m\u202ename\x07")
    assert list(book.report("model").rows) == ["mname"] and list(book.report("task").rows) == ["x"]


def test_old_calls_without_tokens_count_as_calls(book: Book) -> None:
    book.ledger.append(Kind.MODEL_CALL, agent="agent-01", path="/v1/messages", model=MODEL, status=529, bytes=3)
    total = book.report().total
    assert (total.calls, total.failed, total.all_tokens, total.cost) == (1, 1, 0, 0)


def test_numbers_for_people() -> None:
    assert [short(n) for n in (0, 950, 1234, 99_960, 999_600, 1_234_567, 4.56e9)] == [
        "0", "950", "1.23k", "100k", "1M", "1.23M", "4.56G",
    ]  # fmt: skip
    assert [money(round(d * 10**12)) for d in (0, 0.0042, 0.5, 12.345, 1234.5)] == [
        "$0", "$0.0042", "$0.50", "$12.35", "$1,234.50",
    ]  # fmt: skip


# -- beside a provider's export ------------------------------------------------------------------------------------


def differences(book: Book, path: Path) -> dict[tuple[str, str, str], int]:
    found = usage_export.compare(usage_export.read(path), book.calls())
    return {(line.day, line.model, line.field): line.difference for line in found.differences}


def written(tmp_path: Path, text: str, name: str = "usage.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_an_export_as_csv(book: Book, tmp_path: Path) -> None:
    book.call(input=100, output=10, cache_write=7, cache_read=3)
    book.call(input=1, output=1)
    book.now += 86400
    book.call(input=5, output=5, model="gpt-5.5")
    path = written(
        tmp_path,
        "date,model,input,output,cache_write,cache_read\n"
        f"2026-10-16,{MODEL}-20260901,101,11,7,3\n2026-10-17,gpt-5.5,5,6,0,0\n\n",
    )
    assert differences(book, path) == {("2026-10-17", "gpt-5.5", "output"): 1}


def test_the_csv_of_the_anthropic_console(book: Book, tmp_path: Path) -> None:
    book.call(input=100, output=10, cache_write=7, cache_read=3)
    path = written(
        tmp_path,
        "usage_date_utc,model_version,api_key,workspace,usage_type,context_window,usage_input_tokens_no_cache,"
        "usage_input_tokens_cache_write_5m,usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,"
        "usage_output_tokens,web_search_count,inference_geo,speed\n"
        f"2026-10-16,{MODEL}-20260901,team,Default,standard,≤ 200k,60,4,2,3,10,0,global,standard\n"
        f"2026-10-16,{MODEL}-20260901,team,Default,standard,> 200k,40,1,0,0,0,0,global,standard\n",
    )
    assert differences(book, path) == {}


def test_the_json_of_the_usage_reports(book: Book, tmp_path: Path) -> None:
    book.call(input=100, output=10, cache_write=7, cache_read=3)
    book.call(input=15, output=5, cache_write=5, cache_read=80, model="gpt-5.5")
    anthropic = {
        "data": [
            {
                "starting_at": "2026-10-16T00:00:00Z",
                "ending_at": "2026-10-17T00:00:00Z",
                "results": [
                    {
                        "model": MODEL,
                        "uncached_input_tokens": 100,
                        "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 1},
                        "cache_read_input_tokens": 3,
                        "output_tokens": 11,
                        "server_tool_use": {"web_search_requests": 0},
                    }
                ],
            },
            {"starting_at": "2026-10-17T00:00:00Z", "results": []},
        ],
        "has_more": False,
    }
    path = written(tmp_path, json.dumps(anthropic), "usage.json")
    found = differences(book, path)
    assert found.pop(("2026-10-16", MODEL, "output")) == 1
    assert set(found) == {("2026-10-16", "gpt-5.5", f) for f in cost.TOKENS}
    result = {"model": "gpt-5.5-2026-03-05", "input_tokens": 100, "input_cached_tokens": 80, "output_tokens": 5}
    openai = {"data": [{"start_time": int(NOON) - 43200, "end_time": int(NOON) + 43200, "results": [result]}]}
    path = written(tmp_path, json.dumps(openai), "usage.json")
    assert {key[1] for key in differences(book, path)} == {MODEL}


def test_a_file_without_days_or_models_is_compared_as_a_whole(book: Book, tmp_path: Path) -> None:
    book.call(input=100, output=10)
    book.now += 86400
    book.call(input=1, output=1)
    assert differences(book, written(tmp_path, '{"input_tokens": 101, "output_tokens": 11}', "u.json")) == {}
    lines = f'{{"model": "{MODEL}", "input": 60}}\n{{"model": "{MODEL}", "input": 40}}\n'
    assert differences(book, written(tmp_path, lines, "u.jsonl")) == {("(all)", MODEL, "input"): -1}


def test_days_that_the_file_does_not_cover_and_calls_without_an_end(book: Book, tmp_path: Path) -> None:
    book.call(input=100, output=10, unknown=True)
    book.now += 86400
    book.call(input=1, output=1)
    path = written(tmp_path, f"date;model;input;output\n16.10.2026;{MODEL};100;10\n")
    with pytest.raises(TeamError, match=r"usage\.csv:2: expected a date like 2026-10-16; it is '16\.10\.2026'"):
        usage_export.read(path)
    path = written(tmp_path, f"date;model;input;output\n2026-10-16T23:30:00-00:00;{MODEL};100;10\n")
    found = usage_export.compare(usage_export.read(path), book.calls())
    assert (found.differences, found.calls, found.unknown, found.elsewhere) == ([], 1, 1, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no column with tokens"),
        ("a,b\n1,2\n", "no column with tokens .*; it has a, b"),
        ("model,input\nm,12x\n", r"usage\.csv:2: input: expected a whole number; it is '12x'"),
        ("{", "neither JSON nor CSV"),
        ("[" * 100_000, "neither JSON nor CSV|nested too deeply"),
    ],
)
def test_what_is_no_export_is_refused_with_the_mend(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(TeamError, match=complaint):
        usage_export.read(written(tmp_path, text))
    with pytest.raises(TeamError, match="cannot be read"):
        usage_export.read(tmp_path / "missing.csv")
