"""``team ps``: every seat, from the ledger."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from team.places import Project
    from team.view import View
    from team.worth import Worth


@click.command("ps")
@click.option("--all", "-a", "all_seats", is_flag=True, help="Also seats of earlier runs.")
@click.option("--roles", is_flag=True, help="What each role brought since the first `team up`, and when it is due.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(all_seats: bool, roles: bool, as_json: bool) -> None:
    """Show every seat: role, state, task, session, last landing, last line of its log."""
    from team import worktree
    from team.cli import screen
    from team.ledger import Ledger
    from team.running import running_pid
    from team.view import View, view, waiting_words

    project = worktree.existing_project(worktree.find_root(Path.cwd()))
    if roles:
        _roles(project, as_json=as_json)
        return
    pid = running_pid(project) if project is not None else None
    seen = view(Ledger(project.ledger)) if project is not None else View()
    landings = worktree.behind(project) if project is not None else 0
    if as_json:
        screen.print_json(_document(project, pid, seen, landings, all_seats))
        return
    _print(pid, seen, all_seats)
    if waiting := waiting_words(seen):
        click.echo(waiting)
    if landings:
        click.echo(screen.to_pull(landings))


def _roles(project: Project | None, *, as_json: bool) -> None:
    from team import config_file
    from team.cli import screen
    from team.ledger import Ledger
    from team.running import running_pid
    from team.worth import worth

    rows = []
    if project is not None:
        settings, running = config_file.load(project.root), running_pid(project) is not None
        rows = worth(Ledger(project.ledger), project.upstream, settings, time.time(), running=running)
    if as_json:
        screen.print_json({"roles": [row.json() for row in rows]})
    elif not any(row.sessions for row in rows):
        click.echo("no role has had a session yet; `team up --role review` adds a seat")
    else:
        _print_roles(rows)


def _print_roles(rows: list[Worth]) -> None:
    from rich.table import Table
    from rich.text import Text

    from team.cli import screen
    from team.gateway.prices import usd

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ROLE", "SESSIONS", "LANDED", "COST", "NEXT", "BROUGHT"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("SESSIONS", "LANDED", "COST") else "left")
    for row in rows:
        cells = (row.role, str(row.sessions), str(row.landings), f"${usd(row.cost):.2f}", _next(row), row.words())
        table.add_row(*(Text(cell) for cell in cells))
    screen.print_table(table)


def _next(row: Worth) -> str:
    """When the role's next session is due, in words."""
    from team.view import plural, span

    if row.due is None:
        return "due" if row.every else "-"
    if row.due.landings is not None:
        return f"after {plural(row.due.landings, 'landing')}"
    return f"in {span(row.due.seconds or 0)}"


def _print(pid: int | None, seen: View, all_seats: bool) -> None:
    from team.cli import screen
    from team.view import plural

    console, now = screen.console(), time.time()
    if pid is not None:
        console.print(f"runs (pid {pid}), ", screen.head(seen, now), sep="", soft_wrap=True)
    elif seen.open:
        left = plural(len(seen.open), "session")
        click.echo(f"no supervisor runs, but {left} may be left: `team up` goes on, `team down` ends them")
    else:
        click.echo("nothing runs; `team up` starts the team" + (f" (stopped: {seen.stopped})" if seen.stopped else ""))
    if seen.rows(all_seats=all_seats):
        screen.print_table(screen.seat_table(seen, now, screen.log_line, all_seats=all_seats))


def _document(project: Project | None, pid: int | None, seen: View, landings: int, all_seats: bool) -> dict[str, Any]:
    from team.view import seat_json, totals_json

    now = time.time()
    return {
        "project": None if project is None else project.id,
        "root": None if project is None else str(project.root),
        "running": pid is not None,
        "pid": pid,
        "stopping": seen.stopping or None,
        "stopped": seen.stopped,
        "idle": bool(seen.idle),
        "idle_reason": seen.idle or None,
        "paused_until": seen.paused_until if seen.paused_until > now else None,
        "pause_reason": seen.pause_reason if seen.paused_until > now else None,
        "engine_lost": seen.engine_lost or None,
        "models_lost": seen.models_lost,
        "left_over": [] if pid is not None else sorted(seen.open),
        "waiting": [
            *({"push": number, "state": state} for number, state in seen.pushes.items()),
            *({"action": id, "state": "held"} for seat in seen.seats.values() for id in seat.asks),
        ],
        "seats": [seat_json(seat, now) for seat in seen.rows(all_seats=all_seats)],
        "totals": totals_json(seen.totals),
        "to_pull": landings,
    }
