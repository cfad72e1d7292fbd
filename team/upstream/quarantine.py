"""Where objects of a push wait until upstream has judged them; no session can see them there."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from team import git
from team.text import one_line
from team.upstream.objects import Store, encode
from team.upstream.pack import Pack
from team.upstream.refusal import Refused

_UNPACK_OBJECTS, _UNPACK_BYTES = 100, 8 << 20
"""Up to here a pack becomes loose objects, as with ``transfer.unpackLimit``."""
_MEMORY = 4 << 30
_SECONDS = 120.0
_SYNCERS = ThreadPoolExecutor(16, "sync")
"""File systems write what many wait for in one go: together, sixteen syncs take little longer than one."""


class Quarantine:
    """An object directory of one push, which borrows everything from upstream; removed on leaving."""

    def __init__(self, incoming: Path, repository: Path, base: Store, *, also: Path | None = None) -> None:
        incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = incoming / secrets.token_hex(8)
        self.path.mkdir(mode=0o700)
        # Held for as long as its owner lives; a directory nobody holds is a crash's and may go.
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.objects = self.path / "objects"
        self.objects.mkdir()
        self._repository = repository
        self._synced: set[Path] = set()
        borrowed = [quoted(p / "objects") for p in (repository, also) if p is not None]
        self.env = {
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(borrowed),
        }
        self.store = Store(self.objects, repository, base, self.env)

    def __enter__(self) -> Quarantine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def unpack(self, pack: Pack) -> None:
        """Let git check and store every object of ``pack``. Raises :class:`Refused` for what fsck refuses."""
        if pack.objects == 0:
            return
        small = pack.objects <= _UNPACK_OBJECTS and pack.inflated <= _UNPACK_BYTES
        with pack.path.open("rb") as file:
            try:
                if small:
                    git.git(
                        "unpack-objects", "-q", "--strict",
                        at=self._repository, stdin_file=file.fileno(), env=self.env, seconds=_SECONDS,
                    )  # fmt: skip
                else:
                    git.git(
                        "-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=256m",
                        "index-pack", "--stdin", "--fix-thin", "--strict",
                        at=self._repository, stdin_file=file.fileno(), env=self.env, seconds=_SECONDS, memory=_MEMORY,
                    )  # fmt: skip
            except git.GitLimit as e:
                raise Refused("time", f"checking this push {e.stderr}; push less at a time") from None
            except git.GitError as e:
                raise Refused("fsck", _complaint(e.stderr)) from None
        self.store.packed = not small
        pack.path.unlink()

    def write(self, kind: str, content: bytes) -> str:
        """Store an object of ours and return its id."""
        oid, data = encode(kind, content)
        path = self.objects / oid[:2] / oid[2:]
        path.parent.mkdir(exist_ok=True)
        new = path.with_name("tmp_" + oid)
        new.write_bytes(zlib.compress(data, 1))
        new.chmod(0o444)
        new.replace(path)
        return oid

    def packed(self) -> set[str]:
        """Ids of the objects in packs here."""
        ids: set[str] = set()
        for index in self.objects.glob("pack/*.idx"):
            out = git.git("show-index", at=self._repository, stdin=index.read_bytes())
            ids.update(line.split()[1].decode() for line in out.splitlines())
        return ids

    def sync(self) -> None:
        """Bring what is here to the disk, before the turn to land comes, in which others would wait for it."""
        paths = [path for path in self.objects.glob("*/*") if path.is_file()]
        _sync_all(paths)
        self._synced.update(paths)

    def migrate(self, wanted: Iterable[str], into: Path) -> None:
        """Move all packs, and the loose objects among ``wanted`` in that order, to the object directory ``into``.

        They are on disk when this returns; nothing there is ever overwritten.
        """
        moves = self.movable(wanted, into)
        _sync_all(source for source, _ in moves if source not in self._synced)
        publish(moves)

    def movable(self, wanted: Iterable[str], into: Path) -> list[tuple[Path, Path]]:
        """What :meth:`migrate` moves where, in this order."""
        moves = []
        for suffix in ("pack", "rev", "idx"):  # an index makes its pack visible, so it comes last
            moves += [(p, into / "pack" / p.name) for p in sorted(self.objects.glob(f"pack/*.{suffix}"))]
        for oid in wanted:
            source = self.objects / oid[:2] / oid[2:]
            if source.exists():
                moves.append((source, into / oid[:2] / oid[2:]))
        return moves


def quoted(path: Path) -> str:
    """``path`` as one element of git's list of directories, in which a colon would end it."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def sweep(incoming: Path) -> int:
    """Remove the quarantines whose owners are gone; returns how many."""
    count = 0
    for path in incoming.glob("*/"):
        try:
            lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
            count += 1
        except BlockingIOError:
            pass
        finally:
            os.close(lock)
    return count


def publish(moves: Iterable[tuple[Path, Path]]) -> None:
    """Give files that are on the disk their final names, in this order; the names are on the disk then too."""
    dirs: set[Path] = set()
    for source, target in moves:
        _move(source, target, dirs)
    _sync_all(dirs)


def write_out(objects: Mapping[str, bytes], directory: Path, into: Path) -> list[tuple[Path, Path]]:
    """Write ``objects``, encoded, to ``directory`` and to the disk; returns what :func:`publish` needs."""
    moves = [(directory / oid, into / oid[:2] / oid[2:]) for oid in objects]

    def write(oid: str) -> None:
        fd = os.open(directory / oid, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
        with os.fdopen(fd, "wb") as file:
            file.write(zlib.compress(objects[oid], 1))
            os.fchmod(fd, 0o444)  # whatever our umask is
            file.flush()
            os.fsync(fd)

    for _ in _SYNCERS.map(write, objects):
        pass
    return moves


def _move(source: Path, target: Path, dirs: set[Path]) -> None:
    if target.exists():
        return
    if not target.parent.exists():
        target.parent.mkdir(mode=0o755, exist_ok=True)
        target.parent.chmod(0o755)
        dirs.add(target.parent.parent)
    source.rename(target)
    dirs.add(target.parent)


def _sync_all(paths: Iterable[Path]) -> None:
    for _ in _SYNCERS.map(_sync, paths):
        pass


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _complaint(stderr: str) -> str:
    """What git's check found, in one line that says what to do."""
    lines = [one_line(line, 200) for line in stderr.splitlines() if line.strip()]
    first = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "no reason given")
    return f"git's own check refuses an object of this push ({first.removeprefix('error: ')}); commit again without it"
