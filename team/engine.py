"""Blocking calls to a runtime, made from asyncio, that outlast an engine that does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from team.ledger import Kind, Ledger
from team.runtimes import EngineLost
from team.text import one_line

T = TypeVar("T")

PAUSE_FIRST, PAUSE_MOST = 0.5, 10.0
"""Seconds between two tries to reach an engine that does not answer: doubling from the first to the most."""


class Engine:
    """Blocking calls to a runtime. While the engine does not answer, nothing is concluded from it: the call is made
    again, and the ledger says since when."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.lost_since: float | None = None
        """Monotonic seconds, or None while it answers."""
        self.found_at = 0.0
        """When it answered again after it had been lost (monotonic seconds)."""

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        pause = PAUSE_FIRST
        while True:
            try:
                result = await asyncio.to_thread(function, *args)
            except EngineLost as error:
                self._lost(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_MOST)
            else:
                self._found()
                return result

    def _lost(self, error: EngineLost) -> None:
        if self.lost_since is None:
            self.lost_since = time.monotonic()
            self._ledger.append(Kind.RUNTIME_LOST, reason=one_line(str(error)))

    def _found(self) -> None:
        if self.lost_since is not None:
            self._ledger.append(Kind.RUNTIME_FOUND, seconds=round(time.monotonic() - self.lost_since, 1))
            self.lost_since, self.found_at = None, time.monotonic()
