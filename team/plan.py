"""What one run of the team will do: made by ``team up``, carried out by the supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.config import Budget, Settings, UserSettings
from team.errors import TeamError
from team.names import seat_name
from team.runtimes import Limits


@dataclass(frozen=True)
class Key:
    """What pays at the provider. Stays on the host; never printed."""

    value: str = field(repr=False)
    bearer: bool = False
    """Sent as ``Authorization: Bearer`` instead of ``x-api-key``."""


@dataclass(frozen=True)
class Seat:
    """A seat with a name and a role; it runs sessions one after another."""

    name: str
    role: str


@dataclass(frozen=True)
class Plan:
    """One run of the team."""

    seats: tuple[Seat, ...]
    settings: Settings
    tree: Path
    """The user's work tree: prompts, roles and settings are read from it and from nowhere else."""
    client: str
    runtime: str
    image: str
    model: str | None = None
    client_argv: tuple[str, ...] = ()
    model_url: str = ""
    """Base URL of the provider (or of the scripted model); empty for clients that need none."""
    key: Key | None = None
    user: UserSettings | None = field(default=None, repr=False)
    """The person's own configuration; None in rehearsals, which ask ``model_url`` alone."""
    spending: Budget | None = None
    """What the team may spend, where that is not what ``settings`` say."""
    sessions: int | None = None
    """Sessions per seat; None for no end."""
    seconds: float | None = None
    """How long the team runs; None for no end."""
    until_idle: bool = False
    """Stop when every seat waits for main to move."""
    uid: int = 1000
    gid: int = 1000

    @property
    def budget(self) -> Budget:
        """What the team may spend."""
        return self.settings.budget if self.spending is None else self.spending

    def model_of(self, role: str) -> str | None:
        """The model of ``role``; None where the client chooses."""
        return self.settings.models.get(role) or self.model

    @property
    def limits(self) -> Limits:
        session = self.settings.session
        return Limits(memory=session.memory, pids=session.pids, cpus=session.cpus, disk=session.disk)


def seats(agents: int, roles: Iterable[str], known: Mapping[str, Any]) -> tuple[Seat, ...]:
    """The seats of ``agents`` workers plus ``roles``, each ``name`` or ``name:count``.

    Raises :class:`TeamError` for a role that is not in ``known`` or a count that is no positive number.
    """
    counts: dict[str, int] = {"worker": agents}
    for text in roles:
        role, _, count = text.partition(":")
        if role not in known:
            raise TeamError(f"unknown role {role!r}; known: {', '.join(sorted(known))}, or add roles/{role}.md")
        if count and (not count.isdigit() or int(count) < 1):
            raise TeamError(f"role {text!r}: write --role {role} or --role {role}:2")
        counts[role] = counts.get(role, 0) + int(count or 1)
    return tuple(Seat(seat_name(role, n), role) for role, count in counts.items() for n in range(1, count + 1))
