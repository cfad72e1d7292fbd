"""The hand-over: what a session is told of what happened before it, by real sessions that run as processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from team import worktree
from team.config import Settings
from team.git import git
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Plan, Seat
from team.supervisor import supervise

PERSON = {f"GIT_{who}_{what}": "Pat" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
LANDS = "cat >/dev/null; echo $TEAM_SESSION >$TEAM_SESSION.txt; git add -A; git commit -qm '{}'; git push -q; "


class Site:
    """A project, runs of the team on it, and the command line in it."""

    def __init__(self, project: Project, out: Path) -> None:
        self.project, self.out = project, out

    def run(self, script: str, *seats: str, **changes: Any) -> None:
        chairs = tuple(Seat(name, "worker" if name.startswith("agent") else name[:-3]) for name in seats)
        plan = Plan(chairs, Settings(), self.project.root, "command", "process", "", client_argv=("sh", "-c", script))
        asyncio.run(asyncio.wait_for(supervise(self.project, replace(plan, **{"sessions": 1, **changes})), 60))

    def told(self, seat: str) -> str:
        """What a session of ``seat`` that starts now gets on its standard input."""
        self.run(f"cat >{self.out}", seat)
        return self.out.read_text()

    def events(self, *kinds: Kind, **narrow: Any) -> list[Event]:
        with closing(Ledger(self.project.ledger)) as ledger:
            return list(ledger.events(*kinds, **narrow))

    def append(self, kind: Kind, **event: Any) -> None:
        with closing(Ledger(self.project.ledger)) as ledger:
            ledger.append(kind, **event)

    def team(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-P", "-m", "team.cli", *args]
        return subprocess.run(argv, cwd=self.project.root, capture_output=True, text=True, env=os.environ, timeout=60)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="th-", dir="/tmp") as short:  # a socket's path is short
        for name in ("STATE_HOME", "CONFIG_HOME", "RUNTIME_DIR"):
            (Path(short) / name).mkdir(mode=0o700)
            monkeypatch.setenv(f"XDG_{name}", str(Path(short) / name))
        root = tmp_path / "project"
        root.mkdir()
        (root / "README.md").write_text("# project\n")
        git("init", "-q", "-b", "main", at=root)
        git("add", "-A", at=root)
        git("commit", "-q", "-m", "Begin", at=root, env=PERSON)
        yield Site(worktree.open_project(root), tmp_path / "told.md")


def section(text: str, heading: str) -> list[str]:
    """The points below ``heading``."""
    _, found, rest = text.partition(f"\n# {heading}\n")
    assert found or heading not in text
    return [line for line in rest.partition("\n# ")[0].split("\n") if line.startswith("- ")]


CHANGED, FAILED = "What others landed since your last session", "What failed before"


def test_others_work_since_the_last_session_is_told_and_ones_own_is_not(site: Site) -> None:
    assert CHANGED not in site.told("agent-01"), "a new seat reads the log of main"
    site.run(LANDS.format("Add a parser"), "agent-02")
    site.run(LANDS.format("Add \x1b[31ma printer"), "agent-01", "docs-01")
    newest, oldest = section(site.told("agent-02"), CHANGED)
    assert {newest.split(":")[0], oldest.split(":")[0]} == {"- agent-01", "- docs-01"}
    assert newest.endswith(" Add a printer") and "\x1b" not in newest
    told = section(site.told("agent-01"), CHANGED)
    assert [line.split(":")[0] for line in told] == ["- docs-01"]
    assert CHANGED not in site.told("agent-02")


def test_how_the_last_session_ended_is_told(site: Site) -> None:
    site.run("cat >/dev/null; exit 3", "agent-01")
    assert "\nThe last session of this seat failed: exit 3\n" in site.told("agent-01")
    assert "last session of this seat" not in site.told("agent-01")
    site.run("cat >/dev/null; sleep 60", "agent-01", seconds=1, settings=Settings.model_validate(NO_TIME))
    assert "\nThe last session of this seat was cut off: killed: the team was stopped\n" in site.told("agent-01")


NO_TIME = {"session": {"land_time": 0}}


def test_failures_worth_remembering_are_told(site: Site) -> None:
    for who in ("name", "email"):
        git("config", f"user.{who}", "pat@example.com", at=site.project.root)
    assert site.team("task", "add", "Fix the parser", "--name", "fix_parser").returncode == 0
    site.run("cat >/dev/null; team claim fix_parser --note x; exit 4", "agent-02")
    for session, failing in (("agent-02.1", ["test_a", "test_b"]), ("agent-01.1", ["test_a", "test_b"])):
        site.append(Kind.TEST_RUN, agent="agent-01", session=session, failing=failing, new=1, failed=2)
    tried, tests = section(site.told("agent-01"), FAILED)
    assert tried == "- task fix_parser was tried: 1 session failed on it, the last: agent-02.1 failed: exit 4"
    assert tests == "- tests that the work of several sessions broke at first: test_a (2)"


def test_team_prompt_prints_what_the_next_session_gets(site: Site) -> None:
    site.run(LANDS.format("Add it") + "exit 3", "agent-01")
    site.run(LANDS.format("Add more"), "agent-02")
    for agent in ("agent-01", "agent-02", "review-03"):
        shown = site.team("prompt", agent)
        assert (shown.returncode, shown.stderr) == (0, "")
        if agent != "review-03":
            assert f"# {CHANGED}" in shown.stdout or agent == "agent-02"
        assert shown.stdout == site.told(agent)
    before = site.events()
    document = site.team("prompt", "agent-02", "--json").stdout
    assert '"session": "agent-02.3"' in document and '"role": "worker"' in document
    assert site.events() == before, "looking changes nothing"


@pytest.mark.parametrize(
    "name", ["chef-01", "agent-1", "agent-²", "agent", "agent-00", "agent-" + "9" * 5000, "\x1b[31m"]
)
def test_team_prompt_of_nobody(site: Site, name: str) -> None:
    refused = site.team("prompt", name)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("team: there is no agent ") and refused.stderr.count("\n") == 1
    assert "\x1b" not in refused.stderr


def test_an_unknown_variable_is_told_before_anything_is_made(site: Site) -> None:
    (site.project.root / "roles").mkdir()
    (site.project.root / "roles" / "docs.md").write_text("Write {{what}}.\n")
    git("add", "-A", at=site.project.root)
    git("commit", "-q", "-m", "Role", at=site.project.root, env=PERSON)
    before = site.events()
    refused = site.team("up", "--runtime", "process", "--client", "command", "--role", "docs", "--", "true")
    assert refused.returncode == 2 and "docs.md: unknown variable {{what}}" in refused.stderr
    assert refused.stderr.count("\n") == 1 and site.events() == before
    assert "unknown variable {{what}}" in site.team("prompt", "docs-01").stderr


def test_a_running_team_keeps_the_texts_that_it_started_with(site: Site) -> None:
    (site.project.root / "AGENT_PROMPT.md").write_text("Mine, {{agent}}.\n")
    os.utime(site.project.root / "AGENT_PROMPT.md", (1, 1))
    site.append(Kind.TEAM_STARTED, pid=1, seats=[["agent-01", "worker"]])
    assert site.team("prompt", "agent-01").stderr == ""
    os.utime(site.project.root / "AGENT_PROMPT.md")
    assert "AGENT_PROMPT.md was changed after the team started" in site.team("prompt", "agent-01").stderr
