"""Seats: one session after another, pauses after failures and idleness, and how a team stops by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from team import supervisor
from team.ledger import Event, Kind

from .conftest import Stage, Stages
from .lifecycle_kit import KIT, assert_gone, by_agent, locks, reason, rescued_files, said, signal

pytestmark = pytest.mark.engine

SEATS = by_agent(
    # Does nothing, then lands.
    'if [ "$n" = 2 ]; then echo work >work.txt; land work; fi',
    # Always fails.
    "cat >/dev/null; exit 7",
    # Lands nothing while somebody else does: there may be something to do by now.
    'if [ "$n" = 1 ]; then wait_for first; else echo $n >"$n.txt"; land more; fi',
    kit="cat >/tmp/prompt; grep -q CHANGED /tmp/prompt && echo the prompt changed" + KIT,
)


@pytest.fixture(scope="module")
def seats(stages: Stages) -> Iterator[Stage]:
    """Three seats, three sessions each."""
    stage = stages()

    async def beside(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.SEAT_WAITING, agent="agent-01"))
        (stage.root / "AGENT_PROMPT.md").write_text("CHANGED, and not a whole file yet: {{nonsense")
        await stage.until(lambda s: s.ledger(Kind.SESSION_RUNNING, agent="agent-03"))
        await asyncio.sleep(1)  # agent-01 waits for a move of main, which this is
        await signal(stage, "first")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "FAILED_FIRST", 0.5)
        patch.setattr(supervisor, "IDLE_FIRST", 40.0)
        stage.run(agents=3, argv=SEATS, sessions=3, beside=beside)
    yield stage
    assert_gone(stage)


def waits(stage: Stage, agent: str) -> list[tuple[float, str]]:
    return [(e.data["seconds"], e.data["reason"]) for e in stage.ledger(Kind.SEAT_WAITING, agent=agent)]


def starts(stage: Stage, agent: str) -> list[Event]:
    return stage.ledger(Kind.SESSION_STARTING, agent=agent)


def test_failures_back_off(seats: Stage) -> None:
    assert waits(seats, "agent-02") == [
        (0.5, "1 failed in a row: exit 7"),
        (1.0, "2 failed in a row: exit 7"),
    ]
    pauses = seats.ledger(Kind.SEAT_WAITING, agent="agent-02")
    for pause, start in zip(pauses, starts(seats, "agent-02")[1:], strict=True):
        assert start.at - pause.at >= pause.data["seconds"] - 0.05


def test_a_seat_that_landed_nothing_wakes_when_main_moves(seats: Stage) -> None:
    first = waits(seats, "agent-01")[0]
    assert first == (40.0, "landed nothing; waits for main to move")
    [moved] = [e for e in seats.ledger(Kind.LANDING_DONE) if e.session is None]
    second = starts(seats, "agent-01")[1]
    assert moved.at <= second.at < moved.at + 8
    assert second.at - seats.ledger(Kind.SEAT_WAITING, agent="agent-01")[0].at < 35


def test_one_that_landed_goes_on_at_once(seats: Stage) -> None:
    assert len(waits(seats, "agent-01")) == 1
    [landed] = [e for e in seats.ledger(Kind.LANDING_DONE) if e.session == "agent-01.2"]
    assert landed.data["kind"] == "work" and len(starts(seats, "agent-01")) == 3


def test_a_move_of_main_during_a_session_is_not_missed(seats: Stage) -> None:
    second = starts(seats, "agent-03")[1]
    pauses = [e for e in seats.ledger(Kind.SEAT_WAITING, agent="agent-03") if e.id < second.id]
    assert pauses == [], "it waits for a move that it slept through"


def test_every_seat_has_its_sessions_numbered(seats: Stage) -> None:
    for n in (1, 2, 3):
        assert [e.data["n"] for e in starts(seats, f"agent-{n:02d}")] == [1, 2, 3]


def test_prompts_are_those_of_the_start(seats: Stage) -> None:
    for n in (1, 2, 3):
        for event in starts(seats, f"agent-{n:02d}"):
            assert "the prompt changed" not in seats.printed(event.session or "")


def test_an_idle_team_says_so_and_stops(stage: Stage) -> None:
    assert stage.run(agents=2, argv=("true",), sessions=None, until_idle=True) == "idle"
    assert len(stage.ledger(Kind.TEAM_IDLE)) == 1 and len(stage.ledger(Kind.SESSION_ENDED)) == 2
    [stopped] = stage.ledger(Kind.TEAM_STOPPED)
    assert stopped.data["reason"] == "idle"
    assert_gone(stage)


def test_time_is_up_and_sessions_may_still_land(stage: Stage) -> None:
    script = by_agent(
        "wait_for last; echo work >work.txt; land work; echo landed",
        "claim fix_one; echo half >half.txt; echo ready; sleep 600",
    )

    async def beside(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.TEAM_STOPPING))
        await said(stage, "agent-02.1", "ready")
        await signal(stage, "last")

    settings = {"session": {"land_time": 8}}
    plan = stage.plan(agents=2, argv=script, sessions=None, seconds=4.0, settings=settings)
    reached = stage.run(plan, beside=beside)
    assert reached == "time is up"
    [stopping] = stage.ledger(Kind.TEAM_STOPPING)
    assert stopping.data == {"reason": "time is up", "seconds": 8}
    assert reason(stage, "agent-01.1")[0] == "done" and "work.txt" in stage.files()
    assert reason(stage, "agent-02.1") == ("killed", "the team was stopped")
    assert rescued_files(stage, "agent-02.1")["half.txt"] == "half\n"
    assert locks(stage) == [] and len(stage.ledger(Kind.SESSION_STARTING)) == 2
    assert_gone(stage)
