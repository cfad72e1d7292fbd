"""The host's side of ``team oracle``: answers sessions at their door, and notes each culprit in the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from team.ledger import Kind, Ledger
from team.oracle import memory
from team.oracle.memory import File
from team.text import one_line


class Oracle:
    """What the team knows of units and culprits. For all doors of one supervisor, in any thread."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self._path, self._ledger = path, ledger
        self._memory: File | None = None
        self._lock = threading.Lock()
        self._noted: set[tuple[str, ...]] = set()

    def answer(self, what: str, body: bytes, agent: str, session: str) -> dict[str, Any]:
        """The answer to a question that came through the door of ``session``. Raises
        :class:`~team.errors.TeamError` for one that makes no sense."""
        with self._lock:
            if self._memory is None:
                self._memory = File(self._path)
            kept = self._memory
        answer, culprit = memory.answer(kept, what, body, agent)
        if culprit is not None and len(self._noted) < memory.MOST_NOTED and culprit.units not in self._noted:
            self._noted.add(culprit.units)
            units = [one_line(unit, 200) for unit in culprit.units[:10]]
            self._ledger.append(
                Kind.ORACLE_FOUND, agent=agent, session=session, task=culprit.task, units=units, reason=culprit.reason
            )
        return answer

    def close(self) -> None:
        """Close the file; it is opened again when it is asked for."""
        with self._lock:
            if self._memory is not None:
                self._memory.close()
                self._memory = None
