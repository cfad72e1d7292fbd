"""Sessions as plain processes of this machine, for rehearsals where no engine answers. No wall around them.

A session's process group is killed at its end, and whatever else carries its mark in ``/proc/*/environ``. That is
weak: a process that clears its environment escapes. Nothing keeps a session from reading or writing what its user
can, so only scripted clients run here. Caches and limits are not kept. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from team.errors import TeamError
from team.runtimes import Exit, Found, Gone, Spec
from team.runtimes.lines import Lines

INSIDE = Path(__file__).resolve().parent.parent / "inside"
MARK = "TEAM_PROCESS"
"""The variable that all processes of a session carry."""
_LOOK = 0.03
"""Seconds between two looks at a session."""
# Writes the exit code, also when its own group gets a signal: a trap that is not `ignore` is not inherited.
_WRAPPER = 'trap : TERM INT; code=$1; shift; "$@"; echo $? >"$code.new"; mv "$code.new" "$code"'


class ProcessRuntime:
    """Every session in a process group and a directory of its own."""

    name = "process"

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(tempfile.gettempdir()) / f"team-process-{os.getuid()}"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, image: str) -> None:
        if not Path("/proc/self/environ").exists():
            raise TeamError("sessions as plain processes need Linux: start a Docker engine instead")
        for program in ("git", "sh", "env", "timeout"):
            if not shutil.which(program):
                raise TeamError(f"sessions as plain processes need {program}: install it, or start a Docker engine")
        self._safe_root()

    def _safe_root(self) -> Path:
        """The directory of all sessions; one that somebody else made there first is not used."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = self._root.lstat()
        if self._root.is_symlink() or at.st_uid != os.getuid() or at.st_mode & 0o077:
            raise TeamError(f"{self._root} is not a directory of yours alone: remove it, or set TMPDIR")
        return self._root

    def describe(self, spec: Spec) -> dict[str, Any]:
        return {
            "Name": spec.name,
            "Argv": ["/bin/sh", str(INSIDE / spec.entry), *spec.argv],
            "Env": self._env(spec, self._root / "sessions" / "ID"),
            "Runtime": "process",
        }

    def _env(self, spec: Spec, home: Path) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            **spec.env,
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "tmp"),
            "TEAM_PYTHON": sys.executable,
            "TEAM_UPSTREAM": str(spec.upstream),
            "TEAM_WORKSPACE": str(self._volume(spec.workspace)),
            "TEAM_DOOR_SOCKET": "",
            "TEAM_PROMPT": str(spec.door / "prompt.md") if spec.door else os.devnull,
            "TEAM_GATE": str(spec.gate or ""),
            MARK: home.name,
        }

    def _volume(self, name: str) -> Path:
        return self._root / "volumes" / name

    def create(self, spec: Spec) -> str:
        self._safe_root()
        for found in self.found(spec.project):
            if found.name == spec.name:
                self.remove(found.id)
        id = uuid.uuid4().hex
        home = self._home(id, made=False)
        with _disk():
            for part in (home / "home", home / "tmp", self._volume(spec.workspace)):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            labels = {"name": spec.name, "project": spec.project, "session": spec.session, "entry": spec.entry}
            told = {
                "labels": labels | {"workspace": spec.workspace},
                "argv": ["/bin/sh", str(INSIDE / spec.entry), *spec.argv],
                "env": self._env(spec, home),
            }
            (home / "spec.json").write_text(json.dumps(told), "utf-8")
        return id

    def _home(self, id: str, *, made: bool = True) -> Path:
        home = self._root / "sessions" / Path(id).name
        if made and not (home / "spec.json").exists():
            raise Gone(f"the session's directory {home} is gone")
        return home

    def start(self, id: str) -> None:
        home = self._home(id)
        told = json.loads((home / "spec.json").read_text("utf-8"))
        with _disk(), (home / "output").open("wb") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WRAPPER, "team-session", str(home / "code"), *told["argv"]],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=told["env"], cwd=home / "home", start_new_session=True,
            )  # fmt: skip
        self._children[id] = child
        (home / "pid").write_text(f"{child.pid} {_started(child.pid)}", "utf-8")

    def follow(self, id: str, on_line: Callable[[bytes], None], *, since: float = 0) -> None:
        """``since``: the output carries no times, so anything but 0 begins with what is printed from now on."""
        path = self._home(id) / "output"
        lines = Lines(on_line)
        while not path.exists():
            self._home(id)
            time.sleep(_LOOK)
        with path.open("rb") as output:
            if since:
                output.seek(0, os.SEEK_END)
            while True:
                ended = not self._runs(id)
                while data := output.read(1 << 16):
                    lines.feed(data)
                if ended:
                    break
                time.sleep(_LOOK)
        lines.end()

    def wait(self, id: str, seconds: float | None = None) -> Exit | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._runs(id):
            if deadline is not None and time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK)
        home = self._home(id)
        if not (home / "pid").exists():
            return Exit(code=125, error="it was created and never started")
        self._kill(id)
        try:
            return Exit(code=int((home / "code").read_text("utf-8")))
        except (OSError, ValueError):
            return Exit(code=128 + signal.SIGKILL)

    def _runs(self, id: str) -> bool:
        child = self._children.get(id)
        if child is not None:
            return child.poll() is None
        try:
            pid, started = (self._home(id) / "pid").read_text("utf-8").split()
        except (OSError, ValueError):
            return False
        return _started(int(pid)) == started

    def stop(self, id: str, seconds: float) -> None:
        with contextlib.suppress(Gone):
            if seconds > 0 and self._runs(id):
                self._signal(id, signal.SIGTERM)
                if self.wait(id, seconds) is not None:
                    return
            self._kill(id)

    def _signal(self, id: str, number: signal.Signals) -> None:
        """A signal to the session's group, as long as its leader lives and so keeps the group's number."""
        if self._runs(id):
            with contextlib.suppress(OSError, ValueError):
                os.killpg(int((self._home(id) / "pid").read_text("utf-8").split()[0]), number)

    def _kill(self, id: str) -> None:
        """End every process of the session; twice, since one may have been born meanwhile."""
        self._signal(id, signal.SIGKILL)
        for _ in range(2):
            for pid in _marked(id):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        child = self._children.get(id)
        if child is not None:
            child.wait(10)

    def remove(self, id: str) -> None:
        with contextlib.suppress(Gone):
            self._kill(id)
        self._children.pop(id, None)
        _remove(self._home(id, made=False))

    def remove_volume(self, name: str) -> None:
        _remove(self._volume(Path(name).name))

    def found(self, project: str) -> list[Found]:
        found = []
        for id, labels in self._all():
            if labels["project"] == project:
                with contextlib.suppress(Gone):  # removed by another thread at this moment
                    found.append(Found(id, labels["name"], labels["session"], self._runs(id), labels["entry"]))
        return found

    def _all(self) -> Iterator[tuple[str, dict[str, str]]]:
        for path in sorted(self._root.glob("sessions/*/spec.json")):
            with contextlib.suppress(OSError, ValueError, KeyError):
                yield path.parent.name, json.loads(path.read_text("utf-8"))["labels"]

    def disk(self, project: str) -> dict[str, int]:
        sizes: dict[str, int] = {}
        volumes: set[str] = set()
        for id, labels in self._all():
            if labels["project"] != project:
                continue
            session, volume = labels["session"], labels["workspace"]
            sizes[session] = sizes.get(session, 0) + _size(self._home(id, made=False))
            if volume not in volumes:
                volumes.add(volume)
                sizes[session] += _size(self._volume(volume))
        return sizes


def _started(pid: int) -> str:
    """When a process began, in ticks since boot, so that a reused pid is not taken for it; empty: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _marked(id: str) -> Iterator[int]:
    """Processes that carry the mark of the session."""
    mark = f"{MARK}={id}\0".encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - a glob fails where a process ends meanwhile
        with contextlib.suppress(OSError):
            if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes():
                yield int(name)


def _size(directory: Path) -> int:
    total = 0
    for where, _, files in os.walk(directory):
        for file in files:
            with contextlib.suppress(OSError):
                total += (Path(where) / file).lstat().st_blocks * 512
    return total


def _remove(directory: Path) -> None:
    """Remove a directory and all in it, also what a session made unreadable."""
    for _ in range(3):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        for where, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):
                Path(where).chmod(0o700)
    raise TeamError(f"{directory} cannot be removed: remove it by hand")


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise TeamError(f"a session cannot be made: {e.strerror or e}: {e.filename or ''}") from e
