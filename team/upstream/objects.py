"""Git's objects: read, written and compared without a process for each."""

from __future__ import annotations

import hashlib
import re
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from team import git
from team.upstream.refusal import Refused

GITLINK, SYMLINK, REGULAR, TREE = b"160000", b"120000", b"100644", b"40000"
MOST_TREE = 64 << 20
"""Bytes of the largest tree or commit object that is read."""
_CACHED_ENTRIES = 200_000
"""Of trees, some 300 bytes each. Every landing makes new trees, and a directory may have thousands of entries."""
_HEAD = 64
_IDENT = re.compile(rb"(.*?) ?<([^<>\n]*)> -?\d+ [+-]\d{4}\Z")


class Entry(NamedTuple):
    """What a name in a tree stands for."""

    mode: bytes
    oid: str


Tree = Mapping[bytes, Entry]


class Missing(Exception):
    """An object that must exist does not."""


@dataclass(frozen=True)
class Commit:
    """A commit, as far as we look at it."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    committer: tuple[str, str]
    """The committer's name and address."""
    subject: str


@dataclass(frozen=True)
class Change:
    """A path that differs. ``old`` None: added; ``new`` None: removed."""

    path: bytes
    old: Entry | None
    new: Entry | None


class Store:
    """Reads the objects of one directory, and of ``base`` where it lacks them. Safe to use from several threads."""

    def __init__(
        self, objects: Path, at: Path, base: Store | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.objects, self.at, self._base, self._env = objects, at, base, dict(env or {})
        self.packed = base is None
        """Whether packs may be here, so that git must be asked for what is not loose."""
        self._lock = threading.Lock()
        self._git: subprocess.Popen[bytes] | None = None
        self._trees: dict[str, Tree] = {}
        self._cached = 0
        """Entries of all these trees."""
        self.drafts: dict[str, tuple[str, bytes]] = {}
        """Kind and content of objects that are about to be written here."""

    def has_own(self, oid: str) -> bool:
        """Whether the object is here, and not only in the store that this one builds on."""
        if self._loose(oid).exists():
            return True
        return self.packed and self._asked(oid) is not None and (self._base is None or not self._base.has(oid))

    def has(self, oid: str) -> bool:
        """Whether the object can be read."""
        return self.info(oid) is not None

    def info(self, oid: str) -> tuple[str, int] | None:
        """Kind and size in bytes of an object, or None where there is no such object."""
        if (draft := self.drafts.get(oid)) is not None:
            return draft[0], len(draft[1])
        if (raw := self._loose_bytes(oid, 4 * _HEAD)) is not None:
            return _parse_head(zlib.decompressobj().decompress(raw, _HEAD).partition(b"\0")[0])
        if self.packed and (asked := self._asked(oid)) is not None:
            return asked
        return self._base.info(oid) if self._base else None

    def read(self, oid: str, kind: str, most: int = MOST_TREE) -> bytes:
        """The content of an object. Raises :class:`Missing` where it is not of ``kind`` or larger than ``most``."""
        if (draft := self.drafts.get(oid)) is not None and draft[0] == kind and len(draft[1]) <= most:
            return draft[1]
        if (raw := self._loose_bytes(oid)) is not None:
            stream = zlib.decompressobj()
            head, _, rest = stream.decompress(raw, _HEAD).partition(b"\0")
            found, size = _parse_head(head)
            if found != kind or size > most:
                raise Missing(f"{oid} is a {found} of {size} bytes, no {kind}")
            return rest + stream.decompress(stream.unconsumed_tail)
        if self.packed:
            try:
                return self._content(oid, kind, most)
            except Missing:
                if self._base is None:
                    raise
        if self._base is None:
            raise Missing(f"{kind} {oid} is missing")
        return self._base.read(oid, kind, most)

    def tree(self, oid: str) -> Tree:
        """The entries of a tree; ``""`` stands for the empty one. Raises :class:`Missing`."""
        if not oid:
            return {}
        if (known := self._trees.get(oid)) is not None:
            return known
        if self._base is not None and not self._loose(oid).exists() and not self.packed:
            return self._base.tree(oid)
        tree = parse_tree(self.read(oid, "tree"))
        self.remember(oid, tree)
        return tree

    def remember(self, oid: str, tree: Tree) -> None:
        """Keep the entries of a tree that was read or written."""
        if self._cached + len(tree) > _CACHED_ENTRIES:
            self._trees.clear()
            self._cached = 0
        self._trees[oid] = tree
        self._cached += len(tree)

    def commit(self, oid: str) -> Commit:
        """A commit. Raises :class:`Missing`."""
        return parse_commit(oid, self.read(oid, "commit"))

    def find(self, tree: str, path: bytes) -> Entry | None:
        """What ``path`` is in ``tree``, or None where there is no such path."""
        *parents, name = path.split(b"/")
        for part in parents:
            entry = self.tree(tree).get(part)
            if entry is None or entry.mode != TREE:
                return None
            tree = entry.oid
        return self.tree(tree).get(name)

    def close(self) -> None:
        """End the git process, if one was needed."""
        with self._lock:
            self._end()

    def _loose(self, oid: str) -> Path:
        return self.objects / oid[:2] / oid[2:]

    def _loose_bytes(self, oid: str, most: int = -1) -> bytes | None:
        try:
            with self._loose(oid).open("rb") as file:
                return file.read(most)
        except OSError:
            return None

    def _asked(self, oid: str) -> tuple[str, int] | None:
        with self._lock:
            return self._header(f"info {oid}")

    def _content(self, oid: str, kind: str, most: int) -> bytes:
        with self._lock:
            info = self._header(f"info {oid}")
            if info is None or info[0] != kind or info[1] > most:
                raise Missing(f"{kind} {oid} is missing")
            self._header(f"contents {oid}")
            assert self._git is not None and self._git.stdout is not None
            data = self._git.stdout.read(info[1] + 1)
            if len(data) != info[1] + 1:
                self._end()
                raise Missing(f"{kind} {oid} cannot be read")
            return data[:-1]

    def _header(self, command: str) -> tuple[str, int] | None:
        if self._git is None or self._git.poll() is not None:
            self._end()
            self._git = git.start("cat-file", "--batch-command", at=self.at, env=self._env)
        assert self._git.stdin is not None and self._git.stdout is not None
        try:
            self._git.stdin.write(command.encode() + b"\n")
            self._git.stdin.flush()
            words = self._git.stdout.readline().split()
        except OSError:
            words = []
        if len(words) == 3 and words[2].isdigit():
            return words[1].decode(), int(words[2])
        if len(words) != 2:  # anything but "<oid> missing": begin afresh rather than read out of step
            self._end()
        return None

    def _end(self) -> None:
        if self._git is not None:
            self._git.kill()
            self._git.communicate()
            self._git = None


def _parse_head(head: bytes) -> tuple[str, int]:
    kind, _, size = head.decode("ascii", "replace").partition(" ")
    return kind, int(size)


def parse_tree(data: bytes) -> Tree:
    """The entries of a tree object, in git's order."""
    tree: dict[bytes, Entry] = {}
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        oid = data[end + 1 : end + 21].hex()
        tree[data[space + 1 : end]] = Entry(data[position:space].lstrip(b"0"), oid)
        position = end + 21
    return tree


def format_tree(tree: Tree) -> bytes:
    """A tree object with these entries, sorted as git does: a directory as if its name ended in a slash."""
    ordered = sorted(tree.items(), key=lambda item: item[0] + b"/" if item[1].mode == TREE else item[0])
    return b"".join(e.mode + b" " + name + b"\0" + bytes.fromhex(e.oid) for name, e in ordered)


def parse_commit(oid: str, data: bytes) -> Commit:
    """A commit object; fsck has seen to its form."""
    head, _, message = data.partition(b"\n\n")
    tree, parents = "", []
    committer: tuple[str, str] | None = None
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree" and not tree:
            tree = value.decode("ascii", "replace")
        elif key == b"parent":
            parents.append(value.decode("ascii", "replace"))
        elif key == b"committer" and committer is None:  # git shows the first one, and fsck takes a second
            match = _IDENT.match(value)
            name, email = match.groups() if match else (b"", b"")
            committer = name.decode("utf-8", "replace"), email.decode("utf-8", "replace")
    subject = message.lstrip(b"\n").split(b"\n", 1)[0].decode("utf-8", "replace")
    return Commit(oid, tree, tuple(parents), committer or ("", ""), subject)


def encode(kind: str, content: bytes) -> tuple[str, bytes]:
    """Id and bytes of an object."""
    data = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(data, usedforsecurity=False).hexdigest(), data


@dataclass
class Walk:
    """Compares trees. ``seen`` collects every tree and every other object on the new side that differed."""

    store: Store
    seen: dict[str, None]
    budget: int
    """How many differences may still be found."""

    def changes(self, new: str, olds: Sequence[str], prefix: bytes = b"") -> Iterator[Change]:
        """Paths in which tree ``new`` differs from every one of ``olds``, as a merge's own changes do.

        Raises :class:`Refused` when the budget is spent.
        """
        if new in olds:
            return
        if new:
            self.seen[new] = None
        tree, others = self.store.tree(new), [self.store.tree(old) for old in olds]
        for name in sorted(_different(tree, others)):
            self.budget -= 1
            if self.budget < 0:
                raise Refused("changes", "this push changes too many paths at once; push fewer commits at a time")
            path = prefix + name
            entry, olders = tree.get(name), [t.get(name) for t in others]
            leaf, leaves = _leaf(entry), [_leaf(old) for old in olders]
            if leaf not in leaves:
                if leaf is not None:
                    self.seen[leaf.oid] = None
                yield Change(path, leaves[0], leaf)
            below, belows = _subtree(entry), [_subtree(old) for old in olders]
            if below not in belows:
                yield from self.changes(below, belows, path + b"/")


def _different(tree: Tree, others: Sequence[Tree]) -> set[bytes]:
    names = {name for name, _ in tree.items() ^ others[0].items()}
    for other in others[1:]:
        names &= {name for name, _ in tree.items() ^ other.items()}
    return names


def _leaf(entry: Entry | None) -> Entry | None:
    return None if entry is None or entry.mode == TREE else entry


def _subtree(entry: Entry | None) -> str:
    return entry.oid if entry is not None and entry.mode == TREE else ""
