"""One push, from its first byte to the verdict."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from team import git
from team.config import Landing
from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.text import one_line
from team.upstream import pack, wire
from team.upstream.admission import RECORDED, Admission
from team.upstream.group import Group, PushOfLocks
from team.upstream.inspection import Inspector
from team.upstream.landing import Landed, Lander, ended
from team.upstream.pusher import Pusher
from team.upstream.quarantine import Quarantine
from team.upstream.quota import Quota
from team.upstream.refusal import Refused
from team.upstream.repository import MAIN
from team.upstream.rescue import Rescue, rescue_ref
from team.upstream.undo import Undo

FOR_MAIN = "refs/for/main"
FORCE = "force-claim"
"""The push option that claims a task although one like it is held or was finished."""
_DRAIN = 1 << 30


@dataclass
class Receiver:
    """Takes pushes for one upstream; may be used from several threads at once."""

    lander: Lander
    admission: Admission
    inspector: Inspector
    rescue: Rescue
    ledger: Ledger
    limits: Landing

    def __post_init__(self) -> None:
        self.undo = Undo(self.lander.repository)
        self.group = Group(self.lander)
        self._told: dict[str, int] = {}
        self._quota = Quota(self.ledger, self.limits.session_quota)

    def receive(self, pusher: Pusher, stream: BinaryIO, send: Callable[[bytes], None]) -> None:
        """Read one push from ``stream``, land or refuse it, and answer through ``send``. Bad pushes never raise."""
        reply = wire.Reply(send)
        try:
            request = wire.read_request(stream)
        except wire.Garbage as e:
            self._refuse(pusher, "", Refused("protocol", str(e)))
            reply.fatal(str(e))
            return
        if request is None:
            return
        reply.capabilities = request.capabilities
        refused, unpack, landed = self._attempt(pusher, request, stream, reply)
        if refused is not None:
            self._refuse(pusher, request.commands[0].ref, refused)
            if request.has_pack:
                pack.drain(stream, _DRAIN)
        reason = refused.reason if refused is not None else None
        old = landed.old if landed is not None else None
        reply.report((wire.Status(c.ref, reason, old) for c in request.commands), unpack)

    def _attempt(
        self, pusher: Pusher, request: wire.Request, stream: BinaryIO, reply: wire.Reply
    ) -> tuple[Refused | None, str, Landed | None]:
        """What refused the push if anything did, git's word for its pack, and the landing."""
        try:
            return None, "ok", self._handle(pusher, request, stream, reply)
        except Refused as e:
            return e, "ok", None
        except wire.Garbage as e:
            return Refused("protocol", f"{e}; push again"), one_line(str(e)), None
        except (OSError, sqlite3.Error, git.GitError, TeamError) as e:
            reason = f"upstream could not take the push: {one_line(str(e), 200)}"
            self.ledger.append(Kind.ERROR, agent=pusher.name, session=pusher.session, reason=reason)
            return Refused("error", f"{reason}; push again later"), "ok", None

    def _handle(self, pusher: Pusher, request: wire.Request, stream: BinaryIO, reply: wire.Reply) -> Landed | None:
        if not pusher.alive():
            raise ended()
        command = check_commands(pusher, request)
        if pusher.ending:
            self._save(pusher, command, stream, reply)
            return None
        with self.lander.quarantine() as quarantine:
            self.take_pack(pusher, quarantine, stream)
            return self.land(pusher, quarantine, command.new, reply.progress, force=FORCE in request.options)

    def land(
        self,
        pusher: Pusher,
        quarantine: Quarantine,
        head: str,
        progress: Callable[[str], None],
        *,
        force: bool = False,
    ) -> Landed | None:
        """Land ``head``, whose objects are in ``quarantine``; None where main has it. Raises :class:`Refused`."""
        push = self.inspector.inspect(pusher, quarantine, head)
        self.undo.check(pusher, push, quarantine)
        push.force = force
        quarantine.sync()
        job = PushOfLocks(pusher, push, quarantine) if push.commits and push.lock_only else None
        at_once = (lambda: self.group.land(job)) if job else None
        landed = self.admission.land(pusher, push, quarantine, progress, at_once)
        if landed is None:
            progress("nothing new: main has this commit")
            return None
        progress(f"landed on main as {landed.commit[:10]} (landing {landed.number})")
        passing = set(landed.claims) & set(landed.releases)
        for word, tasks in (("you hold", landed.claims), ("you released", landed.releases)):
            if names := [t for t in tasks if t not in passing]:
                progress(f"{word} {', '.join(names)}")
        for note in [*landed.notes, *self._lost(pusher)]:
            progress(note)
        return landed

    def _lost(self, pusher: Pusher) -> list[str]:
        """What the session lost and was not told yet; `team tasks` goes on telling it."""
        lost = self.lander.claims.lost_by(pusher.session or "")
        told = self._told.get(pusher.session or "", 0)
        self._told[pusher.session or ""] = len(lost)
        return lost[told:]

    def take_pack(self, pusher: Pusher, quarantine: Quarantine, stream: BinaryIO) -> None:
        """Read, bound, check and unpack the pack of a push into ``quarantine``. Raises :class:`Refused`."""
        path = quarantine.path / "pack"
        size = pack.spool(stream, path, self.limits.max_push)
        self._quota.count(pusher, size)
        most = 2 * self.limits.max_entries + 10 * self.limits.max_commits
        quarantine.unpack(pack.measure(path, size, inflated=self.limits.max_inflated, objects=most))

    def _save(self, pusher: Pusher, command: wire.Command, stream: BinaryIO, reply: wire.Reply) -> None:
        with self.rescue.quarantine() as quarantine:
            self.take_pack(pusher, quarantine, stream)
            self.rescue.save(pusher, quarantine, command.new)
        reply.progress(f"saved as {command.ref}")

    def _refuse(self, pusher: Pusher, ref: str, refused: Refused) -> None:
        if refused.rule in RECORDED:
            return
        shown = one_line(ref.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), 100)
        self.ledger.append(
            Kind.PUSH_REFUSED,
            agent=pusher.name,
            session=pusher.session,
            ref=shown,
            reason=refused.reason,
            rule=refused.rule,
        )


def check_commands(pusher: Pusher, request: wire.Request) -> wire.Command:
    """The one thing that a push may ask for. Raises :class:`Refused` for everything else."""
    if "object-format=sha256" in request.capabilities:
        raise Refused("ref", "this repository uses sha1 object names; clone it again")
    mend = f"`git push origin HEAD:{rescue_ref(pusher)}`" if pusher.ending else "`git push`"
    if len(request.commands) > 1:
        raise Refused("refs", f"{len(request.commands)} refs in one push; push main alone: {mend}")
    command = request.commands[0]
    ref = command.ref
    if pusher.ending:
        if ref != rescue_ref(pusher):
            raise Refused("ended", f"this session is ending; it may only save its work, once: {mend}")
    elif ref not in (MAIN, FOR_MAIN):
        where = "git push team HEAD:refs/for/main" if pusher.is_person else "git push origin HEAD:refs/for/main"
        raise Refused("ref", f"only main takes pushes, not {one_line(ref, 100)}; `{where}` lands your commit on main")
    if command.new == wire.ZERO:
        raise Refused("delete", f"{ref} is never deleted; to undo work, `git revert` it and push")
    return command
