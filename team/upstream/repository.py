"""The bare repository itself: where main is, which commits it is known to reach, how it moves."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from team import git
from team.errors import TeamError
from team.upstream.objects import Store

MAIN = "refs/heads/main"
_MOST_KNOWN = 200_000
_RECENT = 64
_MANY_LOOSE = 20_000
_REPACK_SECONDS = 3600.0


class Repository:
    """Upstream on disk. ``known`` commits are ancestors of main for certain; others may be too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.objects = path / "objects"
        self.store = Store(self.objects, path)
        self.known: set[str] = set()
        self._line: list[str] = []
        self._lock = threading.Lock()

    def main(self) -> str:
        """The commit that main is at. Raises :class:`TeamError` where there is no upstream."""
        try:
            return (self.path / MAIN).read_text("ascii").strip()
        except OSError:
            pass
        try:
            packed = (self.path / "packed-refs").read_text("utf-8", "replace")
        except OSError:
            packed = ""
        for line in packed.splitlines():
            oid, _, name = line.partition(" ")
            if name == MAIN:
                return oid
        raise TeamError(f"there is no upstream in {self.path}; `team up` makes one")

    def learn(self, commits: Iterable[str]) -> None:
        """Remember that main reaches ``commits``."""
        if len(self.known) > _MOST_KNOWN:
            self.known = set()
        self.known.update(commits)

    def line(self) -> list[str]:
        """First-parent commits of main, newest first: the newest ones, then ever wider apart, and the oldest."""
        main = self.main()
        with self._lock:
            if not self._line:
                self._line = self._first_parents(main)
            elif main not in self._line[-_RECENT:]:  # else ours, read a moment ago
                self._line += self._first_parents(main, self._line[-1])
            line = self._line
            self.learn(line[-_RECENT:])
            back = list(range(1, min(_RECENT, len(line)) + 1))
            while back[-1] * 5 // 4 < len(line):
                back.append(back[-1] * 5 // 4)
            return [*(line[-n] for n in back), *line[:1]]

    def _first_parents(self, main: str, after: str | None = None) -> list[str]:
        exclude = [f"^{after}"] if after else []
        out = git.git("rev-list", "--first-parent", "--reverse", main, *exclude, "--", at=self.path)
        return out.decode().split()

    def move_main(self, old: str, new: str, through: Sequence[str] = ()) -> None:
        """Move main from ``old`` to ``new``; raises :class:`git.GitError` where it is not at ``old``.

        ``through`` are the first-parent commits between the two, oldest first.
        """
        self._write_main(old, new)
        self.learn((old, *through, new))
        with self._lock:
            if self._line and self._line[-1] == old:
                self._line += [*through, new]

    def _write_main(self, old: str, new: str) -> None:
        """What ``git update-ref`` does (gitrepository-layout), without a process for each landing."""
        ref = self.path / MAIN
        ref.parent.mkdir(parents=True, exist_ok=True)
        lock = ref.with_name(ref.name + ".lock")
        try:
            fd = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            raise git.GitError(("update-ref", MAIN), 1, f"{lock} exists; another git process moves main") from None
        try:
            try:
                if (main := self.main()) != old:
                    raise git.GitError(("update-ref", MAIN), 1, f"main is at {main}, not at {old}")
                os.write(fd, f"{new}\n".encode())
                os.fchmod(fd, 0o644)
                os.fsync(fd)
            finally:
                os.close(fd)
            lock.rename(ref)
        except BaseException:
            lock.unlink(missing_ok=True)
            raise
        directory = os.open(ref.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def repack(self) -> bool:
        """Pack loose objects when there are many. Nothing is pruned: live clones may borrow any of it (HAZARDS 28)."""
        sample = len(list(self.objects.glob("17/*")))  # one of 256 directories, as git's own gc counts
        if sample * 256 < _MANY_LOOSE:
            return False
        git.git("repack", "-a", "-d", "-k", "-q", at=self.path, seconds=_REPACK_SECONDS)
        return True

    def close(self) -> None:
        """End what runs for us."""
        self.store.close()
