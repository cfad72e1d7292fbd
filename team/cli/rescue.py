"""``team rescue``: what sessions left behind and main does not have."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from team.cli import complete

if TYPE_CHECKING:
    from team.upstream.upstream import Upstream


@click.group("rescue")
def command() -> None:
    """Look at work that sessions left behind and main does not have."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def list_(as_json: bool) -> None:
    """List what is kept, oldest first."""
    from team.cli import screen
    from team.text import one_line
    from team.view import span

    kept = _upstream().rescues()
    if as_json:
        screen.print_json({"rescues": [asdict(one) for one in kept]})
        return
    for one in kept:
        tasks = ", ".join(one.tasks) or "no task"
        click.echo(one_line(f"{one.session}  {span(time.time() - one.at)} ago  {one.commit[:10]}  {tasks}"))
    if not kept:
        click.echo("nothing is kept: every session left only what main has")


@command.command("show")
@click.argument("session", shell_complete=complete.rescued)
@click.option("--patch", "-p", is_flag=True, help="The changes themselves, not only the files.")
def show(session: str, patch: bool) -> None:
    """Show commits and files of what SESSION left behind, escape sequences removed.

    \b
    To work with it:  git fetch REPOSITORY refs/rescue/AGENT/SESSION   (the last line names both)
    """
    click.echo(_upstream().rescue_text(session, patch=patch))


@command.command("drop")
@click.argument("session", shell_complete=complete.rescued)
def drop(session: str) -> None:
    """Forget what SESSION left behind, because nobody needs it."""
    one = _upstream().rescue_drop(session)
    click.echo(f"dropped {one.session}; until the repository is packed anew, {one.commit} can be had back")


def _upstream() -> Upstream:
    from team import config_file, worktree
    from team.errors import TeamError
    from team.ledger import Ledger
    from team.upstream.upstream import Upstream

    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    project = worktree.existing_project(root)
    if project is None:
        raise TeamError("no team has run here yet; `team up` starts one")
    return Upstream(project, Ledger(project.ledger), settings.landing, settings.protected)
