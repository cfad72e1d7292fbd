"""``team test``: the sampler on the host, the same command as in a session."""

from __future__ import annotations

import click


@click.command("test", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the project's tests, or an agent's sample of them (--fast); `team test --help` has it all."""
    from team.sampler.main import main

    ctx.exit(main(args))
