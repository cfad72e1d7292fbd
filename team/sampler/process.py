"""Runs commands with everything that they start, within bounds of time, memory and output.

Each worker is a *keeper* (keeper.py): a process that starts the jobs, reads their output, and adopts whatever a job
leaves behind, so that it can end it. The pool adopts what a keeper leaves behind when a job killed it. If the pool's
own process dies, however it dies, the keepers see their socket close and end all that they run.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.sampler import keeper

_TICK = 0.1
_PLENTY, _NAP = 8, 0.004  # jobs that each worker has still to run, and for how long we then let it be
_STOPPED = 1.0  # seconds between two looks whether a job has stopped its keeper
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Job:
    """A command to run."""

    key: str
    """What it is called in :class:`Ended` and in :meth:`Pool.kill`; unique among those that run at once."""
    argv: Sequence[str]
    """A program (found by PATH) and its arguments; for a shell command ``["sh", "-c", command]``."""
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of our environment."""
    seconds: float | None = None
    """Wall time, then everything of it is killed."""
    memory: int | None = None
    """Bytes that it and all that it started may hold resident; looked at ten times a second."""
    output: int = 64 << 10
    """Bytes of output kept, of standard error too where it is apart: the first and the last half."""
    merge: bool = True
    """Standard error goes into the output; else it is kept apart."""


@dataclass(frozen=True)
class Ended:
    """What came of a job. Nothing that it started runs any more."""

    key: str
    code: int
    """Exit code; negative: of the signal that ended it. 127 and 126 where it could not be started: the output says
    why."""
    seconds: float
    why: str
    """Why it was killed: "timed out", "memory" (also by the kernel), "lost" (it killed its keeper; its output is
    lost too), or what :meth:`Pool.kill` was given. Empty where it ended by itself."""
    output: bytes
    """Says in the middle how much was left out, if any."""
    errors: bytes
    printed: int
    """Bytes in all."""


class Pool:
    """Runs jobs, ``workers`` of them at once. Its process must be single-threaded while it does (Linux only)."""

    def __init__(
        self,
        workers: int = 1,
        *,
        on_output: Callable[[str, bytes], None] | None = None,
        on_tick: Callable[[Pool], None] | None = None,
        ahead: int = 0,
    ) -> None:
        """``on_output`` is given the key and each piece of standard output as it comes; a job waits for a slow one.
        ``on_tick`` is called at least every 0.1 s while anything runs, and may call :meth:`kill`. ``ahead``: jobs
        pulled for each worker before they can start, so that none waits for us; 0 where a job depends on the results
        before it."""
        self._workers = workers
        self._on_output = on_output
        self._on_tick = on_tick
        self._ahead = ahead
        self._keepers: list[_Keeper] = []
        self._again: deque[Job] = deque()  # were handed to a keeper that died before it began them
        self._next_tick = self._next_look = 0.0

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended]:
        """Run ``jobs``, pulled one by one as workers come free; yields in the order in which they end.

        When the caller stops early, whatever runs is killed. The caller must not meanwhile leave processes of its own
        running that it started after the first result was asked for.
        """
        source = iter(jobs)
        self._poll = select.poll()
        before = keeper.adopt(True)
        self._strangers = keeper.children(os.getpid())
        try:
            while True:
                self._hand_out(source)
                if not any(each.jobs for each in self._keepers):
                    return
                yield from self._listen()
        finally:
            for each in self._keepers:
                each.socket.close()
            for each in self._keepers:
                self._bury(each)
            self._keepers.clear()
            self._again.clear()
            keeper.adopt(before)

    def kill(self, key: str, why: str) -> None:
        """Kill the job ``key`` with all that it started; its :attr:`Ended.why` will be ``why``. Nothing where no such
        job runs."""
        for each in self._keepers:
            for number, job in each.jobs:
                if job.key == key and number not in each.killed:
                    each.killed[number] = why
                    each.send(("kill", number, why))

    def _hand_out(self, source: Iterator[Job]) -> None:
        """Give every worker what it has room for, the idle first."""
        for depth in range(1 + self._ahead):
            for place in range(self._workers):
                if place < len(self._keepers) and len(self._keepers[place].jobs) > depth:
                    continue
                job = self._again.popleft() if self._again else next(source, None)
                if job is None:
                    return
                if place >= len(self._keepers):
                    self._keepers.append(_Keeper())
                    self._poll.register(self._keepers[-1].socket, select.POLLIN)
                self._keepers[place].take(job, stream=self._on_output is not None)

    def _listen(self) -> list[Ended]:
        """Wait for the next news; the jobs that have ended."""
        ended: list[Ended] = []
        if min(len(each.jobs) for each in self._keepers) > _PLENTY:
            time.sleep(_NAP)  # to be woken for each tiny job costs as much as the job
        ready = {fd for fd, _ in self._poll.poll((_TICK if self._on_tick else _STOPPED) * 1000)}
        for each in list(self._keepers):
            if each.socket.fileno() in ready:
                ended += self._hear(each)
        now = time.monotonic()
        if self._on_tick and now >= self._next_tick:
            self._next_tick = now + _TICK
            self._on_tick(self)
        if now >= self._next_look:
            self._next_look = now + _STOPPED
            for each in self._keepers:
                each.end_if_stopped()
        return ended

    def _hear(self, each: _Keeper) -> list[Ended]:
        try:
            data = each.socket.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            return self._lose(each)
        each.buffer += data
        ended = []
        while message := keeper.unpack(each.buffer):
            if message[0] == "ended":
                ended.append(each.ended(message))
            elif self._on_output:
                self._on_output(each.jobs[0][1].key, message[1])
        return ended

    def _lose(self, each: _Keeper) -> list[Ended]:
        """A keeper has died: end what it ran, and let others take what it had not begun."""
        self._keepers.remove(each)
        self._poll.unregister(each.socket)
        each.socket.close()
        self._bury(each)
        if not each.jobs:
            return []
        number, job = each.jobs.popleft()
        self._again.extend(job for _, job in each.jobs)
        why = each.killed.get(number, "lost")
        return [Ended(job.key, -signal.SIGKILL, time.monotonic() - each.since, why, b"", b"", 0)]

    def _bury(self, each: _Keeper) -> None:
        """Wait for a keeper whose socket is closed, and end what it leaves to us."""
        each.end_if_stopped()
        with contextlib.suppress(subprocess.TimeoutExpired):
            each.process.wait(keeper.PATIENCE * 2)
        each.process.kill()
        if each.process.wait() == 0:
            return
        ours = {other.process.pid for other in self._keepers} | self._strangers
        keeper.end(lambda: keeper.children(os.getpid()) - ours)


class _Keeper:
    """Our end of a keeper."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            # Isolated and without site: it starts in a fifth of the time, and nothing of the project gets into it.
            argv = [sys.executable, "-I", "-S", keeper.__file__]
            self.process = subprocess.Popen(
                argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
            )
        self.buffer = bytearray()
        self.jobs: deque[tuple[int, Job]] = deque()  # the first runs
        self.killed: dict[int, str] = {}
        self.since = time.monotonic()
        self._number = 0

    def take(self, job: Job, *, stream: bool) -> None:
        if not self.jobs:
            self.since = time.monotonic()
        self._number += 1
        self.jobs.append((self._number, job))
        cwd, argv = os.path.abspath(job.cwd), list(job.argv)  # noqa: PTH100 - hot
        bounds = (job.seconds, job.memory, job.output, job.merge)
        self.send(("job", self._number, argv, cwd, dict(job.env), *bounds, stream))

    def send(self, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # dead: we shall hear of it
            self.socket.sendall(keeper.pack(message))

    def ended(self, message: tuple[Any, ...]) -> Ended:
        number, job = self.jobs.popleft()
        self.killed.pop(number, None)
        self.since = time.monotonic()
        return Ended(job.key, *message[1:])

    def end_if_stopped(self) -> None:
        """A job may have stopped its keeper: then nobody looks after it."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG):
                self.process.kill()
