"""A real repository, a state directory of its own, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from team import worktree
from team.ledger import Ledger
from team.places import Project


@dataclass(frozen=True)
class Result:
    """What a verb answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """``team`` in ``root``."""

    root: Path
    env: dict[str, str]

    def __call__(self, *args: str, stdin: str | None = None, cwd: Path | None = None, **env: str) -> Result:
        done = subprocess.run(
            self.argv(*args),
            cwd=cwd or self.root,
            env=self.env | env,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-P", "-m", "team.cli", *args]

    def refused(self, *args: str, **options: Any) -> str:
        """The one line of a call that must exit with 2 and print nothing else."""
        result = self(*args, **options)
        assert (result.code, result.out) == (2, ""), result
        assert result.err.startswith("team: ") and result.err.count("\n") == 1, result.err
        return result.err.removeprefix("team: ").rstrip("\n")


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def bare_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with homes of its own and no key."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "160")
    return dict(os.environ)


@pytest.fixture
def root(tmp_path: Path, bare_env: dict[str, str]) -> Path:
    """A repository with one commit."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "config", "user.name", "A Person")
    git(root, "config", "user.email", "person@example.com")
    (root / "README.md").write_text("# project\n")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "Begin")
    return root


@pytest.fixture
def team(root: Path, bare_env: dict[str, str]) -> CommandLine:
    return CommandLine(root, bare_env)


@pytest.fixture
def project(root: Path) -> Project:
    """The project of ``root``, set up as the first ``up`` does."""
    return worktree.open_project(root)


@pytest.fixture
def ledger(project: Project) -> Iterator[Ledger]:
    ledger = Ledger(project.ledger)
    yield ledger
    ledger.close()
