"""``team completion``: the completion script of a shell, made by click."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from team.errors import TeamError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
      bash  eval "$(team completion bash)"      in ~/.bashrc
      zsh   eval "$(team completion zsh)"       in ~/.zshrc
      fish  team completion fish > ~/.config/fish/completions/team.fish
    """
    made = get_completion_class(shell)
    if made is None:
        raise TeamError(f"no completion for {shell}")
    click.echo(made(ctx.find_root().command, {}, "team", "_TEAM_COMPLETE").source())
