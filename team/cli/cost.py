"""``team cost``: what the model calls came to, and what they bought."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from team.errors import TeamError

if TYPE_CHECKING:
    from team.cost import Call, Report, Sum
    from team.usage_export import Comparison

GROUPS = ("agent", "role", "task", "model", "day", "session")


@click.command("cost")
@click.option("--by", type=click.Choice(GROUPS), default="agent", show_default=True, help="What a line is about.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--reconcile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare with a provider's usage export; exit code 1 when they differ.",
)
def command(by: str, as_json: bool, reconcile: Path | None) -> None:
    """Show tokens and money, counted from the provider's own answers.

    BILLED is what calls cost that are paid by the token; LIST PRICE is what the others, under a
    plan, would have cost. Both are at list price: discounts and taxes are not known here.

    \b
    FILE is CSV with a header or JSON, as the provider exports it: one row for each day and model.
      date          2026-10-16, a time, or seconds since the epoch (days are UTC)
      model         with or without its date
      input         tokens that did not come from the cache
      output, cache_write, cache_read
    Columns go by name; those of the Anthropic and OpenAI exports are known. What a file lacks is
    not compared; without date or model, all of them are compared together.
    """
    from team import cost, worktree
    from team.cli import screen
    from team.ledger import Ledger
    from team.running import running_pid

    project = worktree.existing_project(worktree.find_root(Path.cwd()))
    events = list(Ledger(project.ledger).events(*cost.KINDS)) if project is not None else []
    running = project is not None and running_pid(project) is not None
    if reconcile is not None:
        _reconcile(reconcile, list(cost.calls(events, running=running)), as_json=as_json)
        return
    made = cost.report(events, by, running=running)
    if as_json:
        screen.print_json(cost.as_json(made))
    elif not made.total.calls:
        click.echo("no model was called yet; `team up` starts the team")
    else:
        _print(made)


def _print(made: Report) -> None:
    from rich.table import Table
    from rich.text import Text

    from team.cli import screen

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(made.by.upper(), no_wrap=True, overflow="ellipsis")
    for name in ("CALLS", "INPUT", "OUTPUT", "CACHE WRITE", "CACHE READ", "BILLED", "LIST PRICE"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in made.rows.items():
        table.add_row(Text(name), *_cells(row))
    if len(made.rows) > 1:
        table.add_row(Text("all", "bold"), *_cells(made.total))
    screen.print_table(table)
    for line in [*_doubts(made.total), *_bought(made)]:
        click.echo(line)


def _cells(row: Sum) -> list[str]:
    from team.cost import TOKENS, money, short

    return [str(row.calls), *(short(row.tokens[name]) for name in TOKENS), money(row.billed), money(row.unbilled)]


def _doubts(total: Sum) -> list[str]:
    """What the numbers above leave out."""
    from team.cost import money
    from team.view import plural

    lines = []
    if total.unknown:
        lines.append(
            f"{plural(total.unknown, 'call')} broke off before the provider told all tokens: "
            f"up to {money(total.unknown_most)} more, booked as reserved"
        )
    if total.running:
        lines.append(f"{plural(total.running, 'call')} under way: up to {money(total.reserved)} more")
    if total.failed:
        lines.append(f"{plural(total.failed, 'call')} failed")
    return lines


def _bought(made: Report) -> list[str]:
    """What the money bought."""
    from team.cost import money, short
    from team.view import plural

    work = made.work
    lines = [""]
    if made.tokens_per_landed is not None:
        lines.append(f"{plural(work.landed, 'landing')} by agents: {short(made.tokens_per_landed)} tokens each")
    if made.cost_per_task is not None and made.tokens_per_task is not None:
        each = f"{money(made.cost_per_task)} and {short(made.tokens_per_task)} tokens each"
        lines.append(f"{plural(work.finished, 'finished task')}: {each}, {_tries(made)}")
    return lines if len(lines) > 1 else ["", "nothing has landed yet"]


def _tries(made: Report) -> str:
    rate, tries = made.work.first_try_rate, made.work.tries_per_task
    shown = f"{tries or 0:.3g}"
    return f"{rate or 0:.0%} at the first try, {shown} {'try' if shown == '1' else 'tries'} a task on average"


def _reconcile(path: Path, calls: list[Call], *, as_json: bool) -> None:
    from team import usage_export
    from team.cli import screen

    found = usage_export.compare(usage_export.read(path), calls)
    if not found.lines:
        raise TeamError(f"{path}: it has no usage, nor has the ledger on its days; export the days when the team ran")
    differs = found.differences
    if as_json:
        rows = [{**vars(line), "difference": line.difference} for line in found.lines]
        facts = {"calls": found.calls, "unknown_calls": found.unknown, "calls_on_other_days": found.elsewhere}
        screen.print_json({"equal": not differs, "rows": rows, **facts})
    else:
        _print_comparison(found)
    if differs:
        raise click.exceptions.Exit(1)


def _print_comparison(found: Comparison) -> None:
    from rich.table import Table
    from rich.text import Text

    from team.cli import screen
    from team.view import plural

    differs = found.differences
    if differs:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("DAY", "MODEL", "TOKENS"):
            table.add_column(name, no_wrap=True)
        for name in ("LEDGER", "PROVIDER", "DIFFERENCE"):
            table.add_column(name, justify="right", no_wrap=True)
        for line in differs:
            counts = (f"{line.ledger:,}", f"{line.provider:,}", f"{line.difference:+,}")
            table.add_row(Text(line.day), Text(line.model), line.field.replace("_", " "), *counts)
        screen.print_table(table)
        click.echo(f"{len(differs)} of {plural(len(found.lines), 'count')} differ, over {plural(found.calls, 'call')}")
    else:
        click.echo(f"equal to the token: {plural(len(found.lines), 'count')} over {plural(found.calls, 'call')}")
    if found.unknown:
        click.echo(f"of {plural(found.unknown, 'call')} the ledger knows no end: the provider may count more for them")
    if found.elsewhere:
        click.echo(f"{plural(found.elsewhere, 'call')} on days that the file does not cover: not compared")
