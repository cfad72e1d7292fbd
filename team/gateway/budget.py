"""Budgets: what was spent and what is reserved, per team, day, role, agent and session, and who may go next.

A request is let through when its worst case fits into every limit beside all that is spent and reserved; so the sum
never passes a limit. Where it does not fit now it waits, first come first served, until others have settled: mostly
they cost far less than their worst case. A request that is alone at the edge of a limit may look closer
(``tighten``) before it is refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from team.config import Budget, Limit
from team.gateway.prices import from_usd, usd

Scope = tuple[str, str]
"""Which account: ``("session", "agent-03.7")``."""
NO_END = 1 << 62
"""Room where there is no limit."""
SHARE = 8
"""A request whose worst case is more than this part of what is left is made smaller where that can be done."""
_LOOKS = 8
"""How often one request may look closer."""


@dataclass(frozen=True)
class Amount:
    """Money and tokens."""

    pico: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.pico + other.pico, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.pico - other.pico, self.tokens - other.tokens)

    def fits(self, room: Amount) -> bool:
        return self.pico <= room.pico and self.tokens <= room.tokens


@dataclass(frozen=True)
class Who:
    """Whose accounts a request is booked to."""

    agent: str
    role: str
    session: str

    def scopes(self, day: str) -> tuple[Scope, ...]:
        return (
            ("team", ""),
            ("day", day),
            ("role", self.role),
            ("agent", self.agent),
            ("session", self.session),
        )


class Spent(Exception):
    """There is no room left, and waiting would not make any; the message says which limit."""


class Busy(Exception):
    """There may be room later, but this request has waited long enough."""


Tighten = Callable[[Amount], Awaitable[Amount | None]]
"""Given the room there is, a worst case that fits into it, or None."""


class _Verdict(Enum):
    GRANTED = "granted"
    ALONE = "alone"  # does not fit, and nobody is left to settle
    SPENT = "spent"


@dataclass(frozen=True)
class Reservation:
    """Money and tokens put aside for one request."""

    scopes: tuple[Scope, ...]
    day: str
    worst: Amount


@dataclass
class _Waiter:
    scopes: tuple[Scope, ...]
    day: str
    worst: Amount
    typical: Amount
    smaller: Amount | None
    answer: asyncio.Future[_Verdict]
    granted: Reservation | None = None


@dataclass
class _Account:
    spent: Amount = field(default_factory=Amount)
    reserved: Amount = field(default_factory=Amount)


class Accounts:
    """All accounts of a project. Only for one event loop."""

    def __init__(self, limits: Budget, today: Callable[[], str]) -> None:
        self._limits, self._today = limits, today
        self._accounts: defaultdict[Scope, _Account] = defaultdict(_Account)
        self._queue: list[_Waiter] = []
        self._changed = asyncio.Event()
        self._refused: dict[Scope, Limit] = {}
        """Where the rest was too little for a request, and the limit that was so."""

    # -- what there is ----------------------------------------------------------------------------------------

    @property
    def limits(self) -> Budget:
        return self._limits

    @limits.setter
    def limits(self, limits: Budget) -> None:
        self._limits = limits
        self._wake()

    def spent(self, scope: Scope = ("team", "")) -> Amount:
        """What was spent on ``scope``, with what could not be known booked as reserved."""
        return self._accounts[scope].spent if scope in self._accounts else Amount()

    def reserved(self, scope: Scope = ("team", "")) -> Amount:
        """What is put aside for requests under way; nothing at rest."""
        return self._accounts[scope].reserved if scope in self._accounts else Amount()

    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._queue)

    def exhausted(self, who: Who) -> str:
        """Which limit leaves ``who`` nothing, or too little for a request that was refused, in words; empty where
        there is room."""
        for scope in who.scopes(self._today()):
            room = self._room(scope, reserved=False)
            too_little = scope in self._refused and self._refused[scope] == self._limit(scope)
            if too_little or room.pico <= 0 or room.tokens <= 0:
                return self._words(scope)
        return ""

    async def wait_for_change(self) -> None:
        """Return when limits, the day or what is spent may have changed."""
        await self._changed.wait()

    # -- what happens -----------------------------------------------------------------------------------------

    def book(self, who: Who, day: str, amount: Amount) -> None:
        """Something that was spent earlier, or that nobody reserved."""
        for scope in who.scopes(day):
            self._accounts[scope].spent += amount

    async def reserve(
        self,
        who: Who,
        worst: Amount,
        typical: Amount,
        tighten: Tighten,
        patience: float,
        smaller: Amount | None = None,
    ) -> Reservation:
        """Put ``worst`` aside, waiting up to ``patience`` seconds for room; or ``smaller``, where little is left; or
        what ``tighten`` says, where the request is alone at the edge.

        Raises :class:`Spent`, or :class:`Busy` when the patience is over. The caller settles what this returns.
        """
        day = self._today()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(who.scopes(day), day, worst, typical, smaller, loop.create_future())
        self._queue.append(waiter)
        self._pump()
        try:
            async with asyncio.timeout(patience):
                return await self._decide(waiter, tighten)
        except BaseException as error:
            if waiter.granted is not None:  # it came just too late
                self.settle(waiter.granted, Amount())
            if isinstance(error, TimeoutError):
                said = f"no room in the budget within {patience:g} s: {self._short(waiter)}"
                raise Busy(said) from None
            raise
        finally:
            if waiter in self._queue:
                self._queue.remove(waiter)
            self._pump()

    async def _decide(self, waiter: _Waiter, tighten: Tighten) -> Reservation:
        for _ in range(_LOOKS):
            verdict = await waiter.answer
            if verdict is _Verdict.GRANTED:
                assert waiter.granted is not None
                return waiter.granted
            if verdict is _Verdict.SPENT:
                break
            worst = await tighten(self._least_room(waiter.scopes))
            if worst is None:
                break
            waiter.worst = worst
            waiter.answer = asyncio.get_running_loop().create_future()
            self._pump()
        said = self._short(waiter)
        for scope in waiter.scopes:
            if not waiter.worst.fits(self._room(scope)) and not self._much_is_left(scope, waiter.typical):
                self._refused[scope] = self._limit(scope)
        raise Spent(said)

    def _much_is_left(self, scope: Scope, typical: Amount) -> bool:
        """Whether many usual requests fit: then a single one that does not says nothing of those of others."""
        many = Amount(typical.pico * SHARE, typical.tokens * SHARE)
        return typical != Amount() and many.fits(self._room(scope, reserved=False))

    def settle(self, reservation: Reservation, amount: Amount) -> None:
        """What was reserved is free again, and ``amount`` is spent. Once for each reservation."""
        for scope in reservation.scopes:
            account = self._accounts[scope]
            account.reserved -= reservation.worst
            account.spent += amount
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._pump()

    def _pump(self) -> None:
        """Decide who may go: in order; who lacks room in an account keeps later ones from taking it there."""
        blocked: set[Scope] = set()
        for waiter in list(self._queue):
            if waiter.answer.done():
                blocked.update(s for s in waiter.scopes if self._limited(s))  # it is looking closer
                continue
            self._make_smaller(waiter)
            lacking = [s for s in waiter.scopes if not waiter.worst.fits(self._room(s))]
            held_up = any(s in blocked for s in waiter.scopes)
            if not lacking and not held_up:
                self._grant(waiter)
            elif any(not waiter.typical.fits(self._room(s, reserved=False)) for s in lacking):
                self._answer(waiter, _Verdict.SPENT)
            elif lacking and not held_up and any(self.reserved(s) == Amount() for s in lacking):
                waiter.answer.set_result(_Verdict.ALONE)
                blocked.update(s for s in waiter.scopes if self._limited(s))
            else:
                blocked.update(lacking)

    def _make_smaller(self, waiter: _Waiter) -> None:
        """Where the worst case would take so much of what is left that others had to wait for it."""
        share = Amount(waiter.worst.pico * SHARE, waiter.worst.tokens * SHARE)
        tight = any(self._limited(s) and not share.fits(self._room(s)) for s in waiter.scopes)
        if tight and waiter.smaller is not None and all(waiter.smaller.fits(self._room(s)) for s in waiter.scopes):
            waiter.worst = waiter.smaller

    def _grant(self, waiter: _Waiter) -> None:
        waiter.granted = Reservation(waiter.scopes, waiter.day, waiter.worst)
        for scope in waiter.scopes:
            self._accounts[scope].reserved += waiter.worst
            self._refused.pop(scope, None)  # there is room after all: it was that request which was too large
        self._answer(waiter, _Verdict.GRANTED)

    def _answer(self, waiter: _Waiter, verdict: _Verdict) -> None:
        self._queue.remove(waiter)
        waiter.answer.set_result(verdict)

    # -- limits -----------------------------------------------------------------------------------------------

    def _limit(self, scope: Scope) -> Limit:
        kind, name = scope
        of = {
            "team": self._limits,
            "day": self._limits.day,
            "agent": self._limits.agent,
            "session": self._limits.session,
            "role": self._limits.roles.get(name, _NONE),
        }
        return of[kind]

    def _limited(self, scope: Scope) -> bool:
        limit = self._limit(scope)
        return limit.usd is not None or limit.tokens is not None

    def _room(self, scope: Scope, *, reserved: bool = True) -> Amount:
        """What is left of ``scope``; beside what is reserved too, or only beside what is spent."""
        limit = self._limit(scope)
        taken = self.spent(scope) + self.reserved(scope) if reserved else self.spent(scope)
        return Amount(
            NO_END if limit.usd is None else from_usd(limit.usd) - taken.pico,
            NO_END if limit.tokens is None else limit.tokens - taken.tokens,
        )

    def _least_room(self, scopes: Iterable[Scope]) -> Amount:
        rooms = [self._room(s) for s in scopes]
        return Amount(min(r.pico for r in rooms), min(r.tokens for r in rooms))

    def _short(self, waiter: _Waiter) -> str:
        """Which limits stand in the way of ``waiter``, in words."""
        return "; ".join(self._lacking(waiter)) or "the budget"

    def _lacking(self, waiter: _Waiter) -> Iterator[str]:
        for scope in waiter.scopes:
            if not waiter.worst.fits(self._room(scope)):
                yield self._words(scope)

    def _words(self, scope: Scope) -> str:
        kind, name = scope
        limit, spent = self._limit(scope), self.spent(scope)
        of = {"team": "the team", "day": f"the day {name}"}.get(kind, f"{kind} {name}")
        said = []
        if limit.usd is not None:
            said.append(f"${usd(spent.pico):.4f} of ${limit.usd:g}")
        if limit.tokens is not None:
            said.append(f"{spent.tokens} of {limit.tokens} tokens")
        return f"budget of {of}: {' and '.join(said)} spent"


_NONE = Limit()
