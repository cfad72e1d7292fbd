"""The door: real HTTP over a session's socket, real ``git push`` into a real upstream, a provider on loopback."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from team.door import Bounds, Door, Rights, Tenant
from team.errors import TeamError
from team.gateway import ask as asking
from team.gateway.gateway import Caller, Gateway
from team.ledger import Kind, Ledger
from team.places import Project
from team.plan import Key
from team.upstream.upstream import Upstream

from .upstream.conftest import Clone, make_source

TOKEN = "token-of-the-session"
ASK = b'{"model": "m", "max_tokens": 1, "messages": []}'
KEY = "sk-the-real-key-of-the-person"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def until(what: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def relay(socket: Path) -> AsyncIterator[str]:
    """What socat does in a container: loopback to the socket."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_unix_connection(str(socket))
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, ours), pump(theirs, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


@dataclass
class House:
    """A door with all that is behind it, and a clone in front of it."""

    project: Project
    ledger: Ledger
    upstream: Upstream
    tenant: Tenant
    door: Door
    socket: Path
    url: str
    """Of the relay."""
    clone: Clone
    http: aiohttp.ClientSession
    """Over the socket, on one connection that is kept alive."""

    def calls(self) -> list[dict[str, Any]]:
        """What the ledger knows of model calls."""
        return [event.data for event in self.ledger.events(Kind.MODEL_CALL)]

    async def git(self, *args: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.clone.run, *args)

    async def lands(self, *args: str) -> str:
        done = await self.git("push", *args)
        assert done.returncode == 0, done.stderr
        return done.stderr

    async def refused(self, *args: str) -> str:
        done = await self.git("push", *args)
        assert done.returncode != 0, done.stderr
        return done.stderr

    async def post(self, path: str, data: bytes = b"{}", **headers: str) -> tuple[int, str]:
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        async with self.http.post(f"http://door{path}", data=data, headers=named) as answer:
            return answer.status, await answer.text()

    async def ask(self, data: bytes = ASK, path: str = "/v1/messages") -> tuple[int, str]:
        """A model call."""
        return await self.post(path, data, x_api_key=TOKEN)

    async def pack_of(self, commit: str) -> bytes:
        """The body of a push of ``commit``, as git would send it."""
        main = self.upstream.main()
        line = f"{main} {commit} refs/for/main\0report-status\n".encode()
        pack = await asyncio.to_thread(
            subprocess.run,
            ["git", "pack-objects", "--revs", "--stdout", "-q"],
            cwd=self.clone.path,
            input=f"{commit}\n^{main}\n".encode(),
            capture_output=True,
            check=True,
        )
        return f"{len(line) + 4:04x}".encode() + line + b"0000" + pack.stdout

    def on_main(self, commit: str) -> bool:
        bare = Clone(self.project.upstream, "x", "x@x")
        return bare.run("merge-base", "--is-ancestor", commit, "main").returncode == 0

    @contextmanager
    def landing_held_up(self) -> Iterator[None]:
        """Somebody else lands for as long as the block runs."""
        with self.project.landing_lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    async def push_arrived(self) -> None:
        """Wait until a whole push is in its quarantine, at the landing lock."""
        await until(lambda: list(self.project.incoming.glob("*/objects/??")))
        await asyncio.sleep(0.1)


Make = Callable[..., Awaitable[House]]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes a house: ``await house(provider=..., bounds=...)``."""
    async with AsyncExitStack() as stack:

        async def make(
            provider: Handler | str | None = None,
            bounds: Bounds | None = None,
            key: Key | None = Key(KEY),  # noqa: B008 - frozen
            tcp: bool = False,
        ) -> House:
            project = Project(tmp_path / "source", "demo-1", tmp_path / "state")
            source = make_source(project.root)
            Upstream.create(project, source.path, source.head())
            ledger = Ledger(project.ledger)
            stack.callback(ledger.close)
            upstream = Upstream(project, ledger)
            stack.callback(upstream.close)
            model = provider if isinstance(provider, str) else await _serve(stack, provider)
            gateway = await stack.enter_async_context(Gateway(ledger, base_url=model, key=key))
            tenant = Tenant("agent-01", "agent-01@team.invalid", "worker", "agent-01.1", TOKEN)
            caller = Caller(tenant.agent, tenant.role, tenant.session)
            door = Door(tenant, upstream, lambda request: gateway.handle(request, caller), bounds)
            stack.push_async_callback(door.close)
            directory = Path(tempfile.mkdtemp(prefix="t-"))
            stack.callback(shutil.rmtree, directory)
            socket = directory / "door.sock"
            if tcp:
                url = await door.open_tcp()
            else:
                await door.open(directory)
                url = await stack.enter_async_context(relay(socket))
            connector = aiohttp.UnixConnector(str(socket), limit=1)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            clone = Clone(tmp_path / "clone", "agent-01", "agent-01@team.invalid", "agent-01.1")
            source.git("clone", "-q", "--shared", str(project.upstream), str(clone.path))
            clone.git("config", "remote.origin.pushurl", f"{url}/git/upstream")
            clone.git("config", "remote.origin.push", "HEAD:refs/for/main")
            return House(project, ledger, upstream, tenant, door, socket, url, clone, http)

        yield make


async def _serve(stack: AsyncExitStack, provider: Handler | None) -> str:
    """A provider on loopback that answers everything with ``provider``; returns its URL, empty for none."""
    if provider is None:
        return ""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{rest:.*}", provider)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


# -- git ------------------------------------------------------------------------------------------------------------


async def test_a_push_lands_and_the_next_pull_works(house: Make) -> None:
    h = await house()
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    assert "landed on main" in await h.lands()
    assert h.on_main(commit)
    assert (await h.git("pull", "--no-edit")).returncode == 0
    assert h.clone.head() == h.upstream.main() != commit


async def test_a_large_push_is_probed_with_a_lone_flush_and_then_streamed(house: Make) -> None:
    h = await house()
    status, text = await h.post("/git/upstream/git-receive-pack", b"0000")
    assert (status, text) == (200, "")
    commit = h.clone.commit_paths("large", {"large.bin": os.urandom(3 << 20)})
    done = await h.git("-c", "http.postBuffer=65536", "push")
    assert done.returncode == 0, done.stderr
    assert h.on_main(commit)


async def test_the_door_takes_pushes_only(house: Make) -> None:
    h = await house()
    done = await h.git("fetch", f"{h.url}/git/upstream")
    assert done.returncode != 0 and "403" in done.stderr
    assert (await h.post("/git/upstream/git-upload-pack"))[0] == 404
    assert (await h.post("/git/other/git-receive-pack"))[0] == 404


async def test_a_compressed_push_is_refused(house: Make) -> None:
    h = await house()
    status, text = await h.post("/git/upstream/git-receive-pack", b"\x1f\x8b", Content_Encoding="gzip")
    assert status == 415 and "without compression" in text


async def test_a_push_of_too_many_bytes_is_refused_while_it_comes(house: Make) -> None:
    h = await house(bounds=Bounds(push_bytes=50_000))
    h.clone.commit_paths("large", {"large.bin": os.urandom(200_000)})
    assert "413" in await h.refused()
    assert not list(h.project.incoming.glob("*")), "what came was kept"
    h.clone.git("reset", "-q", "--hard", "HEAD~")
    h.clone.commit("small", a_DOT_txt="a\n")
    await h.lands()


async def test_a_push_that_does_not_get_on_ends_and_frees_its_place(house: Make) -> None:
    h = await house(bounds=Bounds(body_seconds=0.3, pushes=1))

    async def slowly() -> AsyncIterator[bytes]:
        yield b"00"
        await asyncio.sleep(5)

    status = (await h.post("/git/upstream/git-receive-pack", slowly()))[0]  # type: ignore[arg-type]
    assert status == 408
    h.clone.commit("work", a_DOT_txt="a\n")
    await h.lands()
    await until(lambda: h.tenant.busy == 0)


async def test_pushes_at_once_are_limited(house: Make) -> None:
    h = await house(bounds=Bounds(pushes=1))
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    with h.landing_held_up():
        first = asyncio.create_task(h.lands())
        await h.push_arrived()
        assert h.tenant.busy == 1, "a session that waits for its landing is not silent"
        assert "429" in await h.refused()
    await first
    assert h.on_main(commit)


async def test_a_pusher_that_goes_away_while_its_landing_waits_still_lands(house: Make) -> None:
    h = await house()
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    with h.landing_held_up():
        pusher = await asyncio.create_subprocess_exec("git", "push", "-q", cwd=h.clone.path, start_new_session=True)
        await h.push_arrived()
        os.killpg(pusher.pid, 9)
        await pusher.wait()
        await asyncio.sleep(0.1)
        assert not h.on_main(commit)
    await until(lambda: h.on_main(commit))
    await until(lambda: h.tenant.busy == 0)
    assert h.ledger.last(Kind.ERROR) is None


async def test_a_pusher_that_hangs_up_before_any_answer_still_lands(house: Make) -> None:
    h = await house()
    commit = h.clone.commit_paths("work", {f"{n}.bin": os.urandom(100_000) for n in range(30)})
    body = await h.pack_of(commit)
    for _ in range(2):  # the second finds it landed, or joins in
        _, writer = await asyncio.open_unix_connection(str(h.socket))
        head = f"POST /git/upstream/git-receive-pack HTTP/1.1\r\nHost: door\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()
    await until(lambda: h.on_main(commit))
    await until(lambda: h.tenant.busy == 0 and not list(h.project.incoming.glob("*")))
    landed = list(h.ledger.events(Kind.LANDING_DONE))
    assert len(landed) == 1, "it landed twice"
    assert h.ledger.last(Kind.ERROR) is None


# -- rights ---------------------------------------------------------------------------------------------------------


async def test_an_ending_session_may_only_save_its_work_once(house: Make) -> None:
    h = await house(provider=_says("never"))
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    h.tenant.rights = Rights.RESCUE
    assert "this session is ending" in await h.refused()
    assert (await h.ask())[0] == 403
    assert (await h.post("/team/ready"))[0] == 200 and not h.tenant.ready.is_set()
    assert (await h.post("/team/left", b"clean " + commit.encode()))[0] == 200 and h.tenant.left == ""
    await h.lands("origin", "HEAD:refs/rescue/agent-01/agent-01.1")
    assert h.upstream.rescued("agent-01.1") == commit
    h.clone.commit("more", b_DOT_txt="b\n")
    assert "saved already" in await h.refused("origin", "HEAD:refs/rescue/agent-01/agent-01.1")
    assert not h.on_main(commit) and h.calls() == []


async def test_a_connection_that_was_kept_alive_loses_its_rights_with_the_session(house: Make) -> None:
    h = await house(provider=_says("hello"))
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    reader, writer = await asyncio.open_unix_connection(str(h.socket))

    async def send(request: bytes) -> bytes:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
        return head + await reader.readexactly(length)

    ready = b"POST /team/ready HTTP/1.1\r\nHost: door\r\nContent-Length: 0\r\n\r\n"
    assert b"200 OK" in await send(ready)
    h.tenant.rights = Rights.NONE
    assert b"this session has ended" in await send(ready)
    body = await h.pack_of(commit)
    push = f"POST /git/upstream/git-receive-pack HTTP/1.1\r\nHost: door\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert b"403" in (await send(push + body)).split(b"\r\n")[0]
    writer.close()
    assert "403" in await h.refused()
    assert (await h.ask())[0] == 403
    assert not h.on_main(commit)


async def test_a_session_that_ends_while_its_push_waits_does_not_land(house: Make) -> None:
    h = await house()
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    with h.landing_held_up():
        push = asyncio.create_task(h.refused())
        await h.push_arrived()
        h.tenant.rights = Rights.RESCUE
    assert "session" in await push
    assert not h.on_main(commit)
    refusal = h.ledger.last(Kind.PUSH_REFUSED)
    assert refusal is not None and refusal.data["rule"] == "ended"


async def test_what_the_container_says(house: Make) -> None:
    h = await house()
    assert (await h.http.head("http://door/")).status == 200
    assert (await h.post("/team/left", b"clean 1234\n" + b"x" * 1000))[0] == 200
    assert h.tenant.left.startswith("clean 1234") and len(h.tenant.left) <= 200
    assert not h.tenant.ready.is_set()
    assert (await h.post("/team/ready"))[0] == 200 and h.tenant.ready.is_set()


async def test_a_door_without_a_mount_wants_the_token_for_everything(house: Make) -> None:
    h = await house(provider=_says("hello"), tcp=True)
    commit = h.clone.commit("work", a_DOT_txt="a\n")
    assert "401" in await h.refused() or "could not read Username" in await h.refused()
    async with aiohttp.ClientSession() as http:
        assert (await http.post(f"{h.url}/team/ready")).status == 401
        wrong = {"Authorization": "Bearer token-of-another"}
        assert (await http.post(f"{h.url}/team/ready", headers=wrong)).status == 401
        assert not h.tenant.ready.is_set()
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.post(f"{h.url}/team/ready", headers=right)).status == 200
    done = await h.git("-c", f"http.extraHeader=Authorization: Bearer {TOKEN}", "push")
    assert done.returncode == 0 and h.on_main(commit), done.stderr


# -- limits ---------------------------------------------------------------------------------------------------------


async def test_knocking_too_often_is_answered_with_a_pause(house: Make) -> None:
    h = await house(bounds=Bounds(burst=3, per_second=20))
    assert [(await h.post("/team/ready"))[0] for _ in range(3)] == [200, 200, 200]
    async with h.http.post("http://door/team/ready") as answer:
        assert answer.status == 429 and answer.headers["retry-after"] == "2"
        assert (await answer.json())["error"]["type"] == "rate_limit_error"
    await asyncio.sleep(0.1)
    assert (await h.post("/team/ready"))[0] == 200


async def test_connections_are_limited_also_those_that_never_ask(house: Make) -> None:
    h = await house(bounds=Bounds(connections=5))
    slow = [await asyncio.open_unix_connection(str(h.socket)) for _ in range(5)]
    for _, writer in slow:
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: door\r\n")  # and never the rest
    await until(lambda: len(h.door._runner.server.connections) == 5)  # type: ignore[union-attr]
    reader, writer = await asyncio.open_unix_connection(str(h.socket))
    assert await reader.read() == b""
    writer.close()
    slow[0][1].close()
    await until(lambda: len(h.door._runner.server.connections) == 4)  # type: ignore[union-attr]
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(h.socket))) as http:
        assert (await http.post("http://door/team/ready")).status == 200
    for _, writer in slow[1:]:
        writer.close()


async def test_requests_at_once_are_limited(house: Make) -> None:
    go = asyncio.Event()

    async def waits(request: web.Request) -> web.Response:
        await go.wait()
        return web.json_response("answer")

    h = await house(provider=waits, bounds=Bounds(requests=2))
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(h.socket))) as http:
        ask = {"url": "http://door/v1/messages", "data": ASK, "headers": {"x-api-key": TOKEN}}
        waiting = [asyncio.create_task(http.post(**ask)) for _ in range(2)]  # type: ignore[arg-type]
        await until(lambda: h.tenant.busy == 2)
        touched = h.tenant.touched
        assert (await h.post("/team/ready"))[0] == 429
        go.set()
        assert [(await task).status for task in waiting] == [200, 200]
    await until(lambda: h.tenant.busy == 0)
    assert h.tenant.touched > touched
    assert (await h.post("/team/ready"))[0] == 200


# -- model ----------------------------------------------------------------------------------------------------------


def _says(text: str) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(text)

    return answer


async def test_an_answer_streams_through_byte_for_byte_while_it_is_made(house: Make) -> None:
    pieces = [b"event: a\ndata: {}\n\n", b"\x00\xff\r\n half an ev", os.urandom(100_000), b"ent\n\n"]
    body = b'{"model": "opus\\u001b[2J", "max_tokens": 1, "messages":  []}'
    read = asyncio.Event()
    seen: list[web.Request] = []

    async def streams(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        assert await request.read() == body
        headers = {"request-id": "r-1", "Set-Cookie": "a=b", "Content-Type": "text/event-stream"}
        response = web.StreamResponse(status=201, reason="Made", headers=headers)
        await response.prepare(request)
        for piece in pieces:
            read.clear()
            await response.write(piece)
            await read.wait()
        await response.write_eof()
        return response

    h = await house(provider=streams)
    headers = {
        "x-api-key": TOKEN,
        "Cookie": "c=d",
        "anthropic-beta": "pdfs-2024-09-25,x",
        "X-Claude-Code-Session-Id": "s",
    }
    url = "http://door/v1/messages?beta=true&evil=1"
    async with h.http.post(url, data=body, headers=headers) as answer:
        assert (answer.status, answer.reason, answer.headers["request-id"]) == (201, "Made", "r-1")
        assert "Set-Cookie" not in answer.headers
        for piece in pieces:  # each comes before the provider goes on
            assert await answer.content.readexactly(len(piece)) == piece
            read.set()
        assert await answer.content.read() == b""
    sent = seen[0]
    assert sent.headers["x-api-key"] == KEY and "Authorization" not in sent.headers and "Cookie" not in sent.headers
    assert TOKEN not in str(sent.headers)
    assert sent.headers["anthropic-beta"] == "pdfs-2024-09-25" and sent.headers["X-Claude-Code-Session-Id"] == "s"
    assert sent.headers["Accept-Encoding"] == "identity" and sent.query_string == "beta=true"
    await until(h.calls)
    [call] = h.calls()
    assert (call["path"], call["status"], call["bytes"]) == ("/v1/messages", 201, len(body))
    assert call["model"].startswith("opus") and "\x1b" not in call["model"]


async def test_a_bearer_key_goes_as_a_bearer_key(house: Make) -> None:
    async def shows(request: web.Request) -> web.Response:
        return web.json_response(dict(request.headers))

    h = await house(provider=shows, key=Key(KEY, bearer=True))
    status, text = await h.post("/v1/messages", ASK, Authorization=f"Bearer {TOKEN}")
    shown = json.loads(text)
    assert status == 200 and shown["Authorization"] == f"Bearer {KEY}" and "x-api-key" not in shown


async def test_the_model_wants_the_sessions_own_token(house: Make) -> None:
    asked: list[web.Request] = []

    async def never(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response()

    h = await house(provider=never)
    wrong: list[dict[str, str]] = [
        {},
        {"x-api-key": "token-of-another"},
        {"x-api-key": ""},
        {"Authorization": f"Basic {TOKEN}"},
    ]
    for headers in wrong:
        status, text = await h.post("/v1/messages", b"{}", **headers)
        assert status == 401 and json.loads(text)["error"]["type"] == "authentication_error"
    assert asked == [] and h.calls() == []


async def test_only_known_calls_leave(house: Make) -> None:
    asked: list[str] = []

    async def notes(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.json_response({})

    h = await house(provider=notes)
    for path in ("/v1/files", "/v1/messages/batches", "/v1/messages/", "/v1//messages", "/v1/%2e%2e/admin"):
        assert (await h.ask(path=path))[0] in (403, 404), path
    # Forms that a client library would tidy up.
    for target in (b"/v1/../admin", b"http://elsewhere.example/v1/files", b"//elsewhere.example/v1/messages"):
        reader, writer = await asyncio.open_unix_connection(str(h.socket))
        head = b"Host: door\r\nx-api-key: " + TOKEN.encode() + b"\r\nContent-Length: 2\r\nConnection: close"
        writer.write(b"POST " + target + b" HTTP/1.1\r\n" + head + b"\r\n\r\n{}")
        answer = await reader.read()
        assert answer.split(b" ", 2)[1] in (b"403", b"404", b"400"), (target, answer)
        writer.close()
    assert asked == []
    assert (await h.ask(path="/v1/messages/count_tokens"))[0] == 200
    assert asked == ["POST /v1/messages/count_tokens"]


async def test_a_redirect_is_not_followed(house: Make) -> None:
    async def away(request: web.Request) -> web.Response:
        assert request.path == "/v1/messages"
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    h = await house(provider=away)
    headers = {"x-api-key": TOKEN}
    async with h.http.post("http://door/v1/messages", data=ASK, headers=headers, allow_redirects=False) as answer:
        assert answer.status == 502 and "Location" not in answer.headers


async def test_an_answer_that_breaks_off_is_seen_as_a_cut(house: Make) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: message_start\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    h = await house(provider=breaks)
    with pytest.raises(aiohttp.ClientPayloadError):
        await h.ask()
    await until(lambda: h.calls() and h.tenant.busy == 0)
    assert h.calls()[0]["unknown"] is True


async def test_an_answer_is_read_to_its_end_when_its_client_goes_away(house: Make) -> None:
    ended = asyncio.Event()

    async def long(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(30):
            await response.write(b"data: more\n\n" * 1000)
            await asyncio.sleep(0.01)
        await response.write(b'data: {"type":"message_delta","usage":{"output_tokens":7}}\n\n')
        ended.set()
        return response

    h = await house(provider=long)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(h.socket))) as http:
        answer = await http.post("http://door/v1/messages", data=ASK, headers={"x-api-key": TOKEN})
        assert await answer.content.readexactly(4) == b"data"
        answer.close()
        await asyncio.wait_for(ended.wait(), 5)
    await until(lambda: h.calls() and h.tenant.busy == 0)
    assert h.calls()[0]["output"] == 7 and h.calls()[0]["unknown"] is False


async def test_a_provider_that_cannot_be_reached_is_told_in_its_own_words(house: Make) -> None:
    h = await house(provider="http://127.0.0.1:9")
    status, text = await h.ask()
    error = json.loads(text)
    assert status == 502 and error["type"] == "error" and error["error"]["type"] == "api_error"
    assert "could not be reached" in error["error"]["message"] and KEY not in text
    assert [call["error"] != "" for call in h.calls()] == [True]


async def test_a_team_without_a_model_says_so(house: Make) -> None:
    h = await house(key=None)
    status, text = await h.ask()
    assert status == 403 and "without a model" in text


async def test_a_request_to_the_model_is_bounded(house: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    h = await house(provider=_says("hello"))
    monkeypatch.setattr(asking, "MAX_BODY", 10_000)
    monkeypatch.setattr(asking, "BODY_SECONDS", 0.3)

    async def chunks(count: int, pause: float = 0) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 1000
            await asyncio.sleep(pause)

    assert (await h.ask(ASK.ljust(10_000)))[0] == 200
    assert (await h.ask(b"x" * 10_001))[0] == 413
    assert (await h.ask(chunks(11)))[0] == 413  # type: ignore[arg-type]
    assert (await h.ask(chunks(9, 0.1)))[0] == 408  # type: ignore[arg-type]
    await until(lambda: h.tenant.busy == 0)


# -- the socket -----------------------------------------------------------------------------------------------------


async def test_a_socket_path_that_is_too_long_names_the_mend(house: Make, tmp_path: Path) -> None:
    h = await house()
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with pytest.raises(TeamError, match=r"socket path too long .* set XDG_RUNTIME_DIR"):
        await h.door.open(deep)
    assert not any(deep.iterdir())


async def test_what_a_former_supervisor_left_in_place_of_the_socket_is_replaced(house: Make, tmp_path: Path) -> None:
    h = await house()
    await h.door.close()
    h.tenant.rights = Rights.ALL
    target = tmp_path / "target"
    target.write_text("untouched")
    h.socket.unlink(missing_ok=True)
    h.socket.symlink_to(target)
    await h.door.open(h.socket.parent)
    assert h.socket.is_socket() and not h.socket.is_symlink() and target.read_text() == "untouched"
    h.clone.commit("work", a_DOT_txt="a\n")
    await h.lands()


async def test_a_closed_door_answers_nobody(house: Make) -> None:
    h = await house()
    assert (await h.post("/team/ready"))[0] == 200
    await h.door.close()
    with pytest.raises(aiohttp.ClientError):
        await h.post("/team/ready")
    assert h.tenant.rights is Rights.NONE
