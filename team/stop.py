"""Stopping a team from outside: the supervisor that runs, or what a killed one left on the engine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from team.config import Settings
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Plan, Seat
from team.view import describe, plural, span, view

POLL_SECONDS = 0.2
TELL_SECONDS = 5.0
"""Between two lines that say how the waiting goes."""


def stop_running(project: Project, ledger: Ledger, land_time: float, *, now: bool, say: Callable[[str], None]) -> bool:
    """Stop the supervisor that runs and wait for its end; False where none runs.

    Its sessions have ``land_time`` seconds; ``now``, or ctrl-C meanwhile, ends them at once.
    """
    from team.supervisor import running_pid

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
    """End and rescue the sessions that a killed supervisor left; False where it left none."""
    from team.reconcile import unfinished
    from team.supervisor import supervise

    left = unfinished(ledger)
    if not left:
        return False
    say(f"no supervisor runs, but {plural(len(left), 'session')} may be left; ending and rescuing")
    plan = _empty_plan(project, ledger, settings)

    def tell(event: Event) -> None:
        line = describe(event)
        if line is not None:
            say(line)

    asyncio.run(supervise(project, plan, on_event=tell))
    return True


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
