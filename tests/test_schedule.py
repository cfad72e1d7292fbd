"""When a role's next session is due, with the clock in the test's hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from team.config import Settings
from team.ledger import Kind, Ledger
from team.schedule import Every, Wait, missing, parse_every


class Clock:
    """Seconds since the epoch, as the test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.db", clock=clock)) as ledger:
        yield ledger


def begin(ledger: Ledger, role: str, n: int) -> str:
    session = f"{role}-01.{n}"
    ledger.append(Kind.SESSION_STARTING, agent=f"{role}-01", session=session, n=n, role=role, base=f"base{n}")
    return session


def end(ledger: Ledger, session: str, outcome: str = "done") -> None:
    ledger.append(Kind.SESSION_ENDING, session=session, outcome=outcome, reason="", exit=0)


def land(ledger: Ledger, session: str, count: int = 1, kind: str = "work") -> None:
    for _ in range(count):
        agent = session.partition(".")[0]
        ledger.append(Kind.LANDING_DONE, agent=agent, session=session, kind=kind, old="a", new="b")


THREE = Every(landings=3)


def test_the_first_session_of_a_role_is_due_at_once(ledger: Ledger) -> None:
    assert missing(THREE, ledger, "review", 0) is None


def test_landings_of_others_since_it_began_make_it_due(ledger: Ledger) -> None:
    land(ledger, "agent-01.1", 5)  # before it began
    session = begin(ledger, "review", 1)
    assert missing(THREE, ledger, "review", 0) == Wait(landings=3)
    land(ledger, "agent-01.1", 2)
    end(ledger, session)
    assert missing(THREE, ledger, "review", 0) == Wait(landings=1)
    land(ledger, "agent-01.1", 4, kind="claim")
    land(ledger, session, 4)  # its own
    assert missing(THREE, ledger, "review", 0) == Wait(landings=1)
    land(ledger, "docs-01.1")
    assert missing(THREE, ledger, "review", 0) is None
    assert missing(THREE, ledger, "docs", 0) is None


def test_time_makes_it_due(ledger: Ledger, clock: Clock) -> None:
    end(ledger, begin(ledger, "docs", 1))
    two_hours = Every(seconds=7200)
    assert missing(two_hours, ledger, "docs", clock.now + 7100) == Wait(seconds=100)
    assert missing(two_hours, ledger, "docs", clock.now + 7200) is None


@pytest.mark.parametrize("outcome", ["failed", "stalled", "rate_limited", "out_of_budget", "killed", "crashed"])
def test_a_session_that_did_not_get_done_is_made_up_for(ledger: Ledger, outcome: str) -> None:
    end(ledger, begin(ledger, "review", 1))
    land(ledger, "agent-01.1", 3)
    session = begin(ledger, "review", 2)
    assert missing(THREE, ledger, "review", 0) == Wait(landings=3)
    end(ledger, session, outcome)
    assert missing(THREE, ledger, "review", 0) is None


def test_a_session_that_was_not_worth_it_counts_as_one(ledger: Ledger) -> None:
    ledger.append(Kind.ROLE_SKIPPED, agent="dedup-01", role="dedup", base="x", reason="nothing")
    assert missing(THREE, ledger, "dedup", 0) == Wait(landings=3)


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("20 landings", Every(landings=20)),
        ("1 landing", Every(landings=1)),
        ("2h", Every(seconds=7200)),
        ("90", Every(seconds=90)),
    ],
)
def test_schedules_as_people_write_them(text: str, every: Every) -> None:
    assert parse_every(text) == every


@pytest.mark.parametrize("value", ["often", "", "2 weeks", "-2h", "9" * 400 + "d", 20, True, ["2h"]])
def test_what_is_no_schedule(value: object) -> None:
    with pytest.raises(ValueError, match="like '20 landings' or '2h'"):
        parse_every(value)


def test_roles_have_defaults_that_the_project_may_change() -> None:
    settings = Settings.model_validate({"role": {"docs": {"every": "2h"}, "performance": {"benchmark": "make bench"}}})
    assert settings.role_of("docs").every == Every(seconds=7200)
    assert settings.role_of("performance").every == Every(landings=30)
    assert settings.role_of("performance").benchmark == "make bench"
    assert settings.role_of("worker").every is None and settings.role_of("translator").every is None
