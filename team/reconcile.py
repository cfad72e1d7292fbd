"""After a restart: what the ledger says is compared with what really exists; what runs is adopted, the rest ended."""

from __future__ import annotations

from pathlib import Path

from team.ledger import Event, Kind, Ledger
from team.plan import Seat
from team.runtimes import Found
from team.session import Session, Team

Adopted = dict[str, tuple[Session, str]]
"""Seat -> the session that goes on, and its container."""


async def reconcile(team: Team) -> tuple[Adopted, list[Session]]:
    """The sessions that go on, one a seat, and those that were ended and are still to be finished."""
    open_sessions = unfinished(team.ledger)
    found = await team.engine.call(team.runtime.found, team.project.id)
    await _remove_strangers(team, found, open_sessions)
    seats = {seat.name: seat for seat in team.plan.seats}
    adopted: Adopted = {}
    ended: list[Session] = []
    for id, start in open_sessions.items():
        container = _container_of(team, id, found)
        agent = start.agent or ""
        session = _session_of(team, seats.get(agent), start)
        ending = team.ledger.last(Kind.SESSION_ENDING, session=id) is not None
        if container is not None and container.running and not ending and agent in seats and agent not in adopted:
            adopted[agent] = (session, container.id)
            continue
        await session.abandon(container.id if container else None, "its supervisor had ended")
        ended.append(session)
    return adopted, ended


def unfinished(ledger: Ledger) -> dict[str, Event]:
    """Sessions that began and of which something may be left: id -> their SESSION_STARTING event."""
    sessions: dict[str, Event] = {}
    for event in ledger.events(Kind.SESSION_STARTING, Kind.SESSION_REMOVED):
        if event.session is None:
            continue
        if event.kind == Kind.SESSION_STARTING:
            sessions[event.session] = event
        else:
            sessions.pop(event.session, None)
    return sessions


async def _remove_strangers(team: Team, found: list[Found], open_sessions: dict[str, Event]) -> None:
    """Rescue and gate containers of a former supervisor, and sessions that the ledger has already ended."""
    for item in found:
        known = item.name.startswith(f"team-{team.project.id}-{item.session}")
        if known and (item.entry in ("rescue", "gate") or item.session not in open_sessions):
            await team.engine.call(team.runtime.remove, item.id)


def _session_of(team: Team, seat: Seat | None, start: Event) -> Session:
    """The session that ``start`` began, in its seat or in one that this run has not."""
    return Session(
        team,
        seat or Seat(start.agent or "", str(start.data.get("role", "worker"))),
        int(start.data["n"]),
        base=str(start.data["base"]),
        image=str(start.data["image"]),
        token=_token(team.project.door(start.session or "")),
    )


def _container_of(team: Team, session: str, found: list[Found]) -> Found | None:
    """The container of ``session``: by the id in the ledger, or by its name when we died before we could write it."""
    created = team.ledger.last(Kind.SESSION_CREATED, session=session)
    for item in found:
        if item.entry != "entry":
            continue
        if created is not None and item.id == created.data.get("container"):
            return item
        if created is None and item.name == f"team-{team.project.id}-{session}":
            return item
    return None


def _token(door: Path) -> str:
    try:
        return (door / "token").read_text()
    except OSError:
        return ""
