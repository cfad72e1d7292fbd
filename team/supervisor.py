"""Seats, restarts, back-off: the loop for each agent, on the host, out of every agent's reach.

Supervision is code: an idle team costs no token.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from team import git, prompt
from team.actions import Actions
from team.benchmark import Benchmark
from team.clients import Outcome, client
from team.containers import spec_for
from team.duty import Duty
from team.engine import Engine
from team.errors import TeamError
from team.gateway.gateway import Gateway
from team.gateway.health import Health
from team.gateway.providers import is_loopback
from team.ledger import Event, Kind, Ledger
from team.oracle.host import Oracle
from team.places import Project, door_directory
from team.plan import Plan, Seat
from team.reconcile import reconcile
from team.running import running_pid
from team.runtimes import Spec, runtime
from team.sampler.host import Tests
from team.sampler.settings import environment
from team.session import Ended, Session, Team
from team.text import one_line
from team.upstream.check import ContainerChecker
from team.upstream.upstream import Upstream
from team.view import plural

OnEvent = Callable[[Event], None]

PUMP_SECONDS = 0.2
DISK_SECONDS = 30.0
TREE_SECONDS = 15.0
ROOM_SECONDS = 5.0
"""How often a seat without budget looks whether the team stops, or a new day has begun."""
MAINTAIN_SECONDS = 300.0
ENGINE_DEAD_SECONDS = 10.0
"""After so long without the engine, who asks twice for the end need not wait for it."""
TOLD_SECONDS = 10.0
"""How long a seat that is to wait gives its last session's rescue, so that the ledger tells both in order."""
FILES = 1 << 16
"""Open files that the supervisor asks the kernel for."""
FREE_DISK = 1 << 30
"""Bytes that must be free where the state is before a session starts."""
FAILED_FIRST, FAILED_MOST = 5.0, 600.0
"""Seconds of pause after a failed session: doubling from the first to the most."""
IDLE_FIRST, IDLE_MOST = 60.0, 3600.0
"""The same after a session that landed nothing and did not fail; a move of main ends it."""


class Running(TeamError):
    """Another supervisor holds the project."""


async def supervise(project: Project, plan: Plan, *, on_event: OnEvent | None = None) -> str:
    """Run ``plan`` until it is done, stopped or idle; returns the reason. One supervisor a project: raises
    :class:`Running`. SIGINT and SIGTERM stop it: the first lets sessions land, the second ends them now.

    With no seats in the plan it only ends and rescues what a former supervisor left.
    """
    try:
        with FileLock(project.supervisor_lock, timeout=2):
            project.supervisor_pid.write_text(str(os.getpid()))
            try:
                return await _supervise(project, plan, on_event)
            finally:
                with suppress(OSError):  # what is not empty is still needed
                    project.doors.rmdir()
    except Timeout:
        raise Running(f"a team already runs here (pid {running_pid(project)}); see `team ps`, `team down`") from None


async def _supervise(project: Project, plan: Plan, on_event: OnEvent | None) -> str:
    _raise_file_limit()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16 + 2 * max(len(plan.seats), 16)))
    prompts = (
        prompt.load(plan.tree) if plan.seats else None
    )  # ending what is left needs none, so none can be in the way
    door_directory(project)
    ledger = Ledger(project.ledger)
    upstream = Upstream(project, ledger, plan.settings.landing, plan.settings.protected, gate=plan.settings.gate)
    tests = Tests(project.tests, ledger)
    oracle = Oracle(project.oracle, ledger)
    with contextlib.closing(upstream), contextlib.closing(tests), contextlib.closing(oracle):
        async with gateway_of(plan, ledger) as gateway:
            team = Team(
                project,
                plan,
                ledger,
                upstream,
                runtime(plan.runtime),
                client(plan.client, plan.client_argv),
                gateway,
                Engine(ledger),
                tests,
                oracle,
                Actions(ledger),
                prompts,
                stop=lambda reason: supervisor.stop(reason),
            )
            supervisor = Supervisor(team, on_event)
            with _signals(supervisor), _gate(team):
                return await supervisor.run()


def _raise_file_limit() -> None:
    """Every connection of every session is a file; 1024, a common limit, is too few for a large team."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def gateway_of(plan: Plan, ledger: Ledger) -> Gateway:
    """The gateway of ``plan``: to the person's own providers, or to the one address of a rehearsal."""
    chosen = client(plan.client, plan.client_argv)
    models = {role: chosen.asks(model)[1] or model for role, model in plan.settings.models.items()}
    settings = plan.settings.model_copy(update={"models": models})
    if plan.user is None:
        # Nobody is paid: a key of the person's is not even looked for, and nothing counts as billed.
        return Gateway(ledger, settings, budget=plan.budget, base_url=plan.model_url, key=plan.key, environ={})
    return Gateway(
        ledger,
        settings,
        plan.user,
        budget=plan.budget,
        base_url=None if plan.model_url else "",
        which=lambda provider: plan.may_pay or is_loopback(provider.base_url),
    )


@contextlib.contextmanager
def _gate(team: Team) -> Iterator[None]:
    """The gate's checks, at work for as long as the team is. With no seats only what is left is ended."""
    plan = team.plan
    if not plan.settings.gate.check or not plan.seats:
        yield
        return
    setup, limits = plan.settings.session.setup, plan.limits
    checker = ContainerChecker(
        team.project, plan.settings.gate, team.runtime, plan.image, setup, plan.uid, plan.gid, limits,
        env=environment(plan.settings.test), on_tests=team.tests.from_gate,
    )  # fmt: skip
    with team.upstream.open_gate(checker).running():
        yield


@contextlib.contextmanager
def _signals(supervisor: Supervisor) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in caught:
        loop.add_signal_handler(number, supervisor.stop, signal.Signals(number).name)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


class Supervisor:
    """All seats of one run."""

    def __init__(self, team: Team, on_event: OnEvent | None = None) -> None:
        self.team = team
        self._on_event = on_event
        self._sessions: dict[str, Session] = {}
        self._finishing: dict[asyncio.Task[None], str] = {}
        """What goes on after a session, each with its seat."""
        self._idle: dict[str, str] = {}
        """Seats that wait for somebody else, each with what it lacks where that is a budget."""
        self._duty = Duty(team)
        self._measuring: list[asyncio.Task[None]] = []
        self._halt = threading.Event()
        """Ends what is being measured."""
        self._stopping = asyncio.Event()
        self._moved = asyncio.Event()
        self._health = Health()
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []
        self._reason = ""
        self._now = False
        self._idle_said = False
        self._seen = 0

    # -- from outside -----------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Asked once: start nothing new and let sessions land; asked twice: end them now, their work rescued."""
        if self._stopping.is_set():
            self._now = True
            for session in self._sessions.values():
                session.stop(Outcome.KILLED, "stopped by a person", grace=0)
            return
        self._reason = reason
        self._stopping.set()
        self._moved.set()
        self._halt.set()
        seconds = self.team.plan.settings.session.land_time
        if self._sessions:
            self.team.ledger.append(Kind.TEAM_STOPPING, reason=reason, seconds=seconds)

    async def run(self) -> str:
        """Run all seats to their end; everything is finished, rescued and removed when this returns."""
        ledger, plan = self.team.ledger, self.team.plan
        self._seen = self._last_event()
        if plan.seats:
            self._record_start()
        watches = [self._pump(), self._watch_disk(), self._watch_tree(), self._maintain(), self._end_after_land_time()]
        if plan.seconds is not None:
            watches.append(self._stop_after(plan.seconds))
        background = [asyncio.create_task(watch) for watch in watches]
        for task in background:
            task.add_done_callback(self._note_error)
        try:
            await asyncio.to_thread(self.team.upstream.settle)
            adopted, ended = await reconcile(self.team)
            for session in ended:
                self._finish(session)
            for seat in (s for s in plan.seats if s.name in adopted):
                self._duty.take(seat)  # before another one of its role looks
            seats = [asyncio.create_task(self._seat(s, adopted.get(s.name))) for s in plan.seats]
            await self._all(seats)
            await self._all([*self._finishing, *self._measuring])
            if self._errors:
                raise self._errors[0]
            await self._let_pushes_land()
        finally:
            self._halt.set()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if plan.seats:
                ledger.append(Kind.TEAM_STOPPED, reason=self._reason or "done")
            self._deliver()
        return self._reason or "done"

    async def _all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for ``tasks``; the first error ends the team, but not before every session is rescued."""
        pending = set(tasks)
        for task in pending:
            task.add_done_callback(self._note_error)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            if self._now and self._engine_is_dead():
                for task in pending:
                    task.cancel()
                raise TeamError("the engine does not answer; its sessions stay as they are until the next `team up`")

    async def _let_pushes_land(self) -> None:
        """After the last session: what it pushed gets its verdict now; stopped by a person, only for so long."""
        if not self.team.plan.seats or not self.team.plan.settings.gate.check:
            return
        began = time.monotonic()
        while not self._now and any(p.state == "queued" for p in await asyncio.to_thread(self.team.upstream.waiting)):
            if self._stopping.is_set() and time.monotonic() - began > self.team.plan.settings.session.land_time:
                return
            await asyncio.sleep(0.5)

    def _note_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._errors.append(error)
            if not self._stopping.is_set():
                self.stop(one_line(str(error) or repr(error)))

    def _engine_is_dead(self) -> bool:
        lost = self.team.engine.lost_since
        return lost is not None and time.monotonic() - lost > ENGINE_DEAD_SECONDS

    def _record_start(self) -> None:
        plan, session = self.team.plan, self.team.plan.settings.session
        self.team.ledger.append(
            Kind.TEAM_STARTED,
            pid=os.getpid(),
            seats=[[s.name, s.role] for s in plan.seats],
            client=plan.client,
            model=plan.model,
            runtime=plan.runtime,
            image=plan.image,
            limits={"memory": session.memory, "pids": session.pids, "cpus": session.cpus, "disk": session.disk},
        )

    # -- a seat -----------------------------------------------------------------------------------------------

    async def _seat(self, seat: Seat, adopted: tuple[Session, str] | None) -> None:
        """All of one seat."""
        try:
            await self._sessions_of(seat, adopted)
        finally:
            self._duty.leave(seat)

    async def _sessions_of(self, seat: Seat, adopted: tuple[Session, str] | None) -> None:
        """Sessions of one seat, one after another."""
        plan = self.team.plan
        n = self._last_number(seat)
        run = failed = idle = 0
        while not self._stopping.is_set():
            began = self._last_event()
            if adopted is not None:
                session, container = adopted
                ended = await self._live(session, container)
                adopted = None
            else:
                if plan.sessions is not None and run >= plan.sessions:
                    return
                if not await self._comes_due(seat):
                    return
                if not await self._disk_has_room(seat) or not await self._may_ask_models(seat):
                    continue
                if (base := await self._duty.base(seat)) is None:
                    continue
                n += 1
                ended = await self._live(Session(self.team, seat, n, base=base))
            self._measure(seat, ended)
            run += 1
            if plan.sessions is not None and run >= plan.sessions:
                return
            failed = failed + 1 if ended.outcome.strike else 0
            busy = ended.outcome.strike or ended.landings or self._others_landed(ended.session, began)
            idle = 0 if busy or self._waits_for_models(seat, ended) else idle + 1
            if failed:
                pause = min(FAILED_FIRST * 2 ** (failed - 1), FAILED_MOST)
                await self._pause(seat, pause, f"{failed} failed in a row: {ended.reason}", until_moved=False)
            elif idle and self._duty.missing(seat) is None:
                pause = min(IDLE_FIRST * 2 ** (idle - 1), IDLE_MOST)
                await self._pause(seat, pause, "landed nothing; waits for main to move", until_moved=True)

    async def _comes_due(self, seat: Seat) -> bool:
        """Wait until there is enough for the seat's role; False where the team stops, or nobody is left to bring it."""
        wait = self._duty.missing(seat)
        if wait is not None:
            await self._told_of_its_end(seat)
            what = f"{plural(wait.landings, 'landing')} of others" if wait.landings else "its time"
            reason = f"waits for {what}, by the schedule of {seat.role}"
            self.team.ledger.append(Kind.SEAT_WAITING, agent=seat.name, seconds=wait.seconds, reason=reason)
            self._idle[seat.name] = ""
            self._duty.leave(seat)
            self._say_when_idle()
        while wait is not None and not self._stopping.is_set():
            if self.team.plan.sessions is not None and self._duty.nobody:
                break
            await _any_of(wait.seconds, self._stopping, self._moved, self._duty.fewer)
            wait = self._duty.missing(seat)
        self._idle.pop(seat.name, None)
        if wait is not None or self._stopping.is_set():
            return False
        self._duty.take(seat)
        return True

    def _measure(self, seat: Seat, ended: Ended) -> None:
        """Let the role's benchmark tell what the session's landings brought, beside everything else."""
        if not ended.landings or self._stopping.is_set():
            return
        team = self.team
        benchmark = Benchmark(team.project, team.plan, team.ledger, team.runtime)
        measuring = asyncio.to_thread(benchmark.measure, seat.role, ended.session, self._halt)
        self._measuring.append(asyncio.create_task(measuring, name=f"measure {ended.session}"))

    async def _live(self, session: Session, container: str | None = None) -> Ended:
        """One session from its start to its end; the rest of it goes on beside the next one."""
        self._sessions[session.id] = session
        self._idle_said = False
        try:
            ended = await (session.run() if container is None else session.adopt(container))
        finally:
            del self._sessions[session.id]
            self._duty.end(session.seat)
        self._finish(session)
        return ended

    def _finish(self, session: Session) -> None:
        task = asyncio.create_task(session.finish(), name=f"finish {session.id}")
        self._finishing[task] = session.seat.name
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._finishing.pop(task, None)
        if not task.cancelled() and (error := task.exception()):
            self.team.ledger.append(Kind.ERROR, reason=f"{task.get_name()}: {one_line(repr(error))}")

    def _last_event(self) -> int:
        last = self.team.ledger.last()
        return last.id if last else 0

    def _others_landed(self, session: str, began: int) -> bool:
        """Whether main moved while ``session`` ran, so that it may have missed what there is to do now."""
        landed = self.team.ledger.events(Kind.LANDING_DONE, after=began)
        return any(_is_work(event) and event.session != session for event in landed)

    def _last_number(self, seat: Seat) -> int:
        last = self.team.ledger.last(Kind.SESSION_STARTING, agent=seat.name)
        return int(last.data["n"]) if last else 0

    async def _disk_has_room(self, seat: Seat) -> bool:
        free = shutil.disk_usage(self.team.project.state).free
        if free >= FREE_DISK:
            return True
        reason = f"only {free >> 20} MiB free in {self.team.project.state}; {FREE_DISK >> 20} MiB are needed"
        self.team.ledger.append(Kind.ERROR, agent=seat.name, reason=reason)
        await self._pause(seat, 60, reason, until_moved=False)
        return False

    async def _may_ask_models(self, seat: Seat) -> bool:
        """Wait where the budget is spent, or the provider's limit holds; whether there was nothing to wait for."""
        gateway = self.team.gateway
        if gateway.exhausted(seat.name, seat.role):
            await self._wait_for_budget(seat)
            return False
        if left := max(0.0, gateway.paused_until() - time.time()):
            await self._pause(seat, left, "the provider's limit holds", until_moved=False)
            return False
        return True

    async def _wait_for_budget(self, seat: Seat) -> None:
        gateway = self.team.gateway
        await self._told_of_its_end(seat)
        if self._stopping.is_set() or not (spent := gateway.exhausted(seat.name, seat.role)):
            return
        self._idle[seat.name] = reason = f"out of budget: {spent}"
        self.team.ledger.append(Kind.SEAT_WAITING, agent=seat.name, seconds=None, reason=reason)
        self._say_when_idle()
        while not self._stopping.is_set() and gateway.exhausted(seat.name, seat.role):
            await gateway.wait_for_room(seat.name, seat.role, ROOM_SECONDS)
        del self._idle[seat.name]

    def _waits_for_models(self, seat: Seat, ended: Ended) -> bool:
        """Whether the session ended for a reason that :meth:`_may_ask_models` waits for."""
        if ended.outcome is Outcome.RATE_LIMITED:
            return self.team.gateway.paused_until() > 0
        return ended.outcome is Outcome.OUT_OF_BUDGET and bool(self.team.gateway.exhausted(seat.name, seat.role))

    async def _pause(self, seat: Seat, seconds: float, reason: str, *, until_moved: bool) -> None:
        """Wait ``seconds``, or until the team stops or main moves."""
        waits = [asyncio.create_task(self._stopping.wait())]
        if until_moved:
            waits.append(asyncio.create_task(self._moved.wait()))
        try:
            await self._told_of_its_end(seat, *waits)
            if self._stopping.is_set() or any(wait.done() for wait in waits):
                return
            self.team.ledger.append(Kind.SEAT_WAITING, agent=seat.name, seconds=seconds, reason=reason)
            if until_moved:
                self._idle[seat.name] = ""
                self._say_when_idle()
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            self._idle.pop(seat.name, None)

    async def _told_of_its_end(self, seat: Seat, *waits: asyncio.Task[Any]) -> None:
        """Return when the seat's last session has ended in the ledger, too, or one of ``waits`` is over, or it takes
        long: nobody should read that a seat waits before its session has ended."""
        last = [task for task, name in self._finishing.items() if name == seat.name]
        if last:
            await asyncio.wait({last[-1], *waits}, timeout=TOLD_SECONDS, return_when=asyncio.FIRST_COMPLETED)

    def _say_when_idle(self) -> None:
        if self._stopping.is_set() or self._sessions or self._idle_said:
            return
        if len(self._idle) < len(self.team.plan.seats):
            return
        if any(push.state == "queued" for push in self.team.upstream.waiting()):
            return  # its verdict is news to somebody
        self._idle_said = True
        lacking = next((lack for lack in self._idle.values() if lack), "")
        self.team.ledger.append(Kind.TEAM_IDLE, reason=lacking)
        if self.team.plan.until_idle:
            self.stop(lacking or "idle")

    # -- background -------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        """Hand every new event to the view, and wake idle seats when somebody's work moved main."""
        while True:
            self._deliver()
            await asyncio.sleep(PUMP_SECONDS)

    def _beside(self, what: Callable[..., None], *args: Any) -> None:
        """Do ``what`` in a thread; nobody waits for it."""
        task = asyncio.create_task(asyncio.to_thread(what, *args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _deliver(self) -> None:
        for event in self.team.ledger.events(after=self._seen):
            self._seen = event.id
            if event.kind == Kind.LANDING_DONE and _is_work(event):
                self._beside(self.team.tests.landed, self.team.project.upstream, str(event.data["new"]))
                self._main_moved()
            if (news := self._health.feed(event)) is not None and not self._stopping.is_set():
                self.team.ledger.append_all([news])
            if event.kind in (Kind.CLAIM, Kind.RELEASE) and event.session in self._sessions:
                held = self.team.upstream.held_by(event.session)
                self._sessions[event.session].task = held[0] if held else None
            if event.kind == Kind.BUDGET_SET:
                gateway = self.team.gateway
                gateway.set_budget(self.team.plan.budget.model_copy(update={"usd": event.data["usd"]}))
            if self._on_event is not None:
                self._show(self._on_event, event)

    def _show(self, on_event: OnEvent, event: Event) -> None:
        try:
            on_event(event)
        except OSError as error:  # whoever watched has gone; a closed terminal stops the team, too
            self._on_event = None
            self.stop(f"its output was closed ({error.strerror or error})")

    def _main_moved(self) -> None:
        self._moved.set()
        self._moved.clear()  # whoever waits has been woken; who begins to wait later waits for the next move

    async def _watch_tree(self) -> None:
        """A commit in the user's tree wakes idle seats: a person is at work again."""
        tree = self.team.plan.tree
        head = await asyncio.to_thread(_head, tree)
        while True:
            await asyncio.sleep(TREE_SECONDS)
            if self._idle and (now := await asyncio.to_thread(_head, tree)) != head:
                head = now
                self._main_moved()

    async def _maintain(self) -> None:
        """Pack upstream now and then: the only maintenance there is, since git's own races with pushes."""
        while True:
            await asyncio.sleep(MAINTAIN_SECONDS)
            await asyncio.to_thread(self.team.upstream.maintain)

    async def _watch_disk(self) -> None:
        """End sessions that fill the disk: not every engine can limit it."""
        limit = self.team.plan.settings.session.disk
        while True:
            await asyncio.sleep(DISK_SECONDS)
            if not self._sessions:
                continue
            try:
                used = await self.team.engine.call(self.team.runtime.disk, self.team.project.id)
            except TeamError as error:
                self.team.ledger.append(Kind.ERROR, reason=f"the disk could not be measured: {one_line(str(error))}")
                continue
            for id, size in used.items():
                if size > limit and id in self._sessions:
                    reason = f"used {size >> 20} MiB of disk, {limit >> 20} are allowed (session.disk)"
                    self._sessions[id].stop(Outcome.FAILED, reason, grace=0)

    async def _stop_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._stopping.is_set():
            self.stop("time is up")

    async def _end_after_land_time(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self.team.plan.settings.session.land_time)
        for session in self._sessions.values():
            session.stop(Outcome.KILLED, "the team was stopped")


async def _any_of(seconds: float | None, *events: asyncio.Event) -> None:
    """Wait until one of ``events`` happens, for at most ``seconds``."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _is_work(landing: Event) -> bool:
    """Whether a landing changed more than locks: two seats that take and free a lock must not keep each other awake."""
    return landing.data.get("kind") == "work"


def _head(tree: Path) -> str | None:
    with suppress(git.GitError, OSError, subprocess.SubprocessError):
        return git.resolve(tree, "HEAD")
    return None


def specs(project: Project, plan: Plan) -> list[Spec]:
    """The exact container of the first session of each seat: what ``--dry-run`` prints."""
    chosen = client(plan.client, plan.client_argv)
    return [
        spec_for(project, plan, chosen, seat, f"{seat.name}.1", "<the session's token>", "http://127.0.0.1:8787")
        for seat in plan.seats
    ]
