"""Which seats work: a role with a schedule has one session at a time, when there is enough for it to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from team.handout import Context, hand_out
from team.ledger import Kind
from team.plan import Seat
from team.schedule import Every, Wait, missing
from team.session import Team

NEEDS_HANDOUT = ("dedup", "review")
"""Roles that have nothing to do where there is nothing to hand to them."""


class Duty:
    """Who is on duty among the seats of one run."""

    def __init__(self, team: Team, clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds since the epoch."""
        self._team, self._clock = team, clock
        self._on: dict[str, str] = {}
        """Roles with a schedule of which a session runs or is about to, each with its seat."""
        self._off: set[str] = set()
        """Seats that wait for their schedule, or have ended."""
        self.fewer = asyncio.Event()
        """Wakes who waits when a seat's session ended, or it went off duty."""

    def missing(self, seat: Seat) -> Wait | None:
        """What the seat's next session waits for, by its role's schedule."""
        every = self._every(seat)
        if every is None:
            return None
        if self._on.get(seat.role, seat.name) != seat.name:
            return Wait(every.landings, every.seconds)
        return missing(every, self._team.ledger, seat.role, self._clock())

    @property
    def nobody(self) -> bool:
        """Whether no seat is left that could bring what the others wait for."""
        return len(self._off) == len(self._team.plan.seats)

    def take(self, seat: Seat) -> None:
        """The seat is the one of its role that works now."""
        self._off.discard(seat.name)
        if self._every(seat) is not None:
            self._on[seat.role] = seat.name

    def leave(self, seat: Seat) -> None:
        """The seat waits for its schedule, or has ended."""
        self._off.add(seat.name)
        self.end(seat)

    def end(self, seat: Seat) -> None:
        """The seat's session has ended."""
        if self._on.get(seat.role) == seat.name:
            del self._on[seat.role]
        self.fewer.set()
        self.fewer.clear()  # whoever waits has been woken

    async def base(self, seat: Seat) -> str | None:
        """The commit that the seat's next session starts from; None where its role lives on hand-outs and has none.

        The hand-out is found here, in a thread, and kept for the prompt.
        """
        team, base = self._team, self._team.upstream.main()
        context = Context(team.project.upstream, base, team.ledger, team.plan.settings, seat.name)
        found = await asyncio.to_thread(hand_out, seat.role, context)
        every = self._every(seat)
        always = every is None or not (every.landings or every.seconds)  # it would ask again at once
        if found is not None or always or seat.role not in NEEDS_HANDOUT:
            return base
        why = "there is nothing to hand to it"
        team.ledger.append(Kind.ROLE_SKIPPED, agent=seat.name, role=seat.role, base=base, reason=why)
        return None

    def _every(self, seat: Seat) -> Every | None:
        return self._team.plan.settings.role_of(seat.role).every
