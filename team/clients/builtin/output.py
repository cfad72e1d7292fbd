"""What tools print, made fit for a model: bounded memory, bounded disk, cut in the middle, the whole in a file."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from team.text import clean

SHOWN = 16_000
"""Characters of one result that the model gets."""
KEPT = 20 << 20
"""Bytes of one output that are kept in its file."""
FILES = 200 << 20
"""Bytes of all files; the oldest go first."""
_PIECE = 64 << 10


@dataclass
class Spill:
    """A directory of files with what was too long to show."""

    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="team-output-")))
    _files: deque[tuple[Path, int]] = field(default_factory=deque)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Shared by calls that run side by side."""

    def path(self) -> Path:
        """A name that is not taken."""
        return self.directory / f"{next(self._numbers)}.txt"

    def keep(self, path: Path, size: int) -> None:
        """``path`` stays, and older ones go where all are too large."""
        self._files.append((path, size))
        while sum(size for _, size in self._files) > FILES and len(self._files) > 1:
            self._files.popleft()[0].unlink(missing_ok=True)

    def write(self, text: str) -> Path:
        """A file that holds ``text``."""
        path, data = self.path(), text.encode("utf-8", "replace")
        path.write_bytes(data)
        self.keep(path, len(data))
        return path


class Capture:
    """One output: its first and last bytes in memory, the rest in a file."""

    def __init__(self, spill: Spill) -> None:
        self._spill, self._head, self._tail = spill, bytearray(), bytearray()
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self.size = 0

    def feed(self, data: bytes) -> None:
        """Take more of it."""
        self.size += len(data)
        if self._file is None and self.size > _PIECE:
            self._path = self._spill.path()
            self._file = self._path.open("wb")
            self._file.write(self._head)
        if self._file is None:
            self._head += data
            return
        room = KEPT - (self.size - len(data))
        if room > 0:
            self._file.write(data[:room])
        self._tail += data[-_PIECE:]
        if len(self._tail) > 4 * _PIECE:
            del self._tail[:-_PIECE]

    def text(self) -> str:
        """What to show of it. Nothing may be fed after this."""
        if self._file is None:
            return shown(bytes(self._head), self._spill)
        self._file.close()
        assert self._path is not None
        self._spill.keep(self._path, min(self.size, KEPT))
        whole = f"{self._path}" + (f" (its first {KEPT >> 20} MiB)" if self.size > KEPT else "")
        if _binary(bytes(self._head)):
            return f"(binary output, {self.size} bytes; see {whole})"
        tail = bytes(self._tail[-_PIECE:])
        head, end = _readable(bytes(self._head)), _readable(tail)
        half = SHOWN // 2
        left = f"\n… cut here: {self.size} bytes in all, see {whole} …\n"
        return _until_line(head[:half]) + left + _from_line(end[-half:])


def shown(data: bytes, spill: Spill) -> str:
    """``data`` as text, cut in the middle where it is long; then the whole is in a file that the cut names."""
    if _binary(data):
        path = spill.path()
        path.write_bytes(data)
        spill.keep(path, len(data))
        return f"(binary output, {len(data)} bytes; see {path})"
    text = _readable(data)
    return text if len(text) <= SHOWN else cut(text, spill)


def cut(text: str, spill: Spill) -> str:
    """``text`` without its middle, which names the file with all of it."""
    if len(text) <= SHOWN:
        return text
    half, path = SHOWN // 2, spill.write(text)
    left = f"\n… cut here: {len(text)} characters in all, see {path} …\n"
    return _until_line(text[:half]) + left + _from_line(text[-half:])


def _binary(data: bytes) -> bool:
    """Whether ``data`` is no text: it has zero bytes, or much that is not UTF-8."""
    sample = data[:8192]
    return b"\0" in sample or sample.decode("utf-8", "replace").count("�") * 10 > max(len(sample), 1)


def _readable(data: bytes) -> str:
    """As a terminal would show it in the end: of a line that was written over, only the last state."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return clean(text)


def _until_line(text: str) -> str:
    """``text`` up to its last whole line, where there is one near its end."""
    at = text.rfind("\n", len(text) - 2000)
    return text[:at] if at > 0 else text


def _from_line(text: str) -> str:
    at = text.find("\n", 0, 2000)
    return text[at + 1 :] if at >= 0 else text
