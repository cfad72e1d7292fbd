"""An engine that cannot be reached for a while: nothing is concluded from it, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal as signals
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from team import engine, supervisor
from team.errors import TeamError
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, by_agent, locks, reason, rescued_files, said, signal

pytestmark = pytest.mark.engine

ENGINE = "/var/run/docker.sock"
SILENCE = 6.0


class Relay:
    """Stands before the engine's socket; can be cut and mended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: set[socket.socket] = set()
        self.mend()

    def mend(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks and no new one is made."""
        self.path.unlink()
        for end in [self._listener, *self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                theirs, _ = listener.accept()
                ours = socket.socket(socket.AF_UNIX)
                ours.connect(ENGINE)
                self._open |= {theirs, ours}
                for a, b in ((theirs, ours), (ours, theirs)):
                    threading.Thread(target=_pump, args=(a, b), daemon=True).start()


def _pump(a: socket.socket, b: socket.socket) -> None:
    with suppress(OSError):
        while data := a.recv(1 << 16):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)


SCRIPT = by_agent(
    """[ "$n" = 1 ] || exit 0
    claim fix_one; echo claimed; wait_for lost; echo in the dark; echo work >work.txt; land work && echo landed
    wait_for found; echo in the light; git rm -q current_tasks/fix_one.txt; land release""",
    '[ "$n" = 1 ] || exit 0; echo ready; wait_for lost; exit 0',
)


@pytest.fixture(scope="module")
def lost(stages: Stages, homes: Path) -> Iterator[Stage]:
    """Two seats whose engine is out of reach for longer than a session may be silent."""
    stage = stages()
    relay = Relay(homes / "engine.sock")

    async def beside(stage: Stage) -> None:
        await said(stage, "agent-01.1", "claimed")
        await said(stage, "agent-02.1", "ready")
        relay.cut()
        await stage.until(lambda s: s.ledger(Kind.RUNTIME_LOST))
        await signal(stage, "lost")
        await stage.until(lambda s: [e for e in s.ledger(Kind.LANDING_DONE) if e.session == "agent-01.1"][1:])
        await asyncio.sleep(SILENCE + 2)
        relay.mend()
        await stage.until(lambda s: s.ledger(Kind.RUNTIME_FOUND))
        await signal(stage, "found")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{relay.path}")
        patch.setattr(engine, "PAUSE_MOST", 1.0)
        patch.setattr(supervisor, "IDLE_FIRST", 0.5)
        stage.run(agents=2, argv=SCRIPT, sessions=2, settings={"session": {"silence": SILENCE}}, beside=beside)
    relay.cut()
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def between(stage: Stage) -> tuple[int, int]:
    """The events between which the engine was out of reach."""
    [gone], [back] = stage.ledger(Kind.RUNTIME_LOST), stage.ledger(Kind.RUNTIME_FOUND)
    assert back.data["seconds"] > SILENCE
    return gone.id, back.id


def test_while_it_is_lost_nothing_ends_nothing_starts_and_nothing_is_released(lost: Stage) -> None:
    gone, back = between(lost)
    told = {event.kind for event in lost.ledger(after=gone) if event.id < back}
    assert not told & {Kind.SESSION_ENDING, Kind.SESSION_ENDED, Kind.SESSION_STARTING, Kind.RELEASE, Kind.ERROR}


def test_while_it_is_lost_the_doors_are_served(lost: Stage) -> None:
    gone, back = between(lost)
    [work] = [e for e in lost.ledger(Kind.LANDING_DONE, session="agent-01.1") if e.data["kind"] == "work"]
    assert gone < work.id < back
    assert "landed" in lost.printed("agent-01.1")


def test_the_session_goes_on_when_it_is_found(lost: Stage) -> None:
    assert reason(lost, "agent-01.1")[0] == "done", "it was taken for silent"
    printed = lost.printed("agent-01.1")
    assert "in the dark" in printed and "in the light" in printed, "what was printed meanwhile is lost"
    [released] = lost.ledger(Kind.RELEASE, task="fix_one")
    assert released.data["by"] == "agent-01"


def test_what_ended_meanwhile_is_found_ended_and_its_seat_goes_on(lost: Stage) -> None:
    _, back = between(lost)
    [ending] = lost.ledger(Kind.SESSION_ENDING, session="agent-02.1")
    assert ending.id > back and ending.data["outcome"] == "done"
    assert reason(lost, "agent-02.2")[0] == reason(lost, "agent-01.2")[0] == "done"
    assert locks(lost) == []


def test_ctrl_c_twice_does_not_wait_for_a_dead_engine(stage: Stage, homes: Path) -> None:
    relay = Relay(homes / "dead.sock")

    async def beside(stage: Stage) -> None:
        await said(stage, "agent-01.1", "ready")
        relay.cut()
        await stage.until(lambda s: s.ledger(Kind.RUNTIME_LOST))
        for _ in range(2):
            os.kill(os.getpid(), signals.SIGINT)
            await asyncio.sleep(0.3)

    script = by_agent("claim fix_one; echo half >half.txt; echo ready; sleep 600")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{relay.path}")
        patch.setattr(supervisor, "ENGINE_DEAD_SECONDS", 1.0)
        with pytest.raises(TeamError, match="its sessions stay as they are until the next `team up`"):
            stage.run(argv=script, beside=beside)
    assert locks(stage) == ["current_tasks/fix_one.txt"], "released although it may still run"
    assert len(stage.on_engine()) == 2
    stage.cli("down")
    assert rescued_files(stage, "agent-01.1")["half.txt"] == "half\n" and locks(stage) == []
    assert_gone(stage)
