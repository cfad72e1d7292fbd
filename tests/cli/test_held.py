"""``team held``, ``team approve``, ``team deny``: the person's word on a push or an action."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from team.actions import Actions
from team.config import Landing
from team.ledger import Kind, Ledger
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


def test_actions_beside_pushes(team: CommandLine, root: Path, project: Project, ledger: Ledger, tmp_path: Path) -> None:
    hold(project, ledger, root, tmp_path, "CLAUDE.md")
    actions = Actions(ledger)
    who = {"agent": "agent-01", "session": "agent-01.1"}
    ledger.append(Kind.TEAM_STARTED, pid=1, seats=[["agent-01", "worker"]], client="builtin", runtime="docker")
    ledger.append(Kind.SESSION_STARTING, **who, n=1, role="worker", base="abc", log="")
    ledger.append(Kind.SESSION_RUNNING, **who, seconds=1)

    def ask(command: str) -> str:
        question = json.dumps({"tool": "bash", "input": {"command": command}, "note": "leaves the house"})
        return str(actions.answer("ask", question.encode(), "agent-01", "agent-01.1", "fix_parser")["id"])

    def state(id: str) -> tuple[str, str]:
        answer = actions.answer("state", json.dumps({"id": id}).encode(), "agent-01", "agent-01.1", None)
        return answer["state"], answer["note"]

    assert [ask("npm publish\n\x1b[2J --now"), ask("rm -rf data")] == ["a1", "a2"]
    listed = team("held").out
    assert "1  agent-01" in listed and "a1  agent-01" in listed and "bash: rm -rf data" in listed
    assert "\x1b" not in listed
    document = team("held", "--json").json
    assert [action["id"] for action in document["actions"]] == ["a1", "a2"] and len(document["held"]) == 1
    shown = team("held", "a1").out
    assert "action a1 of agent-01 (agent-01.1, task fix_parser): bash" in shown and "held: leaves the house" in shown
    assert "npm publish\n\\u{1b}[2J --now\n" in shown
    seen = team("ps", "--json").json
    assert {"action": "a1", "state": "held"} in seen["waiting"] and seen["seats"][0]["asks"][
        "a2"
    ] == "bash: rm -rf data"
    screen = team("ps").out
    assert "2 actions held for you (a1, a2): `team held`" in screen
    assert "waits for you" in next(line for line in screen.splitlines() if line.startswith("agent-01"))
    assert "action a1 is allowed" in team("approve", "a1", "-m", "once").out
    assert team("deny", "a2", "-m", "use git clean", "--json").json == {"action": "a2", "approved": False}
    assert (state("a1"), state("a2")) == (("allowed", "once"), ("denied", "use git clean"))
    assert "waits for you" not in team("ps").out
    assert "action a1 is allowed already, by A Person: once" in team.refused("deny", "a1")
    assert "no action a7 is held; held: none" in team.refused("held", "a7")
    assert "a push is called like 3, an action like a3" in team.refused("approve", "b1")
