"""``team approve``: let a held push land."""

from __future__ import annotations

import click


@click.command("approve")
@click.argument("number", type=int)
@click.option("--note", "-m", default="", help="What the agent is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(number: int, note: str, as_json: bool) -> None:
    """Let the held push NUMBER land; look at it first with `team held NUMBER`.

    With a gate it waits for its check like every other push.
    """
    from team.cli import screen
    from team.cli.held import open_upstream, person_name

    landed = open_upstream().held.approve(number, person_name(), note)
    if as_json:
        commit = landed.commit if landed else None
        screen.print_json({"number": number, "approved": True, "landed": landed is not None, "commit": commit})
    elif landed is not None:
        click.echo(f"push {number} landed on main as {landed.commit[:10]}; you have it after `team pull`")
    else:
        click.echo(f"push {number} is approved; it lands when it has passed the gate")
