"""``team up``: start the team, or join the output of the one that runs."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from team.cli import complete
from team.clients import CLIENTS
from team.errors import TeamError

if TYPE_CHECKING:
    from team.cli.screen import Screen
    from team.launch import Wishes
    from team.ledger import Event, Ledger
    from team.places import Project
    from team.plan import Plan
    from team.view import View

REDRAW_SECONDS = 0.5


class SpanType(click.ParamType[float]):
    """Seconds from ``12h``, ``20m``, ``90``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from team.units import parse_span

        try:
            seconds = float(parse_span(value))  # type: ignore[arg-type]
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        return seconds if seconds > 0 else self.fail(f"{value!r}: it must be more than 0", param, ctx)


class Dollars(click.FloatRange):
    """An amount; no comparison catches ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        amount = float(super().convert(value, param, ctx))
        if math.isnan(amount):
            self.fail(f"{value!r} is no amount", param, ctx)
        return amount


class ModelType(click.ParamType[str]):
    """The name of a model."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value) if str(value).strip() else self.fail("it is empty; leave it out for the default", param, ctx)


@click.command("up", context_settings={"ignore_unknown_options": False})
@click.option("--agents", "-n", type=click.IntRange(1, 256), help="Workers; --role seats come on top.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="ROLE[:N]",
    shell_complete=complete.roles,
    help="A seat of a role, or N of them; repeatable.",
)
@click.option("--client", type=click.Choice(CLIENTS), help="The program that does the thinking.")
@click.option("--model", type=ModelType(), help="The client's model; its own default where not given.")
@click.option("--detach", "-d", is_flag=True, help="Run in the background; returns when the team has started.")
@click.option("--sessions", type=click.IntRange(1), help="Stop after so many sessions per seat.")
@click.option("--for", "seconds", type=SpanType(), metavar="TIME", help="Stop after a time: 90s (or 90), 20m, 12h, 2d.")
@click.option("--until-idle", is_flag=True, help="Stop when every seat waits for main, or a budget.")
@click.option("--dry-run", is_flag=True, help="Print the exact container settings and the prompt; change nothing.")
@click.option("--budget", type=Dollars(0, 1e9), metavar="USD", help="What the project may cost in all.")
@click.option("--yes", is_flag=True, help="Spend real money without any budget.")
@click.option("--runtime", type=click.Choice(["docker", "process"]), default="docker", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Every event as a line of JSON.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(detach: bool, dry_run: bool, as_json: bool, **flags: Any) -> None:
    """Start the team: every seat runs sessions one after another, each in a fresh container.

    Flags override team.toml, and every default works without one. Ctrl-C once lets sessions land
    for two minutes ([session] land_time); twice ends them now, their work rescued. `team up` after
    any end goes on. A second `team up` while one runs joins its output. Exit code 1 when every session failed.

    \b
      team up --agents 4                        four workers
      team up --agents 16 --role review:2 -d    sixteen and two reviewers, in the background
      team up --budget 20                       at most $20; once more with 30 to raise it
      team up --client command -- my-agent -p   any program; the prompt is on its standard input
    """
    from team import config_file, launch, worktree
    from team.ledger import Ledger
    from team.running import running_pid
    from team.supervisor import Running

    wishes = launch.Wishes(**flags)
    root = worktree.find_root(Path.cwd())
    worktree.require_branch(root)
    worktree.require_state_outside(root)
    settings, user = config_file.load(root), config_file.load_user()
    plan = launch.make_plan(root, settings, user, wishes, os.environ)
    project = worktree.existing_project(root)
    if dry_run:
        _print_dry_run(project or launch.dry_project(root), plan, as_json=as_json)
        return
    if project is not None and running_pid(project) is not None:
        _join(project, wishes, detach=detach, as_json=as_json)
        return
    launch.check_money(plan)
    worktree.require_clean(root)
    note = _note(as_json)
    plan = launch.with_image(plan, note)
    project = worktree.open_project(root)
    ledger = Ledger(project.ledger)
    for line in [*worktree.sync_up(project, ledger, settings), *launch.opening(project, plan)]:
        note(line)
    if detach:
        started = launch.detach(project, ledger, wishes.flags())
        _print_detached(project, started, as_json=as_json)
        return
    try:
        _run(project, plan, ledger, as_json=as_json)
    except Running:  # another `up` was faster
        _join(project, wishes, detach=False, as_json=as_json)


def _note(as_json: bool) -> Callable[[str], None]:
    """Says a line: on standard error where standard output is for a machine."""
    return lambda line: click.echo(line, err=as_json)


def _run(project: Project, plan: Plan, ledger: Ledger, *, as_json: bool) -> None:
    """Supervise in this process, shown on this screen, until the team ends."""
    from team.cli import screen
    from team.view import View

    view = View()
    view.catch_up(ledger)
    with screen.screen(view, as_json=as_json) as shown:
        asyncio.run(_supervise(project, plan, view, shown))
    view.catch_up(ledger)
    _print_end(project, view, as_json=as_json)


async def _supervise(project: Project, plan: Plan, view: View, shown: Screen) -> None:
    from team.supervisor import supervise

    def on_event(event: Event) -> None:
        view.feed(event)
        shown.show(event)

    async def redraw() -> None:
        while True:
            shown.refresh()
            await asyncio.sleep(REDRAW_SECONDS)

    drawing = asyncio.create_task(redraw())
    try:
        await supervise(project, plan, on_event=on_event)
    finally:
        drawing.cancel()


def _join(project: Project, wishes: Wishes, *, detach: bool, as_json: bool) -> None:
    """Show what the running team does until it ends; ctrl-C leaves only the view."""
    from team import launch, view
    from team.ledger import Kind, Ledger
    from team.running import running_pid

    ledger = Ledger(project.ledger)
    pid = running_pid(project)
    watched = view.view(ledger)
    if watched.started is not None and (flag := launch.differs(watched.started, wishes)):
        raise TeamError(
            f"a team already runs (pid {pid}) without {flag}; to change it: `team down`, then `team up {flag}`; "
            "sessions land first and nothing is lost"
        )
    note = _note(as_json)
    if wishes.budget is not None:
        ledger.append(Kind.BUDGET_SET, usd=wishes.budget)
        note(f"the budget is ${wishes.budget:g} now, or the bound in your own configuration where that is less")
    try:
        left = "`team ps` shows it" if detach else "ctrl-c leaves this view only"
        note(f"the team already runs (pid {pid}); {left}")
        if detach:
            return
        _watch(project, watched, ledger, as_json=as_json)
    except KeyboardInterrupt:
        note("left the view; the team goes on (`team down` stops it)")
        return
    _print_end(project, watched, as_json=as_json)


def _watch(project: Project, watched: View, ledger: Ledger, *, as_json: bool) -> None:
    """Show what is new in the ledger until no supervisor runs."""
    from team import view
    from team.cli import screen
    from team.running import running_pid

    with screen.screen(watched, as_json=as_json) as shown:
        new = view.follow(
            watched,
            ledger,
            ended=lambda: running_pid(project) is None,
            pause=lambda: time.sleep(REDRAW_SECONDS),
        )
        for events in new:
            for event in events:
                shown.show(event)
            shown.refresh()


def _print_dry_run(project: Project, plan: Plan, *, as_json: bool) -> None:
    from team import launch
    from team.cli import screen

    plans = launch.dry_run(project, plan)
    if as_json:
        screen.print_json({"seats": plans})
        return
    screen.print_lines(launch.opening(project, plan))
    first = plans[0]
    click.echo(f"\ncontainer of {first['agent']}, the first of {len(plans)} (--json prints all)")
    click.echo(json.dumps(first["container"], indent=2))
    click.echo(f"\nprompt of {first['agent']}, on its standard input")
    click.echo(first["prompt"])


def _print_detached(project: Project, started: Event, *, as_json: bool) -> None:
    from team import launch
    from team.cli import screen

    if as_json:
        screen.print_json({"pid": started.data.get("pid"), "log": str(launch.supervisor_log(project))})
        return
    click.echo(f"started in the background (pid {started.data.get('pid')}); output: {launch.supervisor_log(project)}")
    click.echo("next: `team ps`, `team logs -f`, `team down`")


def _print_end(project: Project, view: View, *, as_json: bool) -> None:
    """What the run came to; exit code 1 where every session of it failed."""
    from team.cli import screen
    from team.view import summary
    from team.worktree import behind

    if not as_json:
        if view.stopped is None:
            click.echo("its supervisor ended without a word; `team up` goes on with what is left")
        screen.print_lines([*summary(view.totals, time.time()), f"logs: {project.logs}"])
        if landings := behind(project):
            click.echo(screen.to_pull(landings))
    if failed := _all_failed(view):
        click.echo(f"team: {failed}", err=True)
        raise click.exceptions.Exit(1)


def _all_failed(view: View) -> str:
    """What to say where every session of the run failed; empty where one did not, or none has ended."""
    from team.clients import Outcome
    from team.view import plural

    failures = {outcome.value for outcome in Outcome if outcome.strike}
    outcomes = view.totals.outcomes
    if not outcomes or not failures.issuperset(outcomes):
        return ""
    last = max(view.rows(), key=lambda seat: seat.since)
    return f"{plural(outcomes.total(), 'session')} and all failed ({last.agent}: {last.reason}); `team logs` shows why"
