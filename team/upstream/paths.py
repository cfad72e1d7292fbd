"""Paths that mean something to ``team``, in whatever spelling a file system could take for them."""

from __future__ import annotations

import re
import unicodedata

from team.names import LOCK_DIR, TASK_DIR, nearest_task_name, task_problem
from team.places import LOG_LINK, POINTER
from team.text import clean
from team.upstream.refusal import Refused

RESERVED = (POINTER, LOG_LINK)
"""Names at the root of a work tree that are ours there; git would overwrite them on a merge (HAZARDS 42)."""
REDO = "`git pull`, `git reset --soft origin/main`, take it out (`git rm --cached PATH`), commit and push again"
"""How what must not even be in the history of a push is taken out of it."""
_LOCK = re.compile(rb"current_tasks/([^/]*)\.txt\Z")
_TICKET = re.compile(rb"tasks/([^/]*)\.md\Z")
# Newline, tab and carriage return occur in honest file names; a terminal obeys the rest.
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def shown(path: bytes) -> str:
    """``path`` as text; what is not UTF-8 becomes a replacement character. Not yet cleaned for a screen."""
    return path.decode("utf-8", "replace")


def fold(name: str) -> str:
    """``name`` as the most forgiving file system reads it: any case, any Unicode form, no hidden characters."""
    return unicodedata.normalize("NFKC", clean(unicodedata.normalize("NFKC", name)).casefold()).rstrip(" .")


def folded_root(path: bytes) -> str:
    """The first part of ``path``, folded."""
    return fold(path.split(b"/", 1)[0].decode("utf-8", "surrogateescape"))


def check_name(path: bytes) -> None:
    """Raise :class:`Refused` for a path that no landing may bring in."""
    if _CONTROL.search(path):
        raise Refused("name", f"a file name has control characters: {shown(path)!r}; {REDO}")
    root = folded_root(path)
    if root in RESERVED:
        raise Refused("name", f"{root} at the root belongs to team itself; {REDO}")


def lock_task(path: bytes) -> str | None:
    """The task whose lock ``path`` is, or None for a path outside the lock directory or its ``.gitkeep``.

    Raises :class:`Refused` for anything else in there: other names, subdirectories, other spellings.
    """
    if folded_root(path) != LOCK_DIR or path == b"current_tasks/.gitkeep":
        return None
    match = _LOCK.match(path)
    name = shown(match[1]) if match else ""
    if match and task_problem(name) is None:
        return name
    wanted = shown(path).split("/", 1)[-1].removesuffix(".txt")
    why = task_problem(name) if match else f"locks are files {LOCK_DIR}/<task>.txt"
    raise Refused("lock", f"{shown(path)!r} is no lock: {why}; try {LOCK_DIR}/{nearest_task_name(wanted)}.txt")


def ticket_task(path: bytes) -> str | None:
    """The task whose ticket ``path`` is, or None."""
    match = _TICKET.match(path)
    name = shown(match[1]) if match else ""
    return name if match and task_problem(name) is None else None


def is_bookkeeping(path: bytes) -> bool:
    """Whether ``path`` is a lock or a ticket; what else lies in ``tasks`` may well be a package of the project."""
    return folded_root(path) == LOCK_DIR or ticket_task(path) is not None or path == b"tasks/.gitkeep"


def in_task_dirs(path: bytes) -> bool:
    """Whether ``path`` is in ``current_tasks`` or ``tasks``, in any spelling, or takes their place."""
    return folded_root(path) in (LOCK_DIR, TASK_DIR)
