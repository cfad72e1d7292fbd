"""What a shell may offer for an argument: agents, sessions, tasks, roles. Fast, and silent where there are none.

Nothing heavy is imported, no ledger is read, and no error is shown: a shell would print it into the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import click

from team.places import Project

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _root() -> Path | None:
    here = Path.cwd()
    return next((path for path in (here, *here.parents) if (path / ".git").exists()), None)


def _project() -> Project | None:
    from team.places import find_project

    root = _root()
    return None if root is None else find_project(root)


def _completer(names: Callable[[], Iterable[str]]) -> Completer:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        with suppress(Exception):
            return sorted({name for name in names() if name.startswith(incomplete)})
        return []

    return complete


def _agents() -> Iterable[str]:
    project = _project()
    return [] if project is None else (path.name for path in project.logs.iterdir() if path.is_dir())


def _tasks() -> Iterable[str]:
    from team.git import git
    from team.names import LOCK_DIR, TASK_DIR, task_problem

    project = _project()
    if project is None:
        return []
    listed = git("ls-tree", "-z", "--name-only", "main", f"{TASK_DIR}/", f"{LOCK_DIR}/", at=project.upstream)
    found = (Path(path).stem for path in listed.decode("utf-8", "replace").split("\0"))
    return (name for name in found if task_problem(name) is None)  # agents chose the names of the files


def _roles() -> Iterable[str]:
    from team.prompt import roles

    root = _root()
    return [] if root is None else roles(root)


def _rescued() -> Iterable[str]:
    from team.git import git

    project = _project()
    if project is None:
        return []
    return git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/rescue", at=project.rescue).decode().split()


agents = _completer(_agents)
"""Agents that have logs."""
tasks = _completer(_tasks)
"""Tasks on main, held ones too."""
roles = _completer(_roles)
"""Roles that a seat may have."""
rescued = _completer(_rescued)
"""Sessions that left something behind."""
