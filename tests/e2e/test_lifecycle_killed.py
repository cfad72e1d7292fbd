"""Sessions killed from outside at the worst moments: in mid-push, by hand, by their disk limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import docker
import pytest

from team import supervisor
from team.git import git
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import (
    assert_gone,
    assert_sound,
    by_agent,
    landing_held_up,
    locks,
    push_waits,
    reason,
    rescue_ref,
    rescued_files,
    said,
    signal,
)

pytestmark = pytest.mark.engine

# Stands between git and the door, lets half of the large push of agent-01 through, and no more.
SLOW = """
cat >/tmp/slow.py <<'PY'
import socket, threading, time
server = socket.create_server(("127.0.0.1", 9999))
def pump(a, b, most):
    total = 0
    while data := a.recv(65536):
        b.sendall(data)
        total += len(data)
        if total > most:
            print("half of it", flush=True)
            time.sleep(600)
    b.shutdown(socket.SHUT_WR)
while True:
    a, _ = server.accept()
    b = socket.create_connection(("127.0.0.1", 8787))
    threading.Thread(target=pump, args=(a, b, 2_500_000), daemon=True).start()
    threading.Thread(target=pump, args=(b, a, 1 << 40), daemon=True).start()
PY
python3 /tmp/slow.py &
sleep 0.3
git config remote.origin.pushurl http://127.0.0.1:9999/git/upstream
"""
LARGE = "head -c 5000000 /dev/urandom >large.bin; git add -A; git commit -qm large; git rev-parse HEAD"
WAIT = "exec python3 -c 'import time; time.sleep(600)'"
SCRIPTS = by_agent(
    f"claim fix_one; {LARGE}; {SLOW} git -c http.postBuffer=65536 push; echo pushed $?; {WAIT}",
    f"claim fix_two; {LARGE}; echo ready; wait_for go; git push; echo pushed $?; {WAIT}",
    f"claim removed; echo work >work.txt; echo ready; {WAIT}",
    f"echo work >work.txt; echo ready; head -c 100000000 /dev/zero >big.bin; {WAIT}",
)


@pytest.fixture(scope="module")
def killed(stages: Stages, engine: docker.APIClient) -> Iterator[Stage]:
    """Four sessions, and what kills each of them."""
    stage = stages()

    def kill(session: str) -> None:
        engine.kill(f"team-{stage.project.id}-{session}")

    async def beside(stage: Stage) -> None:
        await said(stage, "agent-01.1", "half of it")
        await asyncio.to_thread(kill, "agent-01.1")
        await said(stage, "agent-03.1", "ready")
        await asyncio.to_thread(engine.remove_container, f"team-{stage.project.id}-agent-03.1", force=True)
        await stage.until(lambda s: len(s.ledger(Kind.SESSION_REMOVED)) == 3)  # their rescues are pushes, too
        await said(stage, "agent-02.1", "ready")
        await signal(stage, "go")
        with landing_held_up(stage):
            await push_waits(stage)
            await asyncio.to_thread(kill, "agent-02.1")
            await stage.until(lambda s: s.ledger(Kind.SESSION_ENDING, session="agent-02.1"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "DISK_SECONDS", 1.0)
        stage.run(agents=4, argv=SCRIPTS, settings={"session": {"disk": 64 << 20}}, beside=beside)
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def commit_of(stage: Stage, session: str) -> str:
    return next(line for line in stage.printed(session) if len(line) == 40)


def test_killed_while_a_push_is_sent(killed: Stage) -> None:
    assert reason(killed, "agent-01.1") == ("crashed", "killed by SIGKILL (exit 137)")
    assert not any(line.startswith("pushed") for line in killed.printed("agent-01.1"))
    commit = commit_of(killed, "agent-01.1")
    assert not (killed.project.upstream / "objects" / commit[:2] / commit[2:]).exists(), "half a push was kept"
    assert commit in git("rev-list", rescue_ref("agent-01.1"), at=killed.project.rescue).decode()
    assert len(git("show", f"{commit}:large.bin", at=killed.project.rescue)) == 5_000_000


def test_killed_while_a_push_waits_for_its_landing(killed: Stage) -> None:
    assert reason(killed, "agent-02.1") == ("crashed", "killed by SIGKILL (exit 137)")
    commit = commit_of(killed, "agent-02.1")
    assert commit not in killed.git("rev-list", "main"), "a dead session's push landed"
    refused = killed.ledger(Kind.PUSH_REFUSED, session="agent-02.1")
    assert [event.data["rule"] for event in refused] == ["ended"]
    assert commit in git("rev-list", rescue_ref("agent-02.1"), at=killed.project.rescue).decode()


def test_a_container_removed_by_hand_leaves_its_work(killed: Stage) -> None:
    outcome, why = reason(killed, "agent-03.1")
    assert outcome == "crashed" and ("SIGKILL" in why or "removed" in why)  # the engine kills it first
    assert rescued_files(killed, "agent-03.1")["work.txt"] == "work\n"


def test_a_full_disk_ends_its_session_alone(killed: Stage) -> None:
    outcome, why = reason(killed, "agent-04.1")
    assert outcome == "failed" and "MiB of disk, 64 are allowed (session.disk)" in why
    assert rescued_files(killed, "agent-04.1")["work.txt"] == "work\n"
    note = git("log", "-1", "--format=%B", rescue_ref("agent-04.1"), at=killed.project.rescue).decode()
    assert "Not saved (too large, or not readable):\nbig.bin" in note


def test_every_claim_is_released(killed: Stage) -> None:
    assert locks(killed) == []
    released = {event.task: event.session for event in killed.ledger(Kind.RELEASE)}
    assert released == {"fix_one": "agent-01.1", "fix_two": "agent-02.1", "removed": "agent-03.1"}
