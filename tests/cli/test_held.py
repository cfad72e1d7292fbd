"""``team held``, ``team approve``, ``team deny``: the person's word on a push."""

from __future__ import annotations

import subprocess
from pathlib import Path

from team.config import Landing
from team.ledger import Ledger
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream

from .conftest import CommandLine, git


def hold(project: Project, ledger: Ledger, root: Path, tmp_path: Path, path: str) -> None:
    """A push of an agent that touches ``path``."""
    clone = tmp_path / path.replace("/", "_")
    git(tmp_path, "clone", "--quiet", str(project.upstream), str(clone))
    git(clone, "config", "user.name", "agent-01")
    git(clone, "config", "user.email", "agent-01@team.invalid")
    (clone / path).write_text("x\x1b[31m\n")
    git(clone, "add", "-A")
    git(clone, "commit", "--quiet", "-m", f"Change {path}")
    head = git(clone, "rev-parse", "HEAD")
    pack = subprocess.run(
        ["git", "pack-objects", "--revs", "--stdout", "-q"], cwd=clone, input=f"{head}\n^HEAD~1\n".encode(),
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    import io

    line = f"{'0' * 40} {head} refs/for/main\0report-status".encode()
    request = io.BytesIO(b"%04x" % (len(line) + 4) + line + b"0000" + pack)
    answer: list[bytes] = []
    pusher = Pusher("agent-01", "agent-01@team.invalid", "agent-01.1", "worker")
    Upstream(project, ledger, Landing()).receive(pusher, request, answer.append)
    assert b"held as" in b"".join(answer), answer


def test_look_approve_and_deny(team: CommandLine, root: Path, project: Project, ledger: Ledger, tmp_path: Path) -> None:
    assert "nothing is held" in team("held").out
    hold(project, ledger, root, tmp_path, "CLAUDE.md")
    hold(project, ledger, root, tmp_path, "AGENTS.md")
    listed = team("held")
    assert "1  agent-01" in listed.out and "only a person may change CLAUDE.md" in listed.out
    assert [push["number"] for push in team("held", "--json").json["held"]] == [1, 2]
    shown = team("held", "1").out
    assert "+x" in shown and "\x1b" not in shown
    approved = team("approve", "1", "--json").json
    assert approved["landed"] and git(project.upstream, "show", "main:CLAUDE.md").startswith("x")
    assert team("deny", "2", "-m", "not ours").code == 0
    assert "nothing is held" in team("held").out
    assert "has its verdict: denied by A Person: not ours" in team.refused("approve", "2")
    assert "no push 7 is held" in team.refused("deny", "7")
