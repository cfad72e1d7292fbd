"""``team task``: write a ticket on the host, without an agent or an editor."""

from __future__ import annotations

from pathlib import Path

import click


@click.group("task")
def command() -> None:
    """Tickets in tasks/, which agents pick from; `team tasks` lists them."""


@command.command("add")
@click.argument("text", metavar="TITLE")
@click.option("--file", "-F", metavar="FILE", help="Markdown of the ticket; - is standard input.")
@click.option("--name", help="Name of the task; made from the title where not given.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def add(text: str, file: str | None, name: str | None, as_json: bool) -> None:
    """Add a task: tasks/NAME.md lands on main, where the next free agent finds it.

    TITLE is a sentence, or the name alone. Without --file the ticket is a template that holds the title.

    \b
      team task add "Fix the parser for empty files"
      team task add fix_parser --file ticket.md
      my-tracker --export 42 | team task add "Fix the parser" -F -
    """
    from team import config_file, ticket, worktree
    from team.cli import screen
    from team.ledger import Ledger
    from team.names import task_path
    from team.upstream.pusher import Pusher
    from team.upstream.upstream import Upstream

    chosen, title = ticket.name_and_title(text, name)
    content = ticket.ticket(title, file)
    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    person = Pusher(*worktree.require_identity(root), session=None)
    project = worktree.open_project(root)
    upstream = Upstream(project, Ledger(project.ledger), settings.landing, settings.protected)
    commit = upstream.add_task(chosen, content, person)
    if as_json:
        screen.print_json({"task": chosen, "title": title, "path": task_path(chosen), "commit": commit})
        return
    click.echo(f"added {task_path(chosen)} on main as {commit[:10]}; agents see it now, you after `team pull`")
