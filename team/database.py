"""SQLite as the ledger and the memories of sampler and oracle use it. Standard library only: it runs inside too."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def connect(path: Path, schema: str) -> sqlite3.Connection:
    """A connection to the memory in ``path``, with the tables of ``schema``; for several threads, one at a time.

    What is lost with the power is found out again, so that commits do not wait for the disk. Raises
    :class:`sqlite3.Error` where the file is broken, or cannot be had.
    """
    db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(schema)
    except sqlite3.Error:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All or nothing of what is written in the block. An error of the block is raised, whatever undoing comes to."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has ended it already
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise
