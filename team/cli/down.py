"""``team down``: stop the team; sessions get time to land."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("down")
@click.option("--now", is_flag=True, help="End sessions at once; their work is rescued.")
@click.option("--volumes", is_flag=True, help="Remove the caches that agents keep from session to session, too.")
def command(now: bool, volumes: bool) -> None:
    """Stop the team of this project.

    Sessions get two minutes ([session] land_time) to land, then they end, their work rescued; --now, or
    ctrl-C while this waits, ends them at once. What a killed supervisor left on the engine is ended too.
    Upstream, logs and rescued work stay; `team up` goes on.
    """
    from team import config_file, stop, worktree
    from team.cli import screen
    from team.config import Settings
    from team.errors import TeamError
    from team.ledger import Ledger
    from team.view import plural

    root = worktree.find_root(Path.cwd())
    project = worktree.existing_project(root)
    if project is None:
        click.echo("nothing runs; this project has no team yet")
        return
    try:
        settings = config_file.load(root)
    except TeamError as error:
        if volumes:  # which caches there are stands in it
            raise
        click.echo(f"{error}; stopping all the same", err=True)
        settings = Settings()
    ledger = Ledger(project.ledger)
    stopped = stop.stop_running(project, ledger, settings.session.land_time, now=now, say=click.echo)
    if not stopped and not stop.end_leftovers(project, ledger, settings, say=click.echo):
        click.echo("nothing runs")
    stop.remove_doors(project)
    if volumes:
        count = stop.remove_caches(project, ledger, settings)
        click.echo(f"removed {plural(count, 'cache volume')}")
    if landings := worktree.behind(project):
        click.echo(screen.to_pull(landings))
