"""``team oracle`` on the host, the same command as in a session."""

from __future__ import annotations

import click


@click.command("oracle", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Find what a candidate gets wrong, with a known-good reference; `team oracle --help` has it all."""
    from team.oracle.main import main

    ctx.exit(main(args))
