"""What one session may use, and how often it may do the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from team.clients.builtin.answer import Usage
from team.clients.builtin.conversation import encode
from team.clients.builtin.options import Options

SAME = 3
"""The same call so many times running: the model is told; at the next the session ends."""
WAITING = ("*sleep*", "*git push*", "*git pull*", "*git fetch*", "*team tasks*", "tasks:*")
"""Calls (globs on ``TOOL: INPUT``) that wait for something, so that they may repeat."""
_LOOKED_AT = 4096


@dataclass
class Limits:
    """Counts turns, tokens and seconds of a session."""

    options: Options
    clock: Callable[[], float]
    turns: int = 0
    used: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def count(self, usage: Usage) -> None:
        """One more call of the model."""
        self.turns += 1
        self.used += usage

    def passed(self) -> tuple[str, str] | None:
        """Which limit is passed, as an outcome and a reason."""
        o, spent = self.options, self.clock() - self._began
        if o.turns is not None and self.turns >= o.turns:
            return "failed", f"made {self.turns} model calls ([builtin] turns)"
        if o.tokens is not None and self.used.all >= o.tokens:
            return "out_of_budget", f"used {self.used.all} tokens ([builtin] tokens)"
        if o.seconds is not None and spent >= o.seconds:
            return "timed_out", f"ran for {spent:.0f} s ([builtin] seconds)"
        return None

    def left(self) -> float:
        """Seconds that are left, at least one."""
        seconds = self.options.seconds
        return math.inf if seconds is None else max(1.0, self._began + seconds - self.clock())


@dataclass
class Repeats:
    """Watches for the same call again and again."""

    _last: str = ""
    _times: int = 0

    def see(self, tool: str, given: Mapping[str, Any]) -> int:
        """How many times running this call is made now; 1 for one that may repeat."""
        call = f"{tool}: {encode(given).decode()}"
        if any(fnmatchcase(call[:_LOOKED_AT], pattern) for pattern in WAITING):
            self._last, self._times = "", 0
            return 1
        self._times = self._times + 1 if call == self._last else 1
        self._last = call
        return self._times
