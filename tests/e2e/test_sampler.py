"""``team test`` in real sessions: through the door into the host's memory, and in checks of the gate."""

from __future__ import annotations

from contextlib import closing

import pytest

from team.ledger import Kind
from team.sampler.memory import File

from .conftest import FILES, Stages
from .lifecycle_kit import by_agent, reason

pytestmark = pytest.mark.engine

SETTINGS = {
    "test": {"kind": "cases", "files": ["t/*.sh"], "run": "sh {file}"},
    "gate": {"check": "team test --all", "wait": 120},
}
CASES = {f"t/c{n:02}.sh": "exit 0\n" for n in range(40)}
FIRST = """
team test --fast=50% ; echo "code $?"
claim fix_one; echo 'exit 0 # better' >t/c07.sh; land better; git pull -q --no-edit
team test --all; echo "code $?"
echo 'exit 1' >t/c07.sh
team test --failed; echo "code $?"; team test; echo "code $?"; git status --porcelain | sed 's/^/status /'
echo "orphans $(cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c -e 'keeper[.]py')"
team test --coverage; echo "code $?"
printf 'POST /team/test/record HTTP/1.0\\r\\nContent-Length: 2\\r\\n\\r\\n{}' |
    socat - UNIX-CONNECT:/run/team/door.sock,shut-none
echo; TEAM_DOOR=http://127.0.0.1:9 TEAM_DOOR_SOCKET=/none team test t/c01.sh; echo "code $?"
"""
SECOND = """
sleep 1; team test --fast=50%; echo "code $?"
claim fix_two; echo 'exit 1' >t/c20.sh; git add -A; git commit -qm broken; git push 2>&1; true
"""


def test_agents_test_through_the_door_and_in_the_gate(stages: Stages) -> None:
    stage = stages(files={**FILES, **CASES})
    stage.run(agents=2, argv=by_agent(FIRST, SECOND), settings=SETTINGS)
    one, two = "\n".join(stage.printed("agent-01.1")), "\n".join(stage.printed("agent-02.1"))
    assert reason(stage, "agent-01.1")[0] == reason(stage, "agent-02.1")[0] == "done", one + two

    # The seats' halves of the cases are two halves: 1 and 2 follow each other.
    with closing(File(stage.project.tests)) as memory:
        assert all(seen for n in range(40) if (seen := memory.history("", f"t/c{n:02}.sh")))
        on_landed = [seen for seen in memory.history("", "t/c07.sh") if seen.landed]
        assert ("passed", 2) in [(seen.outcome, seen.count) for seen in on_landed], "by the gate and by agent-01"
    assert one.count("\n0 of 40 tests") == 1 and "40 of 40 tests" in one
    # The gate ran everything on what landed: what fails now is new, and nobody had to run it there.
    assert "against landed" in one and "1 new" in one and "ERROR t/c07.sh: [new] exit code 1" in one
    assert "orphans 0" in one
    assert "status  M t/c07.sh" in one and "status ??" not in one, "a log would be committed"
    assert "run it on the host" in one and "this is no question of `team test`" in one
    assert "nothing is known of earlier runs" in one or "the results could not be kept" in one

    assert "ERROR t/c20.sh" in two, two
    runs = stage.ledger(Kind.TEST_RUN, session="agent-01.1")
    assert runs[0].data["rate"] == "50%" and runs[0].data["total"] == 40 and runs[0].data["failed"] == 0
    assert runs[-1].data["failing"] == ["t/c07.sh"] and runs[-1].data["new"] == 1
    checks = {run.data["ok"]: run.data["tests"] for run in stage.ledger(Kind.GATE_RUN)}
    assert checks == {True: 40, False: 40}
