"""What is known of the cases without running them: their places, durations, and what came of them where.

One SQLite file a project. In a session it lies on the host, behind the door; elsewhere in the project's state or in
the clone's git directory. What agents report is theirs to say: nothing that protects main depends on it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from team.sampler import sample
from team.sampler.cases import Outcome, Result

MOST_CASES = 500_000
"""Cases of a project that places are kept for; more are placed by their names alone."""
MOST_STATES = 4_000_000
"""Results that are kept; then the oldest tenth of the commits is forgotten."""
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
    """Fail here; nobody ran them there, or with both outcomes."""
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

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True) -> Look:
        """What is known of ``names``, which are all cases of the suite. With ``place`` those that have none are given
        their places, for good, by the durations known now."""

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
_BAD = tuple(outcome.value for outcome in Outcome if outcome.bad)


_Row = tuple[int, int | None, float | None]
"""Id, position and duration of a case."""
_Known = dict[str, _Row]


class File:
    """A memory in a file. Safe for several threads and several processes."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock, self._lock = clock, threading.Lock()
        self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise

    # -- places -----------------------------------------------------------------------------------------------

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True) -> Look:
        digest = _digest(names)
        with self._lock:
            known = self._known(suite, names)
            row = self._db.execute("SELECT digest FROM suites WHERE suite = ?", (suite,)).fetchone()
        if row != (digest,) or (place and any(name not in known or known[name][1] is None for name in names)):
            with self._writing() as db:
                known = self._list(db, suite, names, digest, place=place)
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

    def _list(self, db: sqlite3.Connection, suite: str, names: Sequence[str], digest: str, *, place: bool) -> _Known:
        """Note that these are the cases of the suite now, with ``place`` give places to those that have none, and
        return what is known of each."""
        db.execute(
            "INSERT INTO suites VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET digest = excluded.digest, "
            "listing = listing + 1",
            (suite, digest),
        )
        listing = db.execute("SELECT listing FROM suites WHERE suite = ?", (suite,)).fetchone()[0]
        known = self._known(suite, names)
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
        with self._writing() as db:
            names = [result.name for result in run.results]
            known = self._known(run.suite, names)
            known |= self._add(db, run.suite, [name for name in names if name not in known])
            ids = {name: row[0] for name, row in known.items()}
            results = [result for result in run.results if result.name in ids and result.outcome is not Outcome.GONE]
            compared = self._compare(db, run, results, ids)
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
            ((tree, ids[r.name], r.outcome.value, now, run.agent, r.reason[:200]) for r in results),
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
        counts = {"new": 0, "known": 0, "unknown": 0}
        kinds: dict[str, str] = {}
        for result in results:
            if not result.outcome.bad:
                continue
            kind = _kind(at_base.get(ids[result.name], set()))
            if kind == "unknown" and self._passed_before(db, ids[result.name]):
                kind = "passed before"
            counted = kind if kind in counts else "unknown"
            counts[counted] += 1
            kinds[result.name] = kind
        fixed = [
            result.name
            for result in results
            if result.outcome is Outcome.PASSED and _kind(at_base.get(ids[result.name], set())) == "known"
        ]
        return Compared(**counts, fixed=len(fixed), kinds=kinds, fixed_names=fixed[:SHOWN])

    def _passed_before(self, db: sqlite3.Connection, case: int) -> bool:
        """Whether it passed when it was last run on any landed state."""
        row = db.execute(
            "SELECT outcome FROM states JOIN trees ON trees.id = tree WHERE case_id = ? AND landed "
            "ORDER BY states.at DESC LIMIT 1",
            (case,),
        ).fetchone()
        return bool(row) and row[0] == Outcome.PASSED

    def _forget(self, db: sqlite3.Connection) -> None:
        count = db.execute("SELECT coalesce(max(rowid), 0) FROM trees").fetchone()[0]
        if count % 50:  # counting is not for free
            return
        if db.execute("SELECT count(*) FROM states").fetchone()[0] < MOST_STATES:
            return
        old = db.execute("SELECT id FROM trees ORDER BY at LIMIT (SELECT max(1, count(*) / 10) FROM trees)").fetchall()
        db.executemany("DELETE FROM states WHERE tree = ?", old)
        db.executemany("DELETE FROM trees WHERE id = ?", old)

    # -- questions --------------------------------------------------------------------------------------------

    def history(self, suite: str, name: str) -> Sequence[Seen]:
        with self._lock:
            rows = self._db.execute(
                "SELECT states.at, agent, commit_id, landed, clean, outcome, count, reason FROM states "
                "JOIN trees ON trees.id = tree JOIN cases ON cases.id = case_id WHERE suite = ? AND name = ? "
                "ORDER BY states.at DESC LIMIT 200",
                (suite, _key(name)),
            ).fetchall()
        return [Seen(r[0], r[1], r[2], bool(r[3]), bool(r[4]), r[5], r[6], r[7]) for r in rows]

    def flaky(self, suite: str) -> Sequence[str]:
        bad = ",".join("?" * len(_BAD))
        with self._lock:
            rows = self._db.execute(
                f"SELECT name, max(states.at) FROM states JOIN trees ON trees.id = tree "
                f"JOIN cases ON cases.id = case_id WHERE suite = ? AND clean GROUP BY tree, case_id "
                f"HAVING sum(outcome = 'passed') > 0 AND sum(outcome IN ({bad})) > 0 ORDER BY 2 DESC LIMIT 1000",
                (suite, *_BAD),
            ).fetchall()
        return list(dict.fromkeys(row[0] for row in rows))

    def passed_on(self, suite: str, name: str) -> Sequence[str]:
        """Landed commits on which the case passed, newest first."""
        return [seen.commit for seen in self.history(suite, name) if seen.landed and seen.outcome == Outcome.PASSED]

    def coverage(self) -> Sequence[Covered]:
        """Every case that was in its suite when that was last listed, longest not run first."""
        with self._lock:
            rows = self._db.execute(
                "SELECT cases.suite, name, landed_at, coalesce(landed_commit, '') FROM cases JOIN suites USING (suite) "
                "WHERE cases.listing = suites.listing ORDER BY landed_at IS NOT NULL, landed_at, name"
            ).fetchall()
        return [Covered(*row) for row in rows]


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
    if text == name and len(text) <= LONGEST_NAME:
        return text
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[:LONGEST_NAME]}~{digest}"


def _digest(names: Sequence[str]) -> str:
    text = "\0\n".join(sorted(names)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()
