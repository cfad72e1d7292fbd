"""The host's side of ``team test``: answers sessions at their door, and notes each run in the ledger."""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from team.git import GitError
from team.ledger import Kind, Ledger
from team.sampler import remote
from team.sampler.cases import Outcome
from team.sampler.landed import content
from team.sampler.memory import Compared, File, Run
from team.text import one_line

MOST_NOTED = 2000
"""Runs of one session that the ledger notes one by one; more are kept in the memory only."""
_NAMES = 10


class Tests:
    """What the team knows of the project's tests. For all doors of one supervisor, in any thread."""

    __test__ = False  # not a test, whatever pytest thinks of its name

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._ledger = path, ledger
        self._memory: File | None = None
        self._lock = threading.Lock()
        self._noted: Counter[str] = Counter()

    def answer(self, what: str, body: bytes, agent: str, session: str, task: str | None) -> dict[str, Any]:
        """The answer to a question that came through the door of ``session``. Raises
        :class:`~team.errors.TeamError` for one that makes no sense."""
        answer, ran = remote.answer(self.memory(), what, body, agent, session, task or "")
        if ran is not None:
            self._note(*ran)
        return answer

    def from_gate(self, results: bytes) -> int | None:
        """How many tests ran in a check of the gate, which left ``results`` (what
        :class:`~team.sampler.remote.Written` wrote, as gzip in base64); they are kept. None for no sense."""
        try:
            unpacked = zlib.decompressobj(wbits=31)
            text = unpacked.decompress(base64.b64decode(results, validate=True), remote.MOST_BYTES)
            runs = [remote.run_from(json.loads(line)) for line in text.splitlines()]
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError, zlib.error):
            return None
        if not runs:
            return None
        for run in runs:
            with suppress(OSError, sqlite3.Error):  # a full disk is no reason to hold up what is green
                self.memory().record(replace(run, agent="gate", base="", base_content=""))
        aside = (Outcome.SKIPPED, Outcome.GONE)
        # However often a check runs or tells of a test, it is one.
        return len({(run.suite, one.name) for run in runs for one in run.results if one.outcome not in aside})

    def landed(self, upstream: Path, commit: str) -> None:
        """Main is at ``commit`` now: what the gate, or an agent, found out of just this tree counts there."""
        if not self._path.exists():  # nobody has tested anything
            return
        with suppress(OSError, sqlite3.Error, GitError):
            self.memory().landed(content(upstream, commit), commit)

    def memory(self) -> File:
        """The memory itself, opened when it is first asked for: most teams' projects have no tests at the start."""
        with self._lock:
            if self._memory is None:
                self._memory = File(self._path)
            return self._memory

    def _note(self, run: Run, compared: Compared) -> None:
        with self._lock:
            self._noted[run.session] += 1
            if self._noted[run.session] > MOST_NOTED:
                return
        failing = [result.name for result in run.results if result.outcome.bad]
        first = sorted(failing, key=lambda name: compared.kinds.get(name) == "known")[:_NAMES]
        self._ledger.append(
            Kind.TEST_RUN,
            agent=run.agent,
            session=run.session,
            task=run.task or None,
            suite=run.suite,
            commit=run.commit,
            base=run.base,
            landed=run.landed,
            rate=run.rate,
            total=run.total,
            ran=len(run.results),
            failed=len(failing),
            new=compared.new,
            known=compared.known,
            unknown=compared.unknown,
            fixed=compared.fixed,
            seconds=round(run.seconds, 2),
            failing=[one_line(name, 120) for name in first],
        )

    def close(self) -> None:
        """Close the file; it is opened again when it is asked for."""
        with self._lock:
            if self._memory is not None:
                self._memory.close()
                self._memory = None
