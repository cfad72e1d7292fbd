"""Where things are: the user's project, and the state that lives outside its work tree."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from team.errors import TeamError

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,40}\Z")
POINTER = ".team"
LOG_LINK = "agent_logs"


@dataclass(frozen=True)
class Project:
    """A project and every path that belongs to it. Nothing is created here; see :mod:`team.worktree`."""

    root: Path
    """The user's work tree."""
    id: str
    """Short, unique on this machine, safe in names of containers and volumes."""
    state: Path
    """``$XDG_STATE_HOME/team/<id>``: upstream, ledger, rescue, logs; mode 0700."""

    @property
    def upstream(self) -> Path:
        return self.state / "upstream.git"

    @property
    def rescue(self) -> Path:
        return self.state / "rescue.git"

    @property
    def gate(self) -> Path:
        """Pushes that wait for the gate; only its checks mount it."""
        return self.state / "gate.git"

    @property
    def gate_lock(self) -> Path:
        """Held by the process that runs the checks."""
        return self.state / "gate.lock"

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.db"

    @property
    def tests(self) -> Path:
        """What the sampler remembers of the project's tests."""
        return self.state / "tests.db"

    @property
    def oracle(self) -> Path:
        """What ``team oracle`` remembers: verdicts and culprits."""
        return self.state / "oracle.db"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def incoming(self) -> Path:
        """Objects of pushes that are not landed yet; no session mounts it."""
        return self.state / "incoming"

    @property
    def landing_lock(self) -> Path:
        return self.state / "landing.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held for as long as a supervisor runs."""
        return self.state / "supervisor.lock"

    @property
    def supervisor_pid(self) -> Path:
        """The pid of the supervisor; says nothing unless the lock is held."""
        return self.state / "supervisor.pid"

    @property
    def doors(self) -> Path:
        """A short directory for sockets: a socket path has at most 107 bytes (unix(7))."""
        digest = hashlib.sha256(str(self.state).encode()).hexdigest()[:10]
        return runtime_dir() / digest

    def door(self, session: str) -> Path:
        """The directory that is mounted read-only into the container of ``session``."""
        return self.doors / session


def state_home() -> Path:
    """``$XDG_STATE_HOME/team``, by default ``~/.local/state/team`` (XDG base directory specification)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "team"


def config_home() -> Path:
    """``$XDG_CONFIG_HOME/team``, by default ``~/.config/team``: what only the person may set."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".config") / "team"


def runtime_dir() -> Path:
    """``$XDG_RUNTIME_DIR/team`` where it is short enough for sockets, else ``<tmp>/team-<uid>``."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(base).is_absolute() and len(base) <= 40 and Path(base).is_dir():
        return Path(base) / "team"
    tmp = tempfile.gettempdir()
    return Path(tmp if len(tmp) <= 40 else "/tmp") / f"team-{os.getuid()}"


def find_project(root: Path) -> Project | None:
    """The project whose work tree is ``root``, or None where ``team`` has not been set up yet.

    The pointer ``.team`` only names a directory below :func:`state_home`; what that directory says must agree,
    so a pointer copied or merged into another tree leads nowhere.
    """
    pointer = root / POINTER
    try:
        if pointer.is_symlink() or not pointer.is_file():
            return None
        name = pointer.read_text("utf-8", "replace").strip()
    except OSError:
        return None
    if not _ID.match(name):
        raise TeamError(f"{pointer} does not name a project; remove it and run `team up` again")
    state = state_home() / name
    try:
        recorded = Path(json.loads((state / "project.json").read_text("utf-8"))["root"])
    except (OSError, ValueError, KeyError):
        return None
    if recorded != root:
        if (recorded / POINTER).exists():
            return None  # a copy of a work tree: the original keeps the state
        write_project_file(state, root)
    return Project(root=root, id=name, state=state)


def new_project(root: Path) -> Project:
    """A project for ``root`` with an id of its own; its state directory exists, with mode 0700."""
    slug = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:24] or "project"
    name = f"{slug}-{os.urandom(4).hex()}"
    state = state_home() / name
    state.mkdir(parents=True, mode=0o700)
    write_project_file(state, root)
    return Project(root=root, id=name, state=state)


def write_project_file(state: Path, root: Path) -> None:
    """Record which work tree ``state`` belongs to, by atomic replace."""
    new = state / "project.json.new"
    new.write_text(json.dumps({"root": str(root)}) + "\n", "utf-8")
    new.replace(state / "project.json")


def door_directory(project: Project) -> Path:
    """``project.doors``, made so that nobody but us can put a socket there; raises :class:`TeamError` otherwise."""
    for path in (project.doors.parent, project.doors):
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if path.is_symlink() or found.st_uid != os.getuid():
            raise TeamError(f"{path} belongs to somebody else; remove it or set XDG_RUNTIME_DIR")
        path.chmod(0o700)
    return project.doors
