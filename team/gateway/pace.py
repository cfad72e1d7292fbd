"""One pause for everybody who uses a key: the fleet of this project, and other projects on this machine.

The pause is a small file; requests wait here, in order, and come back gradually: one, then two at a time, and so on.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

BACKOFF_FIRST, BACKOFF_MOST = 2.0, 60.0
"""Seconds of pause where the provider does not say how long: doubling from the first to the most."""
LEAST = 0.5
RECOVERED = 64
"""Requests at once from which on nothing is held back any more."""
CALM = 300.0
"""Seconds after a pause in which another one counts as its continuation."""
LOOK = 0.5
"""How often waiting requests look at the file, which another project may have changed."""


@dataclass(frozen=True)
class Pause:
    """Nobody asks before ``until`` (seconds since the epoch)."""

    until: float = 0.0
    reason: str = ""
    times: int = 0
    """How many in a row."""


class TooLong(Exception):
    """The pause outlasts what a request may wait."""

    def __init__(self, pause: Pause) -> None:
        super().__init__(pause.reason)
        self.pause = pause


class Pace:
    """The pace of one key."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        self._stamp: tuple[int, int] | None = None
        self._pause = Pause()
        self._window: float = RECOVERED
        self._running = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._waking: asyncio.Task[None] | None = None

    # -- the pause --------------------------------------------------------------------------------------------

    def pause(self) -> Pause:
        """The pause as the file has it now; over where ``until`` is past."""
        try:
            found = self._file.stat()
        except OSError:
            return self._pause if self._stamp is None else Pause()
        if (stamp := (found.st_mtime_ns, found.st_ino)) != self._stamp:
            self._stamp = stamp
            before = self._pause.until
            self._pause = _read(self._file)
            if self._pause.until > max(before, self._clock()):
                self._window = 1
        return self._pause

    def left(self) -> float:
        """Seconds until the pause is over."""
        return max(0.0, self.pause().until - self._clock())

    def hold(self, seconds: float | None, reason: str) -> Pause:
        """Everybody waits ``seconds`` from now (backing off where nobody said how long)."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self._file.with_suffix(".lock"), timeout=5):
            now, before = self._clock(), self.pause()
            if now < before.until and seconds is None:  # asked before the pause was known
                return before
            times = before.times if now < before.until else before.times + 1 if now < before.until + CALM else 1
            wait = seconds if seconds is not None else min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(times - 1, 10))
            pause = Pause(max(before.until, now + max(wait, LEAST)), reason, times)
            new = self._file.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(vars(pause)), "utf-8")
            new.replace(self._file)
            self._window = 1
        return self.pause()

    def worked(self) -> None:
        """A request was answered: let more go at once."""
        if self._window < RECOVERED:
            self._window = min(RECOVERED, self._window * 2)
            self._pump()

    # -- who may go -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, patience: float, longest: float) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block ends. Raises :class:`TooLong` when ``patience`` is over, and
        at once when the pause is longer than ``longest``."""
        if self.left() > longest:
            raise TooLong(self.pause())
        if self._queue or not self._free():
            await self._wait(patience)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._pump()

    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def _free(self) -> bool:
        return self.left() == 0 and (self._window >= RECOVERED or self._running < self._window)

    async def _wait(self, patience: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        if self._waking is None or self._waking.done():
            self._waking = asyncio.create_task(self._wake())
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(turn)
        except BaseException as error:
            if turn in self._queue:
                self._queue.remove(turn)
            elif turn.done():  # it came just too late
                self._running -= 1
                self._pump()
            if isinstance(error, TimeoutError):
                raise TooLong(self.pause()) from None
            raise

    def _pump(self) -> None:
        while self._queue and self._free():
            self._running += 1
            self._queue.popleft().set_result(None)

    async def _wake(self) -> None:
        while self._queue:
            left = self.left()
            await asyncio.sleep(min(left + 0.005, LOOK) if left else LOOK)
            self._pump()


def _read(path: Path) -> Pause:
    try:
        told = json.loads(path.read_text("utf-8"))
        return Pause(float(told["until"]), str(told["reason"]), int(told["times"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Pause()
