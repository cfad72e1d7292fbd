"""An HTTP(S) proxy at a session's door, to the hosts that ``[network]`` names and to no others.

A socket of its own beside the door's, since tunnels are no HTTP. A name that no rule allows is never resolved; one that
is, is resolved here and its addresses are checked; and the connection goes to an address that was checked, so that a
second answer of its name server changes nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11
from aiohappyeyeballs import start_connection

from team.errors import TeamError
from team.gateway.hosts import Rules, is_public

SOCKET = "proxy.sock"
Found = tuple[int, int, int, str, tuple[Any, ...]]
"""One answer of ``getaddrinfo``."""
Resolve = Callable[[str, int], Sequence[Found]]

_NAME = re.compile(r"[a-z0-9_.-]{1,253}\Z|[0-9a-f:.]{2,45}\Z")
_CHUNK = 1 << 16
# What concerns this proxy alone (RFC 9110, 7.6.1). How the body is framed passes through, as the body does.
_OWN = frozenset(
    (b"host", b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"upgrade")
)


@dataclass(frozen=True)
class Bounds:
    """How much one session may use its proxy."""

    connections: int = 64
    """At once."""
    per_second: float = 20
    """New connections, over time."""
    burst: float = 200
    head_bytes: int = 16 << 10
    head_seconds: float = 10
    """For sending the head of a request."""
    connect_seconds: float = 20
    """For resolving and connecting."""
    idle_seconds: float = 300
    """Without a byte in either direction."""
    names: int = 500
    """Hosts that a session's record tells apart; the rest is counted together."""
    flush_seconds: float = 15
    """How much of the record a kill of the supervisor can lose."""


@dataclass
class Visit:
    """What passed between a session and one host since the last time that it was told."""

    host: str
    port: int
    refused: str = ""
    """Why nothing passed; empty where it did."""
    connections: int = 0
    sent: int = 0
    """Bytes from the session to the host."""
    received: int = 0
    seconds: float = 0.0
    """That connections which have ended were open, added up."""


Record = Callable[[Sequence[Visit]], Awaitable[None]]


class Refused(Exception):
    """A request that is not let through: status, and the reason that the client prints."""

    def __init__(self, status: int, reason: str, *, noted: bool = True) -> None:
        super().__init__(reason)
        self.status, self.reason, self.noted = status, reason, noted


@dataclass
class _Ask:
    """What a client asks for."""

    host: str
    port: int
    tunnel: bool
    """CONNECT, not a request to pass on."""
    opening: bytes
    """What the host gets first."""


def getaddrinfo(host: str, port: int) -> Sequence[Found]:
    """The addresses of ``host``, as this machine resolves it."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Egress:
    """The proxy of one session. ``record`` is told what passed, a host at a time; ``alive`` is asked per connection."""

    def __init__(
        self,
        rules: Rules,
        record: Record,
        alive: Callable[[], bool],
        *,
        bounds: Bounds | None = None,
        resolve: Resolve = getaddrinfo,
        acceptable: Callable[[str], bool] = is_public,
    ) -> None:
        self._rules, self._alive, self._bounds = rules, alive, bounds or Bounds()
        self._resolve, self._acceptable = resolve, acceptable
        self._account = _Account(record, self._bounds.names)
        self._tokens, self._refilled = self._bounds.burst, time.monotonic()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        # Threads of its own: a name server that does not answer must not hold up whoever else needs a thread.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="resolve")

    async def open(self, directory: Path) -> None:
        """Listen on ``directory/proxy.sock``, which replaces whatever a former supervisor left there."""
        path = directory / SOCKET
        path.unlink(missing_ok=True)
        try:
            self._server = await asyncio.start_unix_server(self._accept, str(path), limit=_CHUNK)
        except OSError as error:
            raise TeamError(
                f"no socket can be made at {path} ({error}); set XDG_RUNTIME_DIR to a short directory"
            ) from None
        path.chmod(0o666)  # the container's user is another; the mount is the fence
        self._flusher = asyncio.create_task(self._flush_now_and_then())

    async def close(self) -> None:
        """End every connection, and tell what passed."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        running = list(self._tasks)
        for task in running:
            task.cancel()
        self._closing.set()  # not cancelled: what it has told may not be told again
        await asyncio.gather(*running, self._flusher, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._account.flush()

    async def _flush_now_and_then(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._bounds.flush_seconds)
            with suppress(Exception):  # a full disk, say: `close` tells all, or fails aloud
                await self._account.flush()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ask: _Ask | None = None
        try:
            self._admit()
            ask = await self._read(reader)
            await self._serve(ask, reader, writer)
        except Refused as refused:
            if refused.noted:
                name, port = (ask.host, ask.port) if ask else ("", 0)
                self._account.visit(name, port, refused.reason).connections += 1
            await _refuse(writer, refused)
        except (OSError, EOFError):
            pass  # one of the two has gone
        finally:
            self._tasks.discard(task)
            writer.close()

    def _admit(self) -> None:
        now = time.monotonic()
        bounds = self._bounds
        self._tokens = min(bounds.burst, self._tokens + (now - self._refilled) * bounds.per_second)
        self._refilled = now
        if not self._alive():
            raise Refused(403, "this session has ended", noted=False)
        if len(self._tasks) > bounds.connections or self._tokens < 1:
            raise Refused(503, "too many connections at this proxy")
        self._tokens -= 1

    async def _read(self, reader: asyncio.StreamReader) -> _Ask:
        """The request at the head of a connection."""
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._bounds.head_bytes)
        try:
            async with asyncio.timeout(self._bounds.head_seconds):
                while (event := parser.next_event()) is h11.NEED_DATA:
                    if not (data := await reader.read(_CHUNK)):
                        raise EOFError
                    parser.receive_data(data)
        except TimeoutError:
            raise Refused(408, "the request took too long to send") from None
        except h11.RemoteProtocolError as error:
            raise Refused(error.error_status_hint, "not a request that a proxy can read") from None
        if not isinstance(event, h11.Request):
            raise EOFError
        return _ask(event, parser.trailing_data[0])

    async def _serve(self, ask: _Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._rules.allows(ask.host, ask.port):
            raise Refused(403, "not in [network] allow of team.toml")
        connection = await self._connect(ask)
        began = time.monotonic()
        self._account.visit(ask.host, ask.port).connections += 1
        theirs, ours = await asyncio.open_connection(sock=connection, limit=_CHUNK)
        try:
            if ask.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            if ask.opening:
                ours.write(ask.opening)
                self._account.visit(ask.host, ask.port).sent += len(ask.opening)
            await self._relay(ask, (reader, writer), (theirs, ours))
        finally:
            self._account.visit(ask.host, ask.port).seconds += time.monotonic() - began
            ours.close()

    async def _connect(self, ask: _Ask) -> socket.socket:
        """A connection to one of the host's addresses, all of which were checked."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._bounds.connect_seconds):
                found = await loop.run_in_executor(self._threads, self._resolve, ask.host, ask.port)
                checked = [info for info in found if self._acceptable(str(info[4][0]))]
                if not checked:
                    raise Refused(403, "its address is private or reserved")
                return await start_connection(checked[:8], happy_eyeballs_delay=0.25)
        except TimeoutError:
            raise Refused(504, "it does not answer") from None
        except (socket.gaierror, UnicodeError):
            raise Refused(502, "its name cannot be resolved") from None
        except OSError:
            raise Refused(502, "it cannot be reached") from None

    async def _relay(self, ask: _Ask, client: _Stream, host: _Stream) -> None:
        """Bytes both ways until both sides have ended, one has broken, or nothing moves for too long."""
        moved = time.monotonic()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, sends: bool) -> None:
            nonlocal moved
            while data := await reader.read(_CHUNK):
                moved = time.monotonic()
                visit = self._account.visit(ask.host, ask.port)
                if sends:
                    visit.sent += len(data)
                else:
                    visit.received += len(data)
                writer.write(data)
                await writer.drain()
                moved = time.monotonic()
            if writer.can_write_eof():
                writer.write_eof()

        pumps = {
            asyncio.create_task(pump(client[0], host[1], sends=True)),
            asyncio.create_task(pump(host[0], client[1], sends=False)),
        }
        try:
            while pumps and (left := moved + self._bounds.idle_seconds - time.monotonic()) > 0:
                done, pumps = await asyncio.wait(pumps, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in pumps:
                task.cancel()


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class _Account:
    """What passed and was not told yet. Bounded, whatever a session does: one line per host and time span."""

    record: Record
    most: int
    _names: set[str] = field(default_factory=set)
    _visits: dict[tuple[str, int, str], Visit] = field(default_factory=dict)

    def visit(self, host: str, port: int, refused: str = "") -> Visit:
        """Where to count what passes now. Good until the next flush: ask again each time."""
        if host not in self._names and len(self._names) >= self.most:
            host, port = "(other hosts)", 0
        self._names.add(host)
        key = (host, port, refused)
        if key not in self._visits:
            self._visits[key] = Visit(*key)
        return self._visits[key]

    async def flush(self) -> None:
        """Tell what passed. What cannot be told is kept for the next time."""
        visits, self._visits = list(self._visits.values()), {}
        if not visits:
            return
        try:
            await self.record(visits)
        except Exception:
            for past in visits:
                visit = self.visit(past.host, past.port, past.refused)
                visit.connections += past.connections
                visit.sent += past.sent
                visit.received += past.received
                visit.seconds += past.seconds
            raise


def _ask(request: h11.Request, rest: bytes) -> _Ask:
    """What ``request`` asks for; ``rest`` came after its head."""
    method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
    if method == "CONNECT":
        host, port = _authority(target, None)
        return _Ask(host, port, True, rest)
    url = urlsplit(target)
    if url.scheme.lower() != "http" or not url.netloc or "@" in url.netloc:
        raise Refused(400, "a proxy takes CONNECT, or an absolute http:// address")
    host, port = _authority(url.netloc, 80)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [f"{method} {path} HTTP/1.1".encode("ascii", "replace"), b"Host: " + url.netloc.encode("ascii", "replace")]
    lines += [name + b": " + value for name, value in request.headers.raw_items() if name.lower() not in _OWN]
    # One request a connection: what follows it has no rule of ours to pass.
    return _Ask(host, port, False, b"\r\n".join([*lines, b"Connection: close", b"", rest]))


def _authority(text: str, default: int | None) -> tuple[str, int]:
    """Host (lower case, no final dot) and port of ``host:port`` or ``[address]:port``."""
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(default or "")
    name = host.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    if not _NAME.match(name) or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise Refused(400, "not a host and port")
    return name, int(port)


async def _refuse(writer: asyncio.StreamWriter, refused: Refused) -> None:
    """Answer with the reason; also in the status line, which is all that most clients print."""
    body = f"team: {refused.reason}\n".encode()
    head = (
        f"HTTP/1.1 {refused.status} {refused.reason}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError):
        writer.write(head.encode() + body)
        await asyncio.wait_for(writer.drain(), 5)
