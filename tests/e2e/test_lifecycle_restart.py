"""Supervisors that are stopped, stopped twice, killed and started again, by signals to a real ``team up``."""

from __future__ import annotations

import asyncio
import signal as signals
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from team import supervisor
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import (
    assert_gone,
    assert_sound,
    by_agent,
    ended,
    locks,
    reason,
    rescued_files,
    said,
    signal,
)

pytestmark = pytest.mark.engine


def until(what: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def printed(stage: Stage, session: str, words: str) -> bool:
    started = stage.ledger(Kind.SESSION_STARTING, session=session)
    return bool(started) and any(words in line for line in stage.printed(session))


def flags(agents: int, script: tuple[str, ...]) -> list[str]:
    return ["--agents", str(agents), "--client", "command", "--", *script]


@contextmanager
def up(stage: Stage, agents: int, script: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """A ``team up`` in a process group of its own, as a shell would start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "team.cli", "up", *flags(agents, script)],
        cwd=stage.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def processes_of(stage: Stage) -> list[str]:
    """Command lines of processes that know the project."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if stage.project.id.encode() in line:
            found.append(line.replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def go(stage: Stage, word: str) -> None:
    asyncio.run(signal(stage, word))


def test_ctrl_c_lets_sessions_land_and_again_ends_them(stages: Stages) -> None:
    stage = stages(files={"team.toml": "[session]\nland_time = '5m'\n"})
    script = by_agent(
        "echo ready; wait_for last; echo work >work.txt; land work",
        "claim fix_two; echo half >half.txt; echo ready; trap '' INT TERM; sleep 600",
    )
    with up(stage, 2, script) as team:
        until(lambda: all(printed(stage, f"agent-{n:02d}.1", "ready") for n in (1, 2)))
        again = stage.cli("up", "-d", *flags(2, script))
        assert f"already runs (pid {team.pid})" in again.stdout
        more = stage.cli("up", *flags(3, script), ok=2)
        assert "without --agents 3" in more.stderr and "team down" in more.stderr
        team.send_signal(signals.SIGINT)
        until(lambda: stage.ledger(Kind.TEAM_STOPPING))
        go(stage, "last")
        until(lambda: stage.ledger(Kind.SESSION_REMOVED, session="agent-01.1"))
        assert "work.txt" in stage.files()
        assert team.poll() is None, "it did not wait for the other session"
        team.send_signal(signals.SIGINT)
        began = time.monotonic()
        said, _ = team.communicate(timeout=60)
        assert time.monotonic() - began < 45
    assert team.returncode == 0 and "stopped: ctrl-c" in said, said
    assert reason(stage, "agent-01.1")[0] == "done"
    assert reason(stage, "agent-02.1") == ("killed", "stopped by a person")
    assert rescued_files(stage, "agent-02.1")["half.txt"] == "half\n"
    assert len(stage.ledger(Kind.SESSION_STARTING)) == 2, "a session was started after ctrl-C"
    assert locks(stage) == [] and processes_of(stage) == []
    assert_gone(stage)
    assert_sound(stage)


KILLED = by_agent(
    """[ "$n" = 1 ] || exit 0
    claim fix_one; echo claimed; wait_for dead; echo heard by nobody; wait_for alive
    git pull -q --no-edit; git rm -q current_tasks/fix_one.txt; echo work >work.txt; land work && echo landed""",
    '[ "$n" = 1 ] || exit 0; claim fix_two; echo half >half.txt; echo claimed; sleep 600',
    '[ "$n" = 1 ] || exit 0; echo left >left.txt; echo claimed; sleep 600',
)


@pytest.fixture(scope="module")
def restarted(stages: Stages, engine: docker.APIClient) -> Iterator[Stage]:
    """A supervisor killed with SIGKILL while three sessions run, two of which end before the next one is there."""
    stage = stages()
    with up(stage, 3, KILLED) as team:
        until(lambda: all(printed(stage, f"agent-{n:02d}.1", "claimed") for n in (1, 2, 3)))
        team.kill()
        team.wait()
    go(stage, "dead")
    engine.kill(f"team-{stage.project.id}-agent-02.1")
    engine.remove_container(f"team-{stage.project.id}-agent-03.1", force=True)
    time.sleep(1)

    async def beside(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.SESSION_ADOPTED))
        await said(stage, "agent-01.1", "heard by nobody")
        await signal(stage, "alive")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "IDLE_FIRST", 0.5)
        stage.run(agents=3, argv=KILLED, sessions=2, beside=beside)
    yield stage
    assert_gone(stage)
    assert_sound(stage)
    assert processes_of(stage) == []


def test_a_session_that_still_runs_is_adopted(restarted: Stage) -> None:
    [adopted] = restarted.ledger(Kind.SESSION_ADOPTED)
    assert adopted.session == "agent-01.1"
    assert reason(restarted, "agent-01.1")[0] == "done"
    assert "landed" in restarted.printed("agent-01.1") and "work.txt" in restarted.files()
    assert ended(restarted, "agent-01.1").data["landings"] == 1
    assert len(restarted.ledger(Kind.SESSION_RUNNING, session="agent-01.1")) == 1


def test_its_claim_was_kept(restarted: Stage) -> None:
    [claimed] = restarted.ledger(Kind.CLAIM, task="fix_one")
    [released] = restarted.ledger(Kind.RELEASE, task="fix_one")
    assert claimed.session == released.session == "agent-01.1"
    assert released.data["by"] == "agent-01", "the supervisor released it"


def test_what_it_printed_meanwhile_is_in_its_log(restarted: Stage) -> None:
    lines = restarted.printed("agent-01.1")
    assert [lines.count(text) for text in ("heard by nobody", "landed")] == [1, 1]
    assert 1 <= lines.count("claimed") <= 2, "the last line before may come twice"


def test_its_time_goes_on(restarted: Stage) -> None:
    [started] = restarted.ledger(Kind.SESSION_STARTING, session="agent-01.1")
    event = ended(restarted, "agent-01.1")
    assert abs(event.data["seconds"] - (event.at - started.at)) < 2


@pytest.mark.parametrize(("session", "file", "content"), [
    ("agent-02.1", "half.txt", "half\n"),  # its container had ended
    ("agent-03.1", "left.txt", "left\n"),  # its container had been removed
])  # fmt: skip
def test_one_that_ended_meanwhile_is_rescued(restarted: Stage, session: str, file: str, content: str) -> None:
    assert reason(restarted, session) == ("killed", "its supervisor had ended")
    assert rescued_files(restarted, session)[file] == content


def test_its_lock_is_released_and_its_seat_goes_on(restarted: Stage) -> None:
    [released] = restarted.ledger(Kind.RELEASE, task="fix_two")
    assert released.session == "agent-02.1" and "its supervisor had ended" in released.data["why"]
    assert locks(restarted) == []
    for n in (1, 2, 3):
        assert reason(restarted, f"agent-{n:02d}.2")[0] == "done"


def test_down_ends_what_a_killed_supervisor_left(stages: Stages) -> None:
    stage = stages()
    script = by_agent("claim fix_one; echo half >half.txt; echo ready; sleep 600", "echo ready; sleep 600")
    with up(stage, 2, script) as team:
        until(lambda: all(printed(stage, f"agent-{n:02d}.1", "ready") for n in (1, 2)))
        team.kill()
        team.wait()
    assert len(stage.on_engine()) == 4
    (stage.root / "AGENT_PROMPT.md").write_text("")  # no text of the person's can keep it from ending
    done = stage.cli("down")
    assert "2 sessions may be left" in done.stdout
    assert reason(stage, "agent-01.1") == ("killed", "its supervisor had ended")
    assert rescued_files(stage, "agent-01.1")["half.txt"] == "half\n"
    assert locks(stage) == [] and processes_of(stage) == []
    assert_gone(stage)
    assert_sound(stage)
    assert "nothing runs" in stage.cli("down").stdout
