"""The life of one session, as a small state machine: ``starting -> running -> ending -> ended(outcome)``.

One session is one run of a client in one fresh container, with one fresh clone. Everything here runs on the host;
nothing an agent does inside its container can stop it.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from team import git, prompt
from team.actions import Actions
from team.clients import Client, Outcome, Reader
from team.containers import reachable, rescue_spec, spec_for
from team.door import Door, Rights, Tenant
from team.engine import Engine, T
from team.errors import TeamError
from team.gateway.egress import Egress, Visit
from team.gateway.gateway import Caller, Gateway
from team.gateway.hosts import Rules
from team.handover import Handover
from team.ledger import Kind, Ledger, New
from team.logs import AgentLog
from team.names import agent_email
from team.oracle.host import Oracle
from team.places import Project
from team.plan import Plan, Seat
from team.prompt import Prompts
from team.runtimes import DOOR_PORT, EngineLost, Exit, Gone, Runtime, Spec, volume_names
from team.sampler.host import Tests
from team.text import one_line
from team.upstream.upstream import Upstream

TICK_SECONDS = 1.0
"""How often a session's bounds are looked at."""
RESCUE_SECONDS = 180
OVERLAP_SECONDS = 0.05
"""How much output is read again when the engine comes back: better a line twice than a result never."""
STOP_SECONDS = 10
"""Between SIGTERM and SIGKILL."""
EXIT_SETUP, EXIT_CLONE, EXIT_NOTHING_LEFT = 90, 91, 3
"""What ``team/inside`` exits with: set-up failed, clone failed, nothing to rescue."""


@dataclass(frozen=True)
class Team:
    """What all sessions of one run share."""

    project: Project
    plan: Plan
    ledger: Ledger
    upstream: Upstream
    runtime: Runtime
    client: Client
    gateway: Gateway
    engine: Engine
    tests: Tests
    oracle: Oracle
    actions: Actions
    prompts: Prompts | None
    """None for a run without seats."""
    stop: Callable[[str], None] = lambda reason: None
    """Stops all of it, with the reason."""


@dataclass(frozen=True)
class Ended:
    """How a session ended."""

    session: str
    outcome: Outcome
    reason: str
    landings: int
    """Landings of work; claims and releases do not count."""


@dataclass
class Stop:
    """A decision that a session must end, and why."""

    outcome: Outcome
    reason: str
    grace: float = field(default_factory=lambda: STOP_SECONDS)


@dataclass
class Sight:
    """What has been seen of the client, and when (monotonic seconds)."""

    started: float = field(default_factory=time.monotonic)
    ready: float | None = None
    first: float | None = None
    last: float = field(default_factory=time.monotonic)
    result: float | None = None


class Session:
    """One session of one seat. :meth:`run` once, then :meth:`finish` once."""

    def __init__(self, team: Team, seat: Seat, n: int, *, base: str = "", image: str = "", token: str = "") -> None:
        self.team, self.seat, self.n = team, seat, n
        self.id = f"{seat.name}.{n}"
        self.base = base or team.upstream.main()
        self._image = image or team.plan.image
        self._directory = team.project.door(self.id)
        self._reader: Reader = team.client.reader()
        self._sight = Sight()
        self._stop: Stop | None = None
        self._stopping = asyncio.Event()
        self._container: str | None = None
        self._volume = volume_names(team.project.id, self.id)
        self._ended: Ended | None = None
        self._exit = Exit(-1)
        self._version = ""
        self._token = token or secrets.token_urlsafe(32)
        self.tenant = Tenant(seat.name, agent_email(seat.name), seat.role, self.id, self._token)
        self.task: str | None = None
        """What it holds, as far as the supervisor has heard."""
        self._caller = Caller(
            seat.name,
            seat.role,
            self.id,
            task=lambda: self.task,
            end=self.stop,
            stop_team=team.stop,
            say=lambda text: self.log.error(text),
        )
        self.door = Door(
            self.tenant,
            team.upstream,
            self._ask_model,
            on_error=lambda text: self.log.error(text),
            rooms={
                "test": lambda what, body: team.tests.answer(what, body, seat.name, self.id, self.task),
                "oracle": lambda what, body: team.oracle.answer(what, body, seat.name, self.id),
                "action": lambda what, body: team.actions.answer(what, body, seat.name, self.id, self.task),
            },
        )
        self._egress: Egress | None = None
        self._seen_whole = False
        """Whether this supervisor has served its door from the beginning, so that it knows if the client ran."""

    # -- from outside -----------------------------------------------------------------------------------------

    def stop(self, outcome: Outcome, reason: str, grace: float | None = None) -> None:
        """End the session: SIGTERM, and SIGKILL after ``grace`` seconds. The first reason given counts."""
        grace = STOP_SECONDS if grace is None else grace
        if self._stop is None:
            self._stop = Stop(outcome, reason, grace)
        elif grace < self._stop.grace:
            self._stop.grace = grace
        else:
            return
        self._stopping.set()

    async def run(self) -> Ended:
        """Live from ``starting`` to ``ending``; the claims are still held when this returns.

        Raises :class:`TeamError` when the container cannot be made at all.
        """
        self._prepare(await asyncio.to_thread(self._prompt))
        self._record(
            Kind.SESSION_STARTING,
            n=self.n,
            role=self.seat.role,
            client=self.team.client.name,
            model=self.team.plan.model_of(self.seat.role),
            image=self.team.plan.image,
            base=self.base,
            log=str(self.log.path),
        )
        try:
            spec = await self._open()
            self._container = await self._call(self.team.runtime.create, spec)
            self._record(Kind.SESSION_CREATED, container=self._container, name=spec.name, volume=self._volume)
            self._seen_whole = True
            await self._call(self.team.runtime.start, self._container)
        except (TeamError, Gone) as error:
            self.log.error(f"the container did not start: {error}")
            return await self._conclude(Outcome.CRASHED, f"the container did not start: {one_line(str(error))}")
        return await self._watch(since=0)

    async def adopt(self, container: str) -> Ended:
        """Go on with a session that a former supervisor started and that still runs: its door reopens."""
        self._container = container
        self._open_log()
        for line in self.log.raw_lines():
            self._reader.feed(line)
        start = self.team.ledger.last(Kind.SESSION_STARTING, session=self.id)
        if start is not None:
            self._sight.started -= max(0, time.time() - start.at)
        if self.team.ledger.last(Kind.SESSION_RUNNING, session=self.id) is not None:
            self._sight.ready = self._sight.first = time.monotonic()
            self.tenant.ready.set()
        await self._open_door()
        await self._open_network()
        self._record(Kind.SESSION_ADOPTED)
        return await self._watch(since=self.log.written_at())

    async def abandon(self, container: str | None, reason: str) -> Ended:
        """Take over a session of a former supervisor only to end it; ``container`` is stopped where there is one."""
        self._container = container
        self._directory.mkdir(parents=True, mode=0o755, exist_ok=True)
        self._open_log()
        self.tenant.rights = Rights.RESCUE
        await self._open_door()
        if container is not None:
            await self._call(self.team.runtime.stop, container, 0)
        ending = self.team.ledger.last(Kind.SESSION_ENDING, session=self.id)
        if ending is None:
            return await self._conclude(Outcome.KILLED, reason)
        self._exit = Exit(int(ending.data.get("exit", -1)))
        self._ended = Ended(self.id, Outcome(ending.data["outcome"]), str(ending.data["reason"]), self._landings())
        return self._ended

    async def finish(self) -> None:
        """From ``ending`` to ``ended``: rescue what is not on upstream, release the claims, remove everything."""
        assert self._ended is not None
        self.tenant.rights = Rights.RESCUE
        rescued = await self._rescue()
        kept = rescued == "failed"
        held = self.team.upstream.held_by(self.id)
        if held:
            why = f"session {self.id} ended: {self._ended.outcome.value} ({self._ended.reason})"
            released = await self._call(self.team.upstream.release, self.id, self.seat.name, why)
            word = "released" if released else "a push waits, so these stay taken until its verdict:"
            self.log.team(f"{word} {', '.join(held)}")
        await self.door.close()
        removed = await self._remove(keep_volume=kept)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._record_once(
            Kind.SESSION_ENDED,
            outcome=self._ended.outcome.value,
            reason=self._ended.reason,
            exit=self._exit.code,
            landings=self._ended.landings,
            seconds=round(time.monotonic() - self._sight.started, 1),
            rescue=rescued,
            held=held,
        )
        if removed:
            self._record(Kind.SESSION_REMOVED)
        self.log.team(f"session ended: {self._ended.outcome.value} ({self._ended.reason})")
        self.log.close()

    # -- starting ---------------------------------------------------------------------------------------------

    def _prepare(self, text: str) -> None:
        self._directory.mkdir(parents=True, mode=0o755, exist_ok=True)
        self._directory.chmod(0o755)
        (self._directory / "prompt.md").write_text(text, "utf-8")
        (self._directory / "token").touch(0o600)
        (self._directory / "token").write_text(self._token)
        self._open_log()

    def _prompt(self) -> str:
        """What the session is told, with what happened before it."""
        team = self.team
        assert team.prompts is not None
        handover = Handover(team.prompts, team.plan.settings, team.plan.tree, team.ledger, team.upstream)
        return handover.prompt(self.seat, self.id, self.base)

    def _open_log(self) -> None:
        plan = self.team.plan
        known = [self._token, *([plan.key.value] if plan.key else []), *self.team.gateway.secrets()]
        self.log = AgentLog(
            self.team.project.logs / self.seat.name, self.base, self.n, plan.settings.logs, known, time.time
        )

    async def _open(self) -> Spec:
        await self._open_door()
        await self._open_network()
        team = self.team
        return spec_for(team.project, team.plan, team.client, self.seat, self.id, self._token, self._url)

    async def _open_door(self) -> None:
        self._url = f"http://127.0.0.1:{DOOR_PORT}"
        if self.team.runtime.name == "process":
            self._url = await self.door.open_tcp()
        else:
            await self.door.open(self._directory)

    async def _open_network(self) -> None:
        if reachable(self.team.plan):
            rules = Rules.of(self.team.plan.settings.network)
            self._egress = Egress(rules, self._on_egress, lambda: self.tenant.rights is Rights.ALL)
            await self._egress.open(self._directory)

    # -- running ----------------------------------------------------------------------------------------------

    async def _watch(self, since: float) -> Ended:
        """Follow the container until it ended, ending it where a bound is passed."""
        self._follow(since)
        waiter = asyncio.create_task(self._wait())
        noting = asyncio.create_task(self._note_ready())
        try:
            while not waiter.done():
                stopping = asyncio.create_task(self._stopping.wait())
                await asyncio.wait({waiter, stopping}, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if self._stop is None and (passed := self._passed_bound()):
                    self.log.error(passed.reason)
                    self._stop = passed
                if self._stop is not None and not waiter.done():
                    await self._end_container(waiter)
            self._exit = waiter.result()
        finally:
            waiter.cancel()
            noting.cancel()
        await asyncio.to_thread(self._follower.join, 5)
        await asyncio.sleep(0)  # lines that the follower handed over
        if self._stop is not None:
            return await self._conclude(self._stop.outcome, self._stop.reason)
        if self._exit.error and self._exit.code < 0:
            return await self._conclude(Outcome.CRASHED, self._exit.error)
        return await self._conclude(*self._reader.outcome(self._exit.code, self._exit.out_of_memory))

    async def _note_ready(self) -> None:
        """When the client is exec'd: from here on it is the client that is timed."""
        await self.tenant.ready.wait()
        if self._sight.ready is not None:  # adopted: a former supervisor noted it
            return
        self._sight.ready = time.monotonic()
        self._record(Kind.SESSION_RUNNING, seconds=round(self._sight.ready - self._sight.started, 3))

    def _passed_bound(self) -> Stop | None:
        """The bound that the session has passed, if any."""
        bounds, sight, now, tenant = self.team.plan.settings.session, self._sight, time.monotonic(), self.tenant
        if now - sight.started > bounds.max_time:
            return Stop(Outcome.TIMED_OUT, f"ran longer than {bounds.max_time:g} s (session.max_time)")
        if sight.ready is None:
            if now - sight.started > bounds.setup_time:
                return Stop(
                    Outcome.TIMED_OUT, f"clone and setup took over {bounds.setup_time:g} s (session.setup_time)"
                )
            return None
        engine = self.team.engine
        quiet = now - max(sight.last, sight.ready, tenant.touched, engine.found_at)
        if engine.lost_since is not None or tenant.busy:
            quiet = 0  # nothing can be heard, or it waits for us
        if sight.result is not None and now - sight.result > bounds.after_result:
            return Stop(Outcome.DONE, f"finished, but did not exit within {bounds.after_result:g} s of its result")
        if sight.first is None and quiet > bounds.first_event:
            return Stop(Outcome.STALLED, f"printed nothing for {bounds.first_event:g} s (session.first_event)")
        if quiet > bounds.silence:
            return Stop(Outcome.STALLED, f"silent for {bounds.silence:g} s (session.silence)")
        return None

    async def _end_container(self, waiter: asyncio.Task[Exit]) -> None:
        """Stop the container; asked again with less grace, stop it sooner."""
        assert self._stop is not None and self._container is not None
        self._stopping.clear()
        stopper = asyncio.create_task(self._call(self.team.runtime.stop, self._container, self._stop.grace))
        while not waiter.done():
            sooner = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({waiter, sooner}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            if sooner.done() and not waiter.done():
                self._stopping.clear()
                await self._call(self.team.runtime.stop, self._container, self._stop.grace)
            sooner.cancel()
            if stopper.done() and not waiter.done():
                stopper = asyncio.create_task(self._call(self.team.runtime.stop, self._container, 0))
        stopper.cancel()

    async def _wait(self) -> Exit:
        """The container's end, however long the engine does not answer in between."""
        assert self._container is not None
        try:
            return await self._call(self.team.runtime.wait, self._container) or Exit(-1, error="the engine lost it")
        except Gone:
            return Exit(-1, error="its container was removed by hand or by the engine")

    def _follow(self, since: float) -> None:
        """Read the container's output in a thread of its own: a slow reader must not hold up the others."""
        loop, container = asyncio.get_running_loop(), self._container
        assert container is not None

        heard = since

        def read() -> None:
            while True:
                try:
                    self.team.runtime.follow(container, hand_over, since=max(heard - OVERLAP_SECONDS, 0))
                    return
                except Gone:
                    return
                except EngineLost:
                    time.sleep(2)

        def hand_over(line: bytes) -> None:
            nonlocal heard
            heard = time.time()
            with suppress(RuntimeError):  # the loop is closed: the supervisor has ended
                loop.call_soon_threadsafe(self._line, line)

        self._follower = threading.Thread(target=read, name=f"follow {self.id}", daemon=True)
        self._follower.start()

    def _line(self, line: bytes) -> None:
        """One line of output. Nothing that protects money or main is decided here: agents can fake all of it."""
        now = time.monotonic()
        self._sight.last = now
        if self.tenant.ready.is_set() and self._sight.first is None:
            self._sight.first = now
        self.log.raw(line)
        seen = self._reader.feed(line)
        if seen.text:
            self.log.agent(seen.text)
        if seen.error:
            self.log.error(f"the client says: {one_line(seen.error)}")
        if seen.version and not self._version:
            self._version = one_line(seen.version, 40)
            self._record(Kind.SESSION_VERSION, version=self._version)
        if seen.result or seen.goes_on:
            self._sight.result = now if seen.result else None

    async def _ask_model(self, request: web.Request) -> web.StreamResponse:
        return await self.team.gateway.handle(request, self._caller)

    async def _on_egress(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            if visit.refused:
                where = f"{visit.host}:{visit.port}" if visit.host else "a connection"
                self.log.error(f"the network refused {where}: {visit.refused}")
        events = [New(Kind.EGRESS, self.seat.name, self.id, None, asdict(visit)) for visit in visits]
        await asyncio.to_thread(self.team.ledger.append_all, events)

    # -- ending -----------------------------------------------------------------------------------------------

    async def _conclude(self, outcome: Outcome, reason: str) -> Ended:
        if self.tenant.rights is Rights.ALL:
            self.tenant.rights = Rights.RESCUE
        if self._egress is not None:
            await self._egress.close()
        self._ended = Ended(self.id, outcome, one_line(reason), self._landings())
        if outcome.strike:
            self.log.error(f"{outcome.value}: {one_line(reason)}")
        self._record(Kind.SESSION_ENDING, outcome=outcome.value, reason=self._ended.reason, exit=self._exit.code)
        return self._ended

    def _landings(self) -> int:
        landed = self.team.ledger.events(Kind.LANDING_DONE, session=self.id)
        return sum(1 for event in landed if event.data.get("kind") == "work")

    async def _rescue(self) -> str:
        """Save what is not on upstream: ``clean``, ``empty``, ``failed``, or the commit it was saved as."""
        if await self._left_clean():
            return "clean"
        if commit := self.team.upstream.rescued(self.id):  # by a former supervisor
            return self._note_rescued(commit)
        if self._container is None and self.team.ledger.last(Kind.SESSION_CREATED, session=self.id) is None:
            return "empty"  # it never ran. A container that was removed by hand leaves its volume behind.
        if self._seen_whole and not self.tenant.ready.is_set():
            return "empty"  # its client never ran: half a clone looks like work that deletes files
        self.log.team("rescuing what the session left behind")
        for attempt in (1, 2):
            try:
                code = await self._run_rescue()
            except (TeamError, Gone, OSError) as error:
                reason = one_line(str(error))
            else:
                if commit := self.team.upstream.rescued(self.id):
                    return self._note_rescued(commit)
                if code == EXIT_NOTHING_LEFT:
                    self._record(Kind.RESCUE_EMPTY)
                    return "empty"
                reason = f"rescue ended with exit {code}"
            self.log.error(f"rescue failed (try {attempt} of 2): {reason}")
        self._record(Kind.RESCUE_FAILED, reason=reason, volume=self._volume)
        self.log.error(f"what was left behind stays in the volume {self._volume}")
        return "failed"

    def _note_rescued(self, commit: str) -> str:
        ref = f"refs/rescue/{self.seat.name}/{self.id}"
        try:
            summary = self.team.upstream.rescue_summary(commit)
        except (TeamError, git.GitError):
            summary = ""
        self._record_once(Kind.RESCUE_SAVED, ref=ref, commit=commit, summary=summary)
        self.log.team(f"rescued as {commit[:12]} ({ref} in the rescue repository)")
        return commit

    async def _left_clean(self) -> bool:
        """Whether the container said that it left nothing, and main really has what it points to."""
        word, _, oid = self.tenant.left.partition(" ")
        if word != "clean" or not (len(oid) in (40, 64) and all(c in "0123456789abcdef" for c in oid)):
            return False
        upstream = self.team.project.upstream
        try:
            return await self._call(git.is_ancestor, upstream, oid, self.team.upstream.main())
        except git.GitError:
            return False

    async def _run_rescue(self) -> int:
        plan, runtime = self.team.plan, self.team.runtime
        spec = rescue_spec(self.team.project, plan, self.seat, self.id, self._token, self._url, self.base, self._image)
        container = await self._call(runtime.create, spec)
        lines: list[bytes] = []
        try:
            await self._call(runtime.start, container)
            exit = await self._call(runtime.wait, container, RESCUE_SECONDS)
            await self._call(runtime.follow, container, lines.append)
        finally:
            with suppress(TeamError):
                await self._call(runtime.remove, container)
        for line in lines[-20:]:
            self.log.agent(line.decode("utf-8", "replace"))
        return -1 if exit is None else exit.code

    async def _remove(self, *, keep_volume: bool) -> bool:
        """Remove what the session has on the engine; False where that failed and is to be tried again."""
        try:
            if self._container is not None:
                await self._call(self.team.runtime.remove, self._container)
            if not keep_volume:
                await self._call(self.team.runtime.remove_volume, self._volume)
        except TeamError as error:
            self.log.error(f"not removed: {error}")
            self._record(Kind.ERROR, reason=f"session {self.id} was not removed: {one_line(str(error))}")
            return False
        return True

    # -- helpers ----------------------------------------------------------------------------------------------

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await self.team.engine.call(function, *args)

    def _record(self, kind: Kind, **data: Any) -> None:
        self.team.ledger.append(kind, agent=self.seat.name, session=self.id, **data)

    def _record_once(self, kind: Kind, **data: Any) -> None:
        """Record what a former supervisor may have recorded before it died."""
        if self.team.ledger.last(kind, session=self.id) is None:
            self._record(kind, **data)


def prompt_for(plan: Plan, seat: Seat, session: str) -> str:
    """The prompt that the first session of ``seat`` gets on its standard input."""
    return prompt.assemble(plan.tree, seat.name, seat.role, session, prompt.about_tests(plan.tree, plan.settings.test))
