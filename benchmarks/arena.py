"""Clones that work against one upstream, naive or behind real doors, for as long as it takes to count what lands.

A door is what a session has: a unix socket of its own, served by one process for all (as the supervisor does), and a
relay to it on loopback (as in a container). Containers themselves would only add what is the same for everybody.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from team.config import Landing
from team.ledger import Kind, Ledger
from team.names import agent_email
from team.places import Project

HERE = Path(__file__).resolve().parent
INSIDE = HERE.parent / "team" / "inside" / "bin"
WARM_SECONDS = 2.0


@dataclass(frozen=True)
class Count:
    """What was counted in one window: landings a second, and what was refused in the whole run."""

    rate: float
    refused: int


def environment(home: Path, name: str = "Ann") -> dict[str, str]:
    """What the git of one agent sees; the settings are those of ``team/inside``."""
    config = home / "gitconfig"
    if not config.exists():
        config.write_text(
            "[safe]\ndirectory = *\n[pull]\nrebase = false\n[gc]\nauto = 0\n[maintenance]\nauto = false\n"
            "[core]\nfsmonitor = false\n[http]\nproxy =\n"
        )
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER")
           for key, value in (("NAME", name), ("EMAIL", agent_email(name)))}  # fmt: skip
    path = f"{INSIDE}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "GIT_CONFIG_GLOBAL": str(config), "GIT_CONFIG_NOSYSTEM": "1", **who}


def make_repository(path: Path, commits: int, files: int) -> str:
    """A repository of ``commits`` commits and ``files`` files; returns its newest commit."""
    lines = []
    for n in range(commits):
        keep = "M 100644 inline current_tasks/.gitkeep\ndata 0\n\n" if n == 0 else ""
        text = f"line {n}\n" * 20
        lines.append(
            f"commit refs/heads/main\ncommitter A <a@b.invalid> {1_700_000_000 + n} +0000\n"
            f"data 5\nstep\n\n{keep}M 100644 inline src/dir_{n % files % 40}/file_{n % files}.py\n"
            f"data {len(text)}\n{text}\n"
        )
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], input="".join(lines).encode(), cwd=path, check=True)
    return subprocess.run(
        ["git", "rev-parse", "main"], cwd=path, check=True, capture_output=True, text=True
    ).stdout.strip()


def naive(script: str, agents: int, seconds: float) -> Count:
    """``agents`` clones that pull, rebase and push to one bare repository."""
    with _directory() as base:
        make_repository(base / "source", 1, 1)
        origin = base / "origin.git"
        _git(base, "clone", "-q", "--bare", str(base / "source"), str(origin))
        clones = [_clone(base, origin, n) for n in range(agents)]
        return _run(base, script, clones, lambda: _commits(origin), seconds)


def free(script: str, agents: int, seconds: float) -> Count:
    """``agents`` clones, each of which pushes to a repository of its own."""
    with _directory() as base:
        make_repository(base / "source", 1, 1)
        origins = [base / f"origin{n}.git" for n in range(agents)]
        for origin in origins:
            _git(base, "clone", "-q", "--bare", str(base / "source"), str(origin))
        clones = [_clone(base, origin, n) for n, origin in enumerate(origins)]
        return _run(base, script, clones, lambda: sum(_commits(origin) for origin in origins), seconds)


def doors(
    script: str, agents: int, seconds: float, kind: Kind = Kind.CLAIM, *, commits: int = 1, files: int = 1
) -> Count:
    """``agents`` clones, each with a door of its own to one upstream."""
    with _directory() as base:
        project = Project(base / "source", "bench-1", base / "state")
        head = make_repository(project.root, commits, files)
        from team.upstream.upstream import Upstream

        Upstream.create(project, project.root, head)
        Ledger(project.ledger).close()
        argv = [sys.executable, "-m", "benchmarks.arena", str(base), str(agents)]
        server = subprocess.Popen(argv, cwd=HERE.parent, stdout=subprocess.PIPE, env=_server_env())
        relays: list[subprocess.Popen[bytes]] = []
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the doors did not open"
            clones = []
            for n in range(agents):
                clone, relay = _door_clone(base, project, n)
                clones.append(clone)
                relays.append(relay)
            count = _run(base, script, clones, lambda: _events(project, kind), seconds)
            _check(project, kind)
            return count
        finally:
            for process in [*relays, server]:
                process.send_signal(signal.SIGTERM)
            for process in [*relays, server]:
                process.wait(20)


@dataclass(frozen=True)
class _Work:
    path: Path
    name: str
    env: dict[str, str]


def _run(base: Path, script: str, clones: list[_Work], count: Callable[[], int], seconds: float) -> Count:
    """Start everybody, wait until all are at work, count for ``seconds``, stop everybody."""
    stop = base / "stop"
    began = time.monotonic()
    running = [
        subprocess.Popen(["bash", str(HERE / script), str(c.path), c.name, str(stop)], env=c.env) for c in clones
    ]
    try:
        time.sleep(WARM_SECONDS)
        at, first = time.monotonic(), count()
        time.sleep(seconds)
        last, till = count(), time.monotonic()
    finally:
        stop.touch()
        for process in running:
            process.wait(300)
    refused = 0
    for c in clones:
        file = Path(f"{c.path}.refused")
        if file.exists():
            text = file.read_text("utf-8", "replace")
            refused += text.count("rejected]") + text.count("refused:") or 1
            print(text[:2000], file=sys.stderr)
    assert till > began
    return Count((last - first) / (till - at), refused)


def _clone(base: Path, origin: Path, number: int) -> _Work:
    name = f"agent-{number + 1:02d}"
    path = base / name
    env = environment(base, name)
    _git(base, "clone", "-q", "--shared", str(origin), str(path), env=env)
    (path / "current_tasks").mkdir(exist_ok=True)
    return _Work(path, name, env)


def _door_clone(base: Path, project: Project, number: int) -> tuple[_Work, subprocess.Popen[bytes]]:
    clone = _clone(base, project.upstream, number)
    door = base / "d" / str(number) / "door.sock"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,backlog=128,fork"
    if shutil.which("socat"):
        relay = subprocess.Popen(["socat", listen, f"UNIX-CONNECT:{door}"], stderr=subprocess.DEVNULL)
    else:
        argv = [sys.executable, "-m", "benchmarks.arena", str(door), f"relay:{port}"]
        relay = subprocess.Popen(argv, cwd=HERE.parent)
    _git(clone.path, "config", "remote.origin.pushurl", f"http://127.0.0.1:{port}/git/upstream", env=clone.env)
    _git(clone.path, "config", "remote.origin.push", "HEAD:refs/for/main", env=clone.env)
    env = clone.env | {"TEAM_DOOR": f"http://127.0.0.1:{port}", "TEAM_DOOR_SOCKET": str(door)}
    if not shutil.which("socat"):
        env["TEAM_DOOR_SOCKET"] = ""
    return _Work(clone.path, clone.name, env), relay


def _check(project: Project, kind: Kind) -> None:
    """Nothing that the ledger counts may be missing from main."""
    if kind is Kind.CLAIM:
        out = _git(project.upstream, "ls-tree", "--name-only", "main", "current_tasks/")
        locks = sum(line.endswith(".txt") for line in out.splitlines())
        assert locks == _events(project, kind), "locks on main and claims in the ledger differ"


def _commits(repository: Path) -> int:
    return int(_git(repository, "rev-list", "--count", "main"))


def _events(project: Project, kind: Kind) -> int:
    db = sqlite3.connect(project.ledger)
    try:
        return int(db.execute("SELECT count(*) FROM events WHERE kind = ?", (kind.value,)).fetchone()[0])
    finally:
        db.close()


def _git(at: Path, *args: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(["git", *args], cwd=at, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _server_env() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}


@contextmanager
def _directory() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


async def _serve(base: Path, agents: int) -> None:
    """The doors, as a supervisor serves them."""
    from aiohttp import web

    from team.door import Door, Tenant
    from team.upstream.upstream import Upstream

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16 + 2 * max(agents, 16)))
    project = Project(base / "source", "bench-1", base / "state")
    # One claim a session is the default; here each claims and claims, as the naive loop does.
    upstream = Upstream(project, Ledger(project.ledger), Landing(claims=1_000_000))
    upstream.settle()

    async def no_model(request: web.Request) -> web.Response:
        return web.Response(status=404)

    opened = []
    for n in range(agents):
        name = f"agent-{n + 1:02d}"
        tenant = Tenant(name, agent_email(name), "worker", f"{name}.1", "token")
        directory = base / "d" / str(n)
        directory.mkdir(parents=True)
        door = Door(tenant, upstream, no_model, on_error=lambda text: print(text, file=sys.stderr))
        await door.open(directory)
        opened.append(door)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    for door in opened:
        await door.close()
    upstream.close()


async def _relay(door: str, port: int) -> None:
    """What socat does, where there is none."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(door)
        await asyncio.gather(pump(reader, ours), pump(theirs, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[2].startswith("relay:"):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        asyncio.run(_relay(sys.argv[1], int(sys.argv[2].removeprefix("relay:"))))
    else:
        asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
