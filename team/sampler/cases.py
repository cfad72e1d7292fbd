"""What the sampler and the suites speak of: a case, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Case:
    """One test that can be run alone."""

    name: str
    """Its identity, stable from run to run and unique in its suite. May hold any character, newlines too."""
    file: str = ""
    """The file that defines it, relative to the top of the work tree; empty where nobody knows."""
    broken: bool = False
    """It stands for cases that could not even be listed, such as a file that fails to import: part of every sample."""


class Outcome(StrEnum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Its own suite did not run it: skipped, or failed as it was expected to."""
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    """The process that ran it ended: a signal, out of memory, ``os._exit``."""
    GONE = "gone"
    """It was listed, but could not be found when it was to run."""

    @property
    def bad(self) -> bool:
        """Whether it counts as a failure."""
        return self in (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)


@dataclass(frozen=True)
class Result:
    """One case, once run."""

    name: str
    outcome: Outcome
    seconds: float
    """Wall time of the case alone, as well as its runner tells."""
    reason: str = ""
    """Why it failed, in a few words; any characters, cut by whoever shows it."""
    detail: str = ""
    """What it printed and its traceback, at most some 64 kB, for the log."""


@dataclass(frozen=True)
class Options:
    """How cases are run."""

    jobs: int = 1
    """Cases (or processes of the runner) at once."""
    seconds: float = 300.0
    """The longest that one case may take."""
    memory: int | None = None
    """Bytes that a case may hold resident, with all that it starts; None: no bound."""


Choose = Callable[[Sequence[Case]], Sequence[Case]]
"""Which of all listed cases to run, in this order as far as the runner allows."""
Sink = Callable[[Result], None]
"""Told of each result as it comes."""


class CannotRun(Exception):
    """The suite cannot be listed or run at all. The message is one line that says why and what to do; ``output`` is
    what the runner printed, for the log."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
