"""The files that ``team init`` writes into a project. None is ever overwritten."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from team import config_file
from team.errors import TeamError
from team.names import LOCK_DIR, TASK_DIR
from team.worktree import user_git


@dataclass(frozen=True)
class Written:
    """What :func:`write` did; paths are relative to the work tree."""

    created: tuple[str, ...]
    existed: tuple[str, ...]
    ignored: tuple[str, ...]
    """Created, but left out of commits by the project's ``.gitignore``."""


def files() -> dict[str, str]:
    """Path in the work tree -> content."""
    from team.prompt import packaged_prompt

    templates = resources.files("team") / "templates"
    return {
        config_file.NAME: (templates / "team.toml").read_text("utf-8"),
        "AGENT_PROMPT.md": packaged_prompt(),
        f"{LOCK_DIR}/.gitkeep": "",
        f"{TASK_DIR}/README.md": (templates / "tasks_README.md").read_text("utf-8"),
    }


def write(root: Path, contents: Mapping[str, str]) -> Written:
    """Write ``contents`` below ``root``, all that are missing or, where one cannot be written, none.

    Raises :class:`TeamError` where a file of the user's has the name of a directory that is needed.
    """
    missing = [path for path in contents if not os.path.lexists(root / path)]
    for path in missing:
        parent = (root / path).parent
        if os.path.lexists(parent) and not parent.is_dir():
            name = parent.relative_to(root)
            raise TeamError(f"{name} is a file, team keeps {path} in a directory of that name; rename the file")
        if not parent.resolve().is_relative_to(root.resolve()):
            raise TeamError(f"{parent.relative_to(root)} is a symbolic link out of the work tree; remove it first")
    created: list[Path] = []
    try:
        for path in missing:
            _create(root / path, contents[path], created)
    except OSError as error:
        for made in reversed(created):
            made.rmdir() if made.is_dir() else made.unlink()
        raise TeamError(f"{error.filename} cannot be written: {error.strerror}; nothing was written") from None
    existed = tuple(path for path in contents if path not in missing)
    return Written(tuple(missing), existed, _ignored(root, missing))


def _create(path: Path, content: str, created: list[Path]) -> None:
    if not path.parent.exists():
        path.parent.mkdir()
        created.append(path.parent)
    with path.open("x", encoding="utf-8", newline="\n") as file:
        created.append(path)
        file.write(content)


def _ignored(root: Path, paths: list[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    out = user_git(root, "check-ignore", "--", *paths, ok=(0, 1)).out
    return tuple(os.fsdecode(out).splitlines())
