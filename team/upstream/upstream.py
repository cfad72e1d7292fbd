"""Everything about upstream in one place: what the rest of ``team`` calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from team import git
from team.config import Gate, Landing
from team.errors import TeamError
from team.ledger import Kind, Ledger, New
from team.names import nearest_task_name, task_path, task_problem
from team.places import Project
from team.text import clean, one_line
from team.upstream import create, rescue_view, wire
from team.upstream import gate as gates
from team.upstream.admission import Admission
from team.upstream.calls import Calls
from team.upstream.check import Checker
from team.upstream.claims import Claim
from team.upstream.held import Held
from team.upstream.inspection import Inspector
from team.upstream.landing import Landed, Lander, commit_object, edit
from team.upstream.objects import REGULAR, Entry
from team.upstream.pusher import Pusher
from team.upstream.quarantine import sweep
from team.upstream.queue import Queue, Waiting
from team.upstream.receive import Receiver
from team.upstream.refusal import Refused
from team.upstream.repository import Repository
from team.upstream.rescue import Rescue
from team.upstream.rescue_view import Saved
from team.upstream.shelf import Shelf
from team.upstream.tasks import Task, Tasks, title
from team.upstream.turn import Turn

_PACK_SECONDS = 600.0


class Upstream:
    """The shared bare repository of a project. Safe to use from several threads and processes."""

    def __init__(
        self,
        project: Project,
        ledger: Ledger,
        landing: Landing = Landing(),  # noqa: B008 - frozen
        protected: Sequence[str] = (),
        *,
        gate: Gate = Gate(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``landing`` bounds pushes, ``protected`` are globs on top of the default list, ``gate`` is what work
        must pass first, ``clock`` gives seconds."""
        self.project = project
        self._ledger, self._clock, self._born = ledger, clock, time.time()
        self._repository = Repository(project.upstream)
        inspector = Inspector(self._repository, landing)
        turn = Turn(project.landing_lock)
        self._lander = Lander(
            self._repository, project.incoming, ledger, turn, inspector, landing, protected, clock
        )  # fmt: skip
        self._rescue = Rescue(project.rescue, project.incoming, self._repository, inspector)
        self._inspector, self._gate = inspector, gate
        self._queue = Queue(ledger)
        shelf, held = Shelf(project.gate, self._repository), Shelf(project.rescue, self._repository)
        self._admission = Admission(self._lander, ledger, self._queue, gate, protected, shelf, held, clock)
        self._receiver = Receiver(self._lander, self._admission, inspector, self._rescue, ledger, landing)
        self._claims = self._lander.claims
        self._tasks = Tasks(self._repository, self._claims, self._queue, clock)
        self._calls = Calls(self._receiver.group, self._tasks, landing.claims, clock)

    @staticmethod
    def create(project: Project, source: Path, branch_commit: str) -> None:
        """Make upstream from ``branch_commit`` of the repository ``source``, and the rescue repository.

        Takes the history of that commit and the tags that point into it, nothing else. Raises :class:`TeamError`.
        """
        create.create(project, source, branch_commit)

    def main(self) -> str:
        """The commit that main is at. Raises :class:`TeamError` where there is no upstream."""
        return self._repository.main()

    def advertise(self, pusher: Pusher) -> bytes:
        """What a client is told before it pushes, as pkt-lines; the ``# service`` line of HTTP is not part of it."""
        line = self._repository.line()
        return wire.advertisement(line[-1], line)

    def receive(self, pusher: Pusher, request: BinaryIO, reply: Callable[[bytes], None]) -> None:
        """Take one whole receive-pack request. Blocks until the verdict; never raises for a bad push.

        ``reply`` gets the protocol's bytes as they come.
        """
        self._receiver.receive(pusher, request, reply)

    def rescued(self, session: str) -> str | None:
        """The commit that an ending session saved, or None."""
        return self._rescue.find(session)

    def release(self, session: str, agent: str, why: str) -> list[str]:
        """Remove the locks that ``session`` holds by a commit that says ``why``. Returns the tasks."""
        with self._lander.turn.taken():
            self._lander.mend()
            tasks = self._claims.held_by(session)
            self._queue.sync()
            pushes = self._queue.of_session(session)
            if pushes and self._queue.kept(session) is None:  # after the verdict, what they claim is free as well
                self._queue.keep(session, agent, why)
            waiting = {task for push in pushes for task in push.tasks}  # they stay its agent's until then
            tasks = [task for task in tasks if task not in waiting]
            if tasks:
                self._lander.free(tasks, why, agent=agent, session=session)
        return tasks

    def open_gate(self, checker: Checker) -> gates.Gate:
        """What checks waiting pushes with ``checker``, once it runs."""
        return gates.Gate(
            self.project, self._gate, self._repository, self._lander, self._inspector, self._admission, checker,
            after=self._let_go, clock=self._clock,
        )  # fmt: skip

    def waiting(self) -> list[Waiting]:
        """Every push that waits for the gate or for a person, first come first."""
        self._queue.sync()
        return self._queue.waiting()

    @property
    def held(self) -> Held:
        """The pushes that wait for a person."""
        return Held(self._lander, self._inspector, self._admission, self._gate, self._let_go)

    def _let_go(self, push: Waiting) -> None:
        """After a verdict: the claims of a session that ended while it waited are free now."""
        session = push.session or ""
        if self._queue.kept(session) is None:
            return
        with self._lander.turn.taken():
            self._queue.sync()
            self._free_kept(session)

    def _free_kept(self, session: str) -> None:
        """The turn must be held."""
        kept = self._queue.kept(session)
        self._claims.sync()
        tasks = self._claims.held_by(session)
        if kept is not None and tasks and not self._queue.of_session(session):
            self._lander.free(tasks, kept[1], agent=kept[0], session=session)

    def claim(self, pusher: Pusher, asked: Mapping[str, str]) -> str:
        """``team claim`` in a session: ``task``, and ``scope``, ``note``, ``force`` where given.

        Returns what the session is told. Raises :class:`TeamError` for a bad name, :class:`Refused` by the rules.
        """
        said = self._answer(self._calls.claim, pusher, asked)
        self._queue.sync()
        news: list[str] = []
        self._admission.tell(news.append, pusher, (asked.get("task", ""),))
        return "\n".join([said.rstrip("\n"), *news]) + "\n" if news else said

    def give_back(self, pusher: Pusher, asked: Mapping[str, str]) -> str:
        """``team release`` in a session: ``task`` (needed where it holds several), ``done``, ``reason``.

        Returns what the session is told. Raises :class:`TeamError` and :class:`Refused`.
        """
        return self._answer(self._calls.release, pusher, asked)

    def _answer(
        self, call: Callable[[Pusher, Mapping[str, str]], str], pusher: Pusher, asked: Mapping[str, str]
    ) -> str:
        """Refusals at the door are recorded as those of pushes are."""
        try:
            if pusher.ending:
                raise Refused("ended", "this session is ending; it may only save its work")
            return call(pusher, asked)
        except Refused as e:
            task, what = one_line(asked.get("task", ""), 100), {"reason": e.reason, "rule": e.rule}
            self._ledger.append(
                Kind.PUSH_REFUSED, agent=pusher.name, session=pusher.session, ref=f"task {task}", **what
            )
            raise

    def overview(self, session: str) -> str:
        """``team tasks`` in a session."""
        self._claims.sync()
        self._queue.sync()
        news = "".join(f"note: {line}\n" for line in self._admission.news(session))
        return news + self._calls.tasks(session)

    def holder(self, task: str) -> Claim | None:
        """The live claim on ``task``, or None."""
        self._claims.sync()
        return self._claims.holder(task)

    def held_by(self, session: str) -> list[str]:
        """The tasks that ``session`` holds, oldest first."""
        self._claims.sync()
        return self._claims.held_by(session)

    def tasks(self) -> list[Task]:
        """Held tasks, then open ones, each by name."""
        self._claims.sync()
        self._queue.sync()
        return self._tasks.all()

    def add_task(self, name: str, text: str, person: Pusher) -> str:
        """Land ``tasks/<name>.md`` as the person; returns the commit. Raises :class:`TeamError`."""
        if problem := task_problem(name):
            raise TeamError(f"{one_line(name, 60)!r} is no task name: {problem}; try {nearest_task_name(name)!r}")
        text = clean(text).strip() + "\n"
        try:
            with self._lander.quarantine() as quarantine:
                main = self._repository.main()
                tree = self._repository.store.commit(main).tree
                path = task_path(name).encode()
                if quarantine.store.find(tree, path) is not None:
                    raise TeamError(f"there is a task {name!r} already; choose another name")
                file = Entry(REGULAR, quarantine.write("blob", text.encode("utf-8", "replace")))
                new = edit(quarantine, tree, {path: file})
                message = f"Add task {name}\n\n{title(text)}\n"
                data = commit_object(new, [main], person, message, self._clock(), committer=person)
                landed = self._receiver.land(person, quarantine, quarantine.write("commit", data), _quietly)
        except Refused as e:
            raise TeamError(f"the task was not added: {e.reason}") from None
        if landed is None:
            raise TeamError(f"there is a task {name!r} already; choose another name")
        self._ledger.append(Kind.TASK_ADDED, agent=person.name, task=name, title=title(text))
        return landed.commit

    def unblock(self, task: str) -> int:
        """Forget the strikes of ``task``; returns how many there were. Raises :class:`TeamError` for none."""
        self._claims.sync()
        strikes = self._claims.strikes(task)
        if not strikes:
            blocked = ", ".join(sorted(self._claims.blocked_tasks())) or "none is"
            raise TeamError(f"no session failed on {one_line(task, 100)!r}; blocked: {blocked}")
        self._ledger.append(Kind.TASK_UNBLOCKED, task=task)
        return len(strikes)

    def rescues(self) -> list[Saved]:
        """What sessions left behind, oldest first, with the tasks that they held."""
        self._claims.sync()
        return [replace(one, tasks=self._claims.had(one.session)) for one in rescue_view.saved(self.project.rescue)]

    def rescue_text(self, session: str, *, patch: bool = False) -> str:
        """Commits and files (with ``patch``, the changes) that ``session`` left behind. Raises :class:`TeamError`."""
        one = rescue_view.find(self.project.rescue, session)
        text = rescue_view.show(self.project.rescue, self.project.upstream, one.commit, patch=patch)
        return f"{text}\ngit fetch {self.project.rescue} refs/rescue/{one.agent}/{one.session}"

    def rescue_drop(self, session: str) -> Saved:
        """Forget what ``session`` left behind. Raises :class:`TeamError`."""
        one = rescue_view.find(self.project.rescue, session)
        rescue_view.drop(self.project.rescue, one)
        self._ledger.append(Kind.RESCUE_DROPPED, agent=one.agent, session=one.session, commit=one.commit)
        return one

    def rescue_summary(self, commit: str) -> str:
        """On one line, what main lacks of the saved ``commit``."""
        return rescue_view.summary(self.project.rescue, self.project.upstream, commit)

    def left_behind(self) -> list[str]:
        """Of every task that nobody holds and on which work was left behind, that in words."""
        self._claims.sync()
        free = [task for task in self._claims.rescued() if self._claims.holder(task) is None]
        return [line for task in free for line in self._claims.left_behind(task)]

    def land_commit(self, pusher: Pusher, commit: str, source: Path) -> Landed | None:
        """Land a commit of the person's own repository ``source``; None where main has it.

        The same rules as for every push. Raises :class:`TeamError` with the reason.
        """
        create.check_source(source)
        try:
            with self._lander.quarantine() as quarantine:
                file = quarantine.path / "theirs"
                self._pack(source, commit, file)
                with file.open("rb") as stream:
                    self._receiver.take_pack(pusher, quarantine, stream)
                return self._receiver.land(pusher, quarantine, commit, _quietly)
        except (Refused, wire.Garbage) as e:
            raise TeamError(f"{commit[:10]} does not land on upstream's main: {e}") from None

    def settle(self) -> None:
        """Put right whatever a crash left: half-recorded landings, locks nobody holds, temporary files."""
        with self._lander.turn.taken():
            sweep(self.project.incoming)
            for repository in (self.project.upstream, self.project.rescue):
                _remove_stale_locks(repository, self._born)
            self._lander.mend()
            self._queue.sync()
            for session in self._queue.all_kept():
                self._free_kept(session)
            locks = self._lander.locks()
            if nobodys := [task for task in locks if self._claims.holder(task) is None]:
                self._lander.free(nobodys, "no session holds it", agent="team", session=None)
            lost = [claim for claim in self._claims.all() if claim.task not in locks]
            why = {"landing": 0, "why": "its lock is not on main", "by": "team"}
            self._ledger.append_all(New(Kind.RELEASE, c.agent, c.session, c.task, why) for c in lost)
            self._claims.sync()
        self.held.settle()

    def maintain(self) -> bool:
        """Pack upstream's objects when many lie about; returns whether it did. Pushes may go on meanwhile."""
        return self._repository.repack()

    def close(self) -> None:
        """End what runs for us; upstream can be opened again at any time."""
        self._rescue.close()
        self._repository.close()

    def _pack(self, source: Path, commit: str, file: Path) -> None:
        """Write what ``commit`` has and upstream lacks to ``file``, as a client would send it."""
        have = self._repository.line()
        out = git.git("cat-file", "--batch-check", at=source, stdin="\n".join(have).encode() + b"\n")
        there = [line.split()[0] for line in out.decode().splitlines() if not line.endswith(" missing")]
        wanted = "".join(f"{line}\n" for line in [commit, *(f"^{oid}" for oid in there)])
        out = git.git(
            "pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet",
            at=source, stdin=wanted.encode(), seconds=_PACK_SECONDS, output=1 << 30, env=create.NO_GRAFTS,
        )  # fmt: skip
        file.write_bytes(out)


def _quietly(text: str) -> None:
    """Progress that nobody waits for."""


def _remove_stale_locks(repository: Path, born: float) -> None:
    """Remove lock files of refs that a crash left: only what holds our turn writes refs, and that is us now."""
    found = [*repository.glob("*.lock"), *(repository / "refs").rglob("*.lock")]
    for path in found:
        if path.is_file() and path.stat().st_mtime < born:
            path.unlink(missing_ok=True)
