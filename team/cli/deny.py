"""``team deny``: refuse a held push."""

from __future__ import annotations

import click


@click.command("deny")
@click.argument("number", type=int)
@click.option("--note", "-m", default="", help="Why; the agent, or the next one on its task, is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(number: int, note: str, as_json: bool) -> None:
    """Refuse the held push NUMBER. Its commits stay in the rescue repository."""
    from team.cli import screen
    from team.cli.held import open_upstream, person_name

    open_upstream().held.deny(number, person_name(), note)
    if as_json:
        screen.print_json({"number": number, "approved": False, "landed": False})
    else:
        click.echo(f"push {number} is denied; its agent hears of it with its next push")
