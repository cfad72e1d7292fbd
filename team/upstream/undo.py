"""Pushes that take back what others landed without saying so: merges with ``-s ours``, stale trees (HAZARDS 45).

Looked at outside the landing lock: what a push did to the main that it builds on does not change while it waits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from team import git
from team.names import LOCK_DIR
from team.upstream.history import History, Past
from team.upstream.inspection import Push
from team.upstream.objects import TREE, Change, Commit, Missing, Walk
from team.upstream.paths import folded_root, is_bookkeeping, shown
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.refusal import Refused, listed
from team.upstream.repository import Repository

_SECONDS = 60.0
"""For all merges of one push."""
_MERGE_SECONDS = 15.0
_MOST_CHANGES = 200_000
_MOST_NAMED = 200
_MOST_RENAMES = 20_000
_TELLS = re.compile(rb"\b(?:delet|remov|drop|renam|mov(?:e|ing)|split|replac|revert|undo|clean|obsolete)", re.I)
_NAME = re.compile(rb"\b[0-9a-f]{7,40}\b")


@dataclass(frozen=True)
class Merged:
    """Git's own merge: ``conflicts`` are empty where it is clean."""

    tree: str
    conflicts: tuple[bytes, ...]


def merge(quarantine: Quarantine, ours: str, theirs: str, seconds: float = _MERGE_SECONDS) -> Merged:
    """What git makes of ``ours`` and ``theirs`` by itself. Raises :class:`git.GitLimit` past ``seconds``."""
    code, out = git.git_status(
        "-c", "merge.renameLimit=1000",
        "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs,
        at=quarantine.store.at, env=quarantine.env, seconds=seconds, ok=(0, 1),
    )  # fmt: skip
    tree, *names = out.split(b"\0")
    if code == 1 and not any(names):
        raise git.GitError(["merge-tree"], code, "a parent is missing")
    return Merged(tree.decode().strip(), tuple(n for n in names if n) if code == 1 else ())


class Undo:
    """Refuses pushes that undo the work of others. Safe to use from several threads."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._history = History(repository)

    def check(self, pusher: Pusher, push: Push, quarantine: Quarantine) -> None:
        """Raise :class:`Refused`, with the files, for a push that takes back what is on main. A person may."""
        if pusher.is_person or push.lock_only or not push.commits:
            return
        try:
            deadline = time.monotonic() + _SECONDS
            for commit in push.commits:
                if len(commit.parents) > 1:
                    self._check_merge(quarantine, commit, deadline)
            self._check_head(pusher, push, quarantine)
        except Missing as e:
            raise Refused("objects", f"the push is incomplete: {e}; push again from a full clone") from None

    # -- merges -----------------------------------------------------------------------------------------------

    def _check_merge(self, quarantine: Quarantine, commit: Commit, deadline: float) -> None:
        merged = self._own_merge(quarantine, commit, deadline)
        if merged.tree == commit.tree:
            return
        store = quarantine.store
        walk = Walk(store, {}, _MOST_CHANGES)
        # Locks are decided by path, whatever git would merge.
        changes = [c for c in walk.changes(commit.tree, [merged.tree]) if folded_root(c.path) != LOCK_DIR]
        if merged.conflicts:
            parents = [store.commit(p).tree for p in commit.parents]
            resolved = set(merged.conflicts)
            bad = [c.path for c in changes if c.path not in resolved and b"~" not in c.path]
            # Beside the conflicts a resolver may mend what they entail, but not drop one side's clean change.
            bad = [p for p in bad if store.find(commit.tree, p) in [store.find(tree, p) for tree in parents]]
        else:
            bad = [c.path for c in changes]
        if not bad:
            return
        first, *others = (p[:10] for p in commit.parents)
        raise Refused(
            "undo",
            f"merge {commit.oid[:10]} is not what git makes of its parents in {listed([shown(p) for p in bad])}, "
            f"so it may undo others' work; `git reset --hard {first}`, `git merge {' '.join(others)}` with nothing "
            "changed by hand outside conflicts, further changes in a commit of their own, then push",
        )

    def _own_merge(self, quarantine: Quarantine, commit: Commit, deadline: float) -> Merged:
        """Git's merge of all parents, one after the other."""
        ours, *others = commit.parents
        merged = Merged("", ())
        for number, theirs in enumerate(others, 1):
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise git.GitLimit([], "no time left")
                merged = merge(quarantine, ours, theirs, min(left, _MERGE_SECONDS))
            except git.GitLimit:
                raise Refused("time", "checking the merges of this push takes too long; push fewer at a time") from None
            if number == len(others):
                break
            if merged.conflicts:
                raise Refused(
                    "undo",
                    f"merge {commit.oid[:10]} has {len(commit.parents)} parents that conflict in "
                    f"{listed([shown(p) for p in merged.conflicts])}; merge them one at a time",
                )
            step = f"tree {merged.tree}\nparent {ours}\nparent {theirs}\n{_IDENTS}\n\nstep\n"
            ours = quarantine.write("commit", step.encode())
        return merged

    # -- plain commits ----------------------------------------------------------------------------------------

    def _check_head(self, pusher: Pusher, push: Push, quarantine: Quarantine) -> None:
        """Whether the push as a whole puts paths back to what they were on main before others changed them."""
        base = self._base(push, quarantine)
        if base is None:
            return
        store = quarantine.store
        walk = Walk(store, {}, _MOST_CHANGES)
        differ = list(walk.changes(push.head.tree, [store.commit(base).tree]))
        changes = [c for c in differ if c.old is not None and not is_bookkeeping(c.path)]
        changes += _renamed(changes, differ)
        if not changes:
            return
        self._history.sync(self._repository.main())
        back = [(c, past) for c in changes if (past := self._taken_back(pusher, push, quarantine, c))]
        bad = [(c, past) for c, past in back if c.new is not None]
        if not bad:
            bad = self._whole_landing(pusher, push, quarantine, back)
        if bad:
            named = self._named(push, quarantine, base)
            bad = [(c, past) for c, past in bad if not any(self._names(oid, c, past, quarantine) for oid in named)]
        if bad:
            files, commit = [shown(c.path) for c, _ in bad], bad[0][1][-1].commit[:10]
            raise Refused(
                "undo",
                f"this push puts back what others changed on main ({commit} and maybe more) in {listed(files)}; "
                f"where it was not meant: `git checkout {base[:10]} -- FILE` and commit; where it was: `git revert` "
                "instead, or name the commit in your message; then push",
            )

    def _base(self, push: Push, quarantine: Quarantine) -> str | None:
        """The newest commit of main that the push builds on."""
        if len(push.forks) == 1:
            return next(iter(push.forks))
        main = self._repository.main()
        code, out = git.git_status("merge-base", main, push.head.oid, at=self._repository.path, env=quarantine.env)
        return out.decode().strip() or None if code == 0 else None

    def _taken_back(self, pusher: Pusher, push: Push, quarantine: Quarantine, change: Change) -> list[Past]:
        """Others' landings that the push had seen, and whose change of this path it takes back."""
        pasts = self._history.since(change.path, change.new)
        return [
            past
            for past in pasts
            if past.session != pusher.session and self._contains(quarantine, push.head.oid, past.commit)
        ]

    def _contains(self, quarantine: Quarantine, head: str, commit: str) -> bool:
        return git.is_ancestor(self._repository.path, commit, head, env=quarantine.env)

    def _whole_landing(
        self, pusher: Pusher, push: Push, quarantine: Quarantine, back: Sequence[tuple[Change, list[Past]]]
    ) -> list[tuple[Change, list[Past]]]:
        """Deletions that take back all of the newest landing of another: the sign of a stale tree.

        To delete a file that somebody once added is nothing by itself, to rename it neither, and who tells of it in a
        message has not done it in passing.
        """
        store = quarantine.store
        if not back or any(_TELLS.search(_message(quarantine, c)) for c in push.commits if len(c.parents) == 1):
            return []
        newest = next(
            (
                landing
                for landing in self._history.newest()
                if landing.session != pusher.session and self._contains(quarantine, push.head.oid, landing.commit)
            ),
            None,
        )
        if newest is None:
            return []
        before = store.commit(store.commit(newest.commit).parents[0]).tree
        paths = [path for path in newest.paths if not is_bookkeeping(path)]
        if not all(store.find(push.head.tree, p) == store.find(before, p) for p in paths):
            return []
        gone = [(c, past) for c, past in back if c.path in paths]
        kept = _blobs(quarantine, push.head.tree)  # what left one path for another was renamed
        gone = [(c, past) for c, past in gone if c.old is not None and c.old.oid not in kept]
        return [(c, past) for c, past in gone if self._in_passing(push, quarantine, c.path)]

    def _in_passing(self, push: Push, quarantine: Quarantine, path: bytes) -> bool:
        """Whether a commit that deletes ``path`` does other things too: nobody deletes and nothing else by mistake."""
        store = quarantine.store
        for commit in push.commits:
            if len(commit.parents) != 1 or store.find(commit.tree, path) is not None:
                continue
            before = store.commit(commit.parents[0]).tree
            if store.find(before, path) is None:
                continue
            changes = Walk(store, {}, _MOST_CHANGES).changes(commit.tree, [before])
            if any(c.new is not None and not is_bookkeeping(c.path) for c in changes):
                return True
        return False

    def _named(self, push: Push, quarantine: Quarantine, base: str) -> list[str]:
        """Commits of main which the messages of the push name."""
        tokens: dict[bytes, None] = {}
        for commit in push.commits:
            tokens |= dict.fromkeys(_NAME.findall(_message(quarantine, commit)))
        lines = b"".join(b"%s^{commit}\n" % token for token in list(tokens)[:_MOST_NAMED])
        out = git.git("cat-file", "--batch-check", at=self._repository.path, stdin=lines, env=quarantine.env)
        found = [line.split()[0].decode() for line in out.splitlines() if line.split()[1:2] == [b"commit"]]
        return [oid for oid in dict.fromkeys(found) if self._contains(quarantine, base, oid)]

    def _names(self, oid: str, change: Change, pasts: Sequence[Past], quarantine: Quarantine) -> bool:
        """Whether the commit is one of those that changed the path since the state that is put back."""
        store = quarantine.store
        commit = store.commit(oid)
        before = store.find(store.commit(commit.parents[0]).tree, change.path) if commit.parents else None
        if store.find(commit.tree, change.path) == before:
            return False
        older = store.commit(pasts[0].commit).parents[0]
        return not self._contains(quarantine, older, oid)


def _renamed(changes: Sequence[Change], differ: Sequence[Change]) -> list[Change]:
    """What leaves its path, as if it became each file that is new: a stale file under a new name takes back as much."""
    gone = [c for c in changes if c.new is None]
    new = {c.new for c in differ if c.old is None and c.new is not None}
    if len(gone) * len(new) > _MOST_RENAMES:
        return []
    return [replace(c, new=entry) for c in gone for entry in new if entry != c.old]


def _message(quarantine: Quarantine, commit: Commit) -> bytes:
    return quarantine.store.read(commit.oid, "commit").partition(b"\n\n")[2]


def _blobs(quarantine: Quarantine, root: str) -> set[str]:
    """Every file below a tree; each distinct tree is read once."""
    found: set[str] = set()
    done, stack = {root}, [root]
    while stack:
        for entry in quarantine.store.tree(stack.pop()).values():
            if entry.mode != TREE:
                found.add(entry.oid)
            elif entry.oid not in done:
                done.add(entry.oid)
                stack.append(entry.oid)
    return found


_IDENTS = "author team <team@team.invalid> 0 +0000\ncommitter team <team@team.invalid> 0 +0000"
