"""What a push brings, within its limits: everything about it that does not depend on where main is now."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from team import git
from team.config import Landing
from team.text import one_line
from team.upstream import leaks
from team.upstream.claims import Lock
from team.upstream.objects import GITLINK, REGULAR, SYMLINK, TREE, Change, Commit, Entry, Missing, Store, Walk
from team.upstream.paths import REDO, check_name, in_task_dirs, lock_task, shown
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.refusal import Refused
from team.upstream.repository import Repository

_MOST_CHANGES = 1_000_000
_SECONDS = 60.0
_LOOK_BYTES = 8000
"""A zero byte in so many means that a file is no text, as git has it."""


@dataclass(frozen=True)
class Shape:
    """How large a tree is when written out, worked out without writing it out."""

    entries: int
    depth: int
    longest: int
    """Bytes of its longest path."""


@dataclass
class Push:
    """Commits that main does not have yet, and what they change themselves."""

    head: Commit
    commits: list[Commit]
    """Parents before children; empty: nothing new."""
    locks: list[Lock] = field(default_factory=list)
    """Changes of locks, in the order of ``commits``."""
    lock_only: bool = True
    """Whether every commit is plain and changes nothing but locks."""
    seen: dict[str, None] = field(default_factory=dict)
    """Every object that the push needs and main may lack."""
    forks: frozenset[str] = frozenset()
    """Commits of main that the new ones build on."""
    force: bool = False
    """Whether tasks are claimed although others like them are held."""


class Inspector:
    """Checks pushes against ``limits``; remembers the shapes of trees."""

    def __init__(self, repository: Repository, limits: Landing) -> None:
        self._repository, self._limits = repository, limits
        self._shapes: dict[str, Shape] = {"": Shape(0, 0, 0)}

    def inspect(self, pusher: Pusher, quarantine: Quarantine, head: str) -> Push:
        """Look at every new commit that ``head`` reaches. Raises :class:`Refused`."""
        try:
            return self._inspect(pusher, quarantine, head)
        except Missing as e:
            raise Refused("objects", f"the push is incomplete: {e}; push again from a full clone") from None

    def _inspect(self, pusher: Pusher, quarantine: Quarantine, head: str) -> Push:
        store = quarantine.store
        info = store.info(head)
        if info is None or info[0] != "commit":
            raise Refused("objects", f"{head[:12]} is {'missing' if info is None else 'a ' + info[0]}, push a commit")
        main = self._repository.main()
        commits = self._new_commits(quarantine, store.commit(head), main)
        push = Push(store.commit(head), commits)
        new = {c.oid for c in commits}
        push.forks = frozenset(p for c in commits for p in c.parents) - new
        if commits and not push.forks:
            raise Refused(
                "unrelated", "this history has nothing in common with main; clone again and put your work on top"
            )
        self._check_identity(pusher, commits)
        self.check_shapes(store, [c.tree for c in commits], store.commit(main).tree)
        self._check_changes(pusher, quarantine, push)
        return push

    def _new_commits(self, quarantine: Quarantine, head: Commit, main: str) -> list[Commit]:
        """Commits that ``main`` does not reach, parents first."""
        known, most = self._repository.known, self._limits.max_commits
        known.add(main)
        if head.oid in known:
            return []
        walked = (
            None
            if quarantine.store.packed or not quarantine.store.has_own(head.oid)
            else _walk(quarantine.store, head, known, most)
        )
        if walked is not None:
            return walked
        out = git.git(
            "rev-list", "--topo-order", f"--max-count={most + 1}", head.oid, f"^{main}", "--",
            at=quarantine.store.at, env=quarantine.env,
        )  # fmt: skip
        oids = out.decode().split()
        if len(oids) > most:
            raise _too_many(most)
        commits = [quarantine.store.commit(oid) for oid in reversed(oids)]
        new = set(oids)
        if not oids:
            self._repository.learn([head.oid])
        self._repository.learn(p for c in commits for p in c.parents if p not in new)
        return commits

    def _check_identity(self, pusher: Pusher, commits: list[Commit]) -> None:
        if pusher.is_person:
            return
        for commit in commits:
            if commit.committer != (pusher.name, pusher.email):
                name, email = (one_line(part, 60) for part in commit.committer)
                raise Refused(
                    "identity",
                    f"commit {commit.oid[:10]} was committed as {name} <{email}>, you are {pusher.name} "
                    f"<{pusher.email}>; `unset GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL`, `git config user.name "
                    f"{pusher.name}`, `git config user.email {pusher.email}`, "
                    "`git commit --amend --no-edit --reset-author`",
                )

    def check_shapes(self, store: Store, trees: list[str], main: str) -> None:
        """Refuse trees that are larger than the limits, and than what main holds already."""
        limits, base = self._limits, self._shape(store, main)
        entries = max(limits.max_entries, 2 * base.entries)
        depth, longest = max(limits.max_depth, base.depth), max(limits.max_path, base.longest)
        for tree in trees:
            shape = self._shape(store, tree)
            if shape.entries > entries:
                raise Refused(
                    "entries", f"a commit has {shape.entries} files, at most {entries} ([landing] max_entries)"
                )
            if shape.depth > depth:
                raise Refused(
                    "depth", f"directories are {shape.depth} deep in a commit, at most {depth} ([landing] max_depth)"
                )
            if shape.longest > longest:
                raise Refused("path", f"a path has {shape.longest} bytes, at most {longest} ([landing] max_path)")

    def _shape(self, store: Store, root: str) -> Shape:
        """Each distinct tree is looked at once, so that a tree bomb costs no more than its few objects."""
        shapes, stack = self._shapes, [root]
        if len(shapes) > 500_000:
            shapes = self._shapes = {"": Shape(0, 0, 0)}
        while stack:
            oid = stack[-1]
            if oid in shapes:
                stack.pop()
                continue
            tree = store.tree(oid)
            below = [e.oid for e in tree.values() if e.mode == TREE and e.oid not in shapes]
            if below:
                stack += below
                continue
            entries, depth, longest = 0, 1, 0
            for name, entry in tree.items():
                sub = shapes[entry.oid] if entry.mode == TREE else _LEAF
                entries += sub.entries
                depth = max(depth, 1 + sub.depth)
                longest = max(longest, len(name) + (sub.longest + 1 if sub.longest else 0))
            shapes[oid] = Shape(entries, depth, longest)
        return shapes[root]

    def _check_changes(self, pusher: Pusher, quarantine: Quarantine, push: Push) -> None:
        store, deadline = quarantine.store, time.monotonic() + _SECONDS
        walk = Walk(store, push.seen, _MOST_CHANGES)
        checked: set[str] = set()
        for commit in push.commits:
            push.lock_only = push.lock_only and len(commit.parents) == 1
            parents = [store.commit(p).tree for p in commit.parents] or [""]
            for change in walk.changes(commit.tree, parents):
                if time.monotonic() > deadline:
                    raise Refused("time", f"checking this push took longer than {_SECONDS:g} s; push fewer commits")
                if change.new is not None:
                    check_name(change.path)
                    if change.new.oid not in checked:
                        checked.add(change.new.oid)
                        self._check_blob(pusher, store, change.path, change.new)
                self._note_lock(pusher, push, commit, change)
        if store.packed:
            self._check_stowaways(quarantine, push)

    def _note_lock(self, pusher: Pusher, push: Push, commit: Commit, change: Change) -> None:
        if not in_task_dirs(change.path):
            push.lock_only = False
            return
        if change.new is not None and change.new.mode in (SYMLINK, GITLINK):
            raise Refused("lock", f"{shown(change.path)} is a link; it must be a plain file")
        if pusher.is_person:
            push.lock_only = False
            return
        try:
            task = lock_task(change.path)
        except Refused:
            if change.new is None:
                return  # taking a misnamed one away is welcome
            raise
        if task is None:
            push.lock_only = False
            return
        if change.new is not None and change.new.mode != REGULAR:
            raise Refused("lock", f"{shown(change.path)} must not be executable; `chmod -x` and commit again")
        push.locks.append(Lock(commit.oid, task, change))

    def _check_blob(self, pusher: Pusher, store: Store, path: bytes, entry: Entry) -> None:
        mode, oid = entry
        if mode == GITLINK:
            return
        info = store.info(oid)
        if info is None or info[0] != "blob":
            raise Missing(f"blob {oid} is missing")
        if info[1] > self._limits.max_file:
            if not self._repository.store.has(oid):
                raise Refused(
                    "file",
                    f"{shown(path)} has {info[1]} bytes, at most {self._limits.max_file} ([landing] max_file); {REDO}",
                )
            return
        large = info[1] > self._limits.max_binary and not pusher.is_person
        if not large and not self._limits.secrets:
            return
        data = store.read(oid, "blob", self._limits.max_file)
        if large and b"\0" in data[:_LOOK_BYTES] and not self._repository.store.has(oid):
            raise Refused(
                "binary",
                f"{shown(path)} is no text and has {info[1]} bytes, at most {self._limits.max_binary} "
                f"([landing] max_binary); {REDO}",
            )
        found = leaks.find(data) if self._limits.secrets else None
        if found is not None and not self._repository.store.has(oid):
            raise Refused(
                "secret",
                f"{shown(path)}:{found[0]} looks like {found[1]} ([landing] secrets); {REDO}",
            )

    def _check_stowaways(self, quarantine: Quarantine, push: Push) -> None:
        """A pack moves into upstream as a whole, so it may hold nothing that the pushed commit does not need."""
        needed = {c.oid for c in push.commits}
        for oid in quarantine.packed():
            if oid not in needed and oid not in push.seen and not self._repository.store.has(oid):
                raise Refused(
                    "objects", "the push holds objects that its commit does not need; push again from a clone"
                )


_LEAF = Shape(1, 0, 0)


def _walk(store: Store, head: Commit, known: set[str], most: int) -> list[Commit] | None:
    """Commits down to ``known`` ones, parents first; None where that cannot be told without git."""
    done: dict[str, Commit] = {}
    found, stack = {head.oid: head}, [head.oid]
    while stack:
        commit = found[stack[-1]]
        waiting = [p for p in commit.parents if p not in known and p not in done]
        if not waiting:
            done[stack.pop()] = commit
            continue
        if len(found) > most:
            raise _too_many(most)
        for parent in waiting:
            if not store.has_own(parent):
                return None
            found[parent] = store.commit(parent)
            stack.append(parent)
    return list(done.values())


def _too_many(most: int) -> Refused:
    return Refused("commits", f"more than {most} new commits in one push ([landing] max_commits); push fewer at a time")
