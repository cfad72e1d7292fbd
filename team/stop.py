"""Stopping a team from outside: the supervisor that runs, or what a killed one left on the engine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from team.config import Settings
from team.errors import TeamError
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Plan, Seat
from team.running import running_pid
from team.view import describe, plural, span, view

POLL_SECONDS = 0.2
TELL_SECONDS = 5.0
"""Between two lines that say how the waiting goes."""


def stop_running(project: Project, ledger: Ledger, land_time: float, *, now: bool, say: Callable[[str], None]) -> bool:
    """Stop the supervisor that runs and wait for its end; False where none runs.

    Its sessions have ``land_time`` seconds; ``now``, or ctrl-C meanwhile, ends them at once.
    """
    pid = running_pid(project)
    if pid is None:
        return False
    watched, since = view(ledger), time.monotonic()

    def end_now() -> None:
        nonlocal now
        say("ending the sessions now; their work is rescued")
        now = True

    with _ctrl_c(end_now):
        _signal(pid)
        if watched.open and not now:
            say(f"stopping; sessions have {span(land_time)} to land, ctrl-c ends them now")
        told = since
        while running_pid(project) == pid:
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                watched.catch_up(ledger)
                say(f"{plural(len(watched.open), 'session')} left after {span(told - since)}; ctrl-c ends them now")
            time.sleep(POLL_SECONDS)
            if now and running_pid(project) == pid:  # more than once: two signals in one go are taken as one
                _signal(pid)
    watched.catch_up(ledger)
    left = f"; {plural(len(watched.open), 'session')} left, run this again" if watched.open else ""
    say(f"the team stopped after {span(time.monotonic() - since)}{left}")
    return True


@contextmanager
def _ctrl_c(act: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls ``act`` instead of ending us, from the first moment on."""
    before = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return  # it has just ended


def end_leftovers(project: Project, ledger: Ledger, settings: Settings, *, say: Callable[[str], None]) -> bool:
    """End and rescue the sessions that a killed supervisor left, and remove its checks; False where it left none.

    Raises :class:`TeamError` where the engine would have to say so and does not answer.
    """
    from team.reconcile import unfinished

    plan = _empty_plan(project, ledger, settings)
    if left := unfinished(ledger):
        say(f"no supervisor runs, but {plural(len(left), 'session')} may be left; ending and rescuing")
    elif _containers_left(project, plan, ledger):
        say("no supervisor runs, but containers of its checks or rescues are left; removing them")
    else:
        return False
    _settle(project, plan, say)
    return True


def _containers_left(project: Project, plan: Plan, ledger: Ledger) -> bool:
    """Whether a supervisor that did not say its end left something that is no session."""
    from team.runtimes import EngineLost, runtime

    newest = ledger.last(Kind.TEAM_STARTED, Kind.TEAM_STOPPED)
    if newest is None or newest.kind == Kind.TEAM_STOPPED:
        return False
    try:
        return any(item.name.startswith(f"team-{project.id}-") for item in runtime(plan.runtime).found(project.id))
    except EngineLost as error:
        raise TeamError(
            f"no supervisor runs and no session is open, but the engine does not answer ({error}), so what else is "
            "left cannot be known; start it and run this again"
        ) from None


def _settle(project: Project, plan: Plan, say: Callable[[str], None]) -> None:
    """Let a supervisor without seats end what is left."""
    from team.supervisor import supervise

    def tell(event: Event) -> None:
        line = describe(event)
        if line is not None:
            say(line)

    asyncio.run(supervise(project, plan, on_event=tell))


def _empty_plan(project: Project, ledger: Ledger, settings: Settings) -> Plan:
    """The plan of the newest run without its seats: the supervisor then only ends what is left."""
    started = ledger.last(Kind.TEAM_STARTED)
    data = started.data if started is not None else {}
    return Plan(
        seats=(),
        settings=settings,
        tree=project.root,
        client=str(data.get("client", "command")),
        runtime=str(data.get("runtime", "docker")),
        image=str(data.get("image", "")),
        client_argv=settings.command.argv or ("true",),
        uid=os.getuid() or 1000,
        gid=os.getgid() or 1000,
    )


def remove_doors(project: Project) -> None:
    """Remove the directory of the doors where it is empty and no supervisor runs."""
    with suppress(OSError, Timeout), FileLock(project.supervisor_lock, timeout=0):
        project.doors.rmdir()


def remove_caches(project: Project, ledger: Ledger, settings: Settings) -> int:
    """Remove the cache volumes of every seat there ever was, for the caches of team.toml; returns how many."""
    from team.clients import client
    from team.containers import spec_for
    from team.runtimes import runtime

    plan = _empty_plan(project, ledger, settings)
    chosen, engine = client(plan.client, plan.client_argv), runtime(plan.runtime)
    count = 0
    for seat in view(ledger).rows(all_seats=True):
        spec = spec_for(project, plan, chosen, Seat(seat.agent, seat.role), f"{seat.agent}.0", "", "")
        for name in spec.caches.values():
            engine.remove_volume(name)
            count += 1
    return count
