"""Reads JUnit XML as all kinds of tools write it: broken off, with bytes that are no XML, by the gigabyte, hostile."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from team.sampler.cases import Outcome

MOST_TEXT = 32 << 10
"""Characters kept of what one test case says."""
_MOST_SAID = 8000
_CHUNK = 1 << 18
_MOST_QUIET = 16 << 20
"""Bytes without a tag or text of their own: an attribute that large is an attack, or broken."""
_MOST_MENDED = 64 << 20
_BAD = {"failure": Outcome.FAILED, "error": Outcome.FAILED, "skipped": Outcome.SKIPPED}
_NO_XML = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(?:x0*(?:[0-8bcef]|1[0-9a-f]);|0*(?:[0-8]|1[124-9]|2[0-9]|3[01]);)",
    re.I,
)
_BROKEN = (expat.ExpatError, LookupError)  # the second: an encoding that nobody knows
_LOCATION = re.compile(r"^\S+:\d+:?$")
_COMPARED = re.compile(r"(?:expected|received|actual|got)\b.{0,40}?[:=]", re.I)


@dataclass
class TestCase:
    """One ``<testcase>``."""

    __test__ = False

    classname: str
    name: str
    file: str
    seconds: float
    outcome: Outcome = Outcome.PASSED
    reason: str = ""
    texts: list[str] = field(default_factory=list)

    @property
    def full(self) -> str:
        return f"{self.classname}::{self.name}" if self.classname else self.name


class BadXml(Exception):
    """What is wrong with a file, in a few words."""


def read(file: Path) -> Iterator[TestCase]:
    """The test cases of ``file``, in its order. Raises :class:`BadXml` after the last that is whole."""
    count = 0
    try:
        with file.open("rb") as opened:
            for case in _parse(iter(lambda: opened.read(_CHUNK), b"")):
                count += 1
                yield case
        return
    except OSError as error:
        raise BadXml(error.strerror or str(error)) from None
    except _BROKEN as error:
        why = str(error)
    if file.stat().st_size > _MOST_MENDED:
        raise BadXml(why)
    # Control characters and broken UTF-8 of what a test printed: no XML, but many tools write them as they come.
    mended = _NO_XML.sub("\ufffd", file.read_bytes().decode("utf-8", "replace"))
    mended = re.sub(r"\A<\?xml[^>]*\?>", "", mended.lstrip("\ufeff"))
    try:
        for number, case in enumerate(_parse([mended.encode()])):
            if number >= count:
                yield case
    except _BROKEN as error:
        raise BadXml(str(error)) from None


def _parse(chunks: Iterator[bytes] | list[bytes]) -> Iterator[TestCase]:
    reader = _Reader()
    for chunk in chunks:
        for start in range(0, len(chunk), _CHUNK):
            reader.feed(chunk[start : start + _CHUNK])
            yield from reader.found
            reader.found.clear()
    reader.parser.Parse(b"", True)
    yield from reader.found


class _Reader:
    """Collects test cases from the events of expat; keeps nothing else."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._entity
        self.found: list[TestCase] = []
        self._suites: list[str] = []
        self._case: TestCase | None = None
        self._inside = ""  # the child of the case in which we are
        self._kind = ""  # its type
        self._said = ""  # its text, the first of it
        self._room = 0
        self._quiet = 0

    def feed(self, data: bytes) -> None:
        self._quiet += len(data)
        self.parser.Parse(data, False)
        if self._quiet > _MOST_QUIET:
            raise expat.ExpatError("it has a piece of more than 16 MiB")

    def _entity(self, *_: object) -> None:
        # No tool declares entities; who does wants us to unfold them.
        raise expat.ExpatError("it declares entities")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._quiet = 0
        tag = tag.rpartition(":")[2]
        if tag == "testsuite":
            self._suites.append(attributes.get("name", ""))
        elif tag == "testcase" and self._case is None:
            classname = attributes.get("classname") or (self._suites[-1] if self._suites else "")
            self._case = TestCase(
                classname[:2000],
                attributes.get("name", "")[:2000],
                attributes.get("file", "")[:2000],
                _seconds(attributes.get("time", "")),
            )
            if attributes.get("status") in ("notrun", "disabled", "skipped") or attributes.get("result") == "skipped":
                self._case.outcome = Outcome.SKIPPED
            self._room = MOST_TEXT
        elif self._case is not None and not self._inside:
            self._inside = tag
            self._kind = attributes.get("type", "")
            self._said = attributes.get("message", "")[:_MOST_SAID] if tag in _BAD else ""
            self._keep(f"{self._said}\n" if self._said else "")

    def _text(self, data: str) -> None:
        self._quiet = 0
        if self._case is not None and self._inside in (*_BAD, "system-out", "system-err"):
            self._keep(data)
            if not self._said.strip():
                self._said = data[:_MOST_SAID]

    def _keep(self, data: str) -> None:
        if self._case is not None and data and self._room > 0:
            self._case.texts.append(data[: self._room])
            self._room -= len(data)

    def _end(self, tag: str) -> None:
        self._quiet = 0
        tag = tag.rpartition(":")[2]
        case = self._case
        if tag == "testsuite" and self._suites:
            self._suites.pop()
        elif case is None:
            return
        elif tag == "testcase":
            self.found.append(case)
            self._case, self._inside = None, ""
        elif tag == self._inside:
            # The first tells most; and what is skipped stays so: some tell of a "todo" how it fails.
            if tag in _BAD and (case.outcome is Outcome.PASSED or (tag == "skipped" and not case.reason)):
                case.outcome = _BAD[tag]
                case.reason = _reason(self._kind, self._said)
            self._inside = ""
            self._keep("\n")


def _reason(kind: str, said: str) -> str:
    """The line that tells most of a failure, with what was expected and the name of what was thrown."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = lines[0] if lines else ""
    more = lines[1:8]
    if _LOCATION.search(told) and more:  # it stands before the news
        told = f"{told} {more.pop(0)}"
    if told.endswith(":"):
        told = " ".join([told, *more[:3]])
    else:
        told = "; ".join([told, *(line for line in more if _COMPARED.match(line))])
    short = kind.rpartition(".")[2]
    if short and short not in told and short.isidentifier() and short[0].isupper():
        return f"{short}: {told}" if told else short
    return told


def _seconds(text: str) -> float:
    """The time as it was written: some put commas between thousands."""
    try:
        found = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return found if math.isfinite(found) and found > 0 else 0.0
