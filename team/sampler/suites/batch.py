"""Cases that share a process of their runner: told apart by what it prints, and run again when one takes it down."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from team.sampler.cases import Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings
from team.sampler.suites import shell as commands

DETAIL = 64 << 10
LINE = 256 << 10
"""Bytes of a line that are looked at."""
_ARGUMENTS = 96 << 10  # bytes of names given to one process; the kernel takes 128 kB in one argument
_WHOLE = 256 << 20  # bytes of a listing
_HUNG = "hung"


class Batch(ABC):
    """One process of a runner, and the cases that it is to run. Each kind of runner says how it is called and reads
    what it prints, by :meth:`begun`, :meth:`ended` and ``complete``."""

    slack = 0.0
    """Seconds that the runner is given on top of a case's time, where it ends overdue cases by itself."""
    width = 1
    """Cases that it runs at once."""

    def __init__(self, names: Sequence[str], options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self.names = list(names)
        self.options = options
        self.left = dict.fromkeys(names)
        """Those without a result."""
        self.complete = False
        """The runner has said that it is through: what is still left was not found."""
        self.results: deque[Result] = deque()
        self._clock = clock
        self._since: dict[str, float] = {}
        self._heard = clock()
        self._lines = Lines()
        self._overdue: set[str] = set()

    @abstractmethod
    def job(self, key: str) -> Job:
        """How the runner is called for :attr:`names`."""

    @abstractmethod
    def read(self, line: str) -> None:
        """One line of what it prints, without its end; of a very long one the first and the last part."""

    @abstractmethod
    def again(self, names: Sequence[str]) -> Batch:
        """A new one, with these of its cases."""

    def close(self, ended: Ended) -> None:  # noqa: B027 - most have nothing to add
        """Its process has ended, and everything was read."""

    def printed(self, name: str) -> str:
        """What a case without a result has printed."""
        return ""

    def reason(self, text: str) -> str:
        """The most telling line of ``text``, which a case printed before it took its process down; empty: none."""
        return ""

    # --- what the kinds say

    def begun(self, name: str) -> None:
        """A case runs from now on."""
        if name in self.left:
            self._since.setdefault(name, self._clock())

    def paused(self, name: str) -> None:
        """A case waits; its time begins anew with :meth:`begun`."""
        self._since.pop(name, None)

    def ended(
        self, name: str, outcome: Outcome, seconds: float | None = None, reason: str = "", detail: str = ""
    ) -> None:
        """A case has its result; later ones are ignored. ``seconds``: None where only our clock knows."""
        if name in self.left:
            now = self._clock()
            spent = now - self._since.pop(name, now)
            del self.left[name]
            self.results.append(Result(name, outcome, spent if seconds is None else seconds, reason, detail))

    @property
    def running(self) -> list[str]:
        """The cases that have begun and not ended."""
        return [name for name in self._since if name in self.left]

    # --- what the loop below asks

    def starts(self, key: str) -> Job:
        """Its process starts now."""
        self._heard = self._clock()
        return self.job(key)

    def feed(self, chunk: bytes) -> None:
        self._heard = self._clock()
        for line in self._lines.feed(chunk):
            self.read(line)

    def hangs(self) -> bool:
        """Whether a case takes longer than it may, or nothing at all happens for that long."""
        now = self._clock()
        limit = self.options.seconds + self.slack
        self._overdue = {name for name in self.running if now - self._since[name] > limit}
        return bool(self._overdue) or (not self.running and now - self._heard > limit)

    def settle(self, end: Ended) -> list[Batch]:
        """Give a result to each case that took the process down. Returns what must run again."""
        for line in self._lines.rest():
            self.read(line)
        self.close(end)
        if not self.left:
            return []
        if end.why == _HUNG:
            self._settle_hung()
        elif end.why == "lost" and len(self.left) > 1:
            # The last that it printed is lost too, so nobody knows which case ran.
            left = list(self.left)
            return [self.again(left[: len(left) // 2]), self.again(left[len(left) // 2 :])]
        elif len(self.running) > 1 or (self.running and self.complete and len(self.names) > 1):
            # One of them did it, or another printed into what the runner said of its end. Alone, each shows what it
            # does.
            suspects = self.running
            return [self.again([name]) for name in suspects] + self._rest(suspects)
        elif self.running:
            self._crashed(self.running, end)
        elif self.complete:
            self._all(Outcome.GONE, "it was listed, but not found when it was to run")
        elif len(self.left) == len(self.names):
            self._crashed(list(self.left), end)
        return self._rest(())

    def _rest(self, without: Sequence[str]) -> list[Batch]:
        names = [name for name in self.left if name not in without]
        return [self.again(names)] if names else []

    def _settle_hung(self) -> None:
        for name in self._overdue & self.left.keys():
            said = f"took longer than {self.options.seconds:g} s"
            self.ended(name, Outcome.TIMED_OUT, None, said, self.printed(name))
        if len(self.left) == len(self.names) and not self.running:
            self._all(Outcome.TIMED_OUT, f"nothing happened for {self.options.seconds:g} s before its first case")

    def _all(self, outcome: Outcome, reason: str) -> None:
        for name in list(self.left):
            self.ended(name, outcome, None, reason, self.printed(name))

    def _crashed(self, names: Sequence[str], end: Ended) -> None:
        for name in names:
            text = self.printed(name)
            reason = (not end.why and self.reason(text)) or how_it_ended(end, self.options)
            self.ended(name, Outcome.CRASHED, None, reason, text)

    def bound(self) -> int | None:
        """Bytes that its process may hold."""
        memory = self.options.memory
        return None if memory is None else memory * min(self.width, len(self.names))


def run(batches: Iterable[Batch], sink: Sink, workers: int = 1) -> None:
    """Run ``batches``, ``workers`` at once, until each of their cases has told ``sink`` its result."""
    queue = list(batches)
    while queue:
        live = {str(number): batch for number, batch in enumerate(queue)}
        queue = []

        def hear(key: str, chunk: bytes, live: Mapping[str, Batch] = live) -> None:
            live[key].feed(chunk)
            _tell(live[key], sink)

        started: set[str] = set()

        def look(pool: Pool, live: Mapping[str, Batch] = live, started: set[str] = started) -> None:
            for key in started:
                if live[key].hangs():
                    pool.kill(key, _HUNG)

        def jobs(live: Mapping[str, Batch] = live, started: set[str] = started) -> Iterator[Job]:
            for key, batch in live.items():
                started.add(key)
                yield batch.starts(key)

        for end in Pool(workers, on_output=hear, on_tick=look).run(jobs()):
            started.discard(end.key)
            queue += live[end.key].settle(end)
            _tell(live[end.key], sink)


def _tell(batch: Batch, sink: Sink) -> None:
    while batch.results:
        sink(batch.results.popleft())


def portions(names: Iterable[str]) -> Iterator[list[str]]:
    """``names`` in their order, in as few lists as a command line can take."""
    portion: list[str] = []
    room = _ARGUMENTS
    for name in names:
        size = len(name.encode("utf-8", "surrogateescape")) + 9
        if portion and size > room:
            yield portion
            portion, room = [], _ARGUMENTS
        portion.append(name)
        room -= size
    if portion:
        yield portion


def how_it_ended(end: Ended, options: Options) -> str:
    """Why a process ended that should have gone on, in a few words."""
    return f"its process ended: {commands.ending(end, options)}"


def call(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, *, merge: bool = True) -> Ended:
    """Run a command to its end: a build, a listing. Nothing that it started is left."""
    (end,) = Pool().run([Job("", argv, cwd, env or {}, output=_WHOLE, merge=merge)])
    return end


def shell(command: str, arguments: Sequence[str] = ()) -> list[str]:
    """The shell command of a setting, with more arguments at its end."""
    return ["sh", "-c", f'{command} "$@"', "sh", *arguments] if arguments else ["sh", "-c", command]


def build(root: Path, settings: SuiteSettings) -> Path:
    """Run the setting ``build``, if any; returns where the suite's commands run."""
    commands.build(root, settings)
    return commands.place(root, settings)


def inside(path: Path, root: Path) -> str:
    """``path`` relative to ``root``; empty where it is outside."""
    with contextlib.suppress(ValueError, OSError):
        return path.resolve().relative_to(root.resolve()).as_posix()
    return ""


class Kept:
    """Text of which at most the first and the last half of some length is kept."""

    def __init__(self, size: int = DETAIL) -> None:
        self._half = size // 2
        self._first = ""
        self._last: list[str] = []
        self._held = 0
        self._lost = 0

    def add(self, text: str) -> None:
        if len(self._first) < self._half:
            room = self._half - len(self._first)
            self._first += text[:room]
            text = text[room:]
        self._last.append(text)
        self._held += len(text)
        if self._held > 4 * self._half:
            self._cut()

    def __str__(self) -> str:
        last = self._cut()
        return self._first + (f"\n[... {self._lost} characters left out ...]\n" if self._lost else "") + last

    def _cut(self) -> str:
        last = "".join(self._last)
        self._lost += max(0, len(last) - self._half)
        self._last = [last[-self._half :]]
        self._held = len(self._last[0])
        return self._last[0]


class Lines:
    """Cuts what comes in pieces into lines. Of a line that is too long, the first and the last part."""

    def __init__(self, size: int = LINE) -> None:
        self._half = size // 2
        self._first = bytearray()
        self._last = bytearray()

    def feed(self, chunk: bytes) -> Iterator[str]:
        first, *more = chunk.split(b"\n")
        self._add(first)
        if more:
            yield self._take()
            *whole, last = more
            for line in whole:
                yield line.decode("utf-8", "replace").removesuffix("\r")
            self._add(last)

    def rest(self) -> Iterator[str]:
        """The last line, which has no end."""
        if self._first:
            yield self._take()

    def _add(self, piece: bytes) -> None:
        room = self._half - len(self._first)
        if room > 0:
            self._first += piece[:room]
            piece = piece[room:]
        self._last += piece
        if len(self._last) > 2 * self._half:
            del self._last[: -self._half]

    def _take(self) -> str:
        line = self._first + self._last[-self._half :]
        self._first.clear()
        self._last.clear()
        return line.decode("utf-8", "replace").removesuffix("\r")
