"""``team init``: the files of a team, written into the project."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(as_json: bool) -> None:
    """Write team.toml, AGENT_PROMPT.md, current_tasks/ and tasks/README.md into this repository.

    What exists is never overwritten. `team up` works without any of them.
    """
    from team import scaffold, worktree

    root = worktree.find_root(Path.cwd())
    written = scaffold.write(root, scaffold.files())
    todo = [
        "1. In team.toml, set [test] command; write a few tickets as tasks/README.md says.",
        "2. git add team.toml AGENT_PROMPT.md current_tasks tasks && git commit -m 'Add a team'",
        "3. team doctor, then team rehearse (proves the set-up for nothing), then team up --agents 4",
    ]
    if as_json:
        from team.cli import screen

        document = {"created": written.created, "existed": written.existed, "ignored": written.ignored, "next": todo}
        screen.print_json(document)
        return
    for path in written.created:
        click.echo(f"wrote   {path}")
    for path in written.existed:
        click.echo(f"existed {path}, left as it is")
    for path in written.ignored:
        click.echo(f"ignored {path}: the project's .gitignore keeps it from agents; `git add -f {path}`")
    for line in todo:
        click.echo(line)
