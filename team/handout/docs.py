"""Which documents were left behind: the files that they speak of have changed since they did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from team.handout.tree import File, Landing, is_test

_SUFFIXES = (".md", ".rst", ".adoc", ".txt", ".org", ".1")
_LICENCE = re.compile(r"(?:licen[cs]e|copying|changelog|changes|history|authors|requirements|news)\b", re.I)
_WORD = re.compile(r"[\w][\w./-]*")
_MOST_PATHS = 20_000
_WORDS = 50_000
"""Words of one document that are looked at."""


@dataclass(frozen=True)
class Stale:
    """A document, and what changed since it did."""

    document: str
    files: tuple[tuple[str, int], ...]
    """Each with the number of landings that changed it since; most first."""
    named: bool
    """Whether the document names them; else they lie in its directory."""


def is_document(path: str) -> bool:
    """Whether ``path`` is written for people."""
    name = PurePosixPath(path).name
    return (name.endswith(_SUFFIXES) or name.upper().startswith("README")) and not _LICENCE.match(name)


def stale(documents: Iterable[tuple[str, str]], landings: Sequence[Landing], files: Iterable[File]) -> list[Stale]:
    """The documents (path and text) that are behind, the furthest first. ``landings`` are newest first."""
    touched: dict[str, list[int]] = {}
    for number, landing in enumerate(landings):
        for path in landing.paths:
            touched.setdefault(path, []).append(number)
    there = {f.path for f in files}
    code = [p for p in touched if p in there and not is_document(p) and not is_test(p)][:_MOST_PATHS]
    names, texts = _names(code), list(documents)
    homes = {str(PurePosixPath(path).parent) for path, _ in texts if PurePosixPath(path).name.startswith("README")}
    found = []
    for path, text in texts:
        before = touched.get(path, [len(landings)])[0]  # where it did not change in all that was read, all is since
        named = _since(_named(text, names), touched, before)
        if named:
            found.append(Stale(path, named, True))
        elif PurePosixPath(path).name.startswith("README"):
            below = (p for p in code if _home(p, homes) == str(PurePosixPath(path).parent))
            if around := _since(below, touched, before):
                found.append(Stale(path, around, False))
    return sorted(found, key=lambda s: (not s.named, -sum(count for _, count in s.files), s.document))


def _since(paths: Iterable[str], touched: dict[str, list[int]], before: int) -> tuple[tuple[str, int], ...]:
    counts = [(path, sum(number < before for number in touched[path])) for path in paths]
    return tuple(sorted((c for c in counts if c[1]), key=lambda c: (-c[1], c[0])))


def _names(code: Iterable[str]) -> dict[str, str]:
    """How a text may call each path: by all of it, the end of it, or as a module; what fits several names none."""
    names: dict[str, str] = {}
    for path in code:
        parts = path.split("/")
        stem = path.rsplit(".", 1)[0]
        calls = {"/".join(parts[n:]) for n in range(len(parts))} | ({stem.replace("/", ".")} if "/" in stem else set())
        for call in calls:
            names[call] = "" if names.get(call, path) != path else path
    return names


def _named(text: str, names: dict[str, str]) -> list[str]:
    found: dict[str, None] = {}
    for number, match in enumerate(_WORD.finditer(text)):
        if number >= _WORDS:
            break
        word = match[0].rstrip("./-")
        path = names.get(word, "")
        if path and ("." in word or "/" in word):
            found[path] = None
    return list(found)


def _home(path: str, homes: set[str]) -> str:
    """The nearest directory above ``path`` that has a README."""
    return next((str(d) for d in PurePosixPath(path).parents if str(d) in homes), "")
