"""``team image``: the image that sessions run in."""

from __future__ import annotations

import time
from pathlib import Path

import click

from team.clients import CLIENTS


@click.group("image")
def command() -> None:
    """The image that sessions run in; `team up` builds it when it is missing."""


@command.command("build")
@click.option("--rebuild", is_flag=True, help="Build from the start although nothing changed.")
@click.option("--client", "name", type=click.Choice(CLIENTS), help="Which client's; team.toml's else.")
def build(rebuild: bool, name: str | None) -> None:
    """Build the image of this project: ours, the client, and [image] dockerfile of team.toml on top."""
    from team import config_file, worktree
    from team.clients import client
    from team.images import ensure
    from team.view import span

    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    name = name or settings.client
    began = time.monotonic()
    made = client(name, settings.command.argv or ("true",)).image
    tag = ensure(made, settings.image, root, say=click.echo, rebuild=rebuild)
    click.echo(f"{tag} is ready for {name} ({span(time.monotonic() - began)})")
