"""The task of a culprit: the unit's path as a task name, and back."""

from __future__ import annotations

import hashlib
import re

from team.names import task_problem

PREFIX = "fix_"
_LONGEST = 100
_SAFE = re.compile(r"[a-z0-9._]")
_DIGEST = 10


def task_of(unit: str) -> str:
    """The name of the task that fixes ``unit``: ``/`` is ``--``, ``-`` is ``-_``, a capital is ``-`` and its small
    letter, other bytes are ``-0`` and two digits; a name too long ends in a hash, and has no way back."""
    name = PREFIX + "".join(_escaped(char) for char in unit)
    if len(name) > _LONGEST or task_problem(name):
        digest = hashlib.blake2b(unit.encode("utf-8", "surrogateescape"), digest_size=_DIGEST // 2).hexdigest()
        name = f"{name[: _LONGEST - _DIGEST - 3].rstrip('-_.')}-1{digest}"
    return name


def _escaped(char: str) -> str:
    if char == "/":
        return "--"
    if char == "-":
        return "-_"
    if _SAFE.match(char):
        return char
    if "A" <= char <= "Z":
        return f"-{char.lower()}"
    return "".join(f"-0{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


_TOKEN = re.compile(rb"--|-_|-0[0-9a-f]{2}|-[a-z]|[a-z0-9._]")


def unit_of(task: str) -> str | None:
    """The unit of which ``task`` is the task; None for another task, and for one whose name was too long."""
    if not task.startswith(PREFIX):
        return None
    rest = task[len(PREFIX) :].encode()
    found, at = bytearray(), 0
    while at < len(rest):
        match = _TOKEN.match(rest, at)
        if match is None:
            return None
        token, at = match[0], match.end()
        if token == b"--":
            found += b"/"
        elif token == b"-_":
            found += b"-"
        elif token.startswith(b"-0"):
            found.append(int(token[2:], 16))
        else:
            found += token[1:].upper() if token.startswith(b"-") else token
    unit = found.decode("utf-8", "surrogateescape")
    return unit if task_of(unit) == task else None
