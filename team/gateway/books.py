"""Who owes what: reservations and settlements in the ledger, and the accounts that follow from them.

A reservation is in the ledger before its request is forwarded. What has a reservation and no settlement when the
gateway starts was under way when it was killed: nobody can know what it cost, so it is booked as reserved, and says so.
Neither waits for the disk: a kill takes nothing, but a power cut may take what was booked in the last second.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from team.config import Budget
from team.gateway.budget import Accounts, Amount, Reservation, Tighten, Who
from team.gateway.guess import Guesses, Raw
from team.gateway.journal import Journal
from team.gateway.prices import Price, Prices, Usage, from_usd, usd
from team.ledger import Event, Kind, Ledger, New

LOST = "the gateway ended before the answer did; booked as reserved"


@dataclass(frozen=True)
class Entry:
    """What every event of one request tells."""

    who: Who
    task: str | None
    provider: str
    path: str
    model: str
    bytes: int
    price: Price | None
    billed: bool
    """Whether its tokens are paid for one by one."""
    text: Raw = field(default=b"", repr=False)
    """As in :class:`~team.gateway.guess.Size`."""


@dataclass
class Booking:
    """A request that is under way, or was."""

    entry: Entry
    reservation: Reservation | None
    """None for what costs nothing."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    first_byte: float | None = None
    """Seconds from the forwarding to the first byte of the answer."""

    def answered(self) -> None:
        """The first byte is here."""
        if self.first_byte is None:
            self.first_byte = time.monotonic() - self.began


@dataclass(frozen=True)
class Result:
    """How a request ended."""

    status: int
    usage: Usage = field(default_factory=Usage)
    unknown: bool = False
    """The provider did not tell the end of the count."""
    error: str = ""


class Books:
    """All accounts of a project, and their ledger."""

    def __init__(self, ledger: Ledger, limits: Budget, prices: Prices, clock: Callable[[], float] = time.time) -> None:
        self._ledger, self._prices, self._clock = ledger, prices, clock
        self._journal = Journal(ledger)
        self.accounts = Accounts(limits, self._today)
        self.guesses = Guesses()

    def restore(self) -> None:
        """Read what was spent before; settle what was under way when the last gateway ended."""
        pending: dict[str, Event] = {}
        for event in self._ledger.events(Kind.MODEL_RESERVED, Kind.MODEL_CALL):
            if event.kind == Kind.MODEL_RESERVED:
                pending[str(event.data.get("call"))] = event
                continue
            pending.pop(str(event.data.get("call")), None)
            self._book(event)
        self._ledger.append_all([_lost(event) for event in pending.values()])
        for event in pending.values():
            self.accounts.book(_who(event), _day_of(event), Amount(*_reserved(event)))

    async def open(
        self,
        entry: Entry,
        worst: Amount,
        typical: Amount,
        tighten: Tighten,
        patience: float,
        most_output: int,
        smaller: Amount | None = None,
    ) -> Booking:
        """Reserve for a request; the ledger has it when this returns. See :meth:`Accounts.reserve`."""
        reservation = await self.accounts.reserve(entry.who, worst, typical, tighten, patience, smaller)
        booking = Booking(entry, reservation)
        try:
            await self._journal.append(
                self._event(
                    Kind.MODEL_RESERVED,
                    booking,
                    input=max(0, reservation.worst.tokens - most_output),
                    output=min(most_output, reservation.worst.tokens),
                    cost=usd(reservation.worst.pico),
                    billed=entry.billed,
                )
            )
        except BaseException:
            self.accounts.settle(reservation, Amount())
            raise
        booking.began = time.monotonic()
        return booking

    async def close(self, booking: Booking, result: Result) -> None:
        """Settle. The accounts know at once, the ledger when this returns."""
        entry, reservation, usage = booking.entry, booking.reservation, result.usage
        cost = entry.price.cost(usage) if entry.price else 0
        booked = Amount(cost, usage.tokens)
        if reservation is not None:
            if result.unknown:
                worst = reservation.worst
                booked = Amount(max(cost, worst.pico), max(usage.tokens, worst.tokens))
            self.accounts.settle(reservation, booked)
        if reservation is not None and usage.tokens and not result.unknown:
            self.guesses.learn(entry.model, entry.bytes, usage, entry.price, entry.text)
        await self._journal.append(
            self._event(
                Kind.MODEL_CALL,
                booking,
                input=usage.input,
                output=usage.output,
                cache_write=usage.cache_write + usage.cache_write_1h,
                cache_write_1h=usage.cache_write_1h,
                cache_read=usage.cache_read,
                reasoning=usage.reasoning,
                cost=usd(cost),
                priced=entry.price is not None,
                booked=usd(booked.pico),
                booked_tokens=booked.tokens,
                billed=entry.billed,
                bytes=entry.bytes,
                status=result.status,
                seconds=round(time.monotonic() - booking.began, 4),
                first_byte=None if booking.first_byte is None else round(booking.first_byte, 4),
                reserved=usd(reservation.worst.pico) if reservation else 0.0,
                unknown=result.unknown,
                error=result.error,
            )
        )

    async def end(self) -> None:
        """Nothing can be booked any more; what was is on disk."""
        await self._journal.close()

    async def note(self, kind: Kind, who: Who | None, **data: object) -> None:
        """Append an event that moves no money."""
        agent, session = (who.agent, who.session) if who else (None, None)
        await self._journal.append(New(kind, agent, session, None, dict(data)))

    def _event(self, kind: Kind, booking: Booking, **data: object) -> New:
        entry, reservation = booking.entry, booking.reservation
        known = {
            "call": booking.id,
            "role": entry.who.role,
            "day": reservation.day if reservation else self._today(),
            "provider": entry.provider,
            "path": entry.path,
            "model": entry.model,
        }
        return New(kind, entry.who.agent, entry.who.session, entry.task, {**known, **data})

    def _book(self, event: Event) -> None:
        data = event.data
        pico, tokens = from_usd(data.get("booked", 0.0)), int(data.get("booked_tokens", 0))
        if pico or tokens:
            self.accounts.book(_who(event), _day_of(event), Amount(pico, tokens))
        told = ("input", "output", "cache_write", "cache_write_1h", "cache_read", "reasoning")
        usage = {name: int(data.get(name, 0)) for name in told}
        usage["cache_write"] -= usage["cache_write_1h"]
        if tokens and data.get("bytes") and not data.get("unknown"):
            model = str(data["model"])
            self.guesses.learn(model, int(data["bytes"]), Usage(**usage), self._prices.of(model))

    def _today(self) -> str:
        return _day(self._clock())


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _day_of(event: Event) -> str:
    return str(event.data.get("day") or _day(event.at))


def _who(event: Event) -> Who:
    return Who(event.agent or "", str(event.data.get("role", "")), event.session or "")


def _reserved(event: Event) -> tuple[int, int]:
    data = event.data
    return from_usd(data.get("cost", 0.0)), int(data.get("input", 0)) + int(data.get("output", 0))


def _lost(event: Event) -> New:
    """The settlement of a reservation that nobody else will settle."""
    data = event.data
    pico, tokens = _reserved(event)
    told = {name: data.get(name) for name in ("call", "role", "day", "provider", "path", "model", "input", "output")}
    booked = {"cost": usd(pico), "booked": usd(pico), "booked_tokens": tokens, "reserved": usd(pico)}
    rest = {"cache_write": 0, "cache_read": 0, "reasoning": 0, "billed": data.get("billed", True), "status": 0}
    end = {"seconds": None, "first_byte": None, "unknown": True, "error": LOST}
    return New(Kind.MODEL_CALL, event.agent, event.session, event.task, {**told, **booked, **rest, **end})
