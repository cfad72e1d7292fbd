"""Makes an input smaller while something stays true of it: by lines, then by words, then by characters.

Pure: it asks, somebody else runs. Delta debugging by complements (Zeller's ddmin without its test of the subsets, which
a complement at the next finer step finds too): pieces of half the size, then a quarter, down to single ones, and
single ones again until none can go.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator


class Shrink:
    """The smallest input so far, and what to try next::

    while (smaller := shrink.ask()) is not None:
        shrink.tell(holds(smaller))
    """

    def __init__(self, data: bytes, *, most: int) -> None:
        """``data``: an input of which it is true. ``most``: how often to ask."""
        self.best = data
        self.asked = 0
        self.minimal = False
        """The search is over: no single character can be left out of :attr:`best`."""
        self._most = most
        self._tried = {_digest(data)}
        self._steps = self._run()
        self._question: bytes | None = next(self._steps, None)

    def ask(self) -> bytes | None:
        """What to try next, never the same twice; None at the end."""
        return self._question

    def tell(self, holds: bool) -> None:
        """Whether it is true of what :meth:`ask` returned."""
        assert self._question is not None
        if holds:
            self.best = self._question
        try:
            self._question = self._steps.send(holds)
        except StopIteration:
            self._question = None

    def _run(self) -> Generator[bytes, bool, None]:
        for split in (_lines, _words, _characters):
            if self.asked < self._most:
                yield from self._level(split(self.best))
        self.minimal = self.asked < self._most

    def _level(self, pieces: list[bytes]) -> Generator[bytes, bool, None]:
        size = max(len(pieces) // 2, 1)
        while pieces and self.asked < self._most:
            before = len(pieces)
            start = 0
            while start < len(pieces):
                rest = pieces[:start] + pieces[start + size :]
                if (yield from self._holds(b"".join(rest))):
                    pieces = rest
                else:
                    start += size
            if size == 1 and len(pieces) == before:
                return
            size = max(size // 2, 1)

    def _holds(self, data: bytes) -> Generator[bytes, bool, bool]:
        digest = _digest(data)
        if digest in self._tried or self.asked >= self._most:
            return False  # each was false, or it would be the best, and nothing longer is asked about
        self._tried.add(digest)
        self.asked += 1
        return (yield data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _words(data: bytes) -> list[bytes]:
    return re.findall(rb"[\w\x80-\xff]+|\s+|.", data, re.S)


def _characters(data: bytes) -> list[bytes]:
    try:
        return [character.encode() for character in data.decode()]
    except UnicodeDecodeError:
        return [data[at : at + 1] for at in range(len(data))]
