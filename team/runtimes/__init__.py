"""Where a session's container runs. One module a runtime; all offer the functions of :class:`Runtime`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from team.errors import TeamError

DOOR_PORT = 8787
"""Where the relay inside a container listens, on 127.0.0.1."""
PROXY_PORT = 8788
"""Where the relay to the proxy listens, on 127.0.0.1, in sessions that have a network."""
DOOR_DIR = "/run/team"
"""Where the session's door directory (``door.sock``, ``prompt.md``) is mounted, read-only."""
PACKAGE_DIR = "/opt/team"
"""Where the package ``team`` is mounted, read-only: image and host never disagree on its version."""
INSIDE_DIR = f"{PACKAGE_DIR}/inside"
"""What runs in a container: ``team/inside``."""
WORKSPACE = "/workspace"
UPSTREAM = "/upstream"
GATE = "/gate"
"""Where a check of the gate finds the objects of pushes that wait, read-only."""


@dataclass(frozen=True)
class Limits:
    """What one session may use."""

    memory: int = 4 << 30
    """Bytes, swap included."""
    pids: int = 1024
    cpus: float | None = None
    disk: int = 10 << 30
    """Bytes that the work tree and the container's own layer may hold together."""


@dataclass(frozen=True)
class Spec:
    """One container of a session, complete: what ``--dry-run`` prints."""

    name: str
    """Name of the container, unique on the engine."""
    project: str
    """The project's id, put on the container at creation."""
    session: str
    image: str
    argv: Sequence[str]
    """What ``entry`` (or ``rescue``) of ``team/inside`` execs after its set-up; never holds the prompt."""
    env: dict[str, str]
    """Set in the container. Holds the session's token, never a real key."""
    upstream: Path
    """The bare repository on the host, mounted read-only at ``/upstream``."""
    door: Path | None
    """The session's door directory on the host, mounted read-only at ``/run/team``; None: no way out at all."""
    workspace: str
    """Name of the volume at ``/workspace``; made if missing."""
    entry: str = "entry"
    """Which script of ``team/inside`` runs: ``entry``, ``rescue`` or ``gate``."""
    gate: Path | None = None
    """The repository of pushes that wait, mounted read-only at ``/gate``; for checks of the gate only."""
    caches: dict[str, str] = field(default_factory=dict)
    """Path in the container -> volume name; made, and given to the session's user, if missing."""
    uid: int = 1000
    gid: int = 1000
    limits: Limits = Limits()
    hosts: Sequence[str] = ()
    """What the proxy at the door lets through, for the reader of ``--dry-run``; the container itself has no network."""


@dataclass(frozen=True)
class Exit:
    """How a container ended, as the engine tells it, not the exit code alone."""

    code: int
    out_of_memory: bool = False
    error: str = ""
    """The engine's own error, for example why it did not start."""


@dataclass(frozen=True)
class Found:
    """A container of this project that exists on the engine."""

    id: str
    name: str
    session: str
    running: bool
    entry: str


class EngineLost(Exception):
    """The engine does not answer. It says nothing about the sessions: they may well still run."""


class Gone(Exception):
    """The container (or the volume) does not exist any more: removed by hand or by the engine."""


class Runtime(Protocol):
    """What a runtime can do. Every call blocks (call it in a thread) and raises :class:`EngineLost` when the
    engine does not answer. ``id`` is what :meth:`create` returned."""

    name: str

    def check(self, image: str) -> None:
        """Raise :class:`~team.errors.TeamError` naming the mend unless sessions of ``image`` can start now."""

    def describe(self, spec: Spec) -> dict[str, Any]:
        """Exactly what :meth:`create` would ask for, as JSON-ready data."""

    def create(self, spec: Spec) -> str:
        """Make the container (and its volumes) without starting it. Carries labels ``team.project``,
        ``team.session`` and ``team.entry`` from creation on. A stale container of the same name is replaced."""

    def start(self, id: str) -> None:
        """Start a created container."""

    def follow(self, id: str, on_line: Callable[[bytes], None], *, since: float = 0) -> None:
        """Call ``on_line`` for each line (cut at 1 MiB, without its newline) that the container prints, until it
        ends. ``since``: seconds since the epoch; earlier lines are left out. Returns when the container ended."""

    def wait(self, id: str, seconds: float | None = None) -> Exit | None:
        """Block until the container ended; None when ``seconds`` passed first. Raises :class:`Gone`."""

    def stop(self, id: str, seconds: float) -> None:
        """SIGTERM, and SIGKILL after ``seconds`` (0: SIGKILL at once). No error when it has ended or is gone."""

    def remove(self, id: str) -> None:
        """Remove the container if it exists, killing it. No error when it is gone."""

    def remove_volume(self, name: str) -> None:
        """Remove a volume if it exists. No error when it is gone."""

    def found(self, project: str) -> list[Found]:
        """Containers that carry the project's id. A label alone proves nothing: check ids with the ledger."""

    def disk(self, project: str) -> dict[str, int]:
        """Bytes used per session: its work tree's volume and its container's own layer."""


def volume_names(project: str, session: str) -> str:
    """The name of the volume that holds the clone of ``session``."""
    return f"team-{project}-{session}"


def runtime(name: str) -> Runtime:
    """The runtime called ``name``, imported only now (docker-py costs start-up time)."""
    if name == "docker":
        from team.runtimes.docker import DockerRuntime

        return DockerRuntime()
    if name == "process":
        from team.runtimes.process import ProcessRuntime

        return ProcessRuntime()
    raise TeamError(f"unknown runtime {name!r}; known: {', '.join(RUNTIMES)}")


RUNTIMES: Iterable[str] = ("docker", "process")
