"""A session that waits for a person's word while its supervisor is killed and started again."""

from __future__ import annotations

import pytest

from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import by_agent, reason
from .test_lifecycle_restart import printed, until, up

pytestmark = pytest.mark.engine

ASKS = """
p=$(dirname "$(dirname "$(dirname "$(dirname "$(command -v team)")")")")
PYTHONPATH=$p exec python3 -u - <<'E'
import os, time
from team.door_client import DoorClient
door = DoorClient(os.environ)
held = door.ask("/team/action/ask", {"tool": "bash", "input": {"command": "npm publish"}})
print("asked", held["id"])
while held["state"] == "waiting":
    time.sleep(0.5)
    try:
        held = door.ask("/team/action/state", {"id": held["id"]})
    except OSError:
        pass
print("told", held["state"], held["note"])
E
"""


def test_a_word_given_while_no_supervisor_runs_is_heard_and_the_wait_is_no_silence(stages: Stages) -> None:
    stage = stages()
    script = by_agent(ASKS)
    with up(stage, 1, script) as team:
        until(lambda: printed(stage, "agent-01.1", "asked a1"))
        assert "a1 bash: npm publish" in stage.cli("ps").stdout
        team.kill()
        team.wait()
    assert "a1  agent-01" in stage.cli("held").stdout
    stage.cli("approve", "a1", "-m", "once")

    async def beside(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.SESSION_ADOPTED))

    stage.run(agents=1, argv=script, beside=beside)
    assert "told allowed once" in stage.printed("agent-01.1")
    assert reason(stage, "agent-01.1")[0] == "done"


def test_who_waits_is_not_silent_and_the_end_drops_what_waits(stages: Stages) -> None:
    stage = stages()
    session = {"silence": 4, "max_time": 12}
    stage.run(agents=1, argv=by_agent(ASKS), settings={"session": session})
    assert reason(stage, "agent-01.1") == ("timed_out", "ran longer than 12 s (session.max_time)")
    assert stage.cli("held").stdout == "nothing is held\n"
    assert "a1 was dropped" in stage.cli("approve", "a1", ok=2).stderr
