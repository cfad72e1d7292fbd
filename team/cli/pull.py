"""``team pull``: what landed, brought into the person's branch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from team.pull import Pulled

SHOWN = 20
"""Landings that are listed; `git log` has the rest."""


@click.command("pull")
@click.option(
    "--accept-protected",
    metavar="COMMIT",
    help="You have looked: take what landings up to this commit of main did to protected paths.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(accept_protected: str | None, as_json: bool) -> None:
    """Bring upstream's main into the branch that is checked out, by fast-forward or merge.

    Never into a dirty tree; a conflict leaves everything as it was. Agents may be at work meanwhile.
    """
    from team import config_file, worktree
    from team.errors import TeamError
    from team.ledger import Ledger
    from team.pull import pull

    root = worktree.find_root(Path.cwd())
    project = worktree.existing_project(root)
    if project is None:
        raise TeamError("this project has no team yet; `team up` makes it")
    protected = config_file.load(root).protected
    pulled = pull(project, Ledger(project.ledger), protected=protected, accepted=accept_protected)
    if as_json:
        from team.cli import screen

        screen.print_json(asdict(pulled))
        return
    _print(pulled)


def _print(pulled: Pulled) -> None:
    from team.view import plural

    if pulled.how == "up to date":
        click.echo(f"{pulled.branch} has all that landed")
        return
    count = plural(len(pulled.landings), "landing")
    changed = plural(pulled.files, "file")
    click.echo(f"{count} into {pulled.branch} by {pulled.how}: {changed} changed, now at {pulled.new[:10]}")
    for landing in pulled.landings[:SHOWN]:
        click.echo(f"  {landing.commit[:10]} {landing.subject}")
    if len(pulled.landings) > SHOWN:
        click.echo(f"  and {len(pulled.landings) - SHOWN} more")
    click.echo(f"the whole story: git log --first-parent {pulled.old[:10]}..team/main")
