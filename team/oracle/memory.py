"""Verdicts that nobody need find out twice: not this agent, not another one, not after a restart.

A verdict belongs to a *setting*: the tree, the commands and the compilers that it was found with. What agents report
is theirs to say; the proof of a culprit is always run, never looked up.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from team.database import connect, transaction
from team.door_client import DoorClient
from team.errors import TeamError
from team.oracle.names import task_of
from team.oracle.search import Verdict
from team.text import clean

PATH = "/team/oracle/"
MOST = 1_000_000
"""Verdicts that are kept; then the oldest tenth is forgotten."""
MOST_NOTED = 10_000
"""Culprits that the ledger hears of in one run of the team."""
_MOST_ASKED = 10_000
_MOST_UNITS, _MOST_CULPRITS = 1000, 10_000
_REASON = 300


@dataclass(frozen=True)
class Known:
    """What came of a set of units."""

    verdict: Verdict
    reason: str = ""
    """Why it is not right, in a few words."""
    seconds: float = 0.0
    checks: int = 1
    """How often it was tried, where checks are flaky."""


@dataclass(frozen=True)
class Culprit:
    """A smallest set of units that fails."""

    units: tuple[str, ...]
    reason: str
    task: str
    agent: str = ""
    at: float = 0.0


class Memory(Protocol):
    """Where verdicts are kept. Raises :class:`OSError` or :class:`sqlite3.Error` where it cannot be reached."""

    def look(self, setting: str, keys: Sequence[str]) -> dict[str, Known]:
        """The verdicts known of ``keys``, which :func:`key_of` made."""

    def record(self, setting: str, known: Mapping[str, Known], agent: str) -> None:
        """Keep verdicts."""

    def add(self, setting: str, culprit: Culprit) -> None:
        """Keep a culprit."""

    def culprits(self, setting: str) -> list[Culprit]:
        """All that were found, the oldest first."""


def key_of(units: Iterable[str]) -> str:
    """A name for a set of units."""
    text = "\0".join(sorted(units)).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
  setting TEXT NOT NULL, key TEXT NOT NULL, verdict TEXT NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL,
  checks INTEGER NOT NULL, agent TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (setting, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS culprits (
  setting TEXT NOT NULL, units TEXT NOT NULL, reason TEXT NOT NULL, task TEXT NOT NULL, agent TEXT NOT NULL,
  at REAL NOT NULL, PRIMARY KEY (setting, units)
) WITHOUT ROWID;
"""


class File:
    """A memory in a file. Safe for several threads and several processes."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock, self._lock, self._count = clock, threading.Lock(), 0
        try:
            self._db = connect(path, _SCHEMA)
        except sqlite3.OperationalError:  # somebody else has it, no room, no right
            raise
        except sqlite3.DatabaseError as error:
            raise TeamError(f"{path}: {error}; remove it, only verdicts of earlier builds are in it") from None

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._db) as db:
            yield db

    def look(self, setting: str, keys: Sequence[str]) -> dict[str, Known]:
        found = {}
        with self._lock:
            for key in keys:
                sql = "SELECT verdict, reason, seconds, checks FROM verdicts WHERE setting = ? AND key = ?"
                if row := self._db.execute(sql, (setting, key)).fetchone():
                    found[key] = Known(Verdict(row[0]), *row[1:])
        return found

    def record(self, setting: str, known: Mapping[str, Known], agent: str) -> None:
        now = self._clock()
        rows = [
            (setting, key, one.verdict.value, one.reason[:_REASON], one.seconds, one.checks, agent, now)
            for key, one in known.items()
        ]
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._count += len(rows)
            if self._count >= 1000:  # counting is not for free
                self._count = 0
                self._forget(db)

    def _forget(self, db: sqlite3.Connection) -> None:
        if db.execute("SELECT count(*) FROM verdicts").fetchone()[0] > MOST:
            old = db.execute("SELECT at FROM verdicts ORDER BY at LIMIT 1 OFFSET ?", (MOST // 10,)).fetchone()[0]
            db.execute("DELETE FROM verdicts WHERE at <= ?", (old,))

    def add(self, setting: str, culprit: Culprit) -> None:
        row = (setting, json.dumps(sorted(culprit.units)), culprit.reason[:_REASON], culprit.task, culprit.agent)
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO culprits VALUES (?, ?, ?, ?, ?, ?)", (*row, self._clock()))
            if db.execute("SELECT count(*) FROM culprits").fetchone()[0] > _MOST_CULPRITS:
                db.execute("DELETE FROM culprits WHERE at <= (SELECT at FROM culprits ORDER BY at LIMIT 1)")

    def culprits(self, setting: str) -> list[Culprit]:
        sql = "SELECT units, reason, task, agent, at FROM culprits WHERE setting = ? ORDER BY at LIMIT 10000"
        with self._lock:
            rows = self._db.execute(sql, (setting,)).fetchall()
        return [Culprit(tuple(json.loads(row[0])), *row[1:]) for row in rows]


class Remote:
    """A memory on the other side of the session's door."""

    def __init__(self, door: DoorClient) -> None:
        self._door = door

    def look(self, setting: str, keys: Sequence[str]) -> dict[str, Known]:
        rows = self._door.ask(PATH + "look", {"setting": setting, "keys": list(keys)})["known"]
        return {key: Known(Verdict(row[0]), *row[1:]) for key, row in rows.items()}

    def record(self, setting: str, known: Mapping[str, Known], agent: str) -> None:
        rows = {key: [one.verdict.value, one.reason[:_REASON], one.seconds, one.checks] for key, one in known.items()}
        self._door.ask(PATH + "record", {"setting": setting, "known": rows})

    def add(self, setting: str, culprit: Culprit) -> None:
        self._door.ask(PATH + "add", {"setting": setting, **asdict(culprit)})

    def culprits(self, setting: str) -> list[Culprit]:
        rows = self._door.ask(PATH + "culprits", {"setting": setting})["culprits"]
        return [Culprit(**{**row, "units": tuple(row["units"])}) for row in rows]


def answer(memory: Memory, what: str, body: bytes, agent: str) -> tuple[dict[str, Any], Culprit | None]:
    """The host's answer to a session's question, and the culprit that it told of. Who asks is known from the door.
    Raises :class:`TeamError` for a question that is none."""
    try:
        asked = json.loads(body)
        setting = _text(asked["setting"], 64)
        if what == "look":
            keys = [_text(key, 64) for key in _few(asked["keys"])]
            found = memory.look(setting, keys)
            return {"known": {key: [k.verdict, k.reason, k.seconds, k.checks] for key, k in found.items()}}, None
        if what == "record":
            known = {_text(key, 64): _known(row) for key, row in asked["known"].items()}
            memory.record(setting, dict(list(known.items())[:_MOST_ASKED]), agent)
            return {}, None
        if what == "add":
            units = tuple(sorted({_text(unit, 1000) for unit in _few(asked["units"])}))
            if len(units) > _MOST_UNITS:
                raise ValueError
            culprit = Culprit(units, clean(str(asked["reason"]))[:_REASON], task_of(units[0]), agent)
            memory.add(setting, culprit)
            return {}, culprit
        if what == "culprits":
            return {"culprits": [asdict(one) for one in memory.culprits(setting)]}, None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        pass
    except sqlite3.Error as error:
        raise TeamError(f"verdicts cannot be kept or found now: {error}") from None
    raise TeamError("this is no question of `team oracle`; run it from the container's own /opt/team")


def _known(row: Any) -> Known:
    verdict, reason, seconds, checks = row
    took, times = float(seconds), int(checks)
    if not 0 <= took < 1e7 or not 0 < times < 1e6:
        raise ValueError
    return Known(Verdict(verdict), clean(str(reason))[:_REASON], took, times)


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError
    value.encode("utf-8")  # no half characters
    return value


def _few(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_ASKED:
        raise ValueError
    return value
