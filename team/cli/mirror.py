"""``team mirror``: publish main to a remote."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("mirror")
@click.argument("remote")
@click.option("--once", is_flag=True, help="Publish what is there now, then end.")
@click.option("--branch", default="main", show_default=True, help="Branch of the remote that becomes main.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document for each time that it published.")
def command(remote: str, once: bool, branch: str, as_json: bool) -> None:
    """Publish main to REMOTE: a URL, or the name of a remote of your repository.

    Whenever main moves, until ctrl-c. It pushes from this machine with your own git credentials, main alone
    and never by force: where the remote has commits that main lacks, it stops and says so.

    \b
      team mirror git@github.com:you/project.git
      team mirror origin --branch team --once
    """
    import random
    import time

    from team import mirror, worktree
    from team.cli import screen
    from team.errors import TeamError

    root = worktree.find_root(Path.cwd())
    project = worktree.existing_project(root)
    if project is None:
        raise TeamError("this project has no team yet; `team up` makes it")

    def say(published: mirror.Published) -> None:
        if as_json:
            screen.print_json({"remote": published.remote, "branch": branch, "commit": published.commit})
        else:
            click.echo(f"{published.remote} {branch} is at {published.commit[:10]}")

    where = mirror.target(root, remote)
    mirror.run(project, root, where, branch, once=once, say=say, sleep=time.sleep, jitter=random.random)
