"""Names: which a task may have, and what a seat is called."""

from __future__ import annotations

import re
import unicodedata

TASK_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,99})\Z")
LOCK_DIR = "current_tasks"
TASK_DIR = "tasks"


def task_problem(name: str) -> str | None:
    """Why ``name`` is no task name, or None when it is one.

    A task name is 1 to 100 characters of ``[a-z0-9._-]``, begins with a letter or a digit, has no ``..`` and
    does not end in ``.``, ``.lock`` or ``.md``, so that it is safe as a file name, a ref and an argument.
    """
    if not name:
        return "it is empty"
    if len(name) > 100:
        return f"it has {len(name)} characters, at most 100 are allowed"
    if not TASK_NAME.match(name):
        return "only a-z, 0-9, '.', '_' and '-' are allowed, and a letter or digit first"
    if ".." in name or name.endswith((".", ".lock", ".md", ".txt")):
        return "'..' and the endings '.', '.lock', '.md' and '.txt' are not allowed"
    return None


def nearest_task_name(name: str) -> str:
    """The good task name nearest to ``name``: accents dropped, lower case, everything else turned into ``_``."""
    flat = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    flat = re.sub(r"[^a-z0-9._-]+", "_", flat)
    flat = re.sub(r"\.{2,}", ".", flat)
    while True:
        shorter = re.sub(r"(\.lock|\.md|\.txt)\Z", "", flat).strip("._-")[:100].strip("._-")
        if shorter == flat:
            break
        flat = shorter
    return flat or "task"


def lock_path(task: str) -> str:
    """The path of the lock of ``task`` in the tree of main."""
    return f"{LOCK_DIR}/{task}.txt"


def task_path(task: str) -> str:
    """The path of the ticket of ``task`` in the tree of main, where somebody wrote one."""
    return f"{TASK_DIR}/{task}.md"


def seat_name(role: str, number: int) -> str:
    """``agent-03`` for the third worker, ``review-01`` for the first seat of the role ``review``."""
    return f"{'agent' if role == 'worker' else role}-{number:02d}"


def agent_email(agent: str) -> str:
    """The address an agent commits with. ``.invalid`` never resolves (RFC 2606), so no forge credits a person."""
    return f"{agent}@team.invalid"
