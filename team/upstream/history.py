"""What each path of main has been: read once along its first parents, then kept up with every landing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from team.upstream.objects import Entry, Missing, Walk
from team.upstream.paths import is_bookkeeping
from team.upstream.refusal import Refused
from team.upstream.repository import Repository

_FIRST = 1_000
"""Landings that are read when it begins."""
_MOST_CHANGES = 5_000
"""Of one landing; a larger one is an import, and nobody's work to undo."""
_MOST = 400_000
"""Changes that are remembered; past it, it begins afresh."""
_SESSION = re.compile(rb"^Team-Session: (\S+)$", re.M)


@dataclass(frozen=True)
class Past:
    """A change of a path by a landing: ``old`` is what the path was before."""

    commit: str
    session: str | None
    old: Entry | None


@dataclass(frozen=True)
class Landing:
    """A first-parent commit of main."""

    commit: str
    session: str | None
    paths: tuple[bytes, ...]


class History:
    """The past of main. Safe to use from several threads."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._at = ""
        self._count = 0
        self._pasts: dict[bytes, list[Past]] = {}
        self._work: list[Landing] = []

    def sync(self, main: str) -> None:
        """Take in what landed up to ``main``."""
        with self._lock:
            if self._count > _MOST:
                self._at, self._count, self._pasts, self._work = "", 0, {}, []
            for commit, parent in reversed(list(self._missing(main))):
                self._take(commit, parent)
            self._at = main

    def since(self, path: bytes, entry: Entry | None) -> list[Past]:
        """The changes of ``path`` since it last was ``entry``, oldest first; none where it never was."""
        with self._lock:
            pasts = self._pasts.get(path, [])
            for number in range(len(pasts) - 1, -1, -1):
                old = pasts[number].old
                # By content alone: a stale file is no less stale for being executable now.
                if (old.oid if old else None) == (entry.oid if entry else None):
                    return pasts[number:]
            return []

    def newest(self) -> list[Landing]:
        """The last landings that changed more than locks and tickets, newest first."""
        with self._lock:
            return self._work[:-51:-1]

    def _missing(self, main: str) -> Iterator[tuple[str, str]]:
        store = self._repository.store
        commit = main
        for _ in range(_FIRST if not self._at else 100 * _FIRST):
            if commit == self._at:
                return
            parents = store.commit(commit).parents
            if not parents:
                return
            yield commit, parents[0]
            commit = parents[0]

    def _take(self, commit: str, parent: str) -> None:
        store = self._repository.store
        raw = store.read(commit, "commit")
        match = _SESSION.search(raw)
        session = match[1].decode("utf-8", "replace") if match else None
        walk = Walk(store, {}, _MOST_CHANGES)
        try:
            changes = list(walk.changes(store.commit(commit).tree, [store.commit(parent).tree]))
        except (Refused, Missing):
            return
        for change in changes:
            self._pasts.setdefault(change.path, []).append(Past(commit, session, change.old))
        self._count += len(changes)
        paths = tuple(c.path for c in changes)
        if any(not is_bookkeeping(p) for p in paths):
            self._work.append(Landing(commit, session, paths))
            del self._work[:-200]
