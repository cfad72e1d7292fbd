"""What is known of the cases without running them: their places, durations, and what came of them where.

One SQLite file a project. In a session it lies on the host, behind the door; elsewhere in the project's state or in
the clone's git directory. What agents report is theirs to say: nothing that protects main depends on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from team.database import connect, transaction
from team.sampler import sample
from team.sampler.cases import Outcome, Result
from team.text import clean

MOST_CASES = 500_000
"""Cases of a project that places are kept for; more are placed by their names alone."""
MOST_STATES = 4_000_000
"""Results that are kept; then the oldest tenth of the commits is forgotten, first of what has not landed."""
MOST_TREES = 200_000
"""Commits that results are kept of, likewise."""
MOST_SUITES = 1000
LONGEST_NAME = 2000
SHOWN = 20
"""Names that a comparison gives of each kind."""


@dataclass(frozen=True)
class Look:
    """What is known of some cases, in their order."""

    positions: Sequence[int]
    seconds: Sequence[float | None]
    """Duration when it last passed."""
    failing: Sequence[str]
    """Cases that failed when this agent last ran them; those that were asked about only."""


@dataclass(frozen=True)
class Run:
    """One run of a suite, to be remembered."""

    agent: str
    suite: str
    commit: str
    """What is checked out."""
    content: str
    """Of the tree that was tested, without locks and tickets; empty where the work tree has changes."""
    base: str
    """The landed commit that it is measured against; empty where there is none."""
    base_content: str
    rate: str
    total: int
    """Cases that the suite has."""
    seconds: float
    results: Sequence[Result]
    session: str = ""
    task: str = ""

    @property
    def landed(self) -> bool:
        """Whether what was tested is the landed state itself."""
        return bool(self.content) and self.content == self.base_content


@dataclass(frozen=True)
class Compared:
    """The failures of a run against the landed state, and what it fixed."""

    new: int = 0
    """Fail here and passed there."""
    known: int = 0
    """Fail there too."""
    unknown: int = 0
    """Fail here; nobody ran them there."""
    flaky: int = 0
    """Fail here, and there with both outcomes."""
    fixed: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    """Of each failure: ``new``, ``known``, ``passed before`` (on an earlier landing), ``flaky`` or ``unknown``."""
    fixed_names: Sequence[str] = ()
    """The first few."""


@dataclass(frozen=True)
class Seen:
    """One outcome of a case on one tree."""

    at: float
    agent: str
    commit: str
    landed: bool
    clean: bool
    outcome: str
    count: int
    reason: str


@dataclass(frozen=True)
class Covered:
    """A case, and when anybody last ran it on a landed state."""

    suite: str
    name: str
    at: float | None
    commit: str


class Memory(Protocol):
    """Where the sampler remembers. Raises :class:`OSError` or :class:`sqlite3.Error` where it cannot be reached."""

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True, landed: bool = True) -> Look:
        """What is known of ``names``, which are all cases of the suite. With ``place`` those that have none are given
        their places, for good, by the durations known now. ``landed``: they are those of the landed state."""

    def record(self, run: Run) -> Compared:
        """Remember a run, and compare it with the landed state."""

    def history(self, suite: str, name: str) -> Sequence[Seen]:
        """What came of a case, newest first."""

    def flaky(self, suite: str) -> Sequence[str]:
        """Cases that both passed and failed on one and the same tree, the latest first."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS suites (
  suite TEXT PRIMARY KEY, digest TEXT NOT NULL, listing INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cases (
  id INTEGER PRIMARY KEY, suite TEXT NOT NULL, name TEXT NOT NULL,
  position INTEGER, seconds REAL, listing INTEGER NOT NULL DEFAULT 0,
  landed_at REAL, landed_commit TEXT,
  UNIQUE (suite, name)
);
CREATE TABLE IF NOT EXISTS trees (
  id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE, commit_id TEXT NOT NULL, clean INTEGER NOT NULL,
  landed INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS states (
  tree INTEGER NOT NULL, case_id INTEGER NOT NULL, outcome TEXT NOT NULL,
  count INTEGER NOT NULL, at REAL NOT NULL, agent TEXT NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (tree, case_id, outcome)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS states_case ON states (case_id, at);
CREATE TABLE IF NOT EXISTS failing (
  agent TEXT NOT NULL, case_id INTEGER NOT NULL, PRIMARY KEY (agent, case_id)
) WITHOUT ROWID;
"""
_CUT = re.compile(r"~[0-9a-f]{16}\Z")
_BAD = tuple(outcome.value for outcome in Outcome if outcome.bad)


_T = TypeVar("_T")
_Row = tuple[int, int | None, float | None]
"""Id, position and duration of a case."""
_Known = dict[str, _Row]


class File:
    """A memory in a file. Safe for several threads and several processes. A file that is broken is set aside, and
    another begun."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time, notes: list[str] | None = None) -> None:
        """``notes`` is told of a file that was broken."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._clock, self._lock = path, clock, threading.Lock()
        self._notes = notes if notes is not None else []
        try:
            self._db = connect(path, _SCHEMA)
        except sqlite3.Error as error:
            if not _is_broken(error, sqlite3.SQLITE_ERROR):  # the last: it has other tables than ours
                raise
            self._db = self._another(error)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _another(self, error: sqlite3.Error) -> sqlite3.Connection:
        """Set the broken file aside, unless another process has just done so."""
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(sqlite3.Error):
                db = connect(self._path, _SCHEMA)
                if db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",):
                    return db
                db.close()
            aside = self._path.with_suffix(".broken")
            self._path.replace(aside)
            for rest in ("-wal", "-shm"):
                Path(f"{self._path}{rest}").unlink(missing_ok=True)
            self._notes.append(f"what earlier runs left was broken ({error}) and begins anew; it is kept as {aside}")
            return connect(self._path, _SCHEMA)

    def _sound(self, ask: Callable[[], _T]) -> _T:
        """What ``ask`` returns, of another file where this one turns out to be broken."""
        try:
            return ask()
        except sqlite3.Error as error:
            if not _is_broken(error):
                raise
            with self._lock:
                self._db.close()
                self._db = self._another(error)
            return ask()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._db) as db:
            yield db

    # -- places -----------------------------------------------------------------------------------------------

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True, landed: bool = True) -> Look:
        return self._sound(lambda: self._look(suite, names, agent, place=place, landed=landed))

    def _look(self, suite: str, names: Sequence[str], agent: str, *, place: bool, landed: bool) -> Look:
        digest = _digest(names)
        with self._lock:
            known = self._known(suite, names)
            row = self._db.execute("SELECT digest FROM suites WHERE suite = ?", (suite,)).fetchone()
        homeless = place and any(name not in known or known[name][1] is None for name in names)
        if homeless or (landed and row != (digest,)):
            with self._writing() as db:
                listing = self._listed(db, suite, digest) if landed else 0
                known = self._place(db, suite, names, listing, place=place)
        with self._lock:
            failing = {
                row[0]
                for row in self._db.execute(
                    "SELECT name FROM failing JOIN cases ON id = case_id WHERE agent = ? AND suite = ?", (agent, suite)
                )
            }
        none: _Row = (0, None, None)
        found = [known.get(name, none) for name in names]
        return Look(
            [sample.stray(name) if row[1] is None else row[1] for name, row in zip(names, found, strict=True)],
            [row[2] for row in found],
            [name for name in names if _key(name) in failing] if failing else [],
        )

    def _known(self, suite: str, names: Sequence[str]) -> _Known:
        """Id, position and duration of each known case; of all of the suite where many are asked for."""
        sql = "SELECT name, id, position, seconds FROM cases WHERE suite = ?"
        if len(names) <= 500:
            marks = ",".join("?" * len(names))
            rows = self._db.execute(f"{sql} AND name IN ({marks})", (suite, *map(_key, names)))
        else:
            rows = self._db.execute(sql, (suite,))
        by_key: _Known = {row[0]: row[1:] for row in rows}
        return {name: by_key[key] for name in names if (key := _key(name)) in by_key}

    def _listed(self, db: sqlite3.Connection, suite: str, digest: str) -> int:
        """Note that the suite has other cases now; the number of this listing."""
        if db.execute("SELECT count(*) FROM suites").fetchone()[0] >= MOST_SUITES:
            db.execute("DELETE FROM suites WHERE suite <> ?", (suite,))  # who uses one lists it anew
        db.execute(
            "INSERT INTO suites VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET digest = excluded.digest, "
            "listing = listing + 1",
            (suite, digest),
        )
        listing: int = db.execute("SELECT listing FROM suites WHERE suite = ?", (suite,)).fetchone()[0]
        return listing

    def _place(self, db: sqlite3.Connection, suite: str, names: Sequence[str], listing: int, *, place: bool) -> _Known:
        """Note in which ``listing`` these cases are (0: in none), with ``place`` give places to those that have none,
        and return what is known of each."""
        known = self._known(suite, names)
        if listing:
            db.executemany("UPDATE cases SET listing = ? WHERE id = ?", ((listing, row[0]) for row in known.values()))
        new = [name for name in names if name not in known]
        old = [name for name, row in known.items() if row[1] is None]
        places: dict[str, int] = {}
        if place:
            homeless = [*dict.fromkeys(new), *old]
            places = self._places(db, suite, homeless, [known[name][2] if name in known else None for name in homeless])
        rows = sorted((known[name][0], places[name]) for name in old if name in places)
        db.executemany("UPDATE cases SET position = ?2 WHERE id = ?1", rows)
        known |= {name: (known[name][0], places[name], known[name][2]) for name in old if name in places}
        return known | self._add(db, suite, new, listing, places)

    def _places(
        self, db: sqlite3.Connection, suite: str, names: Sequence[str], seconds: Sequence[float | None]
    ) -> dict[str, int]:
        """A position for each of ``names``."""
        counts, loads = [0] * sample.TENTHS, [0.0] * sample.TENTHS
        known = [one for one in seconds if one is not None]
        rows = db.execute(
            "SELECT (position * 10 + 9) >> 32, count(*), coalesce(sum(seconds), 0), count(seconds) FROM cases "
            "WHERE suite = ? AND position IS NOT NULL GROUP BY 1",
            (suite,),
        ).fetchall()
        timed = len(known) + sum(row[3] for row in rows)
        # What nobody has run yet is taken for an average case.
        usual = (sum(known) + sum(row[2] for row in rows)) / timed if timed else 1.0
        for tenth, count, load, with_time in rows:
            counts[tenth], loads[tenth] = count, load + (count - with_time) * usual
        spread = sample.Spread(counts, loads)
        return {
            names[i]: spread.place(usual if (one := seconds[i]) is None else one) for i in sample.order(names, seconds)
        }

    def _add(
        self,
        db: sqlite3.Connection,
        suite: str,
        names: Sequence[str],
        listing: int = 0,
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> _Known:
        """Give a row to each of ``names``, which have none; as far as there is room."""
        top, count = db.execute("SELECT coalesce(max(id), 0), count(*) FROM cases").fetchone()
        kept = sorted(dict.fromkeys(names))[: max(0, MOST_CASES - count)]  # in order: the index grows at its end
        rows = [(n, suite, _key(name), listing, places.get(name)) for n, name in enumerate(kept, top + 1)]
        db.executemany("INSERT INTO cases (id, suite, name, listing, position) VALUES (?, ?, ?, ?, ?)", rows)
        return {name: (row[0], row[4], None) for name, row in zip(kept, rows, strict=True)}

    # -- results ----------------------------------------------------------------------------------------------

    def record(self, run: Run) -> Compared:
        return self._sound(lambda: self._record(run))

    def _record(self, run: Run) -> Compared:
        with self._writing() as db:
            names = [result.name for result in run.results]
            known = self._known(run.suite, names)
            known |= self._add(db, run.suite, [name for name in names if name not in known])
            ids = {name: row[0] for name, row in known.items()}
            results = [result for result in run.results if result.name in ids and result.outcome is not Outcome.GONE]
            compared = self._compare(db, run, results, ids)
            if results:
                self._remember(db, run, results, ids)
            self._forget(db)
        return compared

    def _remember(self, db: sqlite3.Connection, run: Run, results: Sequence[Result], ids: dict[str, int]) -> None:
        now = self._clock()
        # Changes that are not committed have no name that comes back: one tree for each agent's own state.
        content = run.content or f"~{run.agent}"
        db.execute(
            "INSERT INTO trees (content, commit_id, clean, landed, at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET landed = max(landed, excluded.landed), commit_id = excluded.commit_id, "
            "at = excluded.at",
            (content, run.base if run.landed else run.commit, bool(run.content), run.landed, now),
        )
        tree = db.execute("SELECT id FROM trees WHERE content = ?", (content,)).fetchone()[0]
        db.executemany(
            "INSERT INTO states VALUES (?, ?, ?, 1, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + 1, "
            "at = excluded.at, agent = excluded.agent, reason = excluded.reason",
            ((tree, ids[r.name], r.outcome.value, now, run.agent, clean(r.reason[:200])) for r in results),
        )
        passed = [(r.seconds, ids[r.name]) for r in results if r.outcome is Outcome.PASSED]
        db.executemany("UPDATE cases SET seconds = ? WHERE id = ?", passed)
        db.executemany(
            "DELETE FROM failing WHERE agent = ? AND case_id = ?", ((run.agent, ids[r.name]) for r in results)
        )
        failed = ((run.agent, ids[r.name]) for r in results if r.outcome.bad)
        db.executemany("INSERT OR IGNORE INTO failing VALUES (?, ?)", failed)
        if run.landed:
            db.executemany(
                "UPDATE cases SET landed_at = ?, landed_commit = ? WHERE id = ?",
                ((now, run.base, ids[r.name]) for r in results if r.outcome is not Outcome.SKIPPED),
            )

    def _compare(self, db: sqlite3.Connection, run: Run, results: Sequence[Result], ids: dict[str, int]) -> Compared:
        row = db.execute("SELECT id FROM trees WHERE content = ? AND landed", (run.base_content,)).fetchone()
        at_base = _outcomes(db.execute("SELECT case_id, outcome FROM states WHERE tree = ?", row)) if row else {}
        if run.landed:  # it is the landed state itself that fails
            for result in results:
                at_base.setdefault(ids[result.name], set()).add(result.outcome.value)
        counts = {"new": 0, "known": 0, "unknown": 0, "flaky": 0}
        kinds: dict[str, str] = {}
        for result in results:
            if not result.outcome.bad:
                continue
            kind = _kind(at_base.get(ids[result.name], set()))
            if kind == "unknown":
                kind = self._looked_back(db, run.suite, ids[result.name])
            counted = kind if kind in counts else "unknown"
            counts[counted] += 1
            kinds[result.name] = kind
        fixed = [
            result.name
            for result in results
            if result.outcome is Outcome.PASSED and _kind(at_base.get(ids[result.name], set())) == "known"
        ]
        return Compared(**counts, fixed=len(fixed), kinds=kinds, fixed_names=fixed[:SHOWN])

    def _looked_back(self, db: sqlite3.Connection, suite: str, case: int) -> str:
        """What a failure is that nobody has run on this landed state: ``new`` where no landed state has the case."""
        listed = db.execute(
            "SELECT cases.listing FROM cases JOIN suites USING (suite) WHERE id = ? AND suite = ?", (case, suite)
        ).fetchone()
        if listed == (0,):
            return "new"
        row = db.execute(
            "SELECT outcome FROM states JOIN trees ON trees.id = tree WHERE case_id = ? AND landed "
            "ORDER BY states.at DESC LIMIT 1",
            (case,),
        ).fetchone()
        return "passed before" if row and row[0] == Outcome.PASSED else "unknown"

    def landed(self, content: str, commit: str) -> None:
        """Note that the tree ``content`` is main's now, as ``commit``: what was found out of it before counts there."""
        with self._writing() as db:
            row = db.execute("SELECT id FROM trees WHERE content = ?", (content,)).fetchone()
            if row is None:
                return
            db.execute("UPDATE trees SET landed = 1, commit_id = ? WHERE id = ?", (commit, row[0]))
            db.execute(
                "UPDATE cases SET landed_at = ?, landed_commit = ? WHERE id IN "
                "(SELECT case_id FROM states WHERE tree = ? AND outcome <> ?)",
                (self._clock(), commit, row[0], Outcome.SKIPPED.value),
            )

    def _forget(self, db: sqlite3.Connection) -> None:
        cases, trees = (
            db.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0] for table in ("cases", "trees")
        )
        if cases >= MOST_CASES and db.execute("SELECT count(*) FROM cases").fetchone()[0] >= MOST_CASES:
            self._make_room(db)
        if trees % 50:  # counting is not for free
            return
        states, trees = (db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("states", "trees"))
        if states < MOST_STATES and trees < MOST_TREES:
            return
        most = max(1, trees // 10)
        old = db.execute("SELECT id FROM trees ORDER BY landed, at LIMIT ?", (most,)).fetchall()
        db.executemany("DELETE FROM states WHERE tree = ?", old)
        db.executemany("DELETE FROM trees WHERE id = ?", old)

    def _make_room(self, db: sqlite3.Connection) -> None:
        """Forget cases that their suite has no more and that never ran on a landed state: renamed ones, inventions."""
        db.execute(
            "DELETE FROM cases WHERE landed_at IS NULL AND id IN (SELECT id FROM cases LEFT JOIN suites USING (suite) "
            "WHERE cases.listing < coalesce(suites.listing, 1))"
        )
        for table in ("states", "failing"):
            db.execute(f"DELETE FROM {table} WHERE case_id NOT IN (SELECT id FROM cases)")

    # -- questions --------------------------------------------------------------------------------------------

    def history(self, suite: str, name: str) -> Sequence[Seen]:
        with self._lock:
            key = self._full_name(suite, _key(name))
            rows = self._db.execute(
                "SELECT states.at, agent, commit_id, landed, clean, outcome, count, reason FROM states "
                "JOIN trees ON trees.id = tree JOIN cases ON cases.id = case_id WHERE suite = ? AND name = ? "
                "ORDER BY states.at DESC LIMIT 200",
                (suite, key),
            ).fetchall()
        return [Seen(r[0], r[1], r[2], bool(r[3]), bool(r[4]), r[5], r[6], r[7]) for r in rows]

    def _full_name(self, suite: str, part: str) -> str:
        """The only case with ``part`` in its name; ``part`` itself where a case has that name, or several hold it."""
        sql = "SELECT name FROM cases WHERE suite = ? AND"
        if self._db.execute(f"{sql} name = ?", (suite, part)).fetchone():
            return part
        rows = self._db.execute(f"{sql} instr(name, ?) > 0 LIMIT 2", (suite, part)).fetchall()
        return rows[0][0] if len(rows) == 1 else part

    def flaky(self, suite: str) -> Sequence[str]:
        # A time-out says more of the machine, or of --timeout, than of the case.
        wrong = (Outcome.FAILED.value, Outcome.CRASHED.value)
        with self._lock:
            rows = self._db.execute(
                "SELECT name, max(states.at) FROM states JOIN trees ON trees.id = tree "
                "JOIN cases ON cases.id = case_id WHERE suite = ? AND clean GROUP BY tree, case_id "
                "HAVING sum(outcome = 'passed') > 0 AND sum(outcome IN (?, ?)) > 0 ORDER BY 2 DESC LIMIT 1000",
                (suite, *wrong),
            ).fetchall()
        return list(dict.fromkeys(row[0] for row in rows))

    def coverage(self) -> Sequence[Covered]:
        """Every case that was in its suite when that was last listed, longest not run first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT cases.suite, name, landed_at, coalesce(landed_commit, '') FROM cases JOIN suites USING (suite) "
                "WHERE cases.listing = suites.listing ORDER BY landed_at IS NOT NULL, landed_at, name"
            ).fetchall()
        return [Covered(*row) for row in rows]


def _is_broken(error: sqlite3.Error, *more: int) -> bool:
    """Whether it is the file that is wrong, not the disk nor somebody who holds it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, *more)


def _kind(outcomes: set[str]) -> str:
    bad, good = bool(outcomes & set(_BAD)), Outcome.PASSED.value in outcomes
    return "flaky" if bad and good else "known" if bad else "new" if good else "unknown"


def _outcomes(rows: Iterable[tuple[int, str]]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for case, outcome in rows:
        found.setdefault(case, set()).add(outcome)
    return found


def _key(name: str) -> str:
    """``name`` as SQLite takes it: no lone surrogates, of bounded length; what is cut is kept apart by a hash."""
    text = name if name.isascii() else name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if text == name and len(text) <= LONGEST_NAME and not _CUT.search(text):
        return text
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:LONGEST_NAME]}~{digest}"


def _digest(names: Sequence[str]) -> str:
    text = "\0\n".join(sorted(names)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
