"""``team deny``: refuse a held push or a held action."""

from __future__ import annotations

import click


@click.command("deny")
@click.argument("name", metavar="NUMBER")
@click.option("--note", "-m", default="", help="Why; the agent, or the next one on its task, is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(name: str, note: str, as_json: bool) -> None:
    """Refuse the held push NUMBER, whose commits stay in the rescue repository, or the held action."""
    from team.cli import screen
    from team.cli.held import open_actions, open_upstream, parse, person_name

    number = parse(name)
    if isinstance(number, str):
        action = open_actions().deny(number, person_name(), note)
        if as_json:
            screen.print_json({"action": action.id, "approved": False})
        else:
            click.echo(f"action {action.id} is denied; {action.agent} is told: {action.note}")
        return
    open_upstream().held.deny(number, person_name(), note)
    if as_json:
        screen.print_json({"number": number, "approved": False, "landed": False})
    else:
        click.echo(f"push {number} is denied; its agent hears of it with its next push")
