"""``team approve``: let a held push land, or a held action run."""

from __future__ import annotations

import click


@click.command("approve")
@click.argument("name", metavar="NUMBER")
@click.option("--note", "-m", default="", help="What the agent is told.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(name: str, note: str, as_json: bool) -> None:
    """Let the held push NUMBER land, or the held action run; look at it first with `team held NUMBER`.

    With a gate a push waits for its check like every other one. An action runs once; the next like it is held again.
    """
    from team.cli import screen
    from team.cli.held import open_actions, open_upstream, parse, person_name

    number = parse(name)
    if isinstance(number, str):
        action = open_actions().approve(number, person_name(), note)
        if as_json:
            screen.print_json({"action": action.id, "approved": True})
        else:
            click.echo(f"action {action.id} is allowed; {action.agent} goes on within seconds")
        return
    landed = open_upstream().held.approve(number, person_name(), note)
    if as_json:
        commit = landed.commit if landed else None
        screen.print_json({"number": number, "approved": True, "landed": landed is not None, "commit": commit})
    elif landed is not None:
        click.echo(f"push {number} landed on main as {landed.commit[:10]}; you have it after `team pull`")
    else:
        click.echo(f"push {number} is approved; it lands when it has passed the gate")
