"""``team held``: the pushes that wait for a person."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from team.upstream.upstream import Upstream


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


def person_name() -> str:
    """Who decides. Raises :class:`TeamError` where git does not know."""
    from team import worktree

    return worktree.require_identity(worktree.find_root(Path.cwd()))[0]


@click.command("held")
@click.argument("number", type=int, required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(number: int | None, as_json: bool) -> None:
    """List the pushes that wait for you; with a NUMBER, show what that one changes.

    A push is held when it touches a protected path or, with [gate] tampering = "hold", weakens tests.
    Its task stays its agent's until `team approve` or `team deny`.
    """
    from team.cli import screen
    from team.text import one_line
    from team.view import span

    held = open_upstream().held
    if number is not None:
        push = held.find(number)
        if as_json:
            screen.print_json({**asdict(push), "diff": held.diff(push)})
            return
        click.echo(f"push {push.number} of {push.agent} ({push.session}): {one_line(push.subject)}")
        click.echo(f"held: {one_line(push.reason, 400)}")
        click.echo(held.diff(push))
        return
    pushes = held.all()
    if as_json:
        screen.print_json({"held": [asdict(push) for push in pushes]})
        return
    if not pushes:
        click.echo("nothing is held")
    for push in pushes:
        ago = span(time.time() - push.at)
        click.echo(
            f"{push.number}  {push.agent}  {ago} ago  {one_line(push.subject, 60)}: {one_line(push.reason, 300)}"
        )
    if pushes:
        click.echo("`team held N` shows one; `team approve N` or `team deny N -m WHY` decides")
