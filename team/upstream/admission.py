"""What a push that is allowed has to wait for: nothing, the gate, or a person. And how its pusher hears of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from team.config import Gate
from team.ledger import Kind, Ledger
from team.text import one_line
from team.upstream import protected, tamper
from team.upstream.inspection import Push
from team.upstream.landing import Landed, Lander
from team.upstream.landing import Verdict as Allowed
from team.upstream.objects import Change
from team.upstream.paths import is_bookkeeping, shown
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.queue import HELD, QUEUED, Queue, Verdict
from team.upstream.refusal import Refused, age, listed
from team.upstream.shelf import Shelf

Say = Callable[[str], None]
_SPEAK_SECONDS = 10.0
_LOOK_SECONDS = 0.25
_MOST_WAITING = 16
"""Pushes of one session."""


RECORDED = ("waits", "gate")
"""Rules of refusals that the ledger knows already."""


class Waits(Exception):
    """A push was put into the queue; ``number`` is its place there."""

    def __init__(self, number: int, state: str) -> None:
        self.number, self.state = number, state
        super().__init__(f"{state} as {number}")


def queued_ref(number: int) -> str:
    """The ref in the gate's repository that holds a queued push."""
    return f"refs/queued/{number}"


def held_ref(number: int) -> str:
    """The ref in the rescue repository that holds a held push."""
    return f"refs/held/{number}"


@dataclass
class Admission:
    """Lands pushes at once where nothing speaks against it, else queues them and waits for the verdict."""

    lander: Lander
    ledger: Ledger
    queue: Queue
    gate: Gate
    globs: Sequence[str]
    shelf: Shelf
    held: Shelf
    clock: Callable[[], float] = time.time
    stages: dict[int, str] = field(default_factory=dict)
    """What the gate of this process does with a push right now."""

    def land(
        self,
        pusher: Pusher,
        push: Push,
        quarantine: Quarantine,
        say: Say,
        locks: Callable[[], Landed | None] | None = None,
    ) -> Landed | None:
        """Land a push that was inspected; None where main has it. Raises :class:`Refused`, also for what waits.

        ``locks`` lands a push of nothing but locks, which never waits.
        """
        self.queue.sync()
        self.tell(say, pusher)
        if not push.commits:
            return None
        if (again := self.queue.same(pusher, push.head.oid)) is not None:
            return self._await(pusher, again.number, say)
        try:
            landed = (
                locks()
                if locks
                else self.lander.land(
                    pusher, push, quarantine, lambda allowed: self._admit(pusher, push, quarantine, allowed, say)
                )
            )
        except Waits as waits:
            return self._await(pusher, waits.number, say)
        if landed is not None and landed.claims:
            self.tell(say, pusher, landed.claims)
        return landed

    # -- the decision, while the turn is held -----------------------------------------------------------------

    def _admit(self, pusher: Pusher, push: Push, quarantine: Quarantine, allowed: Allowed, say: Say) -> None:
        """Raise :class:`Waits` for a push that must not land now; :class:`Refused` where policy says so."""
        if not pusher.is_person:
            self._look_at_tests(pusher, push, quarantine, allowed, say)
            paths = protected.touched([shown(c.path) for c in allowed.changes], self.globs)
            if paths:
                why = f"only a person may change {listed(paths, 3)}"
                raise self._wait(HELD, pusher, push, quarantine, allowed, paths=paths, reason=why)
        if self.gate.check and not gate_free(allowed.changes):
            raise self._wait(QUEUED, pusher, push, quarantine, allowed)

    def _look_at_tests(self, pusher: Pusher, push: Push, quarantine: Quarantine, allowed: Allowed, say: Say) -> None:
        found = tamper.findings(allowed.changes, quarantine.store)
        if not found:
            return
        shown_ = [one_line(text, 160) for text in found[:10]]
        self.ledger.append(
            Kind.PUSH_TAMPERING, agent=pusher.name, session=pusher.session, commit=push.head.oid, findings=shown_
        )
        for text in shown_:
            say(f"tests: this push {text}")
        if self.gate.tampering == "refuse":
            raise Refused(
                "tests", f"this push {listed(shown_, 3)} ([gate] tampering = refuse); put the tests back and push again"
            )
        if self.gate.tampering == "hold":
            raise self._wait(
                HELD, pusher, push, quarantine, allowed, paths=shown_, reason=f"the push {listed(shown_, 3)}"
            )

    def _wait(
        self,
        state: str,
        pusher: Pusher,
        push: Push,
        quarantine: Quarantine,
        allowed: Allowed,
        *,
        paths: Sequence[str] = (),
        reason: str = "",
    ) -> Waits:
        """Put the push where it waits: its objects first, so that what the ledger knows can always be found."""
        number = self.queue.next_number()
        if len(self.queue.of_session(pusher.session or "")) >= _MOST_WAITING:
            why = f"{reason}; " if reason else ""
            raise Refused("waiting", f"{why}{_MOST_WAITING} pushes of this session wait already")
        shelf, ref = (self.shelf, queued_ref(number)) if state == QUEUED else (self.held, held_ref(number))
        shelf.keep(quarantine, push.head.oid, ref)
        held = self.lander.claims.held_by(pusher.session or "")
        tasks = list(dict.fromkeys([*held, *allowed.claims, *allowed.releases]))
        self.queue.add(
            state, pusher, push.head.oid, push.head.subject, tasks,
            force=push.force, paths=[one_line(p, 200) for p in paths[:50]], reason=one_line(reason, 400),
        )  # fmt: skip
        return Waits(number, state)

    # -- waiting ----------------------------------------------------------------------------------------------

    def _await(self, pusher: Pusher, number: int, say: Say) -> Landed | None:
        """Wait for the verdict, ``[gate] wait`` at most. Raises :class:`Refused` for whatever is not landed."""
        push = self.queue.find(number)
        if push is not None and push.state == HELD:
            raise Refused(
                "waits",
                f"held as {number} until a person decides: {push.reason}; your task stays yours until then, "
                "so push nothing more for it, and finish",
            )
        before = sum(1 for w in self.queue.waiting(QUEUED) if w.number < number)
        say(f"queued as {number}" + (f", {before} before it" if before else "") + "; it is checked before it lands")
        began = spoken = time.monotonic()
        stage = ""
        while (verdict := self.queue.verdict(number)) is None:
            now = time.monotonic()
            if now - began >= self.gate.wait:
                raise Refused(
                    "waits",
                    f"queued as {number}, not landed yet; push the same commit again to wait for the verdict, "
                    "or go on: your next push tells it",
                )
            if (doing := self.stages.get(number, stage)) != stage:
                stage, spoken = doing, now
                say(f"{number}: {stage}")
            elif now - spoken >= _SPEAK_SECONDS:
                spoken = now
                say(f"{number}: still {'waiting' if not stage else 'at it'}, {now - began:.0f} s")
            with self.queue.changed:
                self.queue.changed.wait(_LOOK_SECONDS)
            self.queue.sync()
        return self._conclude(verdict, say)

    def _conclude(self, verdict: Verdict, say: Say) -> Landed | None:
        self.queue.tell(verdict, "agent")
        if verdict.data.get("flaky"):
            say(f"the check is flaky: it failed once and passed on the same commit (log {verdict.data['flaky']})")
        if verdict.landed:
            data = verdict.data
            if not data.get("landing"):
                return None
            return Landed(
                int(data["landing"]),
                str(data["old"]),
                str(data["commit"]),
                tuple(data["claims"]),
                tuple(data["releases"]),
                tuple(data.get("notes") or ()),
            )
        for line in verdict.lines:
            say(f"  {one_line(line, 200)}")
        raise Refused("gate", verdict.reason)

    def tell(self, say: Say, pusher: Pusher, tasks: tuple[str, ...] = ()) -> None:
        """Verdicts that the pusher, or a holder of these tasks before it, did not wait for."""
        for verdict, to in self.queue.untold(agent=pusher.name, tasks=tasks):
            for line in self._words(verdict, pusher.name):
                say(line)
            self.queue.tell(verdict, to)

    def news(self, session: str) -> list[str]:
        """What became of pushes of ``session`` that it did not wait for, in words; :meth:`tell` tells it still."""
        return [line for v in self.queue.news_of(session) for line in self._words(v, v.push.agent)]

    def _words(self, verdict: Verdict, to: str) -> list[str]:
        push, ago = verdict.push, age(self.clock() - verdict.at)
        whose = "your" if push.agent == to else f"{push.agent}'s"
        what = "landed" if verdict.landed else "was refused"
        first = f"{whose} push {push.number} ({one_line(push.subject, 60)}) {what} {ago} ago: {verdict.reason}"
        return [first, *(f"  {one_line(line, 200)}" for line in verdict.lines)]


def gate_free(changes: Sequence[Change]) -> bool:
    """Whether nothing but locks and tickets changes: that never waits for the gate."""
    return all(is_bookkeeping(change.path) for change in changes)
