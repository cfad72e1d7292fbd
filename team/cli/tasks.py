"""``team tasks``: what there is to do, and who does what."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from team.upstream.tasks import Task


@click.command("tasks")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(as_json: bool) -> None:
    """List the tasks on main: held ones with their holder, then those that are free."""
    from team import config_file, worktree
    from team.cli import screen
    from team.ledger import Ledger
    from team.upstream.upstream import Upstream

    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    project = worktree.existing_project(root)
    tasks: list[Task] = []
    if project is not None:
        tasks = Upstream(project, Ledger(project.ledger), settings.landing, settings.protected).tasks()
    if as_json:
        screen.print_json({"tasks": [asdict(task) for task in tasks]})
    elif not tasks:
        click.echo('no tasks; `team task add "..."` adds one, and agents find their own where there are none')
    else:
        _print(tasks)


def _print(tasks: list[Task]) -> None:
    from rich.table import Table
    from rich.text import Text

    from team.cli import screen
    from team.view import span

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("TASK", "STATE", "SINCE", "TITLE", "PUSH")[: 5 if any(task.push for task in tasks) else 4]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for task in tasks:
        held = task.agent is not None
        table.add_row(
            Text(task.name),
            Text(task.agent or task.state, "green" if held else ""),
            Text("" if task.since is None else span(time.time() - task.since)),
            Text(task.title),
            *([Text(task.push)] if len(table.columns) == 5 else []),
        )
    screen.print_table(table)
