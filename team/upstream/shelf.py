"""A bare repository beside upstream for pushes that have not landed; it borrows what upstream has."""

from __future__ import annotations

import shutil
from pathlib import Path

from team import git
from team.upstream import pack
from team.upstream.quarantine import Quarantine, quoted
from team.upstream.repository import Repository

_SECONDS = 600.0
_ORDER = {"blob": 0, "tree": 1, "commit": 2, "tag": 3}


class Shelf:
    """Keeps pushes, each under a ref, until somebody takes or drops them."""

    def __init__(self, path: Path, upstream: Repository) -> None:
        self.path, self._upstream = path, upstream
        self.env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted(upstream.objects)}

    def make(self) -> None:
        """Make the repository where there is none yet."""
        if not (self.path / "HEAD").exists():
            self.path.mkdir(mode=0o755, exist_ok=True)
            git.git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".", at=self.path)
            self.path.chmod(0o755)

    def keep(self, quarantine: Quarantine, commit: str, ref: str) -> None:
        """Move the objects of a push here, on disk when this returns, and let ``ref`` hold them."""
        self.make()
        store = quarantine.store
        loose = [path.parent.name + path.name for path in quarantine.objects.glob("??/*")]
        ordered = sorted(loose, key=lambda oid: _ORDER[(store.info(oid) or ("tag", 0))[0]])
        (self.path / "objects" / "pack").mkdir(mode=0o755, exist_ok=True)
        quarantine.migrate(ordered, self.path / "objects")
        git.git("update-ref", ref, commit, at=self.path, env=self.env)

    def is_in(self, commit: str, main: str) -> bool:
        """Whether ``main`` has ``commit``; what is not to be found any more is nowhere."""
        try:
            return git.is_ancestor(self.path, commit, main, env=self.env)
        except git.GitError:
            return False

    def fill(self, quarantine: Quarantine, commit: str) -> None:
        """Copy what ``commit`` has and main lacks into ``quarantine``, as if it had been pushed again."""
        wanted = f"{commit}\n^{self._upstream.main()}\n".encode()
        out = git.git(
            "pack-objects", "--revs", "--stdout", "--delta-base-offset", "--quiet",
            at=self.path, stdin=wanted, seconds=_SECONDS, output=1 << 30, env=self.env,
        )  # fmt: skip
        file = quarantine.path / "shelf.pack"
        file.write_bytes(out)
        quarantine.unpack(pack.measure(file, len(out), inflated=1 << 40, objects=1 << 31))

    def drop(self, ref: str) -> None:
        """Forget a push; its objects go with the next :meth:`clear`."""
        git.git("update-ref", "-d", ref, at=self.path, env=self.env)

    def clear(self) -> None:
        """Remove everything. Nobody may wait here, and nobody come meanwhile."""
        shutil.rmtree(self.path, ignore_errors=True)
