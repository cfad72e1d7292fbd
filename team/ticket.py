"""A ticket as a person writes it on the host: its name from a title, and its text."""

from __future__ import annotations

import sys
from pathlib import Path

from team.errors import TeamError
from team.names import nearest_task_name, task_problem
from team.text import clean

MOST_BYTES = 256 << 10
TEMPLATE = """\
# {title}

- What changes:
- What must not change:
- Which check proves it:
- Which files matter:
- What done means:
"""


def name_and_title(text: str, name: str | None) -> tuple[str, str]:
    """The task name and the title that ``text`` (a title, or a name alone) and ``--name`` stand for.

    Words with spaces are a title and are turned into a name; a single word must be a good name itself. Raises
    :class:`TeamError` with the nearest good name.
    """
    text = text.strip(" ")
    if any(not c.isprintable() for c in text):
        raise _bad(text, "a title is one line")
    is_title = " " in text or name is not None
    chosen = name if name is not None else nearest_task_name(text) if is_title else text
    problem = task_problem(chosen)
    if problem is not None:
        raise _bad(chosen, problem)
    if name is None and is_title and len(text) > 100:
        raise _bad(text, f"the title has {len(text)} characters, at most 100 make a name")
    if name is None and is_title and chosen == "task":
        raise _bad(text, "nothing of the title is left in a name")
    return chosen, text if is_title else text.replace("_", " ")


def _bad(text: str, problem: str) -> TeamError:
    near = nearest_task_name(text)
    shown = ascii(clean(text))[1:-1]
    shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
    return TeamError(f"{shown!r} is no task name: {problem}; try `--name {near}`")


def ticket(title: str, file: str | None) -> str:
    """The text of a ticket: from ``file`` (``-``: standard input), or a template that holds ``title``.

    Raises :class:`TeamError` for a file that cannot be read, is empty, too large or no text.
    """
    if file is None:
        return TEMPLATE.format(title=title)
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else _read(Path(file))
        body = data.decode("utf-8").strip()
    except OSError as error:
        raise TeamError(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise TeamError(f"{file} is not UTF-8 text; a ticket is Markdown") from None
    if len(data) > MOST_BYTES:
        raise TeamError(
            f"{file} has more than {MOST_BYTES >> 10} KiB; a ticket is a page: put the rest in a file of its own"
        )
    if not body or "\0" in body:
        raise TeamError(f"{file} is empty or no text; a ticket says what changes and which check proves it")
    return f"{body}\n" if body.startswith("# ") else f"# {title}\n\n{body}\n"


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise TeamError(f"{path} is no regular file; a ticket is Markdown")
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)
