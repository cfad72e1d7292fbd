"""Moves main: one landing at a time, decided by path against main as it is at that moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from team import git
from team.config import Landing as Limits
from team.ledger import Kind, Ledger, New
from team.names import LOCK_DIR, lock_path, task_path
from team.text import one_line
from team.upstream import protected
from team.upstream.alike import Alike
from team.upstream.claims import Claim, Claims, Judge, Lock, Released, events_of
from team.upstream.inspection import Inspector, Push
from team.upstream.objects import TREE, Change, Commit, Entry, Missing, Store, Walk, format_tree
from team.upstream.paths import folded_root, lock_task, shown, ticket_task
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.refusal import Refused, listed
from team.upstream.repository import Repository
from team.upstream.turn import Turn

_MERGE_SECONDS = 15.0
_MOST_CHANGES = 1_000_000
_MOST_TEXT = 16 << 10
"""Bytes of a lock that is read."""
Holders = dict[str, tuple[str, str | None]]
"""Tasks with the agent and the session that hold them."""
_TEAM = Pusher("team", "team@team.invalid", None)


@dataclass(frozen=True)
class Landed:
    """A landing: ``commit`` is where main is now, ``old`` where it was."""

    number: int
    old: str
    commit: str
    claims: tuple[str, ...]
    releases: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What else the pusher should know, a line each."""


class Desk(Protocol):
    """Where new objects are written before they land."""

    @property
    def store(self) -> Store:
        """Reads them, and what upstream has."""

    def write(self, kind: str, content: bytes) -> str:
        """Store an object and return its id."""


@dataclass
class Verdict:
    """What a push changes on main, once it was found to be allowed."""

    tree: str
    paths: int
    claims: list[str]
    releases: Holders
    """Tasks that become free, with those who held them."""
    kind: str
    is_merge: bool
    texts: dict[str, str] = field(default_factory=dict)
    """What the locks of ``claims`` say."""
    done: list[str] = field(default_factory=list)
    """Those of ``releases`` whose work is finished."""
    notes: list[str] = field(default_factory=list)
    """What the pusher should know."""
    forced: list[str] = field(default_factory=list)
    """Claims made although a task like them is held or was finished."""
    changes: list[Change] = field(default_factory=list)
    """What main would change in."""


Admit = Callable[[Verdict], None]
"""Asked about a push that is allowed, while the turn is held; raises whatever keeps it from landing now."""


class Lander:
    """The landing worker of one upstream. Everything is checked again while its turn is held."""

    def __init__(
        self,
        repository: Repository,
        incoming: Path,
        ledger: Ledger,
        turn: Turn,
        inspector: Inspector,
        limits: Limits,
        globs: Sequence[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.claims = Claims(ledger)
        self._alike = Alike(repository.store)
        self.turn = turn
        self.repository, self.incoming, self.ledger, self._inspector = repository, incoming, ledger, inspector
        self._limits, self._globs, self._clock = limits, tuple(globs), clock

    def land(self, pusher: Pusher, push: Push, quarantine: Quarantine, admit: Admit) -> Landed | None:
        """Bring ``push`` into main by a merge commit; None where main has it already.

        Raises :class:`Refused`, and whatever ``admit`` raises.
        """
        with self.turn.taken():
            if not pusher.alive():
                raise ended()
            self.mend()
            main = self.repository.main()
            if all(c.oid in self.repository.known for c in push.commits):
                return None
            try:
                verdict = self._judge(pusher, push, quarantine, self.repository.store.commit(main))
            except Missing as e:
                raise Refused("objects", f"the push is incomplete: {e}; push again from a full clone") from None
            admit(verdict)
            return self._move(pusher, push, quarantine, main, verdict)

    def mend(self) -> None:
        """Settle landings of which only the intent is recorded. The turn must be held."""
        self.claims.sync()
        for number, event in list(self.claims.open.items()):
            main, new = self.repository.main(), str(event.data["new"])
            info = self.repository.store.info(new)
            if info is not None and (new == main or git.is_ancestor(self.repository.path, new, main)):
                events = events_of(Kind.LANDING_DONE, event.data, event.agent or "", event.session)
                events[0].data["settled"] = True
            else:
                why = {"landing": number, "reason": "main never moved to it"}
                events = [New(Kind.LANDING_DROPPED, event.agent, event.session, None, why)]
            self.ledger.append_all(events)
        self.claims.sync()

    def free(self, tasks: Sequence[str], why: str, *, agent: str, session: str | None) -> Landed | None:
        """Upstream's own commit that removes the locks of ``tasks``. The turn must be held.

        Held tasks get a release event each; locks that nobody holds just go. None where there is nothing to do.
        """
        main = self.repository.main()
        tree = self.repository.store.commit(main).tree
        holders = {t: self.claims.holder(t) for t in tasks}
        releases: Holders = {t: (c.agent, c.session) for t, c in holders.items() if c is not None}
        with self.quarantine() as quarantine:
            new = edit(quarantine, tree, {lock_path(t).encode(): None for t in tasks})
            if new == tree and not releases:
                return None
            names = listed(list(tasks), 3)
            verdict = Verdict(new, len(tasks), [], releases, "release", False)
            subject = f"Release {names} ({agent}): {one_line(why, 120)}"
            return self._commit(_TEAM, quarantine, main, verdict, subject, None, agent, session, why)

    def quarantine(self) -> Quarantine:
        """A place for objects that may land."""
        return Quarantine(self.incoming, self.repository.path, self.repository.store)

    def locks(self) -> list[str]:
        """The tasks whose locks are on main."""
        tree = self.repository.store.commit(self.repository.main()).tree
        entry = self.repository.store.find(tree, LOCK_DIR.encode())
        if entry is None or entry.mode != TREE:
            return []
        return [task for name in self.repository.store.tree(entry.oid) if (task := _lock_name(name)) is not None]

    def _judge(self, pusher: Pusher, push: Push, quarantine: Quarantine, main: Commit) -> Verdict:
        judge = self.judge_locks(pusher, push, quarantine, main)
        is_merge = main.oid not in push.forks
        tree = self._merge(pusher, push, quarantine, main) if is_merge else push.head.tree
        self._inspector.check_shapes(quarantine.store, [tree], main.tree)
        walk = Walk(quarantine.store, push.seen, _MOST_CHANGES)
        changes = list(walk.changes(tree, [main.tree]))
        if pusher.is_person:
            claims: list[str] = []
            releases = self._person_releases(pusher, changes)
        else:
            self._check_tickets(pusher, changes)
            claims, releases = self._outcome(pusher, judge, quarantine, tree, changes)
        lock_only = all(folded_root(c.path) == LOCK_DIR for c in changes) and bool(claims or releases)
        kind = "work" if not lock_only else "claim" if claims else "release"
        verdict = Verdict(tree, len(changes), claims, releases, kind, is_merge, changes=changes)
        if not pusher.is_person:
            self.read_locks(verdict, quarantine.store, tree)
            self.check_claims(pusher, verdict, self.claims, force=push.force)
        return verdict

    def has(self, commit: str) -> bool:
        """Whether main is known to reach ``commit``."""
        return commit in self.repository.known

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def check_paths(self, changes: Sequence[Change]) -> None:
        """What holds for the paths that an agent changes. Raises :class:`Refused`."""
        self._check_protected(changes)

    def check_tree(self, store: Store, tree: str, main: str, changes: Sequence[Change]) -> None:
        """What holds for the tree of every landing of an agent. Raises :class:`Refused`."""
        self._inspector.check_shapes(store, [tree], main)
        self._check_protected(changes)

    @staticmethod
    def read_locks(verdict: Verdict, store: Store, tree: str) -> None:
        """Note what the locks of new claims say, and which releases finish their task."""
        for task in verdict.claims:
            entry = store.find(tree, lock_path(task).encode())
            if entry is not None and (info := store.info(entry.oid)) is not None and info[1] <= _MOST_TEXT:
                verdict.texts[task] = one_line(store.read(entry.oid, "blob").decode("utf-8", "replace"), 300)
        verdict.done = list(verdict.releases) if verdict.kind == "work" else []

    def check_claims(self, pusher: Pusher, verdict: Verdict, claims: Claims, *, force: bool) -> None:
        """Refuse claims that make no sense whoever makes them, or note what speaks against them."""
        for task in verdict.claims:
            if (blocked := claims.blocked(task)) is not None:
                raise Refused("blocked", blocked)
            self._alike.learn_all(self.claims)
            text, now = verdict.texts.get(task, ""), self._clock()
            notes = self._alike.check(task, text, verdict.tree, claims, now, force=force)
            verdict.forced += [task] if force and notes else []
            verdict.notes += [*notes, *claims.left_behind(task)]

    def judge_locks(
        self, pusher: Pusher, push: Push, quarantine: Quarantine, main: Commit, claims: Claims | None = None
    ) -> Judge:
        """What the commits do themselves: a lock that is byte-equal to another's makes no difference on main."""
        head, store = push.head, quarantine.store

        def reaches(newer: str, older: str) -> bool:
            # What lands in the same turn, nobody can have built on.
            if older in self.repository.store.drafts or not store.has(older):
                return False
            return git.is_ancestor(self.repository.path, older, newer, env=quarantine.env)

        def saw(released: Released) -> bool:
            return any(reaches(head.oid, commit) for commit in (released.commit, released.pushed) if commit)

        def is_done(task: str) -> bool:
            ticket = task_path(task).encode()
            return store.find(head.tree, ticket) is not None and store.find(main.tree, ticket) is None

        def restores(lock: Lock, claim: Claim) -> bool:
            there = store.find(main.tree, lock.change.path)
            return lock.change.new == there and bool(claim.commit) and reaches(lock.commit, claim.commit)

        judge = Judge(
            pusher,
            claims or self.claims,
            self._limits.claims,
            self._clock(),
            saw=saw,
            is_done=is_done,
            restores=restores,
        )
        for lock in push.locks:
            if lock.commit not in self.repository.known:  # else it landed with another push in the meantime
                judge.follow(lock)
        return judge

    def _merge(self, pusher: Pusher, push: Push, quarantine: Quarantine, main: Commit) -> str:
        """The tree of main with the push merged in. Raises :class:`Refused` for conflicts."""
        try:
            code, out = git.git_status(
                "-c", "merge.renameLimit=1000",
                "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", main.oid, push.head.oid,
                at=self.repository.path, env=quarantine.env, seconds=_MERGE_SECONDS, ok=(0, 1),
            )  # fmt: skip
        except git.GitLimit:
            raise Refused("time", f"the merge with main takes too long; {pusher.pull}, then push again") from None
        parts = out.split(b"\0")
        if code == 1:
            files = listed([shown(name) for name in parts[1:] if name])
            raise Refused("conflict", f"conflicts with main in {files}; {pusher.pull}, resolve, commit, push again")
        return parts[0].decode().strip()

    def _check_protected(self, changes: Sequence[Change]) -> None:
        if bad := protected.touched([shown(c.path) for c in changes], self._globs):
            raise Refused(
                "protected",
                f"only a person may change {listed(bad)}; `git pull`, put it back (`git checkout origin/main -- PATH`, "
                "or `git rm PATH` where it is new), commit and push again",
            )

    def _check_tickets(self, pusher: Pusher, changes: Sequence[Change]) -> None:
        for change in changes:
            task = ticket_task(change.path) if change.new is None else None
            holder = self.claims.holder(task) if task else None
            if holder is not None and holder.session != pusher.session:
                raise Refused(
                    "held",
                    f"{task} is held by {holder.agent}, so its ticket stays; "
                    f"`git pull`, `git checkout origin/main -- {task_path(holder.task)}` and commit",
                )

    def _outcome(
        self, pusher: Pusher, judge: Judge, quarantine: Quarantine, tree: str, changes: Sequence[Change]
    ) -> tuple[list[str], Holders]:
        """Claims and releases, from what main will look like."""
        touched: dict[str, None] = {}
        for change in changes:
            task = _task_or_none(change)
            if task is None:
                continue
            touched[task] = None
            judge.conclude(task, change)
        return self.concluded(pusher, judge, quarantine.store, tree, touched)

    @staticmethod
    def concluded(
        pusher: Pusher, judge: Judge, store: Store, tree: str, touched: dict[str, None]
    ) -> tuple[list[str], Holders]:
        """Claims and releases of a push that changes the locks of ``touched`` and makes main's tree ``tree``."""
        touched |= dict.fromkeys([*judge.claimed, *judge.before])
        claims = [task for task in touched if task in judge.claimed and task not in judge.before]
        own = [task for task in touched if task in judge.claimed or task in judge.before]
        freed = [t for t in own if store.find(tree, lock_path(t).encode()) is None]
        return claims, dict.fromkeys(freed, (pusher.name, pusher.session))

    def _person_releases(self, pusher: Pusher, changes: Sequence[Change]) -> Holders:
        releases: Holders = {}
        for change in changes:
            task = _lock_name(change.path.partition(b"/")[2]) if folded_root(change.path) == LOCK_DIR else None
            if task is None:
                continue
            if change.old is None:
                raise Refused("claim", f"{shown(change.path)}: only sessions claim; write tasks/{task}.md instead")
            holder = self.claims.holder(task)
            if change.new is None and holder is not None:
                releases[task] = (holder.agent, holder.session)
        return releases

    def _move(self, pusher: Pusher, push: Push, quarantine: Quarantine, main: str, verdict: Verdict) -> Landed:
        subject = f"{subject_of(verdict, push)} ({one_line(pusher.name, 60)})"
        return self._commit(
            pusher, quarantine, main, verdict, subject, push, pusher.name, pusher.session, f"by {pusher.name}"
        )

    def _commit(
        self,
        pusher: Pusher,
        quarantine: Quarantine,
        main: str,
        verdict: Verdict,
        subject: str,
        push: Push | None,
        agent: str,
        session: str | None,
        why: str,
    ) -> Landed:
        """Intent, objects, main, done: in this order, so that a crash between any two can be mended."""
        number = self.claims.landings + 1
        pushed = push.head.oid if push else None
        new, data = self.draft(quarantine, number, pusher, main, verdict, subject, pushed, agent, session, why)
        self.ledger.append_all([New(Kind.LANDING_INTENT, agent, session, None, data)])
        quarantine.migrate(in_order(quarantine, push, new), self.repository.objects)
        if not pusher.alive():
            drop = {"landing": number, "reason": "its session has ended"}
            self.ledger.append_all([New(Kind.LANDING_DROPPED, agent, session, None, drop)])
            raise ended()
        self.repository.move_main(main, new)
        self.repository.learn(c.oid for c in (push.commits if push else []))
        self.ledger.append_all(events_of(Kind.LANDING_DONE, data, agent, session))
        self.claims.sync()
        return Landed(number, main, new, tuple(verdict.claims), tuple(verdict.releases), tuple(verdict.notes))

    def draft(
        self,
        desk: Desk,
        number: int,
        pusher: Pusher,
        main: str,
        verdict: Verdict,
        subject: str,
        pushed: str | None,
        agent: str,
        session: str | None,
        why: str,
    ) -> tuple[str, dict[str, Any]]:
        """The commit of a landing, and what the ledger is told of it."""
        freed = list(verdict.releases)
        trailers = [("Agent", agent), ("Role", pusher.role), ("Session", session or "")]
        # What is landed before its lock goes is work on what the session holds.
        tasks = dict.fromkeys([*verdict.claims, *freed]) or self.claims.held_by(session or "")
        trailers += [("Task", task) for task in tasks]
        # Kind tells lock traffic from work, so that one --grep makes main a story.
        trailers += [("Kind", verdict.kind), ("Landing", str(number))]
        body = "\n".join(f"Team-{key}: {one_line(value, 100)}" for key, value in trailers if value)
        parents = [main, pushed] if pushed else [main]
        message = f"{subject}\n\n{body}\n"
        new = desk.write("commit", commit_object(verdict.tree, parents, pusher, message, self._clock()))
        data: dict[str, Any] = {
            "landing": number, "old": main, "new": new, "pushed": pushed, "subject": subject, "kind": verdict.kind,
            "claims": verdict.claims, "releases": freed, "holders": verdict.releases, "paths": verdict.paths,
            "merge": verdict.is_merge, "by": pusher.name, "why": why, "texts": verdict.texts, "done": verdict.done,
            "forced": verdict.forced,
        }  # fmt: skip
        return new, data


def ended() -> Refused:
    """A session that the ledger ended has no rights any more."""
    return Refused("ended", "this session has ended; its pushes do not land any more")


def edit(desk: Desk, tree: str, files: dict[bytes, Entry | None]) -> str:
    """``tree`` with ``files`` put in place, or removed where None; directories that become empty go."""
    entries = dict(desk.store.tree(tree))
    below: dict[bytes, dict[bytes, Entry | None]] = {}
    for path, entry in files.items():
        name, _, rest = path.partition(b"/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        elif entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    for name, inner in below.items():
        old = entries.get(name)
        sub = edit(desk, old.oid if old is not None and old.mode == TREE else "", inner)
        if sub:
            entries[name] = Entry(TREE, sub)
        elif old is not None and old.mode == TREE:
            del entries[name]
    if entries == desk.store.tree(tree):
        return tree
    if not entries:
        return ""
    oid = desk.write("tree", format_tree(entries))
    desk.store.remember(oid, entries)
    return oid


def commit_object(
    tree: str, parents: Sequence[str], author: Pusher, message: str, now: float, committer: Pusher = _TEAM
) -> bytes:
    """A commit by ``author``, committed by upstream itself unless told otherwise."""
    when = f"{int(now)} +0000"
    lines = [f"tree {tree or EMPTY_TREE}", *(f"parent {p}" for p in parents)]
    lines += [f"author {_ident(author)} {when}", f"committer {_ident(committer)} {when}"]
    return ("\n".join(lines) + "\n\n" + message).encode("utf-8", "replace")


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _ident(who: Pusher) -> str:
    name, email = (one_line(t, 100).translate({ord(c): None for c in "<>"}).strip() for t in (who.name, who.email))
    return f"{name or 'nobody'} <{email}>"


def subject_of(verdict: Verdict, push: Push) -> str:
    if verdict.kind == "claim":
        return f"Claim {listed(verdict.claims, 3)}"
    if verdict.kind == "release":
        return f"Release {listed(list(verdict.releases), 3)}"
    # Whoever pulls before the push has a merge on top, and its subject tells nothing.
    told = next((c for c in reversed(push.commits) if len(c.parents) < 2), push.head)
    return f"Land {one_line(told.subject, 100) or told.oid[:10]}"


def in_order(quarantine: Quarantine, push: Push | None, new: str) -> list[str]:
    """What moves into upstream, commits last; of upstream's own making when there is no push."""
    if push is None:
        return sorted((p.parent.name + p.name for p in quarantine.objects.glob("??/*")), key=lambda oid: oid == new)
    return [*reversed(push.seen), *(c.oid for c in push.commits), new]


def _lock_name(name: bytes) -> str | None:
    try:
        return lock_task(f"{LOCK_DIR}/".encode() + name)
    except Refused:
        return None


def _task_or_none(change: Change) -> str | None:
    """The task whose lock changed; a misnamed file that goes away is nobody's lock."""
    try:
        return lock_task(change.path)
    except Refused:
        if change.new is None:
            return None
        raise
