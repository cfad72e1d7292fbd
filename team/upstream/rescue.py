"""Keeps what an ending session left behind, in a repository that no session mounts."""

from __future__ import annotations

from pathlib import Path

from team import git
from team.upstream.inspection import Inspector
from team.upstream.objects import Missing, Store
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.refusal import Refused
from team.upstream.repository import Repository


def rescue_ref(pusher: Pusher) -> str:
    """The one ref to which an ending session may push."""
    return f"refs/rescue/{pusher.name}/{pusher.session}"


class Rescue:
    """The rescue repository; it borrows upstream's objects."""

    def __init__(self, path: Path, incoming: Path, upstream: Repository, inspector: Inspector) -> None:
        self.path, self._incoming, self._upstream, self._inspector = path, incoming, upstream, inspector
        self._store = Store(path / "objects", path, upstream.store)
        self._store.packed = True

    def quarantine(self) -> Quarantine:
        """A place for objects that may be saved."""
        return Quarantine(self._incoming, self._upstream.path, self._store, also=self.path)

    def save(self, pusher: Pusher, quarantine: Quarantine, head: str) -> None:
        """Keep ``head`` under the session's rescue ref, which must not exist yet. Raises :class:`Refused`."""
        store = quarantine.store
        info = store.info(head)
        if info is None or info[0] != "commit":
            raise Refused("objects", f"{head[:12]} is no commit that can be saved")
        try:
            main = store.commit(self._upstream.main()).tree
            self._inspector.check_shapes(store, [store.commit(head).tree], main)
        except Missing as e:
            raise Refused("objects", f"the push is incomplete: {e}; push again") from None
        loose = [path.parent.name + path.name for path in quarantine.objects.glob("??/*")]
        kinds = {"blob": 0, "tree": 1, "commit": 2, "tag": 3}
        quarantine.migrate(
            sorted(loose, key=lambda oid: kinds[(store.info(oid) or ("tag", 0))[0]]), self.path / "objects"
        )
        try:
            git.git("update-ref", rescue_ref(pusher), head, "0" * 40, at=self.path)
        except git.GitError:
            raise Refused("rescue", "the work of this session is saved already, and never overwritten") from None

    def find(self, session: str) -> str | None:
        """The commit saved for ``session``, or None."""
        return git.line("for-each-ref", "--format=%(objectname)", f"refs/rescue/*/{session}", at=self.path) or None

    def close(self) -> None:
        """End what runs for us."""
        self._store.close()
