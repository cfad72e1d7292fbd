"""``team rescue`` and ``team unblock``: what failed and what was left behind, on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from team import worktree
from team.ledger import Kind, Ledger
from team.places import Project

from .conftest import CommandLine, git


@pytest.fixture
def project(team: CommandLine, root: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    assert team("task", "add", "fix_parser").code == 0
    monkeypatch.setenv("XDG_STATE_HOME", team.env["XDG_STATE_HOME"])
    found = worktree.existing_project(root)
    assert found is not None
    return found


def leave_behind(project: Project, tmp_path: Path) -> str:
    """What an ending session pushes: a commit on top of main, under its rescue ref."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(project.upstream), str(clone))
    (clone / "half.py").write_text("half\n")
    git(clone, "add", ".")
    git(clone, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "half \x1b[31mdone")
    git(project.rescue, "fetch", "-q", str(clone), "HEAD:refs/rescue/agent-02/agent-02.3")
    ledger, commit = Ledger(project.ledger), git(clone, "rev-parse", "HEAD")
    who = {"agent": "agent-02", "session": "agent-02.3"}
    ledger.append(Kind.CLAIM, **who, task="fix_parser", landing=0)
    ledger.append(Kind.SESSION_ENDING, **who, outcome="failed", reason="gave up", exit=1)
    ledger.append(Kind.RESCUE_SAVED, **who, commit=commit, summary="1 file (half.py)")
    ledger.append(Kind.RELEASE, **who, task="fix_parser", landing=0, by="team", why="ended")
    ledger.close()
    return commit


def test_rescued_work_is_listed_shown_and_dropped(team: CommandLine, project: Project, tmp_path: Path) -> None:
    assert "nothing is kept" in team("rescue", "list").out
    commit = leave_behind(project, tmp_path)
    line = team("rescue", "list").out
    assert line.startswith("agent-02.3") and commit[:10] in line and "fix_parser" in line
    assert team("rescue", "list", "--json").json["rescues"][0]["tasks"] == ["fix_parser"]
    shown = team("rescue", "show", "agent-02.3").out
    assert "half done" in shown and "half.py | 1 +" in shown and "\x1b" not in shown
    assert f"git fetch {project.rescue} refs/rescue/agent-02/agent-02.3" in shown
    assert "+half" in team("rescue", "show", "agent-02/agent-02.3", "--patch").out
    assert "kept: agent-02.3" in team.refused("rescue", "show", "agent-09.1")
    assert "dropped agent-02.3" in team("rescue", "drop", "agent-02.3").out
    assert "nothing is kept" in team("rescue", "list").out


def test_three_failures_block_a_task_until_a_person_unblocks_it(team: CommandLine, project: Project) -> None:
    ledger = Ledger(project.ledger)
    outcomes = ["rate_limited", "crashed", "killed", "stalled", "out_of_budget", "timed_out"]
    for n, outcome in enumerate(outcomes, 1):
        who = {"agent": "agent-01", "session": f"agent-01.{n}"}
        ledger.append(Kind.CLAIM, **who, task="fix_parser", landing=0)
        assert "blocked" not in team("tasks").out
        ledger.append(Kind.SESSION_ENDING, **who, outcome=outcome, reason=f"reason {n}", exit=1)
        ledger.append(Kind.RELEASE, **who, task="fix_parser", landing=0, by="team", why="ended")
    task = team("tasks", "--json").json["tasks"][0]
    assert task["state"] == "blocked" and len(task["strikes"]) == 3 and "timed_out: reason 6" in task["strikes"][-1]
    assert "blocked" in team("tasks").out
    assert "3 failed sessions forgotten" in team("unblock", "fix_parser").out
    assert "blocked" not in team("tasks").out
    assert "no session failed on 'fix_parser'" in team.refused("unblock", "fix_parser")
