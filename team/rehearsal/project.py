"""Writes the demo project: a small calculator with failing tests and a dozen tickets."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from team.git import git

SOURCE = Path(__file__).parent / "demo"
_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (
        ("NAME", "Ada Example"),
        ("EMAIL", "ada@example.invalid"),
        ("DATE", "2025-01-06T09:00:00+00:00"),
    )
}
_COMMITS = (
    ("Begin a pocket calculator", ("README.md", ".gitignore", "abacus")),
    ("Say in tests what it should do", ("tests",)),
    ("Write down what is missing", ("tasks", "current_tasks", "NOTES.md", "team.toml")),
)


def make(path: Path) -> Path:
    """Write the demo project to ``path`` (which must not exist) as a repository of three commits; returns ``path``.

    Author and dates are fixed, so its commits have the same names everywhere.
    """
    shutil.copytree(SOURCE, path, ignore=shutil.ignore_patterns("__pycache__"))
    git("init", "-q", "-b", "main", at=path)
    for subject, paths in _COMMITS:
        git("add", "--", *paths, at=path)
        git("commit", "-q", "-m", subject, at=path, env=_AUTHOR)
    return path


@dataclass(frozen=True)
class Tests:
    """How a run of the demo's tests ended."""

    ran: int
    failed: int


def run_tests(tree: Path, seconds: float = 60) -> Tests:
    """Run the demo's tests in ``tree``, a checkout whose files are ours, as a process of their own."""
    code = "import unittest,sys; r=unittest.TestResult(); unittest.defaultTestLoader.discover('.').run(r); "
    code += "print(r.testsRun, len({t.id() for t, _ in r.failures + r.errors}))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=tree, capture_output=True, text=True, timeout=seconds, check=True
    )
    ran, failed = done.stdout.split()[-2:]
    return Tests(int(ran), int(failed))
