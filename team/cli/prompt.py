"""``team prompt``: what the next session of an agent will be told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from team.cli import complete

if TYPE_CHECKING:
    from team.ledger import Ledger
    from team.plan import Seat
    from team.prompt import Prompts


@click.command("prompt")
@click.argument("agent", shell_complete=complete.agents)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(agent: str, as_json: bool) -> None:
    """Print exactly what the next session of AGENT would be told if it started now.

    Put together by code from AGENT_PROMPT.md, its role, what others landed since its last session, how that ended
    and what it left behind, failures worth remembering, and what its role is handed.
    """
    from team import config_file, prompt, worktree
    from team.cli import screen
    from team.cli.held import open_upstream
    from team.handover import Handover
    from team.ledger import Kind, Ledger

    root = worktree.find_root(Path.cwd())
    settings = config_file.load(root)
    prompts = prompt.load(root)
    upstream = open_upstream()
    ledger = Ledger(upstream.project.ledger)
    seat = _seat(agent, ledger, prompts)
    last = ledger.last(Kind.SESSION_STARTING, agent=seat.name)
    session = f"{seat.name}.{int(last.data['n']) + 1 if last else 1}"
    text = Handover(prompts, settings, root, ledger, upstream).prompt(seat, session, upstream.main())
    if as_json:
        screen.print_json({"agent": seat.name, "role": seat.role, "session": session, "prompt": text})
        return
    for path in _changed_since_start(ledger, prompts):
        click.echo(f"note: {path} was changed after the team started, which goes on with what it was", err=True)
    click.echo(text, nl=False)


def _seat(agent: str, ledger: Ledger, prompts: Prompts) -> Seat:
    """The seat called ``agent``: one that the team has, or that `team up` could make. Raises :class:`TeamError`."""
    from team.errors import TeamError
    from team.names import seat_name
    from team.plan import Seat
    from team.text import one_line
    from team.view import view

    known = view(ledger).seats
    if agent in known:
        return Seat(agent, known[agent].role)
    name, _, number = agent.rpartition("-")
    role = "worker" if name == "agent" else name
    n = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0
    if n and role in prompts.roles and seat_name(role, n) == agent:
        return Seat(agent, role)
    names = ", ".join(sorted(known)) or "none yet"
    raise TeamError(f"there is no agent {one_line(agent, 60)!r}; seats: {names}; a new one is called like agent-01")


def _changed_since_start(ledger: Ledger, prompts: Prompts) -> list[Path]:
    """The texts that a running team does not know as they are now."""
    from team.ledger import Kind

    started = ledger.last(Kind.TEAM_STARTED, Kind.TEAM_STOPPED)
    if started is None or started.kind != Kind.TEAM_STARTED:
        return []
    return [path for path in prompts.texts if path.stat().st_mtime > started.at]
