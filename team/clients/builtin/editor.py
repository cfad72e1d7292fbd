"""The text editor: view, create, str_replace, insert. A file that changed since it was seen is not written over."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from team.clients.builtin.output import SHOWN

MOST_BYTES = 10 << 20
"""Of a file that is edited."""
_MOST_ENTRIES = 400
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_AROUND = 4
"""Lines that are shown before and after an edit."""


class Wrong(Exception):
    """The call cannot be done; the message is for the model."""


@dataclass
class Editor:
    """Edits files; remembers of each what the model has seen of it."""

    root: Path
    """What relative paths are relative to."""
    _seen: dict[Path, str] = field(default_factory=dict)
    """File -> digest of what it held when it was last shown or written here."""

    def view(self, path: str, first: int | None = None, last: int | None = None) -> str:
        """A file with line numbers, from line ``first`` to ``last`` (-1: its end), or what is in a directory."""
        place = self._place(path)
        if place.is_dir():
            return _listing(place)
        text = self._read(place)
        lines = text.split("\n")
        if lines[-1] == "" and len(lines) > 1:
            lines.pop()
        begin = 1 if first is None else first
        end = len(lines) if last is None or last == -1 else min(last, len(lines))
        if not 1 <= begin <= len(lines) or end < begin:
            raise Wrong(f"{path} has {len(lines)} lines; there are no lines {first} to {last}")
        if not text:
            return f"({path} is empty)"
        return _numbered(lines, begin, end)

    def create(self, path: str, text: str) -> str:
        """Write a new file, or a whole one that has been seen as it is."""
        place = self._place(path)
        if place.exists() and not place.is_file():
            raise Wrong(f"{path} is no regular file")
        if place.exists():
            self._unchanged(place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Wrong(f"{path}: {error.strerror}") from None
        self._write(place, text)
        return f"wrote {path}, {text.count(chr(10)) + (not text.endswith(chr(10)) and bool(text))} lines"

    def replace(self, path: str, old: str, new: str) -> str:
        """Put ``new`` where ``old`` is, which must be there exactly once."""
        place = self._place(path)
        text = self._read_unchanged(place, must_be_seen=False)
        if "\r\n" in text and "\r" not in old:
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        if not old:
            raise Wrong("old_str is empty; to write a whole file use `create`")
        count = text.count(old)
        if count == 0:
            raise Wrong(f"old_str is not in {path}, exactly as given (spaces and newlines count); view the file")
        if count > 1:
            raise Wrong(f"old_str is in {path} {count} times; give more lines around it, so that it is there once")
        at = text.index(old)
        whole = text[:at] + new + text[at + len(old) :]
        self._write(place, whole)
        line = text.count("\n", 0, at) + 1
        return f"edited {path}:\n" + _numbered(whole.split("\n"), line - _AROUND, line + new.count("\n") + _AROUND)

    def insert(self, path: str, after: int, new: str) -> str:
        """Put ``new`` after line ``after`` (0: at the top), which must have been seen."""
        place = self._place(path)
        text = self._read_unchanged(place, must_be_seen=True)
        lines = _LINE.findall(text)  # as they are shown: other marks, a form feed say, end no line
        if not 0 <= after <= len(lines):
            raise Wrong(f"{path} has {len(lines)} lines; there is no line {after}")
        if "\r\n" in text:
            new = new.replace("\r\n", "\n").replace("\n", "\r\n")
        newline = "\r\n" if "\r\n" in text else "\n"
        if after and not lines[after - 1].endswith("\n"):
            lines[after - 1] += newline
        if not new.endswith("\n"):
            new += newline
        whole = "".join([*lines[:after], new, *lines[after:]])
        self._write(place, whole)
        begin = after + 1 - _AROUND
        return f"edited {path}:\n" + _numbered(whole.split("\n"), begin, after + new.count("\n") + _AROUND)

    def _place(self, path: str) -> Path:
        if "\0" in path or not path.strip():
            raise Wrong("path: expected the path of a file")
        try:
            return (self.root / path).resolve()
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise Wrong(f"{path}: {error}") from None

    def _read(self, place: Path) -> str:
        try:
            if place.exists() and not place.is_file():
                raise Wrong(f"{place} is no regular file")
            if place.stat().st_size > MOST_BYTES:
                raise Wrong(f"{place} has more than {MOST_BYTES >> 20} MiB; use bash")
            data = place.read_bytes()
        except OSError as error:
            raise Wrong(f"{place}: {error.strerror}") from None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Wrong(f"{place} is not UTF-8 text; use bash") from None
        self._seen[place] = _digest(data)
        return text

    def _read_unchanged(self, place: Path, must_be_seen: bool) -> str:
        known = self._seen.get(place)
        text = self._read(place)
        if known is not None:
            self._seen[place], now = known, self._seen[place]
            if now != known:
                raise _changed(place)
        elif must_be_seen:
            del self._seen[place]
            raise Wrong(f"{place} has not been viewed; view it first")
        return text

    def _unchanged(self, place: Path) -> None:
        known = self._seen.get(place)
        if known is None:
            raise Wrong(f"{place} exists and has not been viewed; view it first, or use str_replace")
        try:
            same = place.stat().st_size <= MOST_BYTES and known == _digest(place.read_bytes())
        except OSError as error:
            raise Wrong(f"{place}: {error.strerror}") from None
        if not same:
            raise _changed(place)

    def _write(self, place: Path, text: str) -> None:
        data = text.encode("utf-8", "replace")
        try:
            place.write_bytes(data)
        except OSError as error:
            raise Wrong(f"{place}: {error.strerror}") from None
        self._seen[place] = _digest(data)


def _changed(place: Path) -> Wrong:
    return Wrong(f"{place} has changed since you viewed it; view it again, then edit what is there now")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _numbered(lines: list[str], begin: int, end: int) -> str:
    """Lines ``begin`` to ``end``, as far as there is room, each with its number."""
    begin, end = max(begin, 1), min(end, len(lines))
    shown, room = [], SHOWN - 200  # for what says that it was cut
    for number in range(begin, end + 1):
        line = lines[number - 1].removesuffix("\r")
        line = line if len(line) <= 2000 else f"{line[:2000]}… ({len(line)} characters)"
        room -= len(line) + 8
        if room < 0:
            shown.append(f"… cut before line {number} of {len(lines)}; view the rest with a view_range")
            break
        shown.append(f"{number:6}\t{line}")
    return "\n".join(shown)


def _listing(place: Path) -> str:
    """What is in a directory, two levels deep, without what is hidden."""
    found: list[str] = []
    for entry in _entries(place):
        found.append(f"{entry.name}/" if entry.is_dir() else entry.name)
        if entry.is_dir() and not entry.is_symlink():
            found += [f"{entry.name}/{inner.name}{'/' if inner.is_dir() else ''}" for inner in _entries(entry)]
        if len(found) > _MOST_ENTRIES:
            return "\n".join([*found[:_MOST_ENTRIES], "… and more"])
    return "\n".join(found) or "(nothing is in this directory)"


def _entries(place: Path) -> list[Path]:
    try:
        return sorted(p for p in place.iterdir() if not p.name.startswith("."))
    except OSError:
        return []
