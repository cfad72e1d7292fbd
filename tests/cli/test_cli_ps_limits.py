"""``team ps`` when money or the provider holds the team up."""

from __future__ import annotations

import os
import time

from filelock import FileLock

from team.ledger import Kind, Ledger
from team.places import Project

from .conftest import CommandLine


def test_until_when_all_wait_for_the_provider_and_who_is_out_of_budget(
    team: CommandLine, project: Project, ledger: Ledger
) -> None:
    ledger.append(
        Kind.TEAM_STARTED,
        pid=os.getpid(),
        seats=[["agent-01", "worker"]],
        client="claude-code",
        model=None,
        runtime="docker",
    )
    until = time.time() + 3600
    ledger.append(Kind.MODEL_PAUSED, seconds=3600, until=until, reason="anthropic answered 429: \x1b[2Jslow down")
    reason = "out of budget: budget of agent agent-01: $5.0000 of $5 spent"
    ledger.append(Kind.SEAT_WAITING, agent="agent-01", seconds=None, reason=reason)
    with FileLock(project.supervisor_lock):
        project.supervisor_pid.write_text("4242")
        shown, document = team("ps").out, team("ps", "--json").json
    assert time.strftime("%H:%M", time.localtime(until)) in shown and "slow down" in shown and "\x1b" not in shown
    assert "out of budget: budget of agent agent-01" in shown
    assert (document["paused_until"], document["seats"][0]["state"]) == (until, "waiting")
    assert document["seats"][0]["wait_reason"] == reason
