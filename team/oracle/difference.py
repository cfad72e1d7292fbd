"""What kind of difference there is between two outcomes of one input: what groups them, and names their task."""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from team.names import nearest_task_name
from team.text import clean, one_line

_SHOWN = 5  # lines of each side
_BEFORE = 1
_WIDTH = 120


@dataclass(frozen=True)
class Outcome:
    """What a run on one input came to, normalised."""

    code: int
    """Exit code as a shell tells it: 128 and more for a signal."""
    why: str
    """Why it was ended: "timed out", "memory", "lost"; empty where it ended by itself."""
    streams: Mapping[str, str]
    """What counts: ``stdout``, ``stderr``, and ``file NAME`` for what it wrote."""
    errors: str = field(default="", compare=False)
    """Standard error, whether it counts or not."""
    seconds: float = field(default=0.0, compare=False)
    cut: bool = field(default=False, compare=False)
    """It printed more than is compared."""

    @property
    def ending(self) -> str:
        """In words that group: ``exit 0``, ``signal SEGV``, ``timed out``."""
        if self.why:
            return {"memory": "out of memory"}.get(self.why, self.why)
        if self.code > 128:
            try:
                return f"signal {signal.Signals(self.code - 128).name.removeprefix('SIG')}"
            except ValueError:
                pass
        return f"exit {self.code}"


@dataclass(frozen=True)
class Difference:
    """How two outcomes differ."""

    signature: str
    """One line; the same for what is probably the same bug."""
    excerpt: str
    """The first lines that differ, ``-`` the reference's and ``+`` the candidate's, for a person."""


def difference(reference: Outcome, candidate: Outcome) -> Difference | None:
    """How ``candidate`` differs; None where it does not."""
    if reference == candidate:
        return None
    where = next(_differing(reference, candidate), None)
    ones, others = (reference.streams.get(where), candidate.streams.get(where)) if where else ("", "")
    parts = [reference.ending]
    excerpt = []
    if reference.ending != candidate.ending:
        parts = [f"{reference.ending} -> {candidate.ending}"]
        excerpt = [f"- {reference.ending}", f"+ {candidate.ending}"]
        # What the one that failed said tells bugs apart; that its output stops somewhere follows from it.
        if telling := _telling(candidate, reference) or _telling(reference, candidate):
            parts.append(telling)
    elif where:
        parts.append(f"{_name_shape(where)}: {_kind(ones, others)}")
    if where:
        excerpt += [f"{one_line(where, 80)}:", *_excerpt(ones or "", others or "")]
    return Difference(one_line("; ".join(parts), 160), "\n".join(excerpt))


def task_name(signature: str) -> str:
    """The task of all differences with ``signature``: the same whoever finds them."""
    words = re.sub(r"[^a-z0-9]+", "_", signature.lower().replace("->", " to ")).strip("_")
    digest = hashlib.sha256(signature.encode()).hexdigest()[:6]
    return nearest_task_name(f"compare_{words[:60].strip('_')}_{digest}")


def _differing(reference: Outcome, candidate: Outcome) -> Iterator[str]:
    """The streams that differ, the telling first: standard output, files, standard error."""
    names = reference.streams.keys() | candidate.streams.keys()
    for name in sorted(names, key=lambda name: (name != "stdout", name == "stderr", name)):
        if reference.streams.get(name) != candidate.streams.get(name):
            yield name


# --- what kind

_TOKEN = re.compile(
    r"0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?|\d+|[^\W\d]\w*|\s+|.", re.S
)
_VALUES = {"nan", "inf", "true", "false", "null", "nil", "none", "undefined"}
_ERROR = re.compile(r"error|fatal|panic|assert|abort|exception|overflow|fail|cannot|invalid", re.I)
_QUOTED = re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`']*['`]|‘[^’]*’|“[^”]*”")
_PATH = re.compile(r"(?<![\w.])[\w.+-]*/[\w./+-]*")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?")


def _kind(reference: str | None, candidate: str | None) -> str:
    if reference is None:
        return "only the candidate wrote it"
    if candidate is None:
        return "only the reference wrote it"
    if "\0" in reference or "\0" in candidate:
        return "binary, other length" if len(reference) != len(candidate) else "binary, other bytes"
    ones, others = reference.splitlines(), candidate.splitlines()
    if ones == others:
        return "line ends"
    if not ones or not others:
        return "empty -> text" if others else "text -> empty"
    if sorted(ones) == sorted(others):
        return "order of lines"
    if "".join(reference.split()) == "".join(candidate.split()):
        return "white space"
    one, other = next(pair for pair in zip_longest(ones, others) if pair[0] != pair[1])
    if one is None or other is None:
        return "lines too many" if one is None else "lines missing"
    tokens = zip_longest(_TOKEN.findall(one), _TOKEN.findall(other))
    first, second = next(pair for pair in tokens if pair[0] != pair[1])
    if first and second and first.lower() == second.lower():
        return "upper and lower case"
    return f"{_shape(first)} -> {_shape(second)}"


def _shape(token: str | None) -> str:
    """A token without what differs from input to input."""
    if token is None:
        return "end of line"
    if token.isspace():
        return "space"
    if token[0].isdigit() or (token[0] == "." and len(token) > 1):
        return "hex" if token[:2] in ("0x", "0X") else "whole number" if token.isdigit() else "number"
    if token[0].isalpha() or token[0] == "_":
        return token.lower() if token.lower() in _VALUES else "word"
    return token if token.isprintable() and token.isascii() else "byte"


def _telling(outcome: Outcome, other: Outcome) -> str:
    """Where and in what shape the failed ``outcome`` said what went wrong; empty where it did not fail or say."""
    if not outcome.code:
        return ""
    if lines := [line for line in outcome.errors.splitlines() if line.strip()]:
        return "stderr: " + _line_shape(next(filter(_ERROR.search, lines), lines[-1]))
    there = set(other.streams.get("stdout", "").splitlines())
    lines = [line for line in outcome.streams.get("stdout", "").splitlines() if line not in there]
    line = next(filter(_ERROR.search, lines), "")
    return line and "stdout: " + _line_shape(line)


def _line_shape(line: str) -> str:
    """``line`` without what differs from input to input."""
    return one_line(_NUMBER.sub("N", _PATH.sub("PATH", _QUOTED.sub("QUOTED", line[:400]))), 80)


def _name_shape(stream: str) -> str:
    return re.sub(r"\d+", "N", stream)


def _excerpt(reference: str, candidate: str) -> Iterator[str]:
    ones, others = reference.splitlines(), candidate.splitlines()
    pairs = enumerate(zip_longest(ones, others))
    at = next((at for at, (one, other) in pairs if one != other), max(len(ones) - 1, 0))
    column = _first_difference(ones[at], others[at]) if at < min(len(ones), len(others)) else 0
    yield from (f"  {_shown(line)}" for line in ones[max(at - _BEFORE, 0) : at])
    yield from _side("-", ones[at:], column)
    yield from _side("+", others[at:], column)


def _first_difference(one: str, other: str) -> int:
    shared = min(len(one), len(other))
    return next((column for column in range(shared) if one[column] != other[column]), shared)


def _side(sign: str, lines: list[str], column: int) -> Iterator[str]:
    """``column``: where the first of ``lines`` differs; that must be seen."""
    if lines and column > _WIDTH // 2:
        lines = ["…" + lines[0][column - _WIDTH // 4 :], *lines[1:]]
    yield from (f"{sign} {_shown(line)}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"{sign} ... {len(lines) - _SHOWN} lines more"


def _shown(line: str) -> str:
    """``line`` with what cannot be seen, or a terminal would obey, written as escapes: it may be the difference."""
    seen = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line[:_WIDTH])
    return clean(seen) + "…" * (len(line) > _WIDTH)
