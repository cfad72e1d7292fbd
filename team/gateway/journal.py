"""The gateway's pen: no request waits for the disk, nor for a thread's turn, which can take long on a busy machine.

The event loop itself writes, which takes a tenth of a millisecond, unless somebody else happens to write just then.
"""

from __future__ import annotations

import asyncio

from team.ledger import Busy, Hurried, Ledger, New

SYNC_SECONDS = 1.0
"""So much of the end a power cut may take. A kill takes nothing."""


class Journal:
    """Only for one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._hurried = Hurried(ledger)
        self._pending: list[tuple[New, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._syncer: asyncio.Task[None] | None = None

    async def append(self, event: New) -> None:
        """Append ``event``; the ledger has it when this returns. Raises what the ledger raises."""
        try:
            self._hurried.append(event)
        except Busy:
            await self._append_after_others(event)
        else:
            if self._syncer is None or self._syncer.done():
                self._syncer = asyncio.create_task(self._sync())

    async def close(self) -> None:
        """Nothing can be appended any more; what was is on disk."""
        if self._syncer is not None:
            self._syncer.cancel()
        await asyncio.to_thread(self._ledger.sync)
        self._hurried.close()

    async def _sync(self) -> None:
        await asyncio.sleep(SYNC_SECONDS)
        await asyncio.to_thread(self._ledger.sync)

    async def _append_after_others(self, event: New) -> None:
        """In a thread, for all at once who ask while it is at work."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((event, written))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await written

    async def _write(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            error: Exception | None = None
            try:
                await asyncio.to_thread(self._ledger.append_all, [event for event, _ in batch])
            except Exception as raised:
                error = raised
            for _, written in batch:
                if written.done():  # whoever waited is gone
                    continue
                if error is None:
                    written.set_result(None)
                else:
                    written.set_exception(error)
