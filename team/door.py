"""The one way out of a session's container: git, model, and the few calls of ``team``.

One HTTP app behind each session's socket. The socket is the identity; every request, also on a connection that is
kept alive, asks whether the session lives.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Any

import aiohttp
from aiohttp import web

from team.errors import TeamError
from team.gateway.answers import Refusal, answer, api_of
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused
from team.upstream.upstream import Upstream

SOCKET_MAX = 107
"""Bytes of a socket path (unix(7): sun_path has 108, one of them NUL)."""
_SPOOL = 1 << 20
"""Pushes up to this size never touch the disk before they are unpacked."""
_MOST_ASKED = 16 << 10
"""Bytes of a call of ``team`` inside."""
MOST_ASKED_BYTES = 64 << 20
"""Of one question of a room: 500,000 cases of 100 characters."""
# aiohttp prints malformed requests, with the bytes that an agent sent, on the person's screen: not through this one.
_QUIET = logging.getLogger("team.door")
_QUIET.propagate = False
_QUIET.addHandler(logging.NullHandler())


class Rights(Enum):
    """What a session may do at its door."""

    ALL = "all"
    RESCUE = "rescue"  # one push to its rescue ref
    NONE = "none"


@dataclass(frozen=True)
class Bounds:
    """How hard one session may knock."""

    connections: int = 256
    """Open, whether or not anything is asked on them."""
    requests: int = 64
    """At once."""
    pushes: int = 2
    """At once."""
    per_second: float = 50
    """Requests, over time."""
    burst: float = 200
    body_seconds: float = 600
    """For sending the whole of a push."""
    push_bytes: int = 101 << 20
    """Of one push, its commands included."""


@dataclass
class Tenant:
    """Who is behind a door, and what has been seen of it."""

    agent: str
    email: str
    role: str
    session: str
    token: str
    rights: Rights = Rights.ALL
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the clone and the set-up are done and the client is about to run."""
    left: str = ""
    """What the container said at its end of what it leaves behind: ``clean <oid>``, ``dirty``, or nothing."""
    busy: int = 0
    """Requests under way: a session that waits here is not silent."""
    touched: float = field(default_factory=time.monotonic)
    """When the last request began or ended (monotonic seconds)."""

    def pusher(self) -> Pusher:
        ending = self.rights is Rights.RESCUE
        allowed = self.rights
        return Pusher(
            name=self.agent,
            email=self.email,
            session=self.session,
            role=self.role,
            ending=ending,
            alive=lambda: self.rights is allowed and allowed is not Rights.NONE,
        )


Model = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a model call of the session."""
AskRoom = Callable[[str, bytes], dict[str, Any]]
"""Answers a question (its name, and JSON) of a room's part in the session; raises :class:`TeamError` for nonsense."""
OnError = Callable[[str], None]


class Door:
    """The door of one session."""

    def __init__(
        self,
        tenant: Tenant,
        upstream: Upstream,
        model: Model,
        bounds: Bounds | None = None,
        on_error: OnError | None = None,
        rooms: Mapping[str, AskRoom] | None = None,
    ) -> None:
        """``on_error`` is told what went wrong in the door itself. ``rooms``: who answers ``/team/ROOM/WHAT``."""
        self.tenant = tenant
        self._rooms, self._asked = rooms or {}, asyncio.Semaphore(1)
        self._upstream, self._answer, self._on_error = upstream, model, on_error
        self._bounds = bounds or Bounds()
        self._pushes = asyncio.Semaphore(self._bounds.pushes)
        self._tokens, self._refilled = self._bounds.burst, time.monotonic()
        self._needs_token = False
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    async def open(self, directory: Path) -> None:
        """Listen on ``directory/door.sock``, which replaces whatever a former supervisor left there."""
        path = directory / "door.sock"
        if len(str(path).encode()) > SOCKET_MAX:
            raise TeamError(f"socket path too long ({path}); set XDG_RUNTIME_DIR to a short directory")
        with suppress(FileNotFoundError):
            path.unlink()
        self._runner = await self._serve()
        self._listener = await asyncio.get_running_loop().create_unix_server(self._connected, str(path))
        path.chmod(0o666)  # the container's user is another; the mount is the fence

    async def open_tcp(self) -> str:
        """Listen on a free loopback port, for a runtime without mounts; returns the URL. Needs the token."""
        self._needs_token = True
        self._runner = await self._serve()
        self._listener = await asyncio.get_running_loop().create_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """End every right and every connection."""
        self.tenant.rights = Rights.NONE
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _connected(self) -> asyncio.BaseProtocol:
        """What serves a new connection. Too many would take the files that the other doors need."""
        server = self._runner.server if self._runner is not None else None
        if server is None or len(server.connections) >= self._bounds.connections:
            return _HangUp()
        return server()

    async def _serve(self) -> web.AppRunner:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/git/upstream/info/refs", self._refs)
        app.router.add_post("/git/upstream/git-receive-pack", self._push)
        app.router.add_post("/team/ready", self._ready)
        app.router.add_post("/team/left", self._left)
        app.router.add_post("/team/claim", self._claim)
        app.router.add_post("/team/release", self._release)
        app.router.add_get("/team/tasks", self._tasks)
        app.router.add_post("/team/{room:[a-z]+}/{what:[a-z]+}", self._question)
        app.router.add_route("HEAD", "/", self._hello)
        app.router.add_route("*", "/v1/{path:.*}", self._model)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_QUIET,
            handle_signals=False,
            auto_decompress=False,
            shutdown_timeout=2,
            lingering_time=0,
        )
        await runner.setup()
        return runner

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Liveness, identity and limits, for every request."""
        tenant = self.tenant
        if tenant.rights is Rights.NONE:
            return _refuse(request, 403, "permission_error", "this session has ended")
        if self._needs_token and not self._knows_token(request):
            return _refuse(request, 401, "authentication_error", "wrong token for this door")
        if tenant.busy >= self._bounds.requests or not self._take():
            return _refuse(request, 429, "rate_limit_error", "too many requests at this door", {"retry-after": "2"})
        tenant.busy += 1
        tenant.touched = time.monotonic()
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError, aiohttp.ClientError):
            raise
        except Exception as error:
            if self._on_error is not None:
                self._on_error(f"the door failed at {request.path}: {error!r}")
            raise
        finally:
            tenant.busy -= 1
            tenant.touched = time.monotonic()

    def _take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._bounds.burst, self._tokens + (now - self._refilled) * self._bounds.per_second)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _knows_token(self, request: web.Request) -> bool:
        sent = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(sent.encode("utf-8", "replace"), self.tenant.token.encode())

    # -- the calls of team ------------------------------------------------------------------------------------

    async def _hello(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _ready(self, request: web.Request) -> web.Response:
        if self.tenant.rights is Rights.ALL:
            self.tenant.ready.set()
        return web.Response(text="ok\n")

    async def _left(self, request: web.Request) -> web.Response:
        if self.tenant.rights is Rights.ALL:
            self.tenant.left = (await request.content.read(200)).decode("ascii", "replace").strip()
        return web.Response(text="ok\n")

    async def _claim(self, request: web.Request) -> web.Response:
        return await self._ask(request, self._upstream.claim)

    async def _release(self, request: web.Request) -> web.Response:
        return await self._ask(request, self._upstream.give_back)

    async def _tasks(self, request: web.Request) -> web.Response:
        lines = await asyncio.to_thread(self._upstream.overview, self.tenant.session)
        return web.Response(text=lines)

    async def _question(self, request: web.Request) -> web.Response:
        """What `team test` and `team oracle` ask; one at a time, since a large question costs memory here."""
        if self.tenant.rights is not Rights.ALL:
            return web.Response(status=403, text="this session is ending\n")
        room, what = self._rooms.get(request.match_info["room"]), request.match_info["what"]
        if room is None:
            return web.Response(status=404, text="nobody answers this here\n")
        async with self._asked:
            body = bytearray()
            try:
                async with asyncio.timeout(self._bounds.body_seconds):
                    async for chunk in request.content.iter_any():
                        body += chunk
                        if len(body) > MOST_ASKED_BYTES:
                            return web.Response(status=413, text=f"at most {MOST_ASKED_BYTES} bytes\n")
                answer = await asyncio.to_thread(lambda: json.dumps(room(what, bytes(body))))
            except TimeoutError:
                return web.Response(status=408, text="the question took too long to send\n")
            except TeamError as error:
                return web.Response(status=400, text=f"{error}\n")
        return web.Response(text=answer, content_type="application/json")

    async def _ask(self, request: web.Request, what: Callable[[Pusher, Mapping[str, str]], str]) -> web.Response:
        """Answer one of the calls of ``team/inside/bin/team``: lines ``key=value`` in, text out."""
        if self.tenant.rights is not Rights.ALL:
            return web.Response(status=403, text="this session is ending\n")
        try:
            body = await request.content.read(_MOST_ASKED)
            lines = body.decode("utf-8", "replace").splitlines()
            fields = {key: value for key, _, value in (line.partition("=") for line in lines)}
            return web.Response(text=await asyncio.to_thread(what, self.tenant.pusher(), fields))
        except TeamError as error:
            return web.Response(status=400, text=f"{error}\n")
        except Refused as error:
            return web.Response(status=409, text=f"{error.reason}\n")

    # -- model ------------------------------------------------------------------------------------------------

    async def _model(self, request: web.Request) -> web.StreamResponse:
        if self.tenant.rights is not Rights.ALL:
            return _refuse(request, 403, "permission_error", "this session is ending")
        if not self._knows_token(request):
            return _refuse(request, 401, "authentication_error", "this is not the token of this session")
        return await self._answer(request)

    # -- git --------------------------------------------------------------------------------------------------

    async def _refs(self, request: web.Request) -> web.Response:
        service = request.query.get("service", "")
        if service != "git-receive-pack":
            return web.Response(status=403, text="fetch from /upstream; this door takes pushes only\n")
        refs = await asyncio.to_thread(self._upstream.advertise, self.tenant.pusher())
        return web.Response(
            body=b"001f# service=git-receive-pack\n0000" + refs,
            content_type="application/x-git-receive-pack-advertisement",
            headers={"Cache-Control": "no-cache"},
        )

    async def _push(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Content-Encoding", "identity") not in ("identity", ""):
            return web.Response(status=415, text="send the push without compression\n")
        if self._pushes.locked():
            return web.Response(status=429, text="this session has pushes under way; wait for them\n")
        async with self._pushes:
            with tempfile.SpooledTemporaryFile(max_size=_SPOOL) as spool:
                try:
                    async with asyncio.timeout(self._bounds.body_seconds):
                        size = await self._spool(request, spool)
                except TimeoutError:
                    return web.Response(status=408, text="the push took too long to send\n")
                if size is None:
                    return web.Response(status=413, text=f"a push may have {self._bounds.push_bytes} bytes at most\n")
                spool.seek(0)
                return await self._receive(request, spool, empty=size <= 4)

    async def _spool(self, request: web.Request, spool: IO[bytes]) -> int | None:
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > self._bounds.push_bytes:
                return None
            spool.write(chunk)
        return size

    async def _receive(self, request: web.Request, spool: Any, *, empty: bool) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "application/x-git-receive-pack-result", "Cache-Control": "no-cache"}
        )
        if empty:  # git probes with a lone flush before it streams a large push
            await response.prepare(request)
            return response
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

        def reply(chunk: bytes) -> None:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        def work() -> None:
            try:
                self._upstream.receive(self.tenant.pusher(), spool, reply)
            finally:
                loop.call_soon_threadsafe(chunks.put_nowait, None)

        task = asyncio.create_task(asyncio.to_thread(work))
        await response.prepare(request)
        while (chunk := await chunks.get()) is not None:
            # A pusher that went away does not stop its landing; its answer is in the ledger.
            with suppress(ConnectionError):
                await response.write(chunk)
        await task
        with suppress(ConnectionError):
            await response.write_eof()
        return response


class _HangUp(asyncio.Protocol):
    """Ends its connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _refuse(
    request: web.Request, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """An error in words that the client understands."""
    return answer(api_of(request.path), Refusal(status, kind, message, headers=headers))
