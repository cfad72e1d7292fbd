"""Pushes that wait for the gate or for a person, and their verdicts: derived from the ledger, so that they outlive
their pusher and the supervisor."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

from team.ledger import Event, Kind, Ledger, New
from team.text import one_line
from team.upstream.pusher import Pusher

_KINDS = (Kind.PUSH_QUEUED, Kind.PUSH_HELD, Kind.PUSH_APPROVED, Kind.PUSH_VERDICT, Kind.PUSH_TOLD, Kind.CLAIMS_KEPT)
QUEUED, HELD = "queued", "held"


@dataclass(frozen=True)
class Waiting:
    """A push without a verdict. ``at`` is in seconds since the epoch."""

    number: int
    state: str
    """``queued``: for the gate. ``held``: for a person."""
    commit: str
    agent: str
    email: str
    session: str | None
    role: str
    at: float
    subject: str
    tasks: tuple[str, ...]
    """The tasks of its session, and those that the push would claim or release."""
    paths: tuple[str, ...] = ()
    """Why it is held: protected paths, or findings about tests."""
    reason: str = ""
    approved: bool = False
    """A person has looked at it."""
    force: bool = False
    """It claims what is like a task that is held."""

    def pusher(self) -> Pusher:
        """On whose behalf it lands, whether or not the session still lives."""
        return Pusher(self.agent, self.email, self.session, self.role)


@dataclass(frozen=True)
class Verdict:
    """What became of a push that waited."""

    push: Waiting
    landed: bool
    reason: str
    """One line: why it was refused, or where it landed."""
    lines: tuple[str, ...]
    """The few lines of the check that tell most."""
    at: float
    data: dict[str, Any]


class Queue:
    """Every push that waits. Safe to use from several threads; numbers are given while the turn is held."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.changed = threading.Condition()
        """Notified after a verdict of this process."""
        self._waiting: dict[int, Waiting] = {}
        self._verdicts: dict[int, Verdict] = {}
        self._untold: dict[str, dict[int, Verdict]] = {"agent": {}, "task": {}}
        self._kept: dict[str, tuple[str, str]] = {}
        self._number, self._seen, self._tests = 0, 0, 0
        self._lock = threading.Lock()

    def sync(self) -> None:
        """Take in what was appended to the ledger since the last time, by whatever process."""
        with self._lock:
            for event in self.ledger.events(*_KINDS, after=self._seen):
                self._take(event)
                self._seen = event.id

    def add(self, state: str, pusher: Pusher, commit: str, subject: str, tasks: list[str], **more: Any) -> int:
        """Record that a push waits; returns its number. The turn must be held, its objects be kept already."""
        number = self.next_number()
        self._append(
            Kind.PUSH_QUEUED if state == QUEUED else Kind.PUSH_HELD, pusher.name, pusher.session,
            number=number, commit=commit, email=pusher.email, role=pusher.role, subject=one_line(subject, 120),
            tasks=tasks, **more,
        )  # fmt: skip
        return number

    def next_number(self) -> int:
        """The number that :meth:`add` will give."""
        self.sync()
        return self._number + 1

    def approve(self, push: Waiting, by: str, note: str) -> None:
        """A held push now waits for the gate like any other."""
        self._append(Kind.PUSH_APPROVED, push.agent, push.session, number=push.number, by=by, note=note)

    def decide(self, push: Waiting, *, landed: bool, reason: str, **more: Any) -> None:
        """Record the verdict on a push, and wake whoever waits for it."""
        self._append(
            Kind.PUSH_VERDICT, push.agent, push.session, number=push.number, landed=landed, reason=reason, **more
        )
        with self.changed:
            self.changed.notify_all()

    def tell(self, verdict: Verdict, to: str) -> None:
        """Record that the ``agent``, or the next holder of the ``task``, heard of it."""
        self._append(Kind.PUSH_TOLD, verdict.push.agent, verdict.push.session, number=verdict.push.number, to=to)

    def waiting(self, state: str | None = None) -> list[Waiting]:
        """Pushes that wait, first come first."""
        return [w for w in list(self._waiting.values()) if state in (None, w.state)]

    def find(self, number: int) -> Waiting | None:
        """The push with that number, if it still waits."""
        return self._waiting.get(number)

    def same(self, pusher: Pusher, commit: str) -> Waiting | None:
        """The same commit, pushed by the same agent before, if it still waits."""
        return next((w for w in self.waiting() if (w.agent, w.commit) == (pusher.name, commit)), None)

    def verdict(self, number: int) -> Verdict | None:
        """The verdict on a push, None as long as it waits."""
        return self._verdicts.get(number)

    def of_session(self, session: str) -> list[Waiting]:
        """The pushes of ``session`` that wait: as long as there are any, its claims hold."""
        return [w for w in self.waiting() if w.session == session]

    def untold(self, *, agent: str = "", tasks: tuple[str, ...] = ()) -> list[tuple[Verdict, str]]:
        """Verdicts that ``agent`` has not heard, and those on ``tasks`` that no next holder has; with whom to tell."""
        found = {n: (v, "agent") for n, v in list(self._untold["agent"].items()) if v.push.agent == agent}
        for number, verdict in list(self._untold["task"].items()):
            if verdict.push.agent != agent and set(verdict.push.tasks) & set(tasks):
                found[number] = (verdict, "task")
        return [found[number] for number in sorted(found)]

    def news_of(self, session: str) -> list[Verdict]:
        """Verdicts on pushes of ``session`` that its agent has not heard."""
        return [v for v in list(self._untold["agent"].values()) if v.push.session == session]

    def last_of(self, task: str) -> Verdict | None:
        """The last refusal on ``task`` of which its next holder has not heard."""
        mine = [v for v in list(self._untold["task"].values()) if task in v.push.tasks and not v.landed]
        return mine[-1] if mine else None

    def kept(self, session: str) -> tuple[str, str] | None:
        """Agent and reason of a session that ended while a push of it waited."""
        return self._kept.get(session)

    def all_kept(self) -> list[str]:
        """Sessions that ended while a push of them waited."""
        return list(self._kept)

    def keep(self, session: str, agent: str, why: str) -> None:
        """Record that the claims of ``session`` outlive it."""
        self._append(Kind.CLAIMS_KEPT, agent, session, why=why)

    def tests(self) -> int:
        """How many tests ran when work last landed; 0 where nobody counted."""
        return self._tests

    def _append(self, kind: Kind, agent: str, session: str | None, **data: Any) -> None:
        self.ledger.append_all([New(kind, agent, session, None, data)])
        self.sync()

    def _take(self, event: Event) -> None:
        data = event.data
        number = int(data.get("number", 0))
        if event.kind in (Kind.PUSH_QUEUED, Kind.PUSH_HELD):
            self._number = max(self._number, number)
            self._waiting[number] = _waiting(event)
        elif event.kind == Kind.PUSH_APPROVED:
            if number in self._waiting:
                self._waiting[number] = replace(self._waiting[number], state=QUEUED, approved=True)
        elif event.kind == Kind.PUSH_VERDICT:
            self._decided(event, number)
        elif event.kind == Kind.PUSH_TOLD:
            self._untold[str(data["to"])].pop(number, None)
        elif event.kind == Kind.CLAIMS_KEPT:
            self._kept[event.session or ""] = (event.agent or "", str(data.get("why", "")))

    def _decided(self, event: Event, number: int) -> None:
        push = self._waiting.pop(number, None)
        if push is None:
            return
        data = event.data
        verdict = Verdict(
            push, bool(data["landed"]), str(data["reason"]), tuple(data.get("lines") or ()), event.at, data
        )
        self._verdicts[number] = verdict
        if len(self._verdicts) > 1000:
            del self._verdicts[next(iter(self._verdicts))]
        if push.session is not None:
            self._untold["agent"][number] = verdict
            after = self._untold["task"]  # what the same session was told before is out of date for whoever follows
            for older in [n for n, v in after.items() if v.push.session == push.session]:
                del after[older]
            if not verdict.landed:
                after[number] = verdict
        if verdict.landed and data.get("tests"):
            self._tests = int(data["tests"])


def _waiting(event: Event) -> Waiting:
    data = event.data
    return Waiting(
        number=int(data["number"]),
        state=QUEUED if event.kind == Kind.PUSH_QUEUED else HELD,
        commit=str(data["commit"]),
        agent=event.agent or "",
        email=str(data["email"]),
        session=event.session,
        role=str(data["role"]),
        at=event.at,
        subject=str(data["subject"]),
        tasks=tuple(data["tasks"]),
        paths=tuple(data.get("paths") or ()),
        reason=str(data.get("reason") or ""),
        approved=bool(data.get("approved")),
        force=bool(data.get("force")),
    )
