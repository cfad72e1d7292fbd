"""``team unblock``: let sessions try a task again."""

from __future__ import annotations

import click

from team.cli import complete


@click.command("unblock")
@click.argument("task", shell_complete=complete.tasks)
def command(task: str) -> None:
    """Forget the failures on TASK, so that agents may claim it again."""
    from team.cli.rescue import _upstream

    count = _upstream().unblock(task)
    click.echo(f"{task} may be claimed again; {count} failed session{'s' if count != 1 else ''} forgotten")
