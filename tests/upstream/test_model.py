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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from team.config import Gate
from team.errors import TeamError
from team.ledger import Ledger
from team.names import agent_email
from team.places import Project
from team.runtimes import Limits
from team.runtimes.process import ProcessRuntime
from team.upstream.check import ContainerChecker
from team.upstream.landing import Landed
from team.upstream.pusher import Pusher
from team.upstream.queue import QUEUED
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
        "team.upstream.queue.Queue.decide",
        "team.upstream.queue.Queue.approve",
        "team.upstream.shelf.Shelf.keep",
    ]
)
WHO = st.integers(0, 2)
WHAT = st.sampled_from(["claim", "work", "lock and work", "verdict", "verdict"])


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
        self.gate = Gate()
        self.upstream = Upstream(self.project, self.ledger)
        self.bare = Clone(self.project.upstream, "x", "x@x")
        self.told: dict[str, str] = {}
        """Task -> session, by what the sessions were answered."""
        self.landed: list[str] = []
        """Commits whose pushes were accepted."""
        self.waiting: dict[int, str | None] = {}
        """Pushes that were told to wait, with their sessions."""
        self.mains = [self.upstream.main()]
        self.count = self.made = 0
        self.sessions = [self._start(seat) for seat in range(3)]

    def _start(self, seat: int) -> Session:
        self.count += 1
        name, alive = f"agent-{seat:02d}", [True]
        pusher = Pusher(name, agent_email(name), f"{name}.{self.count}", "worker", alive=lambda: alive[0])
        clone = Clone(self.base / f"clone{self.count}", name, pusher.email, pusher.session)
        clone.path.mkdir()
        clone.git("clone", "-q", "--shared", str(self.project.upstream), ".")
        return Session(pusher, clone, alive)

    @initialize(gated=st.booleans())
    def begin(self, gated: bool) -> None:
        if gated:
            self.gate = Gate(check="! grep -rq BAD src", wait=0.0)
            self.supervisor_restarts()

    # -- what sessions do -------------------------------------------------------------------------------------

    @rule(who=WHO, task=TASKS, what=st.sampled_from(["claim", "claim", "done", "give up"]))
    def call_at_the_door(self, who: int, task: str, what: str) -> None:
        session = self.sessions[who]
        if what == "claim":
            self._claim(session, task)
        else:
            self._release(session, done=what == "done")

    def _claim(self, session: Session, task: str) -> None:
        try:
            self.upstream.claim(session.pusher, {"task": task})
        except Refused:
            return
        self.told[task] = session.pusher.session or ""

    def _release(self, session: Session, *, done: bool) -> None:
        try:
            self.upstream.give_back(session.pusher, {"done": "1"} if done else {})
        except (Refused, TeamError):
            assert session.pusher.session not in self.told.values()
            return
        self.told = {task: holder for task, holder in self.told.items() if holder != session.pusher.session}

    @rule(who=WHO, task=TASKS, what=st.sampled_from(["lock", "lock and work", "lock and work", "fine", "BAD", "obey"]))
    def push(self, who: int, task: str, what: str) -> None:
        """A lock (with work), work that the gate likes, work that it does not, or what only a person may land."""
        session = self.sessions[who]
        if what.startswith("lock"):
            self._push_lock(session, task, with_work=what != "lock")
        elif what == "obey":
            self._push_file(session, f".claude/{self._fresh()}.txt", "obey")
        else:
            self._push_file(session, f"src/{session.pusher.name}.txt", f"{what} {self._fresh()}")

    def _push_lock(self, session: Session, task: str, *, with_work: bool) -> None:
        """Adds the lock where the clone has none, and removes it where it has one."""
        self._fetch(session)
        lock = session.clone.path / f"current_tasks/{task}.txt"
        files: dict[str, str | bytes | None] = {f"current_tasks/{task}.txt": None if lock.exists() else f"{self.count}"}
        if with_work:
            files[f"src/{session.pusher.name}-{task}.txt"] = f"fine {self._fresh()}"
        session.clone.commit_paths("lock", files)
        if self._push(session) is None:
            self._fetch(session)

    def _fresh(self) -> int:
        self.made += 1
        return self.made

    def _fetch(self, session: Session) -> None:
        session.clone.git("fetch", "-q")
        session.clone.git("reset", "-q", "--hard", "origin/main")

    def _push_file(self, session: Session, path: str, text: str) -> None:
        session.clone.commit_paths("work", {path: text})
        if self._push(session) is None:
            self._fetch(session)

    def _push(self, session: Session) -> Landed | None:
        """Land the clone's head as a push does; None where it was refused."""
        head, receiver = session.clone.head(), self.upstream._receiver
        try:
            with self.upstream._lander.quarantine() as quarantine:
                self.upstream._pack(session.clone.path, head, quarantine.path / "theirs")
                with (quarantine.path / "theirs").open("rb") as stream:
                    receiver.take_pack(session.pusher, quarantine, stream)
                landed = receiver.land(session.pusher, quarantine, head, lambda text: None)
        except Refused as error:
            if error.rule == "waits":
                assert session.alive[0], "an ended session waits"
                newest = self.upstream.waiting()[-1]
                self.waiting[newest.number] = newest.session
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
        kept = {task for push in self.upstream.waiting() if push.session == old.pusher.session for task in push.tasks}
        self.upstream.release(old.pusher.session or "", old.pusher.name, "ended")
        self.told = {t: holder for t, holder in self.told.items() if holder != old.pusher.session or t in kept}
        shutil.rmtree(old.clone.path)
        self.sessions[who] = self._start(who)

    def _late_push(self, session: Session) -> None:
        session.clone.commit_paths("late", {"late.txt": f"{self.count}"})
        if self._push(session) is None:
            raise Refused("ended", "as it must be")

    @rule()
    def supervisor_restarts(self) -> None:
        self.upstream.close()
        self.upstream = Upstream(self.project, self.ledger, gate=self.gate)
        self.upstream.settle()

    # -- verdicts ---------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.waiting))
    @rule(approve=st.booleans())
    def what_waits_is_decided(self, approve: bool) -> None:
        if any(push.state == QUEUED for push in self.upstream.waiting()):
            self._let_the_gate_work()
        else:
            self._let_the_person_decide(approve=approve)

    def _let_the_gate_work(self) -> None:
        limits, runtime = Limits(), ProcessRuntime(self.base / "checks")
        checker = ContainerChecker(self.project, self.gate, runtime, "", "", 1000, 1000, limits)
        gate = self.upstream.open_gate(checker)
        while any(push.state == QUEUED for push in self.upstream.waiting()):
            gate.round()
        self._take_verdicts()

    def _let_the_person_decide(self, *, approve: bool) -> None:
        held = self.upstream.held
        number = held.all()[0].number
        if approve:
            held.approve(number, "Ann")
        else:
            held.deny(number, "Ann")
        self._take_verdicts()

    def _take_verdicts(self) -> None:
        """What those who wait are told, in the order in which it was decided."""
        for number, verdict in list(self.upstream._queue._verdicts.items()):
            if number not in self.waiting:
                continue
            session = self.waiting.pop(number)
            if verdict.landed:
                self.landed.append(verdict.push.commit)
                self.told |= dict.fromkeys(verdict.data.get("claims", ()), session or "")
                for task in verdict.data.get("releases", ()):
                    self.told.pop(task, None)
            if session not in self._alive() and session not in self.waiting.values():
                self.told = {task: holder for task, holder in self.told.items() if holder != session}

    def _alive(self) -> set[str | None]:
        return {session.pusher.session for session in self.sessions}

    # -- crashes ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.count < 12)
    @rule(who=WHO, point=POINTS, after=st.booleans(), what=WHAT, task=TASKS)
    def killed_in_a_landing(self, who: int, point: str, after: bool, what: str, task: str) -> None:
        session = self.sessions[who]
        acts: dict[str, Callable[[], object]] = {
            "claim": lambda: self._claim(session, task),
            "work": lambda: self.push(who, task, "fine"),
            "lock and work": lambda: self.push(who, task, "lock and work"),
            "verdict": lambda: self.what_waits_is_decided(True) if self.waiting else None,
        }
        module, _, name = point.rpartition(".")
        real = _resolve(module, name)

        def stop(*args: object, **more: object) -> object:
            if after:
                real(*args, **more)
            raise Crash

        concerned = {task} | {task for push in self.upstream.waiting() for task in push.tasks}
        with mock.patch(point, stop), suppress(Crash):
            acts[what]()
        self.supervisor_restarts()
        # Nobody was answered; what the ledger settled on is what holds.
        self.waiting |= {push.number: push.session for push in self.upstream.waiting()}
        self._take_verdicts()
        for name in concerned:
            holder = self.upstream.holder(name)
            if holder is not None and (holder.session in self._alive() or holder.session in self.waiting.values()):
                self.told[name] = holder.session
            elif holder is None and (what == "verdict" or self.told.get(name) == session.pusher.session):
                self.told.pop(name, None)
        self._fetch(session)

    # -- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def what_was_told_is_so(self) -> None:
        held = {c.task: c.session for c in self.upstream._claims.all()}
        assert held == self.told
        waiting = {push.session for push in self.upstream.waiting()}
        assert set(held.values()) <= self._alive() | waiting, "a dead session holds"
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
    max_examples=16,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestTeam = Team.TestCase
