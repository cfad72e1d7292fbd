"""Which cases of a suite one run is about."""

from __future__ import annotations

import difflib
import fnmatch
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from team.errors import TeamError
from team.sampler import sample
from team.sampler.cases import CannotRun, Case
from team.sampler.log import shown
from team.sampler.memory import Look, Memory
from team.sampler.near import near

_LEAST_MORE = 20
"""Cases that may come on top of a small sample, for each reason."""
_MOST_COMPARED = 300
"""Characters of names that are compared for likeness: it takes their product."""


class Choice:
    """Chooses among all cases of a suite, once they are listed; then says ``why``, in words, and at what ``rate``."""

    def __init__(
        self,
        root: Path,
        memory: Memory,
        suite: str,
        agent: str,
        *,
        changed: Sequence[str] = (),
        fast: str | None = None,
        failed: bool = False,
        patterns: Sequence[str] = (),
        alone: bool = True,
        landed: bool = True,
        notes: list[str] | None = None,
    ) -> None:
        """``fast``: the rate of the sample; ``failed``: only what failed last; ``patterns``: only what is named so,
        which must be found where the suite stands ``alone``. All cases without any of them. ``landed``: the work tree
        is the landed state, or there is none. ``notes`` is told what the reader must know."""
        self._root, self._memory, self._suite, self._agent = root, memory, suite, agent
        self._changed, self._fast, self._failed = changed, fast, failed
        # Where there are several suites, the report puts a suite's name before its cases'.
        self._patterns = [pattern.removeprefix(f"{suite}: ") for pattern in patterns] if suite else patterns
        self._alone, self._landed = alone, landed
        self._notes = notes if notes is not None else []
        self.why = ""
        self.rate = sample.percent(fast) if fast else ("failed" if failed else "named" if patterns else "all")

    def __call__(self, cases: Sequence[Case]) -> list[Case]:
        """The chosen ones, in their order. Raises :class:`CannotRun` for a suite without cases."""
        if not cases:
            raise CannotRun("the suite has no tests; [test] in team.toml says where they are")
        if self._patterns:
            cases = named(cases, self._patterns, must=self._alone)
            self.why = "named so"
            if not self._fast and not self._failed:
                return list(cases)
        look = self._look(cases)
        if self._failed:
            failing = set(look.failing)
            self.why = f"what failed when {self._agent} last ran it"
            return [case for case in cases if case.name in failing]
        if self._fast:
            return self._sample(cases, look)
        self.why = self.why or "all"
        return list(cases)

    def _look(self, cases: Sequence[Case]) -> Look:
        names = [case.name for case in cases]
        try:
            return self._memory.look(self._suite, names, self._agent, place=self._fast is not None, landed=self._landed)
        except (OSError, sqlite3.Error) as error:
            self._notes.append(f"nothing is known of earlier runs: {error}")
            return Look([sample.stray(name) for name in names], [None] * len(names), [])

    def _sample(self, cases: Sequence[Case], look: Look) -> list[Case]:
        """The seat's own part, and on top of it what failed and what is near the changes."""
        assert self._fast is not None
        arc = sample.arc(sample.seat(self._agent), sample.rate(self._fast))
        taken = {case.name for case, place in zip(cases, look.positions, strict=True) if place in arc}
        if not taken and cases:  # so few cases that none lies there: the next one on the circle
            gaps = [(place - arc.start) % sample.ROUND for place in look.positions]
            taken = {cases[gaps.index(min(gaps))].name}
        most = max(_LEAST_MORE, len(taken))
        failing = [name for name in look.failing if name not in taken][:most]
        close = [case.name for case in near(cases, self._changed, self._root, most) if case.name not in taken]
        close = [name for name in close if name not in failing]
        broken = [case.name for case in cases if case.broken and case.name not in taken][:most]
        failing = [name for name in failing if name not in broken]
        close = [name for name in close if name not in broken]
        more = [f"{len(broken)} that could not be read"] if broken else []
        more += [f"{len(failing)} that failed last time"] if failing else []
        more += [f"{len(close)} near your changes"] if close else []
        of = " of what is named so" if self._patterns else ""
        self.why = ", and ".join([f"{self.rate}{of} as {self._agent}", *more])
        taken |= {*broken, *failing, *close}
        return [case for case in cases if case.name in taken]


def named(cases: Sequence[Case], patterns: Sequence[str], *, must: bool) -> list[Case]:
    """Cases with one of the names, also as the report spells it; where no case has it, those that the glob fits; else
    those that hold it. Raises :class:`TeamError` for a pattern that fits none and ``must``."""
    found: set[str] = set()
    for pattern in patterns:
        names = [case.name for case in cases if case.name == pattern]
        names = names or [case.name for case in cases if shown(case.name) == pattern]
        names = names or [case.name for case in cases if fnmatch.fnmatchcase(case.name, pattern)]
        names = names or [case.name for case in cases if pattern in case.name]
        if not names and must:
            similar = [case.name for case in cases[:20000] if len(case.name) <= _MOST_COMPARED]
            close = difflib.get_close_matches(pattern, similar, 1, 0.4) if len(pattern) <= _MOST_COMPARED else []
            near_one = f"; did you mean {close[0]!r}?" if close else "; `team test --list` shows the names"
            raise TeamError(f"no case is named {pattern!r}{near_one}")
        found |= set(names)
    return [case for case in cases if case.name in found]
