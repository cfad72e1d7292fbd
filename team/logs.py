"""What people read of a session: one log a session, safe to print, bounded in size, and ways to follow it.

In a log, a line that begins with ``| `` was printed by the agent's side; every other line is ours.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from team.errors import TeamError
from team.text import clean, mask, one_line

if TYPE_CHECKING:
    from team import config

AGENT = "| "
"""Before every line that an agent printed; no line of ours begins so."""
TAIL = 4096
"""Bytes that :func:`last_line` reads."""
SMALLEST = 4096
"""Bytes; no file is rotated before."""
NEWEST = 3
"""How many logs of an agent a follower keeps looking at: the rescue of one session may outlast the next's start."""
REASON = 1000
"""Characters of an error line."""

_SESSION = re.compile(r"agent_[0-9a-z]+_(\d+)\.(log|jsonl)(\.1)?\Z")


class AgentLog:
    """The log of one session: ``<directory>/agent_<short commit>_<n>.log``, and the client's raw events in a
    ``.jsonl`` beside it. Lines are written whole and at once. Safe to use from several threads.

    ``secrets`` never reach a file. ``clock`` gives seconds since the epoch. Raises
    :class:`~team.errors.TeamError` when the files cannot be opened; later trouble (a full disk) loses lines,
    which a later line tells, but never stops a session.
    """

    def __init__(
        self,
        directory: Path,
        commit: str,
        n: int,
        limits: config.Logs,
        secrets: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        stem = f"agent_{re.sub('[^0-9a-z]', '', commit.lower())[:8] or '0'}_{n}"
        self._limits, self._clock, self._lock = limits, clock, threading.Lock()
        self._secrets = _spellings(secrets)
        self._directory, self._n = directory, n
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._written_at = _newest(directory, stem)
            self._text = _File(directory / f"{stem}.log")
            self._raw = _File(directory / f"{stem}.jsonl")
        except OSError as error:
            raise TeamError(f"cannot write the log {directory / stem}.log: {error.strerror}") from None
        self._make_room()

    @property
    def path(self) -> Path:
        """The readable log."""
        return self._text.path

    def agent(self, text: str) -> None:
        """Log what the agent's side printed; every line gets the prefix that marks it."""
        lines = clean(text).split("\n")
        self._write(self._text, "".join(f"{AGENT}{self._masked(line)}\n" for line in lines))

    def team(self, text: str) -> None:
        """Log one line of ours."""
        self._write(self._text, f"{self._stamp()} {self._masked(one_line(text, REASON))}\n")

    def error(self, reason: str) -> None:
        """Log something that went wrong, on one line."""
        self._write(self._text, f"{self._stamp()} ERROR {self._masked(one_line(reason, REASON))}\n")

    def raw(self, line: bytes) -> None:
        """Keep one line of the client's output if it looks like a JSON object; other lines are in the text log."""
        line = line.strip()
        if line.startswith(b"{") and line.endswith(b"}"):
            text = clean(line.decode("utf-8", "replace")).replace("\n", "")
            self._write(self._raw, self._masked(text) + "\n")

    def raw_lines(self) -> Iterator[bytes]:
        """The raw lines kept so far, without newlines: an adopted session's reader is fed with them again."""
        for path in (_rotated(self._raw.path), self._raw.path):
            if path.is_file():
                with path.open("rb") as file:
                    yield from (line.rstrip(b"\n") for line in file)

    def written_at(self) -> float:
        """When an earlier supervisor last wrote to this log, in seconds since the epoch; 0 for a new log."""
        return self._written_at

    def close(self) -> None:
        """Close the files; what is logged afterwards is dropped."""
        with self._lock:
            self._text.close()
            self._raw.close()

    def _stamp(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self._clock()))

    def _masked(self, line: str) -> str:
        line = mask(line, self._secrets)
        return _mask_cut(line, self._secrets) if line.endswith("…") else line

    def _write(self, file: _File, text: str) -> None:
        most = max(self._limits.max_file, SMALLEST)
        data = text.encode("utf-8", "replace")
        if len(data) > most:
            data = data[: most - 1] + b"\n"
        with self._lock:
            if file.is_open and file.size + len(data) > most and file.size:
                with suppress(OSError):  # it stays where it is, and this is tried again
                    self._rotate(file)
            file.write(data, self._stamp)

    def _rotate(self, file: _File) -> None:
        file.rotate()
        if file is self._text:
            note = f"log rotated at {self._limits.max_file} bytes; what came before is in {_rotated(file.path).name}"
            file.write(f"{self._stamp()} {note}\n".encode(), self._stamp)
        self._make_room()

    def _make_room(self) -> None:
        """Remove whole sessions' files of this agent, oldest first, until its logs are below their limit."""
        sessions: dict[int, list[Path]] = {}
        for path, match in _session_files(self._directory):
            sessions.setdefault(int(match[1]), []).append(path)
        total = sum(_size(p) for paths in sessions.values() for p in paths)
        for n in sorted(sessions.keys() - {self._n}):
            if total <= self._limits.max_agent:
                return
            for path in sessions[n]:
                total -= _size(path)
                path.unlink(missing_ok=True)


class _File:
    """A file that grows by whole lines, opened without following a link that somebody put in its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lost = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        self.size = os.fstat(self._fd).st_size

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def write(self, data: bytes, stamp: Callable[[], str]) -> None:
        if not self.is_open:
            return
        if self._lost and self.path.suffix == ".log":
            data = f"{stamp()} ERROR {self._lost} entries of this log could not be written\n".encode() + data
        try:
            written = os.write(self._fd, data)
        except OSError:
            self._lost += 1
            return
        self.size += written
        self._lost = 0
        if written < len(data):  # the disk is full now: end the line, so that the next one stands on its own
            self._lost = 1
            with suppress(OSError):
                self.size += os.write(self._fd, b"\n")

    def rotate(self) -> None:
        """Move the file aside, over what was moved aside before, and begin anew."""
        old = self._fd
        self.path.replace(_rotated(self.path))
        self._open()
        os.close(old)

    def close(self) -> None:
        if self.is_open:
            os.close(self._fd)
            self._fd = -1


class Follower:
    """Gives what was added to the logs of some agents (all by default), across sessions and rotations.

    ``root`` holds one directory an agent. Logs that exist already are followed from their end, unless ``begin``.
    """

    def __init__(self, root: Path, agents: Iterable[str] = (), *, begin: bool = False) -> None:
        self._root, self._agents = root, frozenset(agents)
        self._seen: dict[Path, tuple[int, int]] = {}
        """Log -> its inode and how many bytes of it were given."""
        if not begin:
            self._seen = {path: _identity(path) for _, path in self._logs(None)}
        self._newest = None if begin else NEWEST

    def poll(self) -> Iterator[tuple[str, str]]:
        """``(agent, line)`` for each whole line that is new since the last call."""
        newest, self._newest = self._newest, NEWEST
        for agent, path in self._logs(newest):
            inode, size = _identity(path)
            old_inode, start = self._seen.get(path, (inode, 0))
            if inode != old_inode:  # rotated: the rest of the old file, then the new one from its beginning
                if _identity(_rotated(path))[0] == old_inode:
                    lines, _ = _lines_from(_rotated(path), start)
                    yield from ((agent, line) for line in lines)
                start = 0
            if size > start:
                lines, start = _lines_from(path, start)
                yield from ((agent, line) for line in lines)
            self._seen[path] = (inode, start)

    def _logs(self, newest: int | None) -> Iterator[tuple[str, Path]]:
        """Each agent's ``newest`` logs (all: None), oldest session first."""
        for directory in sorted(_directories(self._root)):
            if not self._agents or directory.name in self._agents:
                for path in session_logs(directory)[-newest if newest else None :]:
                    yield directory.name, path


def follow(
    root: Path, agents: Iterable[str] = (), *, pause: Callable[[], None] = lambda: time.sleep(0.3)
) -> Iterator[tuple[str, str]]:
    """``(agent, line)`` as the logs below ``root`` grow, for ever; ``pause`` is called between two looks."""
    follower = Follower(root, agents)
    while True:
        yield from follower.poll()
        pause()


def session_logs(directory: Path) -> list[Path]:
    """The readable logs of one agent, oldest session first, without the rotated parts."""
    found = [(int(m[1]), p) for p, m in _session_files(directory) if m[2] == "log" and not m[3]]
    return [path for _, path in sorted(found)]


def tail(path: Path, n: int) -> list[str]:
    """The last ``n`` lines of a log; none where it does not exist."""
    if n <= 0:
        return []
    data, block = b"", 1 << 16
    try:
        with path.open("rb") as file:
            left = file.seek(0, os.SEEK_END)
            while left and data.count(b"\n") <= n:
                left -= (step := min(block, left))
                file.seek(left)
                data = file.read(step) + data
    except FileNotFoundError:
        return []
    return data.decode("utf-8", "replace").removesuffix("\n").split("\n")[-n:] if data else []


def last_line(directory: Path) -> str:
    """The last line of an agent's newest log, without its prefix, for the live table; empty where there is none.
    Cheap: reads at most 4 kB."""
    logs = session_logs(directory)
    if not logs:
        return ""
    try:
        with logs[-1].open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read(TAIL).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    texts = (line.removeprefix(AGENT).strip() for line in reversed(lines))
    return one_line(next((text for text in texts if text), ""))


def _spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret as it is and as it looks in JSON, in a URL and in base64, longest first."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) < 8:  # :func:`team.text.mask` leaves them: they would hide ordinary words
            continue
        data = secret.encode("utf-8", "replace")
        in_json = json.dumps(secret)[1:-1]
        found |= {secret, in_json, json.dumps(in_json)[1:-1], quote(secret, safe="")}
        # In base64 the secret starts at one of three places; the characters it shares with its neighbours go.
        for shift in range(3):
            coded = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
            whole = (shift + len(data)) * 8 // 6
            found.add(coded[-(-shift * 8 // 6) : whole])
    return tuple(sorted(found, key=len, reverse=True))


def _mask_cut(line: str, secrets: Iterable[str]) -> str:
    """``line``, which ends in an ellipsis, with the beginning of a secret that was cut there masked."""
    body = line[:-1]
    for secret in secrets:
        for length in range(min(len(secret), len(body)), 7, -1):
            if body.endswith(secret[:length]):
                return mask(body, [secret[:length]]) + "…"
    return line


def _session_files(directory: Path) -> Iterator[tuple[Path, re.Match[str]]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if (match := _SESSION.match(entry.name)) and entry.is_file(follow_symlinks=False):
            yield Path(entry.path), match


def _directories(root: Path) -> list[Path]:
    try:
        return [Path(e.path) for e in os.scandir(root) if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lines_from(path: Path, start: int) -> tuple[list[str], int]:
    """The whole lines of ``path`` from byte ``start`` on, and where they end."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read()
    except OSError:
        return [], start
    whole = data.rfind(b"\n") + 1
    return data[:whole].decode("utf-8", "replace").split("\n")[:-1], start + whole


def _newest(directory: Path, stem: str) -> float:
    files = [directory / f"{stem}{ending}" for ending in (".log", ".jsonl")]
    return max((path.stat().st_mtime for path in files if path.is_file()), default=0.0)


def _identity(path: Path) -> tuple[int, int]:
    """Inode and size; zeros where the file is gone."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size


def _size(path: Path) -> int:
    return _identity(path)[1]


def _rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
