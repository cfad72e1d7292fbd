"""What a test case is called: by the producer's list, in its result files, and on its command line."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from team.sampler.cases import Case
from team.sampler.suites.junit_xml import TestCase

PLACEHOLDER = re.compile(r"\{cases(?::([^{}]*))?\}")
_MOST_NAMES = 96 << 10  # the kernel takes an argument of 128 kB, and all of a shell command is one
_PLACES = ("", "src/test/java/", "src/test/kotlin/", "src/", "test/", "tests/")
_SUFFIXES = (".py", ".java", ".kt", ".js", ".ts", ".rb")


def command(template: str, names: Sequence[str]) -> str:
    """``template`` with ``names`` for ``{cases}``, each quoted for the shell; for ``{cases:SEP}`` with SEP between
    them: all of it one word (``{cases:|}``), or one word each if SEP holds a blank (``{cases: --tests }``)."""

    def joined(match: re.Match[str]) -> str:
        separator = " " if match[1] is None else match[1]
        if " " in separator:
            return separator.join(map(shlex.quote, names))
        return shlex.quote(separator.join(names))

    return PLACEHOLDER.sub(joined, template)


def batches(names: Iterable[str]) -> list[list[str]]:
    """``names`` in as few parts as fit on a command line."""
    parts: list[list[str]] = [[]]
    room = _MOST_NAMES
    for name in names:
        size = len(shlex.quote(name).encode("utf-8", "surrogateescape")) + 16
        if size > room and parts[-1]:
            parts.append([])
            room = _MOST_NAMES
        parts[-1].append(name)
        room -= size
    return parts


def identities(found: Iterable[TestCase]) -> dict[str, TestCase]:
    """Each test case by ``classname::name``; another of the same name gets ``#2``."""
    seen: Counter[str] = Counter()
    named = {}
    for case in found:
        seen[case.full] += 1
        named[case.full if seen[case.full] == 1 else f"{case.full} #{seen[case.full]}"] = case
    return named


class Listed:
    """The names that the list command printed. They may be spelt as the producer wants them on its command line
    (``Suite.Name``, ``com.example.T#name``, ``tests/test_t.py::T::name``), and may be classes or files of tests."""

    def __init__(self, base: Path, names: Sequence[str]) -> None:
        self._base = f"{base}/"
        self._exact = set(names)
        loose: dict[str, list[str]] = {}
        for name in names:
            loose.setdefault(self._spelling(name), []).append(name)
        self._loose = {key: found[0] for key, found in loose.items() if len(found) == 1}

    def of(self, case: TestCase) -> str | None:
        """The listed name to which ``case`` belongs: itself, the test of which it is one set of parameters, its class,
        or its file."""
        plain = re.split(r"[\[(]", case.name, maxsplit=1)[0].strip()
        for key in (case.full, f"{case.classname}.{case.name}", case.name, f"{case.classname}.{plain}"):
            if found := self._find(key):
                return found
        if found := self._find(case.file):
            return found
        parts = self._spelling(case.classname).split(".")  # a class may be listed by its file: tests/test_it.py
        above = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
        return next((found for key in above if (found := self._find(key))), None)

    def _find(self, key: str) -> str | None:
        if not key:
            return None
        return key if key in self._exact else self._loose.get(self._spelling(key))

    def _spelling(self, name: str) -> str:
        """``name``, however its parts are put together."""
        return re.sub(
            r"\.py(?=::|$)|::|[./\\# ]+", lambda match: "" if match[0] == ".py" else ".", name.removeprefix(self._base)
        )


def cases(base: Path, directory: str, named: Iterable[tuple[str, str, str]]) -> list[Case]:
    """A case for each name, with its class and the file that its producer told; either may be empty. ``base`` is where
    the producer runs, ``directory`` the same from the top of the work tree."""
    known: dict[tuple[str, str], str] = {}
    found = []
    for name, classname, file in named:
        if (classname, file) not in known:
            path = _file(base, classname, file)
            known[classname, file] = str(PurePosixPath(directory, path)) if path else ""
        found.append(Case(name, known[classname, file]))
    return found


def _file(base: Path, classname: str, told: str) -> str:
    """The file that defines a class of tests, relative to ``base``; empty where it is not to be found."""
    for path in (told.removeprefix(f"{base}/"), classname):
        if path and len(path) < 1000 and "\0" not in path and not path.startswith("/") and (base / path).is_file():
            return path
    parts = re.split(r"::|[.#$]", classname)
    if not classname or len(classname) > 300 or "/" in classname or "\0" in classname:
        return ""
    for size in range(len(parts), 0, -1):
        for place in _PLACES:
            for suffix in _SUFFIXES:
                path = f"{place}{'/'.join(parts[:size])}{suffix}"
                if (base / path).is_file():
                    return path
    return ""
