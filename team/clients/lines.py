"""What readers of JSON lines share: parsing what may be anything, and showing it in few, short, printable lines."""

from __future__ import annotations

import json
from typing import Any

from team.text import clean, one_line

BIGGEST_LINE = 1 << 20
"""Bytes; a longer line is not parsed."""
TEXT_LINES, RESULT_LINES, WIDTH = 40, 6, 400
"""How much of a message, and of a tool's result, is shown, and how wide."""

# The input that tells best what a tool call does, in order of preference.
_TELLING = (
    "command", "file_path", "filePath", "notebook_path", "pattern", "url", "query", "description", "prompt", "path"
)  # fmt: skip


def parse(line: bytes) -> dict[str, Any] | None:
    """The event on ``line``, or None where it is none: not JSON, not an object, too long, too deep."""
    if len(line) > BIGGEST_LINE or not line.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also bad UTF-8, and numbers of thousands of digits
        return None
    return event if isinstance(event, dict) else None


def telling(given: object) -> str:
    """One line on a tool's input: for a shell command its first line."""
    if not isinstance(given, dict):
        return ""
    for key in _TELLING:
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            more = value.strip().count("\n")
            first = one_line(value.strip()[: 2 * WIDTH].split("\n", 1)[0], WIDTH)
            return f"{first} (and {more} more)" if more else first
    return one_line(", ".join(str(key)[:40] for key in list(given)[:10]), WIDTH)


def lines(text: object, most: int) -> list[str]:
    """At most ``most`` lines of ``text``, each cut to the width; a last line tells how many were left out."""
    if not isinstance(text, str) or not text.strip():
        return []
    parts = text.strip("\n").split("\n")
    shown = [cut(p) for p in parts[:most]]
    return [*shown, f"… {len(parts) - most} more lines"] if len(parts) > most else shown


def cut(line: str) -> str:
    line = clean(line[: 2 * WIDTH]).rstrip()
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def first_lines(text: str, most: int) -> str:
    return "\n".join(lines(text, most))


def word(value: object) -> str:
    """``value`` as a short word of ours, empty where it is no text."""
    return one_line(value, 60) if isinstance(value, str) else ""


def number(value: object) -> str:
    """``value`` as a short number, ``?`` where it is none."""
    return str(value)[:8] if isinstance(value, int) and abs(value) < 10**8 and not isinstance(value, bool) else "?"
