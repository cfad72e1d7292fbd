"""Any order of claims, landings, ends, crashes and restarts, against real git and a real ledger."""

from __future__ import annotations

import pkgutil
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from team.errors import TeamError
from team.ledger import Ledger
from team.names import agent_email
from team.places import Project
from team.upstream.landing import Landed
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused
from team.upstream.upstream import Upstream
from tests.upstream.conftest import Clone, make_source

TASKS = st.sampled_from(["parser", "lexer", "linker"])
POINTS = st.sampled_from(
    [
        "team.upstream.group.publish",
        "team.upstream.quarantine.Quarantine.migrate",
        "team.upstream.repository.Repository.move_main",
        "team.upstream.landing.events_of",
        "team.upstream.group.events_of",
    ]
)
WHO = st.integers(0, 2)


class Crash(BaseException):
    """As if the process had been killed here."""


@dataclass
class Session:
    """A session with its clone, and what it was told that it holds."""

    pusher: Pusher
    clone: Clone
    alive: list[bool] = field(default_factory=lambda: [True])


class Team(RuleBasedStateMachine):
    """Three seats, three tasks. What the pushers were told must always be what git and the ledger say."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="tm-"))
        self.project = Project(self.base / "source", "model-1", self.base / "state")
        tickets = {f"tasks/{task}.md": f"# {task}\n" for task in ("parser", "lexer", "linker")}
        source = make_source(self.project.root, {"README.md": "hello\n", **tickets})
        Upstream.create(self.project, source.path, source.head())
        self.ledger = Ledger(self.project.ledger)
        self.upstream = Upstream(self.project, self.ledger)
        self.bare = Clone(self.project.upstream, "x", "x@x")
        self.told: dict[str, str] = {}
        """Task -> session, by what the sessions were answered."""
        self.landed: list[str] = []
        """Commits whose pushes were accepted."""
        self.mains = [self.upstream.main()]
        self.count = 0
        self.sessions = [self._start(seat) for seat in range(3)]

    def _start(self, seat: int) -> Session:
        self.count += 1
        name, alive = f"agent-{seat:02d}", [True]
        pusher = Pusher(name, agent_email(name), f"{name}.{self.count}", "worker", alive=lambda: alive[0])
        clone = Clone(self.base / f"clone{self.count}", name, pusher.email, pusher.session)
        clone.path.mkdir()
        clone.git("clone", "-q", "--shared", str(self.project.upstream), ".")
        return Session(pusher, clone, alive)

    # -- what sessions do -------------------------------------------------------------------------------------

    @rule(who=WHO, task=TASKS)
    def claim_at_the_door(self, who: int, task: str) -> None:
        self._claim(self.sessions[who], task)

    def _claim(self, session: Session, task: str) -> None:
        try:
            self.upstream.claim(session.pusher, {"task": task})
        except Refused:
            return
        self.told[task] = session.pusher.session or ""

    @rule(who=WHO, done=st.booleans())
    def release_at_the_door(self, who: int, done: bool) -> None:
        session = self.sessions[who]
        try:
            self.upstream.give_back(session.pusher, {"done": "1"} if done else {})
        except (Refused, TeamError):
            assert session.pusher.session not in self.told.values()
            return
        self.told = {task: holder for task, holder in self.told.items() if holder != session.pusher.session}

    @rule(who=WHO, task=TASKS, fresh=st.booleans(), with_work=st.booleans())
    def push_a_lock(self, who: int, task: str, fresh: bool, with_work: bool) -> None:
        """Adds the lock where the clone has none, and removes it where it has one."""
        session = self.sessions[who]
        if fresh:
            session.clone.git("fetch", "-q")
            session.clone.git("reset", "-q", "--hard", "origin/main")
        lock = session.clone.path / f"current_tasks/{task}.txt"
        files: dict[str, str | bytes | None] = {f"current_tasks/{task}.txt": None if lock.exists() else f"{self.count}"}
        if with_work:
            files[f"src/{session.pusher.name}.txt"] = f"{len(self.landed)}"
        session.clone.commit_paths("lock", files)
        if self._push(session) is None:
            session.clone.git("reset", "-q", "--hard", "HEAD~1")

    @rule(who=WHO)
    def push_work(self, who: int) -> None:
        session = self.sessions[who]
        session.clone.commit_paths("work", {f"src/{session.pusher.name}.txt": f"{len(self.landed)}"})
        if self._push(session) is None:
            session.clone.git("fetch", "-q")
            session.clone.git("reset", "-q", "--hard", "origin/main")

    def _push(self, session: Session) -> Landed | None:
        """Land the clone's head as a push does; None where it was refused."""
        head, receiver = session.clone.head(), self.upstream._receiver
        try:
            with self.upstream._lander.quarantine() as quarantine:
                self.upstream._pack(session.clone.path, head, quarantine.path / "theirs")
                with (quarantine.path / "theirs").open("rb") as stream:
                    receiver.take_pack(session.pusher, quarantine, stream)
                landed = receiver.land(session.pusher, quarantine, head, lambda text: None)
        except Refused:
            return None
        self.landed.append(head)
        if landed is not None:
            for task in landed.claims:
                self.told[task] = session.pusher.session or ""
            for task in landed.releases:
                self.told.pop(task, None)
        return landed

    @rule(task=TASKS)
    def all_claim_the_same_at_once(self, task: str) -> None:
        before = dict(self.told)
        threads = [threading.Thread(target=self._claim, args=(session, task)) for session in self.sessions]
        with self.upstream._lander.turn.taken():
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        if task in before:
            assert self.told == before

    # -- what happens to them ---------------------------------------------------------------------------------

    @rule(who=WHO)
    def session_ends(self, who: int) -> None:
        old = self.sessions[who]
        old.alive[0] = False
        for attempt in (lambda: self.upstream.claim(old.pusher, {"task": "parser"}), lambda: self._late_push(old)):
            try:
                attempt()
            except Refused as error:
                assert error.rule == "ended"
            else:
                raise AssertionError("an ended session changed something")
        self.upstream.release(old.pusher.session or "", old.pusher.name, "ended")
        self.told = {task: holder for task, holder in self.told.items() if holder != old.pusher.session}
        shutil.rmtree(old.clone.path)
        self.sessions[who] = self._start(who)

    def _late_push(self, session: Session) -> None:
        session.clone.commit_paths("late", {"late.txt": f"{self.count}"})
        if self._push(session) is None:
            raise Refused("ended", "as it must be")

    @rule()
    def supervisor_restarts(self) -> None:
        self.upstream.close()
        self.upstream = Upstream(self.project, self.ledger)
        self.upstream.settle()

    @precondition(lambda self: self.count < 12)
    @rule(who=WHO, point=POINTS, after=st.booleans(), what=st.sampled_from(["claim", "work"]), task=TASKS)
    def killed_in_a_landing(self, who: int, point: str, after: bool, what: str, task: str) -> None:
        session = self.sessions[who]
        act: Callable[[], object] = lambda: self._claim(session, task)  # noqa: E731
        if what == "work":
            act = lambda: self.push_work(who)  # noqa: E731
        module, _, name = point.rpartition(".")
        real = _resolve(module, name)

        def stop(*args: object) -> object:
            if after:
                real(*args)
            raise Crash

        with mock.patch(point, stop), suppress(Crash):
            act()
        self.supervisor_restarts()
        # Nobody was answered; what the ledger settled on is what holds.
        holder = self.upstream.holder(task)
        if holder is not None and holder.session == session.pusher.session:
            self.told[task] = holder.session
        session.clone.git("fetch", "-q")
        session.clone.git("reset", "-q", "--hard", "origin/main")

    # -- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def what_was_told_is_so(self) -> None:
        held = {c.task: c.session for c in self.upstream._claims.all()}
        assert held == self.told
        assert set(held.values()) <= {session.pusher.session for session in self.sessions}, "a dead session holds"
        assert len(set(held.values())) == len(held), "one claim a session"
        tree = self.bare.git("ls-tree", "-r", "--name-only", "main", "current_tasks/").split()
        locks = {Path(name).stem for name in tree if name.endswith(".txt")}
        assert locks == set(held), "locks on main and claims differ"

    @invariant()
    def nothing_accepted_is_missing_and_main_only_grows(self) -> None:
        main = self.upstream.main()
        if main != self.mains[-1]:
            self.mains.append(main)
        line = set(self.bare.git("rev-list", "--first-parent", "main").split())
        assert set(self.mains) <= line, "main left its own first-parent line"
        if self.landed:
            reached = set(self.bare.git("rev-list", "main").split())
            assert set(self.landed) <= reached, "an accepted push is missing"

    def teardown(self) -> None:
        found = self.bare.run("fsck", "--strict", "--full", "--no-dangling")
        self.upstream.close()
        self.ledger.close()
        leftover = list(self.project.incoming.glob("*"))
        shutil.rmtree(self.base)
        assert found.returncode == 0 and not found.stdout, found.stdout + found.stderr
        assert not leftover


def _resolve(module: str, name: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(pkgutil.resolve_name(module), name)
    return found


Team.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestTeam = Team.TestCase
