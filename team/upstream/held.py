"""Pushes that wait for a person: listed, looked at, approved, denied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from team import git
from team.config import Gate
from team.errors import TeamError
from team.text import clean, one_line
from team.upstream.admission import Admission, gate_free, held_ref, queued_ref
from team.upstream.inspection import Inspector
from team.upstream.landing import Landed, Lander, Verdict
from team.upstream.queue import HELD, QUEUED, Waiting
from team.upstream.refusal import Refused


class _ToGate(Exception):
    """What was approved has to pass the gate first."""


@dataclass(frozen=True)
class Held:
    """The held pushes of one upstream."""

    lander: Lander
    inspector: Inspector
    admission: Admission
    gate: Gate
    after: Callable[[Waiting], None]
    """Called for each push that got its verdict."""

    def all(self) -> list[Waiting]:
        """First come first."""
        self.admission.queue.sync()
        return self.admission.queue.waiting(HELD)

    def find(self, number: int) -> Waiting:
        """The held push ``number``. Raises :class:`TeamError`."""
        found = {push.number: push for push in self.all()}
        if number in found:
            return found[number]
        verdict = self.admission.queue.verdict(number)
        if verdict is not None:
            raise TeamError(f"push {number} has its verdict: {verdict.reason}")
        if self.admission.queue.find(number) is not None:
            raise TeamError(f"push {number} is approved already; it waits for the gate")
        known = ", ".join(map(str, found)) or "none"
        raise TeamError(f"no push {number} is held; held: {known} (`team held`)")

    def diff(self, push: Waiting, most: int = 1 << 20) -> str:
        """What the push changes against the main that it builds on, cleaned for a screen."""
        repository = self.lander.repository
        at = self.admission.held.path
        base = git.line("merge-base", repository.main(), push.commit, at=at)
        out = git.git(
            "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--stat", "--patch", base, push.commit, "--",
            at=at, output=64 << 20,
        )  # fmt: skip
        text = clean(out[:most].decode("utf-8", "replace"))
        return text if len(out) <= most else f"{text}\n... {len(out) - most} bytes more"

    def approve(self, number: int, by: str, note: str = "") -> Landed | None:
        """Let the push land, or wait for the gate (None). Raises :class:`TeamError` where it cannot land any more."""
        push = self.find(number)
        note = one_line(note, 300)
        pusher = push.pusher()
        try:
            with self.lander.quarantine() as quarantine:
                self.admission.held.fill(quarantine, push.commit)
                landing = self.inspector.inspect(pusher, quarantine, push.commit)
                landing.force = push.force

                def admit(allowed: Verdict) -> None:
                    self.find(number)  # nobody denied it meanwhile
                    if self.gate.check and not gate_free(allowed.changes):
                        self.admission.shelf.keep(quarantine, push.commit, queued_ref(number))
                        self.admission.queue.approve(push, by, note)
                        raise _ToGate

                landed = self.lander.land(pusher, landing, quarantine, admit) if landing.commits else None
        except _ToGate:
            self.admission.held.drop(held_ref(number))
            return None
        except Refused as e:
            self._decide(push, landed=False, reason=f"approved by {by}, but it does not land any more: {e.reason}")
            raise TeamError(f"push {number} does not land any more: {e.reason}; its agent will hear of it") from None
        if landed is None:
            self._decide(push, landed=True, reason="main has this commit")
            return None
        self._decide(
            push, landed=True, landing=landed.number, old=landed.old, commit=landed.commit,
            claims=list(landed.claims), releases=list(landed.releases),
            reason=f"approved by {by}: landed on main as {landed.commit[:10]}" + (f"; {note}" if note else ""),
        )  # fmt: skip
        return landed

    def deny(self, number: int, by: str, note: str = "") -> None:
        """Refuse the push for good; its ref stays in the rescue repository. Raises :class:`TeamError`."""
        self.settle()
        with self.lander.turn.taken():  # nobody lets it land meanwhile
            push = self.find(number)
            why = one_line(note, 300) or "it must not change this"
            self._record(push, landed=False, reason=f"denied by {by}: {why}")
        self.after(push)

    def settle(self) -> None:
        """Give pushes their verdict that main has although they are held: a crash kept it from being recorded."""
        pushes = self.all()
        main = self.lander.repository.main() if pushes else ""
        for push in pushes:
            if self.admission.held.is_in(push.commit, main):
                self._decide(push, landed=True, reason="main has this commit")

    def state_of(self, number: int) -> str:
        """``queued`` after an approval that has to pass the gate."""
        push = self.admission.queue.find(number)
        return push.state if push is not None else QUEUED

    def _decide(self, push: Waiting, **verdict: object) -> None:
        self._record(push, **verdict)
        self.after(push)

    def _record(self, push: Waiting, **verdict: object) -> None:
        self.admission.queue.decide(push, **verdict)  # type: ignore[arg-type]
        if verdict["landed"]:
            self.admission.held.drop(held_ref(push.number))
