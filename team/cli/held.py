"""``team held``: the pushes and actions that wait for a person."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from team.actions import Action, Actions
    from team.upstream.queue import Waiting
    from team.upstream.upstream import Upstream


def parse(name: str) -> int | str:
    """How a held push (``3``) or a held action (``a3``) is called: a number or a string. Raises :class:`TeamError`."""
    from team.actions import is_id
    from team.errors import TeamError

    if name.isascii() and name.isdigit() and len(name) < 10:
        return int(name)
    if is_id(name):
        return name
    raise TeamError(f"{name!r} is not held: a push is called like 3, an action like a3 (`team held`)")


def open_upstream() -> Upstream:
    """Upstream of the project here, with its settings. Raises :class:`TeamError`."""
    from team import config_file, worktree
    from team.errors import TeamError
    from team.ledger import Ledger
    from team.upstream.upstream import Upstream

    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    project = worktree.existing_project(root)
    if project is None:
        raise TeamError("this project has no team yet; `team up` makes it")
    return Upstream(project, Ledger(project.ledger), settings.landing, settings.protected, gate=settings.gate)


def open_actions() -> Actions:
    """The held actions of the project here. Raises :class:`TeamError`."""
    from team import worktree
    from team.actions import Actions
    from team.errors import TeamError
    from team.ledger import Ledger

    project = worktree.existing_project(worktree.find_root(Path.cwd()))
    if project is None:
        raise TeamError("this project has no team yet; `team up` makes it")
    return Actions(Ledger(project.ledger))


def person_name() -> str:
    """Who decides. Raises :class:`TeamError` where git does not know."""
    from team import worktree

    return worktree.require_identity(worktree.find_root(Path.cwd()))[0]


@click.command("held")
@click.argument("name", metavar="[NUMBER]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(name: str | None, as_json: bool) -> None:
    """List what waits for you; with a NUMBER, show what that push changes or that action is.

    A push is held when it touches a protected path or, with [gate] tampering = "hold", weakens tests.
    Its task stays its agent's until `team approve` or `team deny`.
    An action (a1, a2, ...) is held by [policy] "ask"; its session waits until you decide, or it ends.
    """
    number = None if name is None else parse(name)
    if isinstance(number, str):
        _show_action(open_actions().find(number), as_json)
    elif number is not None:
        _show_push(number, as_json)
    else:
        _list(open_upstream().held.all(), open_actions().waiting(), as_json)


def _list(pushes: list[Waiting], actions: list[Action], as_json: bool) -> None:
    from team.cli import screen
    from team.text import one_line
    from team.view import span

    if as_json:
        screen.print_json({"held": [asdict(push) for push in pushes], "actions": [asdict(one) for one in actions]})
        return
    if not pushes and not actions:
        click.echo("nothing is held")
        return
    now = time.time()
    for push in pushes:
        what = f"{one_line(push.subject, 60)}: {one_line(push.reason, 300)}"
        click.echo(f"{push.number}  {push.agent}  {span(now - push.at)} ago  {what}")
    for action in actions:
        click.echo(f"{action.id}  {action.agent}  {span(now - action.at)} ago  {action.line}")
    click.echo("`team held N` shows one; `team approve N` or `team deny N -m WHY` decides")


def _show_push(number: int, as_json: bool) -> None:
    from team.cli import screen
    from team.text import one_line

    held = open_upstream().held
    push = held.find(number)
    if as_json:
        screen.print_json({**asdict(push), "diff": held.diff(push)})
        return
    click.echo(f"push {push.number} of {push.agent} ({push.session}): {one_line(push.subject)}")
    click.echo(f"held: {one_line(push.reason, 400)}")
    click.echo(held.diff(push))


def _show_action(action: Action, as_json: bool) -> None:
    from team.cli import screen
    from team.text import one_line

    if as_json:
        screen.print_json(asdict(action))
        return
    task = f", task {one_line(action.task, 100)}" if action.task else ""
    click.echo(f"action {action.id} of {action.agent} ({action.session}{task}): {action.tool}")
    click.echo(f"held: {action.reason or 'by [policy]'}")
    click.echo(action.text)
