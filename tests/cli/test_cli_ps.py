"""``team ps`` and ``team logs``, from a ledger and logs as a run leaves them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from filelock import FileLock

from team.config import Logs
from team.ledger import Kind, Ledger
from team.logs import AgentLog
from team.places import Project

from .conftest import CommandLine


def write_log(project: Project, agent: str, n: int, *lines: str) -> str:
    log = AgentLog(project.logs / agent, "abcdef12", n, Logs(), [], time.time)
    log.team(f"session {agent}.{n} starts")
    for line in lines:
        log.agent(line)
    log.close()
    return str(log.path)


def start(ledger: Ledger) -> None:
    ledger.append(
        Kind.TEAM_STARTED,
        pid=os.getpid(),
        seats=[["agent-01", "worker"], ["review-01", "review"]],
        client="claude-code",
        model=None,
        runtime="docker",
    )


@pytest.fixture
def run(project: Project, ledger: Ledger) -> str:
    """A run with one session that works and one seat that waits; returns the session."""
    start(ledger)
    log = write_log(project, "agent-01", 1, "one", "\x1b[2Jtwo [red]not markup[/red]")
    who = {"agent": "agent-01", "session": "agent-01.1"}
    ledger.append(Kind.SESSION_STARTING, **who, n=1, role="worker", base="abc", log=log)
    ledger.append(Kind.SESSION_RUNNING, **who, seconds=1)
    ledger.append(Kind.CLAIM, **who, task="fix_parser", landing="1")
    ledger.append(Kind.SEAT_WAITING, agent="review-01", seconds=600, reason="landed nothing; waits for main to move")
    return "agent-01.1"


def test_ps_before_the_first_up(team: CommandLine, root: Path) -> None:
    assert "nothing runs; `team up` starts the team" in team("ps").out
    document = team("ps", "--json").json
    assert (document["running"], document["seats"], document["project"]) == (False, [], None)
    assert not (root / ".team").exists()


def test_ps_while_a_team_runs(team: CommandLine, project: Project, run: str) -> None:
    with FileLock(project.supervisor_lock):
        project.supervisor_pid.write_text("4242")
        shown, document = team("ps").out, team("ps", "--json").json
    assert "runs (pid 4242)" in shown
    row = next(line for line in shown.splitlines() if line.startswith("agent-01"))
    for word in ("worker", "running", "fix_parser", "two [red]not markup[/red]"):
        assert word in row
    assert "\x1b" not in shown
    waits = next(line for line in shown.splitlines() if line.startswith("review-01"))
    assert "waiting until " in waits and "waits for main to move" in waits
    assert (document["running"], document["pid"], document["left_over"]) == (True, 4242, [])
    seat = document["seats"][0]
    assert (seat["state"], seat["tasks"], seat["n"], seat["session"]) == ("running", ["fix_parser"], 1, run)
    assert 500 < document["seats"][1]["wait_seconds"] <= 600


def test_ps_says_what_a_killed_supervisor_left(team: CommandLine, run: str) -> None:
    assert "no supervisor runs, but 1 session may be left: `team up` goes on, `team down` ends them" in team("ps").out
    assert team("ps", "--json").json["left_over"] == [run]


def test_ps_shows_a_lost_engine(team: CommandLine, project: Project, ledger: Ledger, run: str) -> None:
    ledger.append(Kind.RUNTIME_LOST, reason="connection refused")
    with FileLock(project.supervisor_lock):
        project.supervisor_pid.write_text("4242")
        assert "engine lost: connection refused" in team("ps").out
        assert team("ps", "--json").json["engine_lost"] == "connection refused"


def test_ps_tells_which_pushes_wait(team: CommandLine, ledger: Ledger, run: str) -> None:
    assert "waiting for the gate" not in team("ps").out and team("ps", "--json").json["waiting"] == []
    for number, kind in enumerate([Kind.PUSH_QUEUED, Kind.PUSH_QUEUED, Kind.PUSH_HELD, Kind.PUSH_HELD], 1):
        ledger.append(kind, agent="agent-01", session=run, number=number, reason="x")
    ledger.append(Kind.PUSH_VERDICT, agent="agent-01", session=run, number=1, landed=True, reason="x")
    assert "1 push waiting for the gate; 2 pushes held for you (3, 4): `team held`" in team("ps").out
    ledger.append(Kind.PUSH_APPROVED, agent="agent-01", session=run, number=3, by="Ann")
    assert "2 pushes waiting for the gate; 1 push held for you (4): `team held`" in team("ps").out
    waiting = [{"push": 2, "state": "queued"}, {"push": 3, "state": "queued"}, {"push": 4, "state": "held"}]
    assert team("ps", "--json").json["waiting"] == waiting


def test_ps_all_shows_seats_of_earlier_runs(team: CommandLine, ledger: Ledger) -> None:
    ledger.append(Kind.TEAM_STARTED, seats=[["agent-09", "worker"]])
    start(ledger)
    ledger.append(Kind.TEAM_STOPPED, reason="SIGINT")
    assert "agent-09" not in team("ps").out
    assert "agent-09" in team("ps", "-a").out
    assert "stopped: ctrl-c" in team("ps").out


def test_logs_have_a_prefix_per_agent_and_are_clean(team: CommandLine, project: Project, run: str) -> None:
    write_log(project, "review-01", 1, "looks good")
    shown = team("logs")
    assert shown.code == 0
    assert "agent-01   | two [red]not markup[/red]" in shown.out and "review-01  | looks good" in shown.out
    assert "\x1b" not in shown.out
    only = team("logs", "review-01", "-n", "1").out.splitlines()
    assert only == ["review-01  | looks good"]


def test_logs_shows_the_newest_session_and_any_other_by_its_id(
    team: CommandLine, project: Project, ledger: Ledger, run: str
) -> None:
    write_log(project, "agent-01", 2, "second")
    assert "| second" in team("logs").out and "| one" not in team("logs").out
    first = team("logs", "--session", run).out
    assert "| one" in first and "second" not in first
    assert json.loads(team("logs", "--session", run, "--json").out.splitlines()[1]) == {
        "agent": "agent-01",
        "line": "| one",
    }


def test_logs_of_what_does_not_exist(team: CommandLine, project: Project, run: str) -> None:
    assert team.refused("logs", "agent-77") == "no logs of 'agent-77'; known: agent-01"
    assert "there was no session 'agent-01.9'" in team.refused("logs", "--session", "agent-01.9")


def test_logs_before_the_first_up(team: CommandLine) -> None:
    assert team.refused("logs") == "there are no logs yet: `team up` starts the team"


def test_logs_follow_across_sessions_until_ctrl_c(team: CommandLine, project: Project, run: str) -> None:
    process = subprocess.Popen(
        team.argv("logs", "-f", "-n", "1"), cwd=team.root, env=team.env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert "two" in process.stdout.readline()
        write_log(project, "agent-01", 2, "from the next session")
        # A line written between the tail and the following may be shown twice, so it is not counted.
        followed = list(itertools.takewhile(lambda line: "from the next session" not in line, process.stdout))
        assert any("session agent-01.2 starts" in line for line in followed)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_ps_reads_a_long_ledger(team: CommandLine, ledger: Ledger, run: str) -> None:
    from team.ledger import New

    who = {"agent": "agent-01", "session": "agent-01.1"}
    block = [
        New(Kind.CLAIM, **who, task="a", data={}),
        New(Kind.RELEASE, **who, task="a", data={"why": "done"}),
        *[New(Kind.MODEL_CALL, **who, data={"status": 200, "model": "m", "bytes": 1000})] * 8,
    ]
    ledger.append_all(block * 10_000)
    totals = json.loads(team("ps", "--json").out)["totals"]
    assert totals["claims"] >= 10_000
