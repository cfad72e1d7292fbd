"""What each role brought: measured from its landings and from its benchmark, never from what an agent says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team import cost, git
from team.config import Settings
from team.gateway.prices import usd
from team.handout.docs import is_document
from team.ledger import Event, Kind, Ledger
from team.schedule import Wait, missing
from team.text import one_line
from team.upstream.paths import is_bookkeeping, ticket_task
from team.view import plural

_MOST = 2000
"""Landings that are looked at, the newest first."""
_PATCH = re.compile(rb"tasks/[^/]*\.patch\Z")
"""What the built-in client hands over: work that is not done yet."""
_HEAD = re.compile(rb"\x01([0-9a-f]{40,64})\x00")


@dataclass
class Worth:
    """What one role did since the project's first ``team up``."""

    role: str
    sessions: int = 0
    landings: int = 0
    added: int = 0
    """Lines, tickets and locks left out."""
    removed: int = 0
    documents: int = 0
    """Documents that a landing changed, each time."""
    tickets: int = 0
    """Tickets that it filed."""
    before: int = 0
    """Milliseconds of the benchmark before its landings, in all; only what was measured."""
    after: int = 0
    measured: int = 0
    """Landings whose time was measured."""
    cost: int = 0
    """Picodollars at list price."""
    due: Wait | None = None
    """What its next session waits for; None where it is due, or has no schedule."""
    every: str = ""

    @property
    def saved(self) -> int:
        """Milliseconds that the benchmark takes less, over all landings measured."""
        return self.before - self.after

    def words(self) -> str:
        """On one line, what it brought."""
        parts = []
        if grown := self.added - self.removed:
            parts.append(f"{plural(abs(grown), 'line')} {'more' if grown > 0 else 'fewer'}")
        if self.documents:
            parts.append(f"{plural(self.documents, 'document')} touched")
        if self.tickets:
            parts.append(f"{plural(self.tickets, 'ticket')} filed")
        if self.measured and self.before:
            change = self.saved / self.before
            parts.append(f"benchmark {abs(change):.0%} {'faster' if change >= 0 else 'slower'} ({self.saved} ms)")
        return ", ".join(parts) or "nothing yet"

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "role": self.role, "sessions": self.sessions, "landings": self.landings,
            "lines_added": self.added, "lines_removed": self.removed, "documents_touched": self.documents,
            "tickets_filed": self.tickets, "landings_measured": self.measured, "ms_before": self.before,
            "ms_after": self.after, "ms_saved": self.saved, "usd": usd(self.cost), "every": self.every or None,
            "due_after_landings": self.due.landings if self.due else None,
            "due_in_seconds": self.due.seconds if self.due else None,
        }  # fmt: skip


@dataclass
class _Change:
    """What one landing changed."""

    added: int = 0
    removed: int = 0
    documents: int = 0
    tickets: list[str] = field(default_factory=list)


def worth(ledger: Ledger, upstream: Path, settings: Settings, now: float, *, running: bool) -> list[Worth]:
    """Every role that ever had a session or has a seat, workers first. ``now`` is in seconds since the epoch."""
    found: dict[str, Worth] = {"worker": Worth("worker")}
    role_of: dict[str | None, str] = {}
    for event in ledger.events(Kind.SESSION_STARTING):
        role = one_line(str(event.data.get("role") or "worker"), 40)
        role_of[event.session] = role
        found.setdefault(role, Worth(role)).sessions += 1
    _count_landings(found, role_of, ledger, upstream)
    for event in ledger.events(Kind.ROLE_MEASURED):
        row = found.setdefault(str(event.data["role"]), Worth(str(event.data["role"])))
        row.before, row.after = row.before + int(event.data["before"]), row.after + int(event.data["after"])
        row.measured += 1
    for role, spent in cost.report(ledger.events(*cost.KINDS), "role", running=running).rows.items():
        if role in found:
            found[role].cost = spent.cost
    started = ledger.last(Kind.TEAM_STARTED)
    for _, role in started.data.get("seats", []) if started is not None else []:
        found.setdefault(role, Worth(role))
    for row in found.values():
        if (every := settings.role_of(row.role).every) is not None:
            row.every, row.due = str(every), missing(every, ledger, row.role, now)
    return list(found.values())


def _count_landings(found: dict[str, Worth], role_of: dict[str | None, str], ledger: Ledger, upstream: Path) -> None:
    landings = [e for e in ledger.events(Kind.LANDING_DONE) if e.data.get("kind") == "work" and e.session in role_of]
    changes = _changes(upstream, landings[-_MOST:])
    for landing in landings:
        row = found[role_of[landing.session]]
        row.landings += 1
        if (change := changes.get(str(landing.data["new"]))) is not None:
            row.added, row.removed = row.added + change.added, row.removed + change.removed
            row.documents, row.tickets = row.documents + change.documents, row.tickets + len(change.tickets)


def _changes(upstream: Path, landings: list[Event]) -> dict[str, _Change]:
    """What each of ``landings`` changed; one that git cannot tell in time is missing."""
    if not landings:
        return {}
    commits = "".join(f"{landing.data['new']}\n" for landing in landings)
    try:
        out = git.git(
            "log", "--no-walk=unsorted", "--stdin", "--first-parent", "--diff-merges=first-parent", "--no-renames",
            "--raw", "--numstat", "-z", "--format=%x01%H%x00",
            at=upstream, stdin=commits.encode(), seconds=30,
        )  # fmt: skip
    except git.GitError:
        return {}
    heads = list(_HEAD.finditer(out))
    ends = [head.start() for head in heads[1:]] + [len(out)]
    return {h[1].decode(): _change(out[h.end() : end].split(b"\0")) for h, end in zip(heads, ends, strict=True)}


def _change(fields: list[bytes]) -> _Change:
    change = _Change()
    added: set[bytes] = set()
    status = b""
    for part in fields:
        part = part.lstrip(b"\n")
        if status:
            added |= {part} if status == b"A" else set()
            status = b""
        elif part.startswith(b":"):
            status = part[-1:]
        elif len(words := part.split(b"\t", 2)) == 3:
            _count(change, words, added)
    return change


def _count(change: _Change, words: list[bytes], added: set[bytes]) -> None:
    """Take in one line of ``--numstat``; of binary files git tells no lines."""
    path = words[2]
    task = ticket_task(path)
    if task is not None and path in added:
        change.tickets.append(task)
    if is_bookkeeping(path) or _PATCH.match(path):
        return
    change.documents += is_document(path.decode("utf-8", "replace"))
    if words[0].isdigit() and words[1].isdigit():
        change.added, change.removed = change.added + int(words[0]), change.removed + int(words[1])
