"""How the view looks: a live table in a terminal, a line per event elsewhere, JSON where asked for."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from team.gateway.reset import clock_words
from team.ledger import Event, Kind
from team.text import one_line
from team.view import SeatView, View, describe, event_json, plural, span

_STYLES = {"running": "green", "starting": "cyan", "ending": "yellow", "waiting": "yellow", "stopped": "dim"}
_NAMES = ("cyan", "magenta", "blue", "yellow", "green", "bright_cyan", "bright_magenta", "bright_blue")
WIDE = 240
RECENT = 6
"""Lines about events below the live table."""


class Output(Console):
    """A console that tells a closed pipe as what it is; rich would end the process from wherever it prints."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def print_json(value: Any) -> None:
    """One JSON document (or line) on standard output; ASCII, so that nothing in it can steer a terminal."""
    click.echo(json.dumps(value, default=str))


def print_lines(lines: Iterable[str]) -> None:
    """Lines of ours on standard output."""
    for line in lines:
        click.echo(line)


def console() -> Console:
    """Standard output; wide where it is no terminal, so that what reads it gets whole lines."""
    out = Output(highlight=False)
    return out if out.is_terminal or "COLUMNS" in os.environ else Output(highlight=False, width=WIDE)


def print_table(table: Table) -> None:
    """``table`` on standard output; without the spaces that fill its last column, where no eye needs them."""
    out = console()
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as drawn:
        out.print(table)
    print_lines(line.rstrip() for line in drawn.get().splitlines())


def to_pull(landings: int) -> str:
    """The line that says that main is ahead of the person's branch."""
    return f"{plural(landings, 'landing')} not in your branch yet: `team pull`"


def colour(agent: str) -> str:
    """The colour of an agent's name: the same in every verb."""
    return _NAMES[sum(agent.encode()) % len(_NAMES)]


def event_text(event: Event) -> Text | None:
    """The line about ``event`` with its local time, or None where it is not worth one."""
    line = describe(event)
    if line is None:
        return None
    who, _, words = line.partition(": ")
    style = "red" if "ERROR" in words[:6] else ""
    clock = time.strftime("%H:%M:%S", time.localtime(event.at))
    return Text.assemble((clock, "dim"), " ", (who, colour(who)), ": ", (words, style))


def log_line(seat: SeatView) -> str:
    """The last line of the seat's newest log; empty where there is none."""
    from team.logs import last_line

    return last_line(Path(seat.log).parent) if seat.log else ""


def seat_table(view: View, now: float, last_line: Callable[[SeatView], str], *, all_seats: bool = False) -> Table:
    """The table of the seats."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)  # so that the last column gives way
    for name in ("AGENT", "ROLE", "STATE", "TASK", "SESSION", "LANDED"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=34 if name in ("TASK", "STATE") else None)
    table.add_column("LAST LINE", no_wrap=True, overflow="ellipsis", ratio=1)
    for seat in view.rows(all_seats=all_seats):
        table.add_row(
            Text(seat.agent, colour(seat.agent)),
            Text(seat.role),
            Text(state_words(seat), _STYLES.get(seat.state, "")),
            Text(one_line(", ".join(seat.tasks), 100) or "-"),
            Text(str(seat.n or "-")),
            Text("-" if seat.last_landing is None else f"{span(now - seat.last_landing)} ago"),
            Text(
                "; ".join(f"{id} {call}" for id, call in seat.asks.items())
                or seat.wait_reason
                or (seat.reason if seat.state == "ended" else "")
                or last_line(seat)
            ),
        )
    return table


def state_words(seat: SeatView) -> str:
    """The state of a seat, with whom or until when it waits, or how its last session ended."""
    if seat.asks:
        return "waits for you"
    if seat.state == "waiting" and seat.wait_until is not None:
        return f"waiting until {time.strftime('%H:%M:%S', time.localtime(seat.wait_until))}"
    return f"ended ({seat.outcome})" if seat.state == "ended" and seat.outcome else seat.state


def head(view: View, now: float) -> Text:
    """One line above the table: how long, how much, and what is wrong."""
    t = view.totals
    facts = [plural(t.landings, "landing"), plural(t.claims, "claim"), plural(t.sessions, "session")]
    text = Text(f"{span(now - t.started) if t.started else 'starting'}, {', '.join(facts)}")
    if view.engine_lost:
        text.append(f"  engine lost: {view.engine_lost}", "bold red")
    for provider, reason in view.models_lost.items():
        text.append(f"  no answer from {provider}: {reason}", "bold red")
    if view.stopping:
        text.append(f"  stopping: {view.stopping}", "yellow")
    elif view.idle:
        text.append(f"  idle: {view.idle}", "yellow")
    if view.paused_until > now:
        text.append(f"  all wait until {clock_words(view.paused_until)}: {view.pause_reason}", "yellow")
    return text


class Screen(AbstractContextManager["Screen"], Protocol):
    """Where a running team is shown."""

    def show(self, event: Event) -> None:
        """Show that ``event`` happened; the view has taken it already."""

    def refresh(self) -> None:
        """Show how things stand now."""


_RETRIED = frozenset({Kind.MODEL_REFUSED, Kind.EGRESS})


class News:
    """The lines about events, without what a session has been told before: clients try again and again."""

    def __init__(self) -> None:
        self._last: dict[tuple[str | None, str], tuple[str | None, str]] = {}

    def text(self, event: Event) -> Text | None:
        """The line about ``event``, or None where it is not worth one, or not worth another."""
        text = event_text(event)
        if text is not None and event.kind in _RETRIED:
            key, said = (event.agent, event.kind), (event.session, describe(event) or "")
            if self._last.get(key) == said:
                return None
            self._last[key] = said
        return text


class Lines:
    """A line per event worth reading, or every event as a line of JSON."""

    def __init__(self, out: Console, *, as_json: bool) -> None:
        self._console, self._as_json = out, as_json
        self._news = News()

    def show(self, event: Event) -> None:
        if self._as_json:
            print_json(event_json(event))
        elif (text := self._news.text(event)) is not None:
            self._console.print(text, soft_wrap=True, highlight=False)

    def refresh(self) -> None:
        """Nothing: a line stands as it is."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


class LiveTable:
    """The table of seats, redrawn in place, with the newest events below it."""

    def __init__(self, out: Console, view: View) -> None:
        self._view = view
        self._news = News()
        self._recent: deque[Text] = deque(maxlen=RECENT)
        self._live = Live(console=out, auto_refresh=False, transient=False, vertical_overflow="ellipsis")

    def show(self, event: Event) -> None:
        if (text := self._news.text(event)) is not None:
            text.no_wrap, text.overflow = True, "ellipsis"
            self._recent.append(text)

    def refresh(self) -> None:
        self._live.update(self._draw(), refresh=True)

    def _draw(self) -> RenderableType:
        now = time.time()
        return Group(head(self._view, now), seat_table(self._view, now, log_line), Text(""), *self._recent)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.refresh()
        self._live.__exit__(kind, error, at)


def screen(view: View, *, as_json: bool) -> Screen:
    """The screen that fits: a live table in a terminal that can redraw, lines elsewhere."""
    out = console()
    if out.is_terminal and not out.is_dumb_terminal and not as_json:
        return LiveTable(out, view)
    return Lines(out, as_json=as_json)
