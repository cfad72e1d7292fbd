"""Reads upstream's main for hand-outs: files, contents and landings, by git, without a checkout, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from team import git

MOST_FILE = 256 << 10
"""Bytes of a file that is read; larger ones are seldom written by hand."""
_CHUNK_BYTES, _CHUNK_FILES = 8 << 20, 1000
_SECONDS = 20.0
_HEAD = re.compile(rb"\x01([0-9a-f]{40,64})\x00(\d+)\x00([^\x00]*)\x00")
WORK = ("--invert-grep", "--grep=^Team-Kind: claim$", "--grep=^Team-Kind: release$")
"""Leaves out landings that only take or give back locks."""
_TESTS = re.compile(r"(?:^|[/_.-])(?:tests?|specs?|testing|__tests__)(?:[/_.-]|$)|[a-z](?:Test|Spec)\.", re.I)
_FOREIGN = frozenset({"node_modules", "vendor", "_vendor", "third_party", "third-party", "dist", "__snapshots__"})
_BOOKKEEPING = ("current_tasks/", "tasks/")


@dataclass(frozen=True)
class File:
    """A regular file of a commit."""

    path: str
    oid: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Landing:
    """A first-parent commit of main."""

    commit: str
    at: int
    """Seconds since the epoch."""
    subject: str
    """As its author wrote it."""
    paths: tuple[str, ...]


def files(at: Path, commit: str) -> list[File]:
    """Every regular file that the project itself wrote, as far as its path tells. Raises :class:`git.GitError`."""
    found = []
    out = git.git("ls-tree", "-r", "-l", "-z", "--full-tree", commit, at=at, seconds=_SECONDS)
    for row in out.split(b"\0"):
        head, _, raw = row.partition(b"\t")
        words = head.split()
        if len(words) == 4 and words[0] in (b"100644", b"100755") and words[3].isdigit():
            path = raw.decode("utf-8", "replace")
            if not path.startswith(_BOOKKEEPING) and _FOREIGN.isdisjoint(path.split("/")):
                found.append(File(path, words[2].decode(), int(words[3])))
    return found


def is_test(path: str) -> bool:
    """Whether ``path`` looks like a test."""
    return _TESTS.search(path) is not None


def texts(at: Path, wanted: Iterable[File], most: int) -> Iterator[tuple[File, str]]:
    """The contents of ``wanted`` as text, ``most`` bytes in all; binary and large files are left out."""
    chunk: list[File] = []
    size = 0
    for file in wanted:
        if not 0 < file.size <= MOST_FILE:
            continue
        most -= file.size
        if most < 0:
            break
        chunk.append(file)
        size += file.size
        if size > _CHUNK_BYTES or len(chunk) >= _CHUNK_FILES:
            yield from _read(at, chunk)
            chunk, size = [], 0
    yield from _read(at, chunk)


def _read(at: Path, chunk: list[File]) -> Iterator[tuple[File, str]]:
    stdin = "".join(f"{file.oid}\n" for file in chunk).encode()
    out = git.git("cat-file", "--batch", at=at, stdin=stdin, seconds=_SECONDS)
    position = 0
    for file in chunk:
        end = out.index(b"\n", position)
        words = out[position:end].split()
        position = end + 1
        if len(words) != 3:  # missing
            continue
        data = out[position : position + int(words[2])]
        position += int(words[2]) + 1
        if b"\0" not in data:
            yield file, data.decode("utf-8", "replace")


def landings(at: Path, commit: str, most: int, since: str = "") -> list[Landing]:
    """The newest ``most`` landings of work up to ``commit`` (after ``since``), newest first, with what they changed."""
    revisions = [f"^{since}"] if since else []
    for count in (most, min(most, 20)):
        try:
            out = git.git(
                "log", "--first-parent", "--diff-merges=first-parent", "--no-renames", "--name-only", "-z",
                "--format=%x01%H%x00%ct%x00%s%x00", f"--max-count={count}", *WORK, commit, *revisions, "--",
                at=at, seconds=_SECONDS,
            )  # fmt: skip
        except git.GitLimit:  # imports of a hundred thousand files; the newest ones will do
            continue
        return list(_parse(out))
    return []


def _parse(out: bytes) -> Iterator[Landing]:
    heads = list(_HEAD.finditer(out))
    for number, head in enumerate(heads):
        end = heads[number + 1].start() if number + 1 < len(heads) else len(out)
        names = [name.lstrip(b"\n") for name in out[head.end() : end].split(b"\0")]
        paths = tuple(name.decode("utf-8", "replace") for name in names if name)
        yield Landing(head[1].decode(), int(head[2]), head[3].decode("utf-8", "replace"), paths)
