"""``team logs``: what agents did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from team.cli import complete
from team.errors import TeamError

if TYPE_CHECKING:
    from team.places import Project

POLL_SECONDS = 0.3


@click.command("logs")
@click.argument("agents", nargs=-1, metavar="[AGENT]...", shell_complete=complete.agents)
@click.option("--follow", "-f", is_flag=True, help="Go on as logs grow, across sessions, until ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0), default=40, show_default=True, help="Last lines of each agent.")
@click.option("--session", metavar="ID", help="All of one session, like agent-03.7.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON per line.")
def command(agents: tuple[str, ...], follow: bool, lines: int, session: str | None, as_json: bool) -> None:
    """Show the logs of the agents' newest sessions; of all agents where none is named.

    What an agent printed begins with "| "; other lines are team's. The files are in agent_logs/.
    """
    from team import logs, worktree

    project = worktree.existing_project(worktree.find_root(Path.cwd()))
    if project is None:
        raise TeamError("there are no logs yet: `team up` starts the team")
    if session is not None:
        _print_session(project, session, as_json)
        return
    known = sorted(d.name for d in project.logs.iterdir() if d.is_dir())
    unknown = [a for a in agents if a not in known]
    if unknown:
        raise TeamError(f"no logs of {unknown[0]!r}; known: {', '.join(known) or 'none yet'}")
    show = _printer(agents or known, as_json)
    follower = logs.Follower(project.logs, agents)
    for agent in agents or known:
        newest = logs.session_logs(project.logs / agent)[-1:]
        show((agent, line) for path in newest for line in logs.tail(path, lines))
    while follow:
        show(follower.poll())
        time.sleep(POLL_SECONDS)


def _print_session(project: Project, session: str, as_json: bool) -> None:
    from team.ledger import Kind, Ledger

    started = Ledger(project.ledger).last(Kind.SESSION_STARTING, session=session)
    if started is None:
        raise TeamError(f"there was no session {session!r}; `team ps --json` names the newest of each agent")
    path, agent = Path(str(started.data.get("log", ""))), started.agent or "?"
    if not path.is_file():
        raise TeamError(f"the log of {session} is gone: old logs make room for new ones ([logs] max_agent)")
    before = path.with_name(f"{path.name}.1")
    show = _printer([agent], as_json)
    for part in (before, path):
        if part.is_file():
            with part.open("r", encoding="utf-8", errors="replace") as file:
                show((agent, line) for line in file)


def _printer(agents: Iterable[str], as_json: bool) -> Callable[[Iterable[tuple[str, str]]], None]:
    """Prints ``(agent, line)`` with a prefix per agent, as docker compose does."""
    from rich.console import Console
    from rich.text import Text

    from team.cli import screen
    from team.text import clean

    width = max((len(a) for a in agents), default=8)
    console = Console(highlight=False, soft_wrap=True)

    def show(lines: Iterable[tuple[str, str]]) -> None:
        for agent, line in lines:
            text = clean(line).rstrip("\n")
            if as_json:
                screen.print_json({"agent": agent, "line": text})
                continue
            style = "red" if text[9:15] == "ERROR " else "" if text.startswith("|") else "dim"
            console.print(Text.assemble((f"{agent:<{width}}", screen.colour(agent)), "  ", (text, style)))

    return show
