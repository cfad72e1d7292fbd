"""Sessions in containers of a Docker engine, through its API. Few calls each: starting a team is benchmarked."""

from __future__ import annotations

import calendar
import contextlib
import io
import math
import os
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import docker
import requests
import urllib3
from docker import errors
from docker.utils import kwargs_from_env

from team.errors import TeamError
from team.runtimes import (
    DOOR_DIR,
    GATE,
    INSIDE_DIR,
    PACKAGE_DIR,
    UPSTREAM,
    WORKSPACE,
    EngineLost,
    Exit,
    Found,
    Gone,
    Spec,
)
from team.runtimes.lines import Lines
from team.text import one_line

HOME = "/home/agent"
PACKAGE = Path(__file__).resolve().parent.parent
INSIDE = PACKAGE / "inside"
_CONNECTIONS = 128
_ANSWER = 120.0
"""Seconds in which the engine must answer anything that is not a wait: 64 creations at once may queue."""
_LOST = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, errors.DockerException, OSError)


def connect(timeout: float = _ANSWER) -> docker.APIClient:
    """A client of the engine that ``DOCKER_HOST`` names, by default of the local one.

    Raises :class:`~team.runtimes.EngineLost` when none answers.
    """
    with asking("connect"):
        where: Any = kwargs_from_env()
        return docker.APIClient(version="auto", timeout=math.ceil(timeout), max_pool_size=_CONNECTIONS, **where)


def no_engine(why: BaseException) -> TeamError:
    """What a person can do about an engine that does not answer."""
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if "permission denied" in str(why).lower():
        return TeamError(
            f"not allowed to use the Docker engine at {where}: run `sudo usermod -aG docker $USER` and log in again"
        )
    return TeamError(
        f"no Docker engine answers at {where}: start it with `sudo systemctl start docker` (on Debian or Ubuntu "
        "`sudo apt-get install docker.io` installs it), or set DOCKER_HOST"
    )


class _Place:
    """How far the log of a container has been read. A long line is several entries with the same time."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._stamp, self._count, self._again = "", 0, 0

    @property
    def since(self) -> str:
        """From when on to read, as the engine's API wants it: seconds and nanoseconds since the epoch."""
        if not self._stamp:
            return f"{self._since:.9f}" if self._since else "0"
        whole, _, nanos = self._stamp.rstrip("Z").partition(".")
        return f"{calendar.timegm(time.strptime(whole, '%Y-%m-%dT%H:%M:%S'))}.{nanos or 0}"

    def resume(self) -> None:
        """The entries from ``since`` on come (again)."""
        self._again = 0

    def new(self, stamp: str) -> bool:
        """Take the time of the next entry; False when it had been read before."""
        if stamp < self._stamp:
            return False
        if stamp > self._stamp:
            self._stamp, self._count, self._again = stamp, 0, 0
        self._again += 1
        if self._again <= self._count:
            return False
        self._count = self._again
        return True


class DockerRuntime:
    """Every session in a container of its own, without network, root or capabilities."""

    name = "docker"

    def __init__(self) -> None:
        self._client: docker.APIClient | None = None
        self._connecting = threading.Lock()
        self._sizes: dict[str, dict[str, int]] = {}

    @property
    def api(self) -> docker.APIClient:
        """The engine, connected on first use; safe in threads."""
        with self._connecting:
            if self._client is None:
                self._client = connect()
            return self._client

    def check(self, image: str) -> None:
        try:
            with asking("answer"):
                self.api.ping()
            with asking(f"look for the image {image}"):
                self.api.inspect_image(image)  # type: ignore[no-untyped-call]
        except EngineLost as e:
            raise no_engine(e) from e
        except Gone as e:
            raise TeamError(f"the image {image} is not on the engine: run `team image build`") from e

    def describe(self, spec: Spec) -> dict[str, Any]:
        return {"Name": spec.name, **_config(spec)}

    def create(self, spec: Spec) -> str:
        for path, volume in spec.caches.items():
            self._make_cache(spec, path, volume)
        try:
            id = self._create(spec)
        except errors.APIError as e:  # a stale container of the same name
            if e.status_code != 409:
                raise
            self.remove(spec.name)
            id = self._create(spec)
        if homes := _parents(spec):
            with asking("prepare the caches"):
                self.api.put_archive(id, "/", homes)
        return id

    def _create(self, spec: Spec) -> str:
        try:
            with asking("create the container", passing=409):
                return self._post(_config(spec), spec.name)
        except Gone as e:
            raise TeamError(f"the image {spec.image} is not on the engine: run `team image build`") from e

    def _post(self, config: dict[str, Any], name: str) -> str:
        made: dict[str, str] = self.api.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
        return made["Id"]

    def _make_cache(self, spec: Spec, path: str, volume: str) -> None:
        """A new volume belongs to root, as do the files that the image may have at ``path``: hand them over, once."""
        with contextlib.suppress(Gone), asking("look for a cache"):
            self.api.inspect_volume(volume)
            return
        config = _chown(spec, path, volume)
        self.remove(f"{volume}-chown")
        try:
            with asking("create a cache"):
                id = self._post(config, f"{volume}-chown")
                self.api.start(id)
            exit = self.wait(id, _ANSWER)
        finally:
            self.remove(f"{volume}-chown")
        if exit is None or exit.code:
            self.remove_volume(volume)
            raise TeamError(f"the cache {path} could not be given to uid {spec.uid}: its chown failed ({exit})")

    def start(self, id: str) -> None:
        with asking("start the container"):
            self.api.start(id)

    def follow(self, id: str, on_line: Callable[[bytes], None], *, since: float = 0) -> None:
        streams = {1: Lines(on_line), 2: Lines(on_line)}
        place, last = _Place(since), False
        for number, data in self._frames(id, place, follow=True):
            streams.get(number, streams[1]).feed(data)
        # An engine may end the stream before the container's last lines are out, or when it rotates the log. So go
        # on from the place that was reached, and once more after the end. Removed by hand, it has ended as well.
        with contextlib.suppress(Gone):
            while not last:
                last = not self._still_runs(id)
                for number, data in self._frames(id, place, follow=not last):
                    streams.get(number, streams[1]).feed(data)
        for stream in streams.values():
            stream.end()

    def _frames(self, id: str, place: _Place, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """What the container printed after ``place``, as (1 for stdout or 2 for stderr, bytes), until the engine
        ends the stream; ``place`` moves along.

        Not ``APIClient.logs``: it does not tell the streams apart, so that halves of their lines would mix.
        """
        url = f"{self.api.base_url}/v{self.api.api_version}/containers/{id}/logs"
        params = {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": str(int(follow)), "since": place.since}
        with asking("read the output"):
            answer = _there(id, self.api.get(url, params=params, stream=True, timeout=(_ANSWER, None)))
        place.resume()
        with answer:
            while True:
                try:
                    head = answer.raw.read(8)
                    data = answer.raw.read(int.from_bytes(head[4:8], "big")) if len(head) == 8 else b""
                except _LOST:
                    return  # whether the engine or only this stream is lost shows when the container is looked at
                if len(head) < 8:
                    return
                stamp, _, text = data.partition(b" ")
                if place.new(stamp.decode("ascii", "replace")):
                    yield head[0], text

    def _still_runs(self, id: str) -> bool:
        """Whether the container runs, or will. The stream of a container that ends closes a little earlier."""
        for _ in range(20):
            state = self._state(id)
            if not state["Running"] and state["Status"] != "created":
                return False
            time.sleep(0.05)
        return True

    def wait(self, id: str, seconds: float | None = None) -> Exit | None:
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            left = min(max(deadline - time.monotonic(), 0.01), 60.0)
            try:
                with asking("wait for the container"):
                    # A timeout of 0.5 s would be cut to 0 by `APIClient.wait`, which is "for ever" below.
                    url = f"{self.api.base_url}/v{self.api.api_version}/containers/{id}/wait"
                    _there(id, self.api.post(url, timeout=(_ANSWER, left)))
            except EngineLost as e:
                if not _timed_out(e):
                    raise
            state = self._state(id)
            if not state["Running"]:
                return _exit(state)
            if time.monotonic() >= deadline:
                return None

    def _state(self, id: str) -> dict[str, Any]:
        with asking("look at the container"):
            state: dict[str, Any] = self.api.inspect_container(id)["State"]
            return state

    def stop(self, id: str, seconds: float) -> None:
        with contextlib.suppress(Gone, errors.APIError), asking("stop the container", passing=409):
            if seconds <= 0:
                self.api.kill(id)  # 409: it does not run
            else:
                self.api.stop(id, timeout=math.ceil(seconds))

    def remove(self, id: str) -> None:
        for attempt in range(30):
            try:
                with asking("remove the container", passing=409):
                    self.api.remove_container(id, v=True, force=True)
                return
            except Gone:
                return
            except errors.APIError:  # 409: somebody else removes it at this moment; it counts when it is gone
                time.sleep(0.1 * attempt)
        raise TeamError(f"the engine does not remove the container {id[:12]}: try `docker rm -f {id[:12]}`")

    def remove_volume(self, name: str) -> None:
        with contextlib.suppress(Gone), asking("remove a volume"):
            self.api.remove_volume(name, force=True)

    def found(self, project: str) -> list[Found]:
        with asking("list containers"):
            rows = self.api.containers(all=True, filters={"label": f"team.project={project}"})
        return [
            Found(
                id=row["Id"],
                name=row["Names"][0].lstrip("/") if row.get("Names") else row["Id"][:12],
                session=row["Labels"].get("team.session", ""),
                running=row["State"] in ("running", "paused", "restarting"),
                entry=row["Labels"].get("team.entry", ""),
            )
            for row in rows
            if row["Labels"].get("team.session")
        ]

    def disk(self, project: str) -> dict[str, int]:
        with asking("measure the disk"):
            url = f"{self.api.base_url}/v{self.api.api_version}/system/df"
            answer = self.api.get(url, params={"type": ["container", "volume"]}, timeout=_ANSWER)
        if not answer.ok:  # one measurement at a time, whoever asked for it: the last numbers are new enough
            return self._sizes.get(project, {})
        used = answer.json()
        sizes: dict[str, int] = {}
        for row in used.get("Containers") or []:
            _add(sizes, project, row, row.get("SizeRw", 0))
        for row in used.get("Volumes") or []:
            _add(sizes, project, row, (row.get("UsageData") or {}).get("Size", 0))
        self._sizes[project] = sizes
        return sizes


def _there(id: str, answer: requests.Response) -> requests.Response:
    """``answer``, unless it says that the container is gone (404) or going (409)."""
    if answer.status_code in (404, 409):
        raise Gone(f"the container {id[:12]} is gone")
    answer.raise_for_status()
    return answer


def _add(sizes: dict[str, int], project: str, row: dict[str, Any], size: int) -> None:
    labels = row.get("Labels") or {}
    session = labels.get("team.session")
    if labels.get("team.project") == project and session:
        sizes[session] = sizes.get(session, 0) + max(size or 0, 0)


def _exit(state: dict[str, Any]) -> Exit:
    error = one_line(state.get("Error") or "")
    code = int(state.get("ExitCode") or 0)
    if state["Status"] == "created":
        return Exit(code=code or 125, error=error or "it was created and never started")
    return Exit(code=code, out_of_memory=bool(state.get("OOMKilled")), error=error)


def _config(spec: Spec) -> dict[str, Any]:
    """The body of the engine's call that creates the container (API 1.40 and later)."""
    labels = _labels(spec)
    env = {"HOME": HOME, **spec.env}
    return {
        "Image": spec.image,
        "Hostname": re.sub(r"[^A-Za-z0-9-]+", "-", spec.env.get("TEAM_AGENT", spec.name)).strip("-")[:63],
        "User": f"{spec.uid}:{spec.gid}",
        "Env": [f"{key}={value}" for key, value in env.items()],
        # By way of `sh`: an installer may have dropped the executable bit.
        "Entrypoint": ["/bin/sh", f"{INSIDE_DIR}/{spec.entry}"],
        "Cmd": list(spec.argv),
        "WorkingDir": WORKSPACE,
        "Labels": labels,
        "OpenStdin": False,
        "StdinOnce": False,
        "Tty": False,
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "Init": True,
            "IpcMode": "private",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Memory": spec.limits.memory,
            "MemorySwap": spec.limits.memory,
            "PidsLimit": spec.limits.pids,
            "NanoCpus": int((spec.limits.cpus or 0) * 1e9),
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "RestartPolicy": {"Name": "no"},
            # Kept by the engine, so that a supervisor that adopts a session reads what was missed. `local` loses line
            # ends after lines of more than 16 KiB (20.10); `json-file` only turns what is no UTF-8 into U+FFFD.
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "2"}},
            "Mounts": [
                _bind(spec.upstream, UPSTREAM),
                *([_bind(spec.door, DOOR_DIR)] if spec.door else []),
                *([_bind(spec.gate, GATE)] if spec.gate else []),
                _bind(PACKAGE, PACKAGE_DIR),
                _volume(spec.workspace, WORKSPACE, labels),
                *(_volume(volume, path, _cache_labels(spec, path)) for path, volume in spec.caches.items()),
            ],
        },
    }


def _labels(spec: Spec) -> dict[str, str]:
    return {"team.project": spec.project, "team.session": spec.session, "team.entry": spec.entry}


def _cache_labels(spec: Spec, path: str) -> dict[str, str]:
    return {"team.project": spec.project, "team.cache": path}


def _bind(host: Path, inside: str) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(host), "Target": inside, "ReadOnly": True}


def _volume(name: str, inside: str, labels: dict[str, str]) -> dict[str, Any]:
    # A new volume takes the owner, mode and files of the image's directory: the image has /workspace with mode 1777.
    return {"Type": "volume", "Source": name, "Target": inside, "VolumeOptions": {"Labels": labels}}


def _chown(spec: Spec, path: str, volume: str) -> dict[str, Any]:
    """A container that hands a new cache over to the session's user: root, but with nothing else."""
    return {
        "Image": spec.image,
        "User": "0:0",
        "Entrypoint": ["chown", "-R", "-h"],
        "Cmd": [f"{spec.uid}:{spec.gid}", path],
        "Labels": {"team.project": spec.project},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "CapAdd": ["CHOWN", "DAC_READ_SEARCH"],
            "SecurityOpt": ["no-new-privileges"],
            "Mounts": [_volume(volume, path, _cache_labels(spec, path))],
        },
    }


def _parents(spec: Spec) -> bytes:
    """A tar of the directories between HOME and the caches, which the engine would otherwise make for root alone:
    with a cache at ``~/.cache/pip``, nothing else could be written in ``~/.cache``. Empty when there are none."""
    paths = {
        parent
        for path in spec.caches
        for parent in PurePosixPath(path).parents
        if parent.is_relative_to(HOME) and parent != PurePosixPath(HOME)
    }
    if not paths:
        return b""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path in sorted(paths):
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, spec.uid, spec.gid
            tar.addfile(entry)
    return made.getvalue()


@contextlib.contextmanager
def asking(act: str, *, passing: int | None = None) -> Iterator[None]:
    """Turn what docker-py raises into :class:`Gone`, :class:`EngineLost` or a :class:`TeamError` with the mend.

    The status ``passing`` is the caller's to understand and stays an ``APIError``.
    """
    try:
        yield
    except errors.NotFound as e:
        raise Gone(one_line(str(e.explanation or e))) from e
    except errors.APIError as e:
        if e.status_code == passing:
            raise
        raise _refused(act, e) from e
    except _LOST as e:
        raise EngineLost(f"the engine did not {act}: {one_line(str(e))}") from e


def _refused(act: str, e: errors.APIError) -> TeamError:
    why = one_line(str(e.explanation or e), 400)
    if "no space left" in why.lower():
        return TeamError(
            f"the engine has no disk space left to {act}: free some (`docker system df` shows what is used)"
        )
    if "port is already allocated" in why.lower():
        return TeamError(f"the engine could not {act}: another program uses the port ({why})")
    if "bind source path does not exist" in why.lower() or "mounts denied" in why.lower():
        return TeamError(f"the engine cannot see a directory of this machine: is it a local one? ({why})")
    return TeamError(f"the engine refused to {act}: {why}")


def _timed_out(e: EngineLost) -> bool:
    cause = e.__cause__
    return isinstance(cause, requests.exceptions.Timeout) or "timed out" in str(cause).lower()
