"""The append-only record of everything that happened; every view is derived from it.

SQLite in WAL mode with ``synchronous=FULL``: an event that was appended is on disk. Several processes may
append at once (the supervisor, a person's push).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from team.database import transaction


class Kind(StrEnum):
    """What can happen. ``data`` fields in parentheses."""

    TEAM_STARTED = "team.started"  # (pid, seats, client, model, runtime, limits)
    TEAM_STOPPING = "team.stopping"  # (reason, seconds)
    TEAM_STOPPED = "team.stopped"  # (reason)
    TEAM_IDLE = "team.idle"  # (reason) every seat waits for main to move, or for a budget (reason)
    SEAT_WAITING = "seat.waiting"  # (seconds, reason); seconds are None where nobody knows
    RUNTIME_LOST = "runtime.lost"  # (reason) the engine does not answer
    RUNTIME_FOUND = "runtime.found"  # (seconds)
    SESSION_STARTING = "session.starting"  # (n, role, client, model, image, base, log)
    SESSION_CREATED = "session.created"  # (container, name, volumes) on the engine, not started
    SESSION_RUNNING = "session.running"  # (seconds) the client was exec'd after its clone
    SESSION_VERSION = "session.version"  # (version) what the client says it is
    SESSION_ADOPTED = "session.adopted"  # by a restarted supervisor
    SESSION_ENDING = "session.ending"  # (outcome, reason, exit)
    SESSION_ENDED = "session.ended"  # (outcome, reason, exit, landings, seconds, rescue)
    SESSION_REMOVED = "session.removed"  # nothing of it is left on the engine
    PUSH_REFUSED = "push.refused"  # (ref, reason, rule)
    PUSH_QUEUED = "push.queued"  # (number, commit, email, role, subject, tasks, approved) waits for the gate
    PUSH_HELD = "push.held"  # (the same, paths, reason) waits for a person
    PUSH_APPROVED = "push.approved"  # (number, by, note)
    PUSH_VERDICT = "push.verdict"  # (number, landed, reason, lines, log, landing, old, commit, claims, releases, tests)
    PUSH_TOLD = "push.told"  # (number, to) an agent heard of the verdict
    PUSH_BYTES = "push.bytes"  # (total) what the session has pushed so far, now and then
    PUSH_TAMPERING = "push.tampering"  # (commit, findings) tests deleted, skipped, loosened, emptied
    GATE_RUN = "gate.run"  # (pushes, commit, ok, reason, seconds, tests, log)
    GATE_FLAKY = "gate.flaky"  # (number, log) failed once, passed on the same commit
    ACTION_HELD = "action.held"  # (number, tool, text, digest, reason) a tool call waits for a person
    ACTION_DECIDED = "action.decided"  # (number, allowed, by, note); the end of its session decides it, too
    CLAIMS_KEPT = "claims.kept"  # (why) its session ended, but a push of it waits
    LANDING_INTENT = "landing.intent"  # (landing, old, new, subject)
    LANDING_DONE = "landing.done"  # (landing, old, new, subject, claims, releases, paths, merge)
    LANDING_DROPPED = "landing.dropped"  # (landing, reason) main never moved to it
    CLAIM = "claim"  # (landing, text, forced) task is held by session from here on
    RELEASE = "release"  # (landing, why, by, done) task is free from here on
    RESCUE_SAVED = "rescue.saved"  # (ref, commit, summary)
    RESCUE_EMPTY = "rescue.empty"  # nothing was left behind
    RESCUE_FAILED = "rescue.failed"  # (reason)
    MODEL_RESERVED = "model.reserved"  # (call, role, day, provider, path, model, input, output, cost) then forwarded
    # Settles a reservation. Tokens as the provider told them; cost in USD at list price; booked is what counts
    # against the budget, more than cost where the answer broke off (unknown).
    # (call, role, day, provider, path, model, input, output, cache_write, cache_read, reasoning, cost, booked, billed,
    #  status, seconds, first_byte, reserved, unknown, error)
    MODEL_CALL = "model.call"
    MODEL_REFUSED = "model.refused"  # (role, path, model, status, rule, reason) not forwarded
    MODEL_PAUSED = "model.paused"  # (provider, seconds, until, reason) the whole fleet waits
    MODEL_LOST = "model.lost"  # (provider, reason) it cannot be reached, or has only errors to say
    MODEL_FOUND = "model.found"  # (provider, seconds)
    BUDGET_SET = "budget.set"  # (usd) a person raised or lowered the team's budget
    EGRESS = "egress"  # (host, port, refused, connections, sent, received, seconds) since the last such event
    # A run of `team test`, as the agent reports it.
    # (suite, commit, base, landed, rate, total, ran, failed, new, known, unknown, fixed, seconds, failing)
    TEST_RUN = "test.run"
    ROLE_SKIPPED = "role.skipped"  # (role, base, reason) its session was due, and there was nothing to hand to it
    ROLE_MEASURED = "role.measured"  # (role, commit, subject, before, after) milliseconds of the role's benchmark
    ORACLE_FOUND = "oracle.found"  # (units, reason) a smallest set of units that fails; task is its task
    TASK_ADDED = "task.added"  # (title)
    TASK_UNBLOCKED = "task.unblocked"  # its strikes are forgotten
    RESCUE_DROPPED = "rescue.dropped"  # (commit) by a person
    ERROR = "error"  # (reason) something team saw go wrong


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    id: int
    at: float
    """Seconds since the epoch."""
    kind: str
    agent: str | None
    session: str | None
    task: str | None
    data: dict[str, Any]


@dataclass(frozen=True)
class New:
    """An event to append."""

    kind: Kind
    agent: str | None = None
    session: str | None = None
    task: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at REAL NOT NULL, kind TEXT NOT NULL, agent TEXT, session TEXT, task TEXT, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_kind ON events (kind, id);
CREATE INDEX IF NOT EXISTS events_session ON events (session, id) WHERE session IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_task ON events (task, id) WHERE task IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS events_fixed BEFORE UPDATE ON events
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS events_kept BEFORE DELETE ON events
  BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""

_MOST_LOG = 8 << 20
"""Bytes that wait to be moved into the database."""


class Busy(Exception):
    """Somebody else writes at this moment."""


class Ledger:
    """The ledger of one project. Safe to use from several threads."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def append(
        self,
        kind: Kind,
        /,
        *,
        agent: str | None = None,
        session: str | None = None,
        task: str | None = None,
        **data: Any,
    ) -> int:
        """Append one event and return its id. When this returns, the event is on disk."""
        return self.append_all([New(kind, agent, session, task, data)])

    def append_all(self, events: Iterable[New]) -> int:
        """Append several events in one transaction: all or none. Returns the id of the last one (0 for none)."""
        with self._lock:
            return _insert(self._db, self._clock(), events)

    def sync(self) -> None:
        """Wait until everything that anybody has appended is on disk."""
        log = self.path.with_name(self.path.name + "-wal")
        try:
            with log.open("rb") as file:
                os.fsync(file.fileno())
                size = file.seek(0, os.SEEK_END)
        except FileNotFoundError:  # all of it is in the database already
            return
        if size > _MOST_LOG:
            with self._lock:
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def events(
        self,
        *kinds: Kind,
        after: int = 0,
        session: str | None = None,
        agent: str | None = None,
        task: str | None = None,
        newest_first: bool = False,
        limit: int = -1,
    ) -> Iterator[Event]:
        """Events with an id above ``after``, oldest first, narrowed by whatever is given."""
        where, args = ["id > ?"], [after]  # type: tuple[list[str], list[Any]]
        if kinds:
            where.append(f"kind IN ({','.join('?' * len(kinds))})")
            args += [k.value for k in kinds]
        for column, value in (("session", session), ("agent", agent), ("task", task)):
            if value is not None:
                where.append(f"{column} = ?")
                args.append(value)
        order = "DESC" if newest_first else "ASC"
        sql = f"SELECT id, at, kind, agent, session, task, data FROM events WHERE {' AND '.join(where)}"
        with self._lock:
            rows = self._db.execute(f"{sql} ORDER BY id {order} LIMIT ?", [*args, limit]).fetchall()
        for row in rows:
            yield Event(row[0], row[1], row[2], row[3], row[4], row[5], json.loads(row[6]))

    def last(self, *kinds: Kind, **narrow: Any) -> Event | None:
        """The newest event of ``kinds``, narrowed as in :meth:`events`."""
        return next(self.events(*kinds, newest_first=True, limit=1, **narrow), None)

    def close(self) -> None:
        """Close the connection; the ledger can be opened again at any time."""
        with self._lock:
            self._db.close()


class Hurried:
    """A second way to append, for a thread that can wait neither for the disk nor for others who write.

    The events outlive this process at once, and a power cut after the next :meth:`Ledger.sync`.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._clock = ledger._clock
        self._db = sqlite3.connect(ledger.path, timeout=0, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA wal_autocheckpoint=0")  # it would wait for the disk, now and then

    def append(self, event: New) -> None:
        """Append ``event``. Raises :class:`Busy`; then nothing was appended."""
        try:
            _insert(self._db, self._clock(), [event])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            raise Busy from None

    def close(self) -> None:
        self._db.close()


def _insert(db: sqlite3.Connection, at: float, events: Iterable[New]) -> int:
    """Append ``events`` in one transaction; the id of the last one."""
    last = 0
    with transaction(db):
        for e in events:
            row = (at, e.kind.value, e.agent, e.session, e.task, json.dumps(e.data, ensure_ascii=False))
            cursor = db.execute("INSERT INTO events (at, kind, agent, session, task, data) VALUES (?,?,?,?,?,?)", row)
            last = cursor.lastrowid or 0
    return last
