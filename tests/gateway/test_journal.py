"""The gateway's pen: at once where it can, after others who write, and on disk at the end."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from team.gateway import journal
from team.gateway.journal import Journal
from team.ledger import Kind, Ledger, New


def event(n: int) -> New:
    return New(Kind.MODEL_CALL, "agent-01", "agent-01.1", None, {"n": n})


def numbers(ledger: Ledger) -> list[int]:
    return [e.data["n"] for e in ledger.events(Kind.MODEL_CALL)]


async def test_events_are_there_at_once_also_for_other_connections(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "l.db")) as ledger, closing(Ledger(tmp_path / "l.db")) as other:
        pen = Journal(ledger)
        for n in range(3):
            await pen.append(event(n))
            assert numbers(other) == list(range(n + 1))
        await pen.close()
        with pytest.raises(sqlite3.ProgrammingError):
            await pen.append(event(9))


async def test_while_somebody_else_writes_the_loop_goes_on(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "l.db")) as ledger, closing(sqlite3.connect(tmp_path / "l.db")) as person:
        pen = Journal(ledger)
        person.execute("BEGIN IMMEDIATE")
        waiting = asyncio.gather(*(pen.append(event(n)) for n in range(5)))
        for _ in range(20):  # a loop that is held up would never get here
            await asyncio.sleep(0.01)
        assert not waiting.done()
        person.rollback()
        await waiting
        assert sorted(numbers(ledger)) == list(range(5))
        await pen.close()


async def test_what_was_written_is_synced_soon_and_once_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SYNC_SECONDS", 0.05)
    with closing(Ledger(tmp_path / "l.db")) as ledger:
        synced: list[int] = []
        sync = ledger.sync

        def noted() -> None:
            synced.append(len(numbers(ledger)))
            sync()

        monkeypatch.setattr(ledger, "sync", noted)
        pen = Journal(ledger)
        for n in range(10):
            await pen.append(event(n))
        await asyncio.sleep(0.3)
        assert synced == [10]
        await pen.close()
        assert synced == [10, 10]


def test_a_ledger_without_a_log_has_nothing_to_sync(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "l.db")) as ledger:
        ledger.sync()
        (tmp_path / "l.db-wal").unlink(missing_ok=True)
        ledger.sync()
