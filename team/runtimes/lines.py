"""Cuts what a container prints into lines, whatever it prints."""

from __future__ import annotations

from collections.abc import Callable

LINE_MAX = 1 << 20
"""Bytes of one line that are kept; the rest of a longer line is dropped."""


class Lines:
    """Calls ``on_line`` for each line fed to it, without its newline and cut at :data:`LINE_MAX`."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._keep(piece)
            line = bytes(self._rest)
            self._rest.clear()
            self._on_line(line)
        self._keep(rest)

    def end(self) -> None:
        """No more bytes come: a last line without a newline is a line too."""
        if self._rest:
            line = bytes(self._rest)
            self._rest.clear()
            self._on_line(line)

    def _keep(self, piece: bytes) -> None:
        self._rest += piece[: LINE_MAX - len(self._rest)]
