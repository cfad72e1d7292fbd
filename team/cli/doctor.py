"""``team doctor``: whether a team can run here, finding by finding."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check git, configuration, key, disk, engine and image, and look around inside a real container.

    Changes nothing and builds nothing. Exit code 0 when nothing fails, 1 when something does.
    """
    from team import doctor, worktree
    from team.cli import screen

    root = worktree.find_root(Path.cwd())
    findings = []
    for finding in doctor.checks(root):
        findings.append(finding)
        if not as_json:
            mend = f"; {finding.mend}" if finding.mend else ""
            click.echo(
                f"{click.style(f'{finding.status:4}', _COLOURS[finding.status])} {finding.name}: {finding.text}{mend}"
            )
    failed = any(finding.status is doctor.Status.FAIL for finding in findings)
    if as_json:
        screen.print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    context.exit(1 if failed else 0)
