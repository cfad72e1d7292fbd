"""``team rehearse``: the whole team on a copy of the project, with a scripted model, for nothing."""

from __future__ import annotations

from pathlib import Path

import click

from team.clients import CLIENTS


@click.command("rehearse")
@click.option("--agents", "-n", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--client", type=click.Choice(CLIENTS), help="Which client; team.toml's else.")
@click.option("--runtime", type=click.Choice(["docker", "process"]), default="docker", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document; progress goes to standard error.")
def command(agents: int, client: str | None, runtime: str, as_json: bool) -> None:
    """Prove image, mounts, limits, tests and git of this project before the first dollar.

    Each agent claims a task, touches a scratch file, runs the test command, pushes and releases, all on a
    throw-away copy of upstream. No key is needed and nothing in the project changes.
    """
    from team import config_file, worktree
    from team.cli import screen
    from team.rehearsal.main import RehearsalFailed, rehearse

    root = worktree.find_root(Path.cwd())
    worktree.require_branch(root)
    worktree.require_state_outside(root)
    settings = config_file.load(root)
    try:
        report = rehearse(
            root,
            agents=agents,
            client=client or settings.client,
            runtime=runtime,
            say=lambda line: click.echo(line, err=as_json),
        )
    except RehearsalFailed as failed:
        if as_json:
            screen.print_json({**failed.report.as_json(), "state": str(failed.state)})
        raise
    if as_json:
        screen.print_json(report.as_json())
