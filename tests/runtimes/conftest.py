"""A small upstream, a door with just enough behind it, and sessions that leave nothing on the engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from team.git import git
from team.runtimes import Limits, Runtime, Spec
from team.runtimes.docker import DockerRuntime

UID = os.getuid() or 1000
TOKEN = "a-token-of-this-test"
IDENTITY = {
    "GIT_AUTHOR_NAME": "agent-01",
    "GIT_AUTHOR_EMAIL": "agent-01@team.invalid",
    "GIT_COMMITTER_NAME": "agent-01",
    "GIT_COMMITTER_EMAIL": "agent-01@team.invalid",
}


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A bare repository with three commits on main, that accepts every push."""
    work, bare = tmp_path / "seed", tmp_path / "upstream.git"
    git("init", "--quiet", "-b", "main", str(work), at=tmp_path)
    for number in range(3):
        (work / f"file{number}.txt").write_text(f"{number}\n")
        (work / ".gitignore").write_text("ignored/\n")
        git("add", "-A", at=work)
        git("commit", "--quiet", "-m", f"commit {number}", at=work, env=IDENTITY)
    git("clone", "--quiet", "--bare", str(work), str(bare), at=tmp_path)
    git("config", "http.receivepack", "true", at=bare)
    return bare


@dataclass
class Door:
    """A door with `/team/ready`, `/team/left` and plain git behind it, on a socket and on a TCP port."""

    directory: Path
    upstream: Path
    heard: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    port: int = 0
    refuse: bool = False

    async def tell(self, request: web.Request) -> web.Response:
        self.heard.append((request.path, (await request.read()).decode()))
        self.tokens.add(request.headers.get("Authorization", ""))
        return web.Response(status=403 if self.refuse else 204)

    async def git(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        body = await request.read()
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.upstream),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": "/" + request.match_info["rest"],
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "agent",
        }
        process = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await process.communicate(body)
        head, _, content = out.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=content)

    async def serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/team/{call}", self.tell)
        app.router.add_route("*", "/git/upstream/{rest:.*}", self.git)
        # `auto_decompress` off: git http-backend unpacks itself.
        runner = web.AppRunner(app, auto_decompress=False)
        await runner.setup()
        await web.UnixSite(runner, str(self.directory / "door.sock")).start()
        (self.directory / "door.sock").chmod(0o666)
        tcp = web.TCPSite(runner, "127.0.0.1", 0)
        await tcp.start()
        assert tcp._server is not None
        self.port = tcp._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        ready.set()
        await end.wait()
        await runner.cleanup()


@pytest.fixture
def door(upstream: Path) -> Iterator[Door]:
    directory = Path("/tmp") / f"team-test-{uuid.uuid4().hex[:8]}"  # short: it holds a socket
    directory.mkdir()
    (directory / "prompt.md").write_text("the prompt, with ünïcode\n")
    door = Door(directory, upstream)
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(door.serve(ready, end),))
    thread.start()
    assert ready.wait(10)
    yield door
    loop.call_soon_threadsafe(end.set)
    thread.join()
    loop.close()
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()


@dataclass
class Ended:
    """What a session of a test did."""

    code: int
    out_of_memory: bool
    lines: list[bytes]

    @property
    def text(self) -> str:
        return b"\n".join(self.lines).decode("utf-8", "replace")


@dataclass
class Bench:
    """Starts sessions in a runtime and removes all that they left."""

    runtime: Runtime
    spec: Spec
    ids: list[str] = field(default_factory=list)
    volumes: set[str] = field(default_factory=set)

    def start(self, script: str, **changes: object) -> str:
        """A session whose client is ``sh -c script``; it runs when this returns."""
        spec = replace(self.spec, argv=("sh", "-c", script), **changes)  # type: ignore[arg-type]
        self.volumes |= {spec.workspace, *spec.caches.values()}
        id = self.runtime.create(spec)
        self.ids.append(id)
        self.runtime.start(id)
        return id

    def finish(self, id: str) -> Ended:
        lines: list[bytes] = []
        self.runtime.follow(id, lines.append)
        exit = self.runtime.wait(id, 60)
        assert exit is not None
        return Ended(exit.code, exit.out_of_memory, lines)

    def run(self, script: str, **changes: object) -> Ended:
        return self.finish(self.start(script, **changes))

    def fresh(self, **env: str) -> Spec:
        """The spec of another session: a container and a work tree of its own."""
        key = uuid.uuid4().hex[:8]
        return replace(
            self.spec,
            name=f"team-test-{key}",
            session=f"s-{key}",
            workspace=f"team-test-{key}",
            env={**self.spec.env, "TEAM_SESSION": f"s-{key}", **env},
        )

    def clear(self) -> None:
        for id in self.ids:
            self.runtime.remove(id)
        for volume in self.volumes:
            self.runtime.remove_volume(volume)


def spec_for(upstream: Path, door: Door, image: str) -> Spec:
    key = uuid.uuid4().hex[:8]
    return Spec(
        name=f"team-test-{key}",
        project=f"test-{key}",
        session=f"s-{key}",
        image=image,
        argv=(),
        env={"TEAM_SESSION": f"s-{key}", "TEAM_AGENT": "agent-01", **IDENTITY},
        upstream=upstream,
        door=door.directory,
        workspace=f"team-test-{key}",
        uid=UID,
        gid=UID,
        limits=Limits(memory=256 << 20, pids=128),
    )


@pytest.fixture
def bench(agent_image: str, upstream: Path, door: Door) -> Iterator[Bench]:
    """Sessions in containers."""
    bench = Bench(DockerRuntime(), spec_for(upstream, door, agent_image))
    yield bench
    bench.clear()
