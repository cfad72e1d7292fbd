"""Writes events of many requests in few transactions: whoever appends goes on when its event is on disk."""

from __future__ import annotations

import asyncio

from team.ledger import Kind, Ledger, New


class Journal:
    """The gateway's pen. Only for one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pending: list[tuple[New, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def append(self, event: New) -> None:
        """Append ``event``; it is in the ledger when this returns. Raises what the ledger raises."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((event, written))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await written

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await asyncio.to_thread(_write, self._ledger, [event for event, _ in batch])
            except Exception as error:
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
                continue
            for _, written in batch:
                if not written.done():
                    written.set_result(None)


def _write(ledger: Ledger, events: list[New]) -> None:
    """Reservations keep a request waiting, and matter only until they are settled: they outlive this process, but need
    not outlive a power cut, which ends the request, too."""
    if all(event.kind == Kind.MODEL_RESERVED for event in events):
        ledger.append_quickly(events)
    else:
        ledger.append_all(events)
