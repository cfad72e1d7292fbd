"""What is shown of the team, from events as the supervisor, the sessions and upstream write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from team.ledger import Event, Kind, Ledger, New
from team.view import View, describe, event_json, follow, seats, span, summary, totals, view


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger.db", clock=clock)
    yield ledger
    ledger.close()


def start(ledger: Ledger, *names: tuple[str, str]) -> None:
    ledger.append(
        Kind.TEAM_STARTED,
        pid=1,
        seats=[list(n) for n in names or [("agent-01", "worker"), ("agent-02", "worker")]],
        client="claude-code",
        model=None,
        runtime="docker",
        image="team-claude-code:1",
        limits={},
    )


def begin(ledger: Ledger, agent: str, n: int) -> str:
    session = f"{agent}.{n}"
    ledger.append(
        Kind.SESSION_STARTING, agent=agent, session=session, n=n, role="worker", base="abc", log=f"/l/{n}.log"
    )
    ledger.append(Kind.SESSION_CREATED, agent=agent, session=session, container="c", name="n")
    ledger.append(Kind.SESSION_RUNNING, agent=agent, session=session, seconds=0.5)
    return session


def land(ledger: Ledger, session: str, kind: str = "work", subject: str = "Fix the parser") -> None:
    data = {"landing": "l1", "old": "0" * 40, "new": "1234567890abcdef", "subject": subject, "kind": kind}
    ledger.append_all([New(Kind.LANDING_DONE, session.rpartition(".")[0], session, None, data)])


def end(ledger: Ledger, session: str, outcome: str = "done", reason: str = "", landings: int = 0) -> None:
    agent = session.rpartition(".")[0]
    ledger.append(Kind.SESSION_ENDING, agent=agent, session=session, outcome=outcome, reason=reason, exit=0)
    ledger.append(
        Kind.SESSION_ENDED,
        agent=agent,
        session=session,
        outcome=outcome,
        reason=reason,
        exit=0,
        landings=landings,
        seconds=61.0,
        rescue="clean",
    )
    ledger.append(Kind.SESSION_REMOVED, agent=agent, session=session)


def claim(ledger: Ledger, session: str, task: str) -> None:
    ledger.append(Kind.CLAIM, agent=session.rpartition(".")[0], session=session, task=task, landing="l1")


def test_a_seat_from_its_start_to_its_next_session(ledger: Ledger, clock: Clock) -> None:
    start(ledger)
    assert [(s.agent, s.state, s.session) for s in seats(ledger)] == [
        ("agent-01", "new", None),
        ("agent-02", "new", None),
    ]
    one = begin(ledger, "agent-01", 1)
    claim(ledger, one, "fix_parser")
    clock.now += 120
    land(ledger, one)
    seat = seats(ledger)[0]
    assert (seat.state, seat.n, seat.tasks, seat.landings) == ("running", 1, ["fix_parser"], 1)
    assert (seat.last_landing, seat.log, seat.since) == (clock.now, "/l/1.log", clock.now - 120)
    ledger.append(Kind.RELEASE, agent="agent-01", session=one, task="fix_parser", why="by agent-01", by="agent-01")
    end(ledger, one, "failed", "it said no")
    seat = seats(ledger)[0]
    assert (seat.state, seat.tasks, seat.outcome, seat.reason) == ("ended", [], "failed", "it said no")
    begin(ledger, "agent-01", 2)
    assert (seats(ledger)[0].state, seats(ledger)[0].n) == ("running", 2)


def test_the_end_of_a_rescued_session_does_not_touch_the_next_one(ledger: Ledger) -> None:
    start(ledger)
    one = begin(ledger, "agent-01", 1)
    ledger.append(Kind.SESSION_ENDING, agent="agent-01", session=one, outcome="done", reason="", exit=0)
    begin(ledger, "agent-01", 2)
    ledger.append(Kind.SESSION_ENDED, agent="agent-01", session=one, outcome="done", landings=0, seconds=1)
    seen = view(ledger)
    assert (seen.seats["agent-01"].state, seen.seats["agent-01"].session) == ("running", "agent-01.2")
    assert set(seen.open) == {one, "agent-01.2"}
    assert seen.totals.outcomes == {"done": 1}


def test_a_waiting_seat_says_until_when_and_why(ledger: Ledger, clock: Clock) -> None:
    start(ledger)
    ledger.append(Kind.SEAT_WAITING, agent="agent-01", seconds=60, reason="landed nothing; waits for main to move")
    seat = seats(ledger)[0]
    assert (seat.state, seat.wait_until) == ("waiting", clock.now + 60)
    assert seat.wait_reason == "landed nothing; waits for main to move"
    begin(ledger, "agent-01", 1)
    assert seats(ledger)[0].wait_until is None
    ledger.append(Kind.SEAT_WAITING, agent="agent-01", seconds=None, reason="out of budget: $1 of $1 spent")
    assert (seats(ledger)[0].state, seats(ledger)[0].wait_until) == ("waiting", None)


def test_a_pause_of_the_provider_and_what_an_idle_team_lacks(ledger: Ledger, clock: Clock) -> None:
    start(ledger)
    ledger.append(Kind.MODEL_PAUSED, seconds=9, until=clock.now + 9, reason="anthropic answered 429: slow down")
    ledger.append(Kind.TEAM_IDLE, reason="out of budget: $1 of $1 spent")
    seen = view(ledger)
    assert (seen.paused_until, seen.pause_reason) == (clock.now + 9, "anthropic answered 429: slow down")
    assert seen.idle == "out of budget: $1 of $1 spent"


def test_locks_taken_and_given_back_are_no_landings(ledger: Ledger) -> None:
    start(ledger)
    one = begin(ledger, "agent-01", 1)
    land(ledger, one, kind="claim")
    land(ledger, one, kind="release")
    land(ledger, one)
    assert (totals(ledger).landings, seats(ledger)[0].landings) == (1, 1)


def test_totals_begin_anew_with_each_start_and_what_runs_on_stays(ledger: Ledger) -> None:
    start(ledger)
    one = begin(ledger, "agent-01", 1)
    claim(ledger, one, "a")
    land(ledger, one)
    start(ledger, ("agent-01", "worker"), ("review-01", "review"))
    ledger.append(Kind.SESSION_ADOPTED, agent="agent-01", session=one)
    seen = view(ledger)
    assert (seen.totals.landings, seen.totals.claims) == (0, 0)
    assert [(s.agent, s.role, s.state) for s in seen.rows()] == [
        ("agent-01", "worker", "running"),
        ("review-01", "review", "new"),
    ]
    assert seen.seats["agent-01"].tasks == ["a"]
    assert [s.agent for s in seen.rows(all_seats=True)] == ["agent-01", "review-01", "agent-02"]


def test_the_state_of_the_whole_team(ledger: Ledger) -> None:
    start(ledger)
    begin(ledger, "agent-01", 1)
    ledger.append(Kind.RUNTIME_LOST, reason="connection refused")
    assert view(ledger).engine_lost == "connection refused"
    ledger.append(Kind.RUNTIME_FOUND, seconds=3)
    ledger.append(Kind.TEAM_STOPPING, reason="SIGINT", seconds=120)
    seen = view(ledger)
    assert (seen.engine_lost, seen.stopping, seen.stopped) == ("", "ctrl-c", None)
    end(ledger, "agent-01.1")
    ledger.append(Kind.TEAM_STOPPED, reason="SIGINT")
    seen = view(ledger)
    assert (seen.stopping, seen.stopped, [s.state for s in seen.rows()]) == ("", "ctrl-c", ["stopped", "stopped"])


def event(kind: str, /, **data: Any) -> Event:
    return Event(1, 0.0, kind, data.pop("agent", None), data.pop("session", None), data.pop("task", None), data)


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (event(Kind.CLAIM, agent="agent-03", task="fix_parser"), "agent-03: claimed fix_parser"),
        (event(Kind.RELEASE, agent="a-1", task="x", why="by a-1", by="a-1"), "a-1: released x"),
        (
            event(Kind.RELEASE, agent="a-1", task="x", why="session a-1.1 ended", by="team"),
            "a-1: released x (session a-1.1 ended)",
        ),
        (
            event(
                Kind.LANDING_DONE, agent="agent-03", kind="work", new="1234567890ab", subject="Land Fix it (agent-03)"
            ),
            "agent-03: landed 1234567890 Fix it",
        ),
        (event(Kind.LANDING_DONE, agent="agent-03", kind="claim", new="12", subject="claim a"), None),
        (event(Kind.PUSH_REFUSED, agent="agent-03", reason="b has it"), "agent-03: push refused: b has it"),
        (
            event(Kind.SESSION_ENDED, agent="a-1", outcome="timed_out", reason="too long", landings=1, seconds=3700),
            "a-1: session ended: timed_out, 1 landing, 1 h 01 min: too long",
        ),
        (event(Kind.SEAT_WAITING, agent="a-1", seconds=120, reason="nothing"), "a-1: waits 2 min: nothing"),
        (event(Kind.SEAT_WAITING, agent="a-1", seconds=None, reason="out of budget"), "a-1: waits: out of budget"),
        (
            event(Kind.MODEL_PAUSED, agent="a-1", until=time.mktime((2030, 1, 2, 3, 4, 5, 0, 0, 0)), reason="x: 429"),
            "a-1: all wait until 2030-01-02 03:04: x: 429",
        ),
        (event(Kind.MODEL_REFUSED, agent="a-1", reason="no price"), "a-1: model call refused: no price"),
        (event(Kind.BUDGET_SET, usd=30.0), "team: the budget is $30 now"),
        (
            event(Kind.EGRESS, agent="a-1", host="evil.example", port=443, refused="not in the list"),
            "a-1: the network refused evil.example:443: not in the list",
        ),
        (event(Kind.EGRESS, agent="a-1", host="packages.example.com", port=443, refused="", sent=9), None),
        (event(Kind.ERROR, reason="no space"), "team: ERROR no space"),
        (event(Kind.RESCUE_SAVED, agent="a-1", ref="refs/rescue/a"), "a-1: work rescued to refs/rescue/a"),
        (
            event(Kind.TEAM_STOPPING, reason="SIGINT", seconds=120),
            "team: stopping: ctrl-c; sessions have 2 min to land, ctrl-c again ends them now",
        ),
        (event(Kind.MODEL_CALL, agent="a-1", status=200), None),
        (event("from.the.future", agent="a-1"), None),
    ],
)
def test_a_line_per_event_worth_reading(happened: Event, line: str | None) -> None:
    assert describe(happened) == line


HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]x[/red]\r\nteam: ERROR faked\u202e\u200b\x9b31m"


@pytest.mark.parametrize("kind", list(Kind))
def test_what_agents_write_cannot_steer_a_terminal_or_fake_a_line(kind: Kind) -> None:
    names = "reason subject new why by ref outcome client runtime host port refused".split()
    data = dict.fromkeys(names, HOSTILE)
    line = describe(Event(1, 0.0, kind, "agent-01", "agent-01.1", HOSTILE, data)) or ""
    assert not set(line) & set("\x1b\x07\r\n\u202e\u200b\x9b")
    assert len(line) < 1000


def test_summary(ledger: Ledger, clock: Clock) -> None:
    start(ledger)
    one = begin(ledger, "agent-01", 1)
    claim(ledger, one, "a")
    land(ledger, one)
    ledger.append(Kind.PUSH_REFUSED, agent="agent-02", session="agent-02.1", reason="held", rule="claim", ref="x")
    end(ledger, one)
    clock.now += 180
    assert summary(view(ledger).totals, clock.now) == [
        "1 landing, 1 claim, 1 session in 3 min: 1 done",
        "1 push refused",
    ]


def test_following_reads_what_was_appended_before_the_end(ledger: Ledger) -> None:
    start(ledger)
    seen = View()
    steps: Iterator[Callable[[], object]] = iter(
        [lambda: begin(ledger, "agent-01", 1), lambda: end(ledger, "agent-01.1")]
    )
    over = iter([False, False, True])

    def step() -> None:
        next(steps)()

    kinds = [e.kind for events in follow(seen, ledger, ended=lambda: next(over), pause=step) for e in events]
    assert kinds[0] == Kind.TEAM_STARTED and kinds[-1] == Kind.SESSION_REMOVED
    assert seen.seats["agent-01"].state == "ended"


def test_an_event_fed_twice_counts_once(ledger: Ledger) -> None:
    start(ledger)
    land(ledger, begin(ledger, "agent-01", 1))
    seen = view(ledger)
    for e in ledger.events():
        seen.feed(e)
    assert seen.totals.landings == 1


def test_event_as_json(ledger: Ledger) -> None:
    claim(ledger, "agent-01.1", "a")
    document = event_json(next(ledger.events()))
    assert (document["kind"], document["task"], document["text"]) == ("claim", "a", "agent-01: claimed a")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h 00 min"), (90_000, "1 d 1 h")],
)
def test_spans_for_people(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_hundred_thousand_events_are_shown_in_about_a_second(ledger: Ledger) -> None:
    start(ledger)
    one = {"agent": "agent-01", "session": "agent-01.1"}
    block = [
        New(Kind.CLAIM, **one, task="a", data={"landing": "x"}),
        New(Kind.LANDING_DONE, **one, data={"kind": "work", "new": "1" * 40, "subject": "s" * 50}),
        New(Kind.RELEASE, **one, task="a", data={"why": "done"}),
        *[New(Kind.MODEL_CALL, **one, data={"status": 200, "model": "m", "bytes": 1000, "seconds": 1.0})] * 7,
    ]
    ledger.append_all(block * 10_000)
    began = time.perf_counter()
    seen = view(ledger)
    took = time.perf_counter() - began
    assert seen.totals.landings == 10_000
    assert took < 3, f"{took:.2f} s"  # measured 0.2 s; the rest is for a busy machine
    began = time.perf_counter()
    assert seen.catch_up(ledger) == []
    assert time.perf_counter() - began < 0.1
