"""How sessions end: by themselves, by a bound, or hardly at all; nothing that an agent does outlives its session."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator

import docker
import pytest

from team import session
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, by_agent, ended, landing_held_up, push_waits, reason, said

pytestmark = pytest.mark.engine

QUIET = "exec python3 -c 'import time; time.sleep(600)'"
BOUNDS = {"first_event": 3, "silence": 4, "setup_time": 14, "max_time": 16, "after_result": 2}

SETUP = """
case $TEAM_AGENT in
agent-03) sleep 600 ;;
agent-04) echo no compiler here >&2; exit 7 ;;
*) echo prepared >/tmp/prepared ;;
esac
"""
TIMES = by_agent(
    # Hangs before its first event.
    QUIET,
    # Prints, ignores SIGTERM, and goes on for ever.
    "trap '' TERM; while :; do echo still here; sleep 1; done",
    "echo 'the setup ends before this'",
    "echo 'the setup fails before this'",
    # Is silent after a word, but for longer than `silence` it waits for its landing.
    f"cat /tmp/prepared; sleep 1; echo b >b.txt; land work >/dev/null 2>&1; echo landed; {QUIET}",
    # Exits, while what it started in the background lives, holds its output and ignores signals.
    """
    setsid sh -c 'trap "" TERM HUP INT; while :; do echo background; sleep 0.2; done' &
    setsid python3 -c 'import time; time.sleep(600)' </dev/null >/dev/null 2>&1 &
    echo done; exit 3
    """,
)


@pytest.fixture(scope="module")
def times(stages: Stages) -> Iterator[Stage]:
    """Six sessions that have their troubles with time."""
    stage = stages(files={"a.txt": "a\n"})

    async def beside(stage: Stage) -> None:
        await said(stage, "agent-05.1", "prepared")
        with landing_held_up(stage):
            await push_waits(stage)
            await asyncio.sleep(6)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "STOP_SECONDS", 1)
        settings = {"session": {**BOUNDS, "setup": SETUP}}
        stage.run(agents=6, argv=TIMES, settings=settings, beside=beside)
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def test_one_that_never_says_a_word_is_stalled(times: Stage) -> None:
    assert reason(times, "agent-01.1") == ("stalled", "printed nothing for 3 s (session.first_event)")
    assert ended(times, "agent-01.1").data["seconds"] < 13


def test_one_that_ignores_sigterm_is_killed_at_its_longest_time(times: Stage) -> None:
    assert reason(times, "agent-02.1") == ("timed_out", "ran longer than 16 s (session.max_time)")
    assert ended(times, "agent-02.1").data["exit"] == 137
    assert ended(times, "agent-02.1").data["seconds"] < 26
    assert len([line for line in times.printed("agent-02.1") if line == "still here"]) > 5


def test_a_setup_that_takes_too_long(times: Stage) -> None:
    assert reason(times, "agent-03.1") == ("timed_out", "clone and setup took over 14 s (session.setup_time)")
    assert "the setup ends before this" not in times.printed("agent-03.1")
    assert not times.ledger(Kind.SESSION_RUNNING, session="agent-03.1")


def test_a_setup_that_fails_says_what_it_printed(times: Stage) -> None:
    outcome, why = reason(times, "agent-04.1")
    assert outcome == "failed" and "[session] setup" in why
    assert "no compiler here" in times.printed("agent-04.1")
    assert "team: setup failed with exit 7" in times.printed("agent-04.1")
    errors = [line for line in times.log("agent-04.1").splitlines() if " ERROR " in line]
    assert len(errors) == 1 and why in errors[0]


def test_waiting_for_a_landing_is_not_silence(times: Stage) -> None:
    assert reason(times, "agent-05.1") == ("stalled", "silent for 4 s (session.silence)")
    assert times.printed("agent-05.1")[:2] == ["prepared", "landed"]
    assert "b.txt" in times.files() and ended(times, "agent-05.1").data["landings"] == 1


def test_background_jobs_end_with_the_session(times: Stage) -> None:
    assert reason(times, "agent-06.1") == ("failed", "exit 3")
    assert "done" in times.printed("agent-06.1")
    assert ended(times, "agent-06.1").data["seconds"] < 12


def test_every_error_is_one_line_of_the_log(times: Stage) -> None:
    for n in range(1, 7):
        outcome, why = reason(times, f"agent-{n:02d}.1")
        errors = [line for line in times.log(f"agent-{n:02d}.1").splitlines() if " ERROR " in line]
        assert any(why in line for line in errors), (n, outcome, errors)


# A client that prints what Claude Code prints, its result too, and never exits.
LINGERS = """#!/bin/sh
echo '{"type":"system","subtype":"init","claude_code_version":"9.9.9","model":"m"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"all done"}'
sh -c 'trap "" TERM; while :; do sleep 1; done' &
trap '' TERM
while :; do sleep 1; done
"""


@pytest.fixture(scope="module")
def lingering_image(engine: docker.APIClient, agent_image: str) -> Iterator[str]:
    """An image whose `claude` never exits."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("claude")
        entry.size, entry.mode = len(LINGERS), 0o755
        archive.addfile(entry, io.BytesIO(LINGERS.encode()))
    container = engine.create_container(agent_image)["Id"]
    engine.put_archive(container, "/usr/local/bin", tar.getvalue())
    image = engine.commit(container, repository="team-test-lingers", tag="1")["Id"]
    engine.remove_container(container)
    yield "team-test-lingers:1"
    engine.remove_image(image, force=True)


def test_one_that_finished_and_never_exits_is_done(stage: Stage, lingering_image: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "STOP_SECONDS", 1)
        stage.run(client="claude-code", image=lingering_image, settings={"session": BOUNDS})
    assert reason(stage, "agent-01.1") == ("done", "finished, but did not exit within 2 s of its result")
    assert ended(stage, "agent-01.1").data["seconds"] < 12
    [version] = stage.ledger(Kind.SESSION_VERSION)
    assert version.data["version"] == "9.9.9"
    assert_gone(stage)
