"""Group commit: claims and releases that wait together land under one turn, each by a commit of its own."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.ledger import Kind, New
from team.text import one_line
from team.upstream.claims import Claims, events_of
from team.upstream.inspection import Push
from team.upstream.landing import Landed, Lander, Verdict, edit, ended, in_order, subject_of
from team.upstream.objects import Change, Commit, Missing, Store, encode
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine, publish, write_out
from team.upstream.refusal import Refused


@dataclass(frozen=True)
class Ground:
    """Main and its claims as they will be when all that goes before in the group has landed."""

    lander: Lander
    main: Commit
    claims: Claims
    desk: Drafts
    earlier: frozenset[str]
    """Pushed commits that land with the group before this one."""


@dataclass(frozen=True)
class Step:
    """How one member of a group changes main."""

    verdict: Verdict
    subject: str
    why: str
    push: Push | None = None
    author: Pusher | None = None
    """Whose commit it is, where it is not the pusher's own."""


class Job:
    """Something that waits for its place in a group."""

    def __init__(self, pusher: Pusher) -> None:
        self.pusher = pusher
        self.finished = False
        self.landed: Landed | None = None
        self.error: Exception | None = None

    def step(self, ground: Ground) -> Step | None:
        """What to land; None where main has it already. Raises :class:`Refused`; :class:`Later` to wait."""
        raise NotImplementedError

    def moves(self, new: str, into: Path) -> list[tuple[Path, Path]]:
        """What moves where, with ``new``, the commit of the landing, when the object directory is ``into``."""
        return []

    def finish(self, landed: Landed | None = None, error: Exception | None = None) -> None:
        """The verdict."""
        self.finished, self.landed, self.error = True, landed, error


class Later(Exception):
    """It is for the next group: what goes before decides whether there is anything to do."""


class PushOfLocks(Job):
    """A push in which every commit is plain and changes nothing but locks."""

    def __init__(self, pusher: Pusher, push: Push, quarantine: Quarantine) -> None:
        super().__init__(pusher)
        self.push, self.quarantine = push, quarantine

    def step(self, ground: Ground) -> Step | None:
        push, lander, store = self.push, ground.lander, ground.desk.store
        if any(c.oid in ground.earlier for c in push.commits):
            raise Later
        if all(lander.has(c.oid) for c in push.commits):
            return None
        judge = lander.judge_locks(self.pusher, push, self.quarantine, ground.main, ground.claims)
        # Nobody else has a say in these paths, so there is nothing to merge.
        tasks = {lock.change.path: lock.task for lock in push.locks}
        files = {path: self.quarantine.store.find(push.head.tree, path) for path in tasks}
        olds = {path: store.find(ground.main.tree, path) for path in tasks}
        changes = [Change(path, olds[path], files[path]) for path in tasks if olds[path] != files[path]]
        tree = edit(ground.desk, ground.main.tree, files)
        lander.check_tree(store, tree, ground.main.tree, changes)
        for change in changes:
            judge.conclude(tasks[change.path], change)
        touched = dict.fromkeys(tasks[change.path] for change in changes)
        claims, releases = lander.concluded(self.pusher, judge, store, tree, touched)
        kind = "claim" if claims else "release" if releases else "work"
        verdict = Verdict(tree, len(changes), claims, releases, kind, ground.main.oid not in push.forks)
        lander.read_locks(verdict, self.quarantine.store, push.head.tree)
        lander.check_claims(self.pusher, verdict, ground.claims, force=push.force)
        subject = f"{subject_of(verdict, push)} ({one_line(self.pusher.name, 60)})"
        return Step(verdict, subject, f"by {self.pusher.name}", push)

    def moves(self, new: str, into: Path) -> list[tuple[Path, Path]]:
        return self.quarantine.movable(in_order(self.quarantine, self.push, new), into)


class Drafts:
    """Objects of a group: in memory, readable as if upstream had them."""

    def __init__(self, upstream: Store) -> None:
        self.store, self.written = upstream, dict[str, bytes]()

    def write(self, kind: str, content: bytes) -> str:
        """Store an object and return its id."""
        oid, self.written[oid] = encode(kind, content)
        self.store.drafts[oid] = (kind, content)
        return oid

    def forget(self) -> None:
        """They are in upstream now, or never will be."""
        for oid in self.written:
            self.store.drafts.pop(oid, None)


@dataclass
class _Draft:
    """A member of a group with the commit that lands it."""

    job: Job
    step: Step
    number: int
    old: str
    new: str
    data: dict[str, Any] = field(default_factory=dict)

    def event(self, kind: Kind) -> list[New]:
        who = self.job.pusher
        if kind is Kind.LANDING_DONE:
            return events_of(kind, self.data, who.name, who.session)
        return [New(kind, who.name, who.session, None, self.data)]


class Group:
    """Whoever gets the turn lands everything that waits; the others find their verdict when their turn comes."""

    def __init__(self, lander: Lander) -> None:
        self._lander, self.claims = lander, lander.claims
        self._guard = threading.Lock()
        self._waiting: list[Job] = []

    def land(self, job: Job) -> Landed | None:
        """Wait for the verdict; None where main has it already. Raises :class:`Refused`."""
        with self._guard:
            self._waiting.append(job)
        with self._lander.turn.taken():
            if not job.finished:
                with self._guard:
                    jobs, self._waiting = self._waiting, []
                self._serve(jobs)
        if job.error is not None:
            raise job.error
        return job.landed

    def _serve(self, jobs: list[Job]) -> None:
        try:
            self._lander.mend()
            while jobs:
                jobs = self._attempt(jobs)
        except BaseException as e:
            for job in jobs:
                if not job.finished:
                    job.finish(error=e if isinstance(e, Exception) else ended())
            if not isinstance(e, Exception):
                raise

    def _attempt(self, jobs: list[Job]) -> list[Job]:
        """Land what can land of ``jobs``; returns those that must be looked at again."""
        desk = Drafts(self._lander.repository.store)
        try:
            drafts, later = self._draft(jobs, desk)
            return later + (self._commit(drafts, desk) if drafts else [])
        finally:
            desk.forget()

    def _draft(self, jobs: Sequence[Job], desk: Drafts) -> tuple[list[_Draft], list[Job]]:
        """Judge one after another, each as if all before had landed."""
        lander = self._lander
        main, ahead = lander.repository.store.commit(lander.repository.main()), lander.claims.ahead()
        drafts: list[_Draft] = []
        later: list[Job] = []
        earlier: set[str] = set()
        for job in jobs:
            try:
                if not job.pusher.alive():
                    raise ended()
                step = job.step(Ground(lander, main, ahead, desk, frozenset(earlier)))
            except Later:
                later.append(job)
                continue
            except Missing as e:
                job.finish(error=Refused("objects", f"the push is incomplete: {e}; push again from a full clone"))
                continue
            except Refused as e:
                job.finish(error=e)
                continue
            if step is None:
                job.finish()
                continue
            draft = self._write(job, step, ahead.landings + 1, main.oid, desk)
            drafts.append(draft)
            ahead.imagine([*draft.event(Kind.LANDING_INTENT), *draft.event(Kind.LANDING_DONE)], lander.now())
            main = lander.repository.store.commit(draft.new)
            earlier.update(c.oid for c in (step.push.commits if step.push else ()))
        return drafts, later

    def _write(self, job: Job, step: Step, number: int, main: str, desk: Drafts) -> _Draft:
        who = job.pusher
        pushed = step.push.head.oid if step.push else None
        new, data = self._lander.draft(
            desk, number, step.author or who, main, step.verdict, step.subject, pushed, who.name, who.session, step.why
        )  # fmt: skip
        return _Draft(job, step, number, main, new, data)

    def _commit(self, drafts: list[_Draft], desk: Drafts) -> list[Job]:
        """Intents, objects, main, done; as for a single landing, with one sync for all."""
        lander, repository = self._lander, self._lander.repository
        lander.ledger.append_all(e for draft in drafts for e in draft.event(Kind.LANDING_INTENT))
        self._save(drafts, desk)
        if dead := [draft for draft in drafts if not draft.job.pusher.alive()]:
            for draft in dead:
                draft.job.finish(error=ended())
            reason = "its session has ended"
            lander.ledger.append_all(
                New(Kind.LANDING_DROPPED, d.job.pusher.name, d.job.pusher.session, None,
                    {"landing": d.number, "reason": reason if d in dead else "one before it was dropped"})
                for d in drafts
            )  # fmt: skip
            lander.claims.sync()
            return [draft.job for draft in drafts if not draft.job.finished]
        repository.move_main(drafts[0].old, drafts[-1].new, [draft.new for draft in drafts[:-1]])
        repository.learn(c.oid for d in drafts for c in (d.step.push.commits if d.step.push else ()))
        lander.ledger.append_all(e for draft in drafts for e in draft.event(Kind.LANDING_DONE))
        lander.claims.sync()
        for draft in drafts:
            verdict = draft.step.verdict
            draft.job.finish(
                Landed(
                    draft.number, draft.old, draft.new, tuple(verdict.claims), tuple(verdict.releases),
                    tuple(verdict.notes),
                )
            )  # fmt: skip
        return []

    def _save(self, drafts: Iterable[_Draft], desk: Drafts) -> None:
        """Bring every object to upstream: those pushed, which are on the disk, and those written here."""
        objects = self._lander.repository.objects
        directory = self._lander.incoming / f"group-{secrets.token_hex(4)}"  # whoever sweeps has the turn
        directory.mkdir(mode=0o700, parents=True)
        try:
            moves = [move for d in drafts for move in d.job.moves(d.new, objects)]
            publish([*moves, *write_out(desk.written, directory, objects)])
        finally:
            shutil.rmtree(directory, ignore_errors=True)
