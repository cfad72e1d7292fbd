"""When a role's next session is due: so many landings by others, or so much time, after its last one began."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from team.clients import Outcome
from team.ledger import Event, Kind, Ledger
from team.names import seat_name
from team.units import parse_span

_LANDINGS = re.compile(r"\s*(\d{1,6})\s*landings?\s*\Z")
_LONGEST = 1e9
"""Seconds; nobody means more."""
_FIRST, _MOST = 100, 5000
"""Sessions that are looked at, the newest first."""


@dataclass(frozen=True)
class Every:
    """How often: after ``landings`` of others, or after ``seconds``; exactly one is set."""

    landings: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.landings} landings" if self.landings is not None else f"{self.seconds:g}s"


def parse_every(value: object) -> object:
    """``"20 landings"`` or ``"2h"`` as an :class:`Every`; raises :class:`ValueError` for other text."""
    if isinstance(value, Every):
        return value
    if isinstance(value, str) and (match := _LANDINGS.match(value)):
        return Every(landings=int(match[1]))
    with suppress(ValueError):
        if isinstance(value, str) and isinstance(span := parse_span(value), float) and span < _LONGEST:
            return Every(seconds=span)
    raise ValueError("write a number of landings or a time, like '20 landings' or '2h'")


@dataclass(frozen=True)
class Wait:
    """What is missing until the next session."""

    landings: int | None = None
    seconds: float | None = None


def missing(every: Every, ledger: Ledger, role: str, now: float) -> Wait | None:
    """What the next session of ``role`` waits for; None when it is due. ``now`` is in seconds since the epoch.

    A role that has done nothing yet has everything before it, so its first session is due at once.
    """
    last = last_done(ledger, role)
    if last is None:
        return None
    if every.seconds is not None:
        left = last.at + every.seconds - now
        return Wait(seconds=left) if left > 0 else None
    short = (every.landings or 0) - landings_since(ledger, last, role)
    return Wait(landings=short) if short > 0 else None


def last_done(ledger: Ledger, role: str) -> Event | None:
    """Where the newest session of ``role`` began that still runs or ended as done, or what stood for it."""
    for event in _sessions(ledger):
        if event.data.get("role") != role:
            continue
        if event.kind == Kind.ROLE_SKIPPED:
            return event
        ending = ledger.last(Kind.SESSION_ENDING, session=event.session)
        if ending is None or ending.data.get("outcome") == Outcome.DONE.value:
            return event
    return None


def _sessions(ledger: Ledger) -> Iterator[Event]:
    """Where sessions began, the newest first; few are read where few are asked for."""
    kinds = (Kind.SESSION_STARTING, Kind.ROLE_SKIPPED)
    first = list(ledger.events(*kinds, newest_first=True, limit=_FIRST))
    yield from first
    if len(first) == _FIRST:
        yield from islice(ledger.events(*kinds, newest_first=True, limit=_MOST), _FIRST, None)


def landings_since(ledger: Ledger, since: Event, role: str) -> int:
    """Landings of work after ``since`` that are not of ``role`` itself."""
    own = seat_name(role, 1).rpartition("-")[0]
    landed = ledger.events(Kind.LANDING_DONE, after=since.id)
    return sum(1 for e in landed if e.data.get("kind") == "work" and (e.agent or "").rpartition("-")[0] != own)
