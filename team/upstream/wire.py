"""Git's push protocol (gitprotocol-pack, version 0), the server's side of it: parse and answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

FLUSH = b"0000"
ZERO = "0" * 40
CAPABILITIES = (
    "report-status report-status-v2 side-band-64k ofs-delta delete-refs quiet atomic push-options "
    "object-format=sha1 agent=team"
)
_OID = re.compile(rb"[0-9a-f]{40}\Z")
_MOST_COMMANDS = 50_000
_MOST_OPTIONS = 100
_MOST_BAND = 65_515


class Garbage(Exception):
    """What came in is not a push."""


@dataclass(frozen=True)
class Command:
    """One ref that the client wants moved."""

    old: str
    new: str
    ref: str


@dataclass(frozen=True)
class Request:
    """What precedes the pack."""

    commands: tuple[Command, ...]
    capabilities: frozenset[str]
    options: tuple[str, ...]

    @property
    def has_pack(self) -> bool:
        """A client sends no pack where it only deletes."""
        return any(c.new != ZERO for c in self.commands)


def pkt(data: bytes) -> bytes:
    """``data`` as one pkt-line."""
    return b"%04x" % (len(data) + 4) + data


def advertisement(first: str, have: Sequence[str]) -> bytes:
    """What a client is told before it pushes: main, our capabilities, and commits that it need not send.

    Main is shown at ``first``, its oldest commit, on which every clone builds: told the newest, a client would
    itself refuse a stale ``git push origin main``, which upstream merges.
    """
    lines = [pkt(f"{first} refs/heads/main\0{CAPABILITIES}\n".encode())]
    return b"".join([*lines, *(pkt(f"{oid} .have\n".encode()) for oid in have)]) + FLUSH


def read_request(stream: BinaryIO) -> Request | None:
    """Commands and push options; None for the empty request with which clients probe. Raises :class:`Garbage`."""
    commands: list[Command] = []
    capabilities: frozenset[str] = frozenset()
    first = True
    while (line := _read_pkt(stream, at_start=first)) is not None:
        text, _, extra = line.rstrip(b"\n").partition(b"\0")
        if first:
            capabilities = frozenset(extra.decode("utf-8", "replace").split())
        first = False
        if text.startswith(b"shallow "):  # its parents are here all the same; fsck tells if not
            continue
        commands.append(_command(text))
        if len(commands) > _MOST_COMMANDS:
            raise Garbage(f"more than {_MOST_COMMANDS} refs in one push")
    if not commands:
        return None
    options: list[str] = []
    if "push-options" in capabilities:
        while (line := _read_pkt(stream)) is not None:
            options.append(line.rstrip(b"\n").decode("utf-8", "replace"))
            if len(options) > _MOST_OPTIONS:
                raise Garbage(f"more than {_MOST_OPTIONS} push options")
    return Request(tuple(commands), capabilities, tuple(options))


def _command(text: bytes) -> Command:
    parts = text.split(b" ", 2)
    if len(parts) != 3 or not _OID.match(parts[0]) or not _OID.match(parts[1]) or not parts[2]:
        raise Garbage("not a git push: a command is not 'old new ref'")
    return Command(parts[0].decode(), parts[1].decode(), parts[2].decode("utf-8", "surrogateescape"))


def _read_pkt(stream: BinaryIO, *, at_start: bool = False) -> bytes | None:
    head = _exactly(stream, 4, or_nothing=at_start)
    if not head:
        return None
    try:
        length = int(head, 16) if re.fullmatch(rb"[0-9a-fA-F]{4}", head) else -1
    except ValueError:
        length = -1
    if length == 0:
        return None
    if length < 4:
        raise Garbage("not a git push: no pkt-line where one must be")
    return _exactly(stream, length - 4)


def _exactly(stream: BinaryIO, count: int, *, or_nothing: bool = False) -> bytes:
    data = b""
    while len(data) < count:
        more = stream.read(count - len(data))
        if not more:
            if or_nothing and not data:
                return b""
            raise Garbage("the push was cut off")
        data += more
    return data


@dataclass(frozen=True)
class Status:
    """What became of one ref: landed or not, and for a landing what main was before."""

    ref: str
    refused: str | None = None
    main: str | None = None


@dataclass
class Reply:
    """Writes the answer in whatever form the client asked for."""

    send: Callable[[bytes], None]
    capabilities: frozenset[str] = field(default_factory=frozenset)

    def progress(self, text: str) -> None:
        """One line which the client shows at once, after ``remote:``."""
        if "side-band-64k" in self.capabilities:
            self._band(2, text.encode("utf-8", "replace") + b"\n")

    def report(self, statuses: Iterable[Status], unpack: str = "ok") -> None:
        """The verdict on each ref, and the end of the answer."""
        body = b""
        if self.capabilities & {"report-status", "report-status-v2"}:
            body = pkt(f"unpack {unpack}\n".encode("utf-8", "replace"))
            body += b"".join(self._status(s) for s in statuses) + FLUSH
        if "side-band-64k" in self.capabilities:
            for start in range(0, len(body), _MOST_BAND):
                self._band(1, body[start : start + _MOST_BAND])
            body = FLUSH
        self.send(body)

    def fatal(self, text: str) -> None:
        """The answer to something that is not a push."""
        self.send(pkt(f"ERR {text}\n".encode("utf-8", "replace")))

    def _status(self, status: Status) -> bytes:
        ref = status.ref.encode("utf-8", "surrogateescape")
        if status.refused is not None:
            return pkt(b"ng " + ref + b" " + status.refused.encode("utf-8", "replace") + b"\n")
        lines = pkt(b"ok " + ref + b"\n")
        if status.main is not None and "report-status-v2" in self.capabilities:
            # No new-oid: a client would look up the merge commit, which it does not have yet.
            lines += pkt(b"option refname refs/heads/main\n")
            lines += pkt(f"option old-oid {status.main}\n".encode())
        return lines

    def _band(self, number: int, data: bytes) -> None:
        self.send(pkt(bytes([number]) + data))
