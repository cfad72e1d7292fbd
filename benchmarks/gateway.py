"""What the gateway adds to a model call, against the same provider asked directly; all in one run.

``python -m benchmarks.gateway [--json]``

- ``added_ms_p50``, ``added_ms_p99``: time to the first byte of a streamed answer to a request of 87 kB with tools (what
  Claude Code sends), through a door against directly, in milliseconds; request by request in turn.
- ``paced_ratio``: 64 streams at once, each 30 events a second of 200 bytes: bytes a second against directly.
- ``full_ratio``: the same 64 streams as fast as they go. Small pieces come out of the gateway joined, which is
  cheaper to read, so it may pass 1.
- ``mb_per_stream``: how much the gateway's resident memory grows while 64 streams are open, for each, at most.

Four processes: this one, the provider, the gateway behind 16 doors (unix sockets, real ledger, with a budget), and the
client. A door's own limits of requests a second are lifted: no session sends so many.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

STREAMS, DOORS = 64, 16
EVENTS_PER_SECOND, EVENT_BYTES = 30, 200
TOKEN = "token-of-the-session"
MODEL = "claude-sonnet-5"
_PREFIX = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
)
_SUFFIX = b'"}}\n\n'


# -- the provider -------------------------------------------------------------------------------------------------


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(kind: str, **fields: Any) -> bytes:
    return _chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode())


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = HEAD + _event("message_start", message={"id": "m", "usage": {"input_tokens": 20_000, "output_tokens": 1}})
DELTA = _chunk(_PREFIX + b"x" * (EVENT_BYTES - len(_PREFIX) - len(_SUFFIX)) + _SUFFIX)
LAST = _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 900})
LAST += _event("message_stop") + b"0\r\n\r\n"


class Stub(asyncio.Protocol):
    """Answers requests as their ``metadata.user_id`` says: ``EVENTS:SECONDS``, 0 seconds for as fast as it goes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._received, self._need = transport, bytearray(), 0
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._need:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            self._need = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(self._received) >= self._need:
            tail = bytes(self._received[max(0, self._need - 400) : self._need])
            events, _, seconds = tail.partition(b'"user_id":"')[2].partition(b'"')[0].partition(b":")
            del self._received[: self._need]
            self._need = 0
            self._task = asyncio.create_task(self._answer(int(events), float(seconds)))

    async def _answer(self, events: int, seconds: float) -> None:
        self._transport.write(FIRST)
        block = 1 if seconds else 50
        began = time.monotonic()
        for n in range(0, events, block):
            if seconds and (wait := began + seconds * n / events - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._transport.write(DELTA * min(block, events - n))
            await self._room.wait()
        self._transport.write(LAST)


async def provide() -> None:
    """Serve on a free port, which is printed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -- the gateway --------------------------------------------------------------------------------------------------


async def forward(directory: Path, provider: str) -> None:
    """Real doors and a real gateway with a real ledger, until standard input ends."""
    from team.config import Budget, Settings, UserSettings
    from team.door import Bounds, Door, Tenant
    from team.gateway.gateway import Caller, Gateway
    from team.ledger import Ledger
    from team.plan import Key

    nobody_pushes: Any = None
    unbounded = Bounds(per_second=1e9, burst=1e9)
    ledger = Ledger(directory / "ledger.db")
    budget = Budget(usd=1e6, day={"usd": 1e6}, session={"usd": 1e6})  # type: ignore[arg-type]
    gateway = Gateway(ledger, Settings(), UserSettings(), budget=budget, base_url=provider, key=Key("sk-benchmark"))
    async with gateway:
        doors = []
        for n in range(DOORS):
            name = f"agent-{n + 1:02d}"
            tenant = Tenant(name, f"{name}@team.invalid", "worker", f"{name}.1", TOKEN)
            model = functools.partial(gateway.handle, caller=Caller(name, "worker", f"{name}.1"))
            door = Door(tenant, nobody_pushes, model, unbounded)
            home = directory / str(n)
            home.mkdir()
            await door.open(home)
            doors.append(door)
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for door in doors:
            await door.close()
    ledger.close()


# -- the client ---------------------------------------------------------------------------------------------------


def _body(events: int, seconds: float) -> bytes:
    """A request as Claude Code makes it: 87 kB, 12 tools, long system prompt."""
    schema = {
        "type": "object",
        "properties": {f"field_{n}": {"type": "string", "description": "d" * 200} for n in range(8)},
    }
    tools = [{"name": f"Tool{n}", "description": "t" * 3000, "input_schema": schema} for n in range(12)]
    turns = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": [{"type": "text", "text": f"{n} " + "m" * 800}]}
        for n in range(15)
    ]
    body = {
        "model": MODEL,
        "max_tokens": 32_000,
        "stream": True,
        "system": [{"type": "text", "text": "s" * 14_000, "cache_control": {"type": "ephemeral"}}],
        "tools": tools,
        "messages": turns,
        "metadata": {"user_id": f"{events}:{seconds}"},
    }
    return json.dumps(body, separators=(",", ":")).encode()


HEADERS = {"x-api-key": TOKEN, "anthropic-version": "2023-06-01", "Content-Type": "application/json"}


class Way:
    """One way to the provider: directly, or through the doors."""

    def __init__(self, provider: str, directory: Path | None) -> None:
        if directory is None:
            self._url = provider
            self._https = [aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))]
        else:
            self._url = "http://door"
            sockets = [str(directory / str(n) / "door.sock") for n in range(DOORS)]
            self._https = [aiohttp.ClientSession(connector=aiohttp.UnixConnector(s, limit=0)) for s in sockets]

    async def ask(self, n: int, body: bytes) -> tuple[float, int]:
        """Seconds to the first byte of the answer, and how many bytes it has."""
        http = self._https[n % len(self._https)]
        began, first, count = time.perf_counter(), 0.0, 0
        async with http.post(f"{self._url}/v1/messages", data=body, headers=HEADERS) as answer:
            async for chunk in answer.content.iter_any():
                first = first or time.perf_counter() - began
                count += len(chunk)
            if answer.status != 200:
                raise SystemExit(f"answered {answer.status}: the benchmark measures nothing")
        return first, count

    async def rate(self, events: int, seconds: float) -> float:
        """Bytes a second of all streams at once."""
        body = _body(events, seconds)
        began = time.perf_counter()
        answers = await asyncio.gather(*(self.ask(n, body) for n in range(STREAMS)))
        expected = STREAMS * events * EVENT_BYTES
        total = sum(count for _, count in answers)
        if total < expected:
            raise SystemExit(f"{total} bytes of {expected} arrived")
        return total / (time.perf_counter() - began)

    async def close(self) -> None:
        for http in self._https:
            await http.close()


async def load(provider: str, directory: Path, pid: int, size: Sequence[int]) -> dict[str, float]:
    """Every measurement; ``size`` is how many requests, rounds, seconds of paced and events of full streams."""
    requests, rounds, seconds, events = size
    direct, doors = Way(provider, None), Way(provider, directory)
    short = _body(1, 0)
    for way in (direct, doors):
        for n in range(2 * DOORS):
            await way.ask(n, short)
        await way.rate(10, 0)
    first: dict[Way, list[float]] = {direct: [], doors: []}
    for n in range(requests):
        for way in (direct, doors) if n % 2 else (doors, direct):
            first[way].append((await way.ask(n, short))[0] * 1000)
    paced: list[float] = []
    full: list[float] = []
    memory: list[float] = []
    for _ in range(rounds):
        for ratios, much in ((paced, (EVENTS_PER_SECOND * seconds, seconds)), (full, (events, 0))):
            straight = await direct.rate(*much)
            async with _most_resident(pid) as grown:
                ratios.append(await doors.rate(*much) / straight)
            memory += grown
    await direct.close()
    await doors.close()
    return {
        "direct_ms_p50": _percentile(first[direct], 50),
        "direct_ms_p99": _percentile(first[direct], 99),
        "added_ms_p50": _percentile(first[doors], 50) - _percentile(first[direct], 50),
        "added_ms_p99": _percentile(first[doors], 99) - _percentile(first[direct], 99),
        "paced_ratio": statistics.median(paced),
        "full_ratio": statistics.median(full),
        "mb_per_stream": max(memory) / STREAMS,
    }


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@asynccontextmanager
async def _most_resident(pid: int) -> AsyncIterator[list[float]]:
    """Collects by how much, at most, the resident memory of ``pid`` grew meanwhile, in MB."""
    before, grown = _resident(pid), [0.0]

    async def watch() -> None:
        while True:
            grown[0] = max(grown[0], _resident(pid) - before)
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        yield grown
    finally:
        watching.cancel()


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# -- all together -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _process(role: str, *args: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Another process of this module, and the line that it prints when it is ready."""
    pipe = asyncio.subprocess.PIPE
    argv = (sys.executable, "-m", "benchmarks.gateway", "--as", role, *args)
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode().strip()
        if not line:
            raise SystemExit(f"the {role} ended before it was ready")
        yield process, line
    finally:
        process.stdin.close()
        if role == "provider":
            process.terminate()
        await process.wait()


async def measure(size: Sequence[int]) -> dict[str, float]:
    """Run everything in a directory of its own and clean up."""
    directory = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))  # short: it holds sockets
    os.environ["XDG_STATE_HOME"] = str(directory / "state")
    try:
        async with _process("provider") as (_, port):
            url = f"http://127.0.0.1:{port}"
            async with _process("gateway", str(directory), url) as (gateway, _):
                sizes = ",".join(map(str, size))
                async with _process("client", url, str(directory), str(gateway.pid), sizes) as (_, line):
                    result: dict[str, float] = json.loads(line)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {name: round(value, 3) for name, value in result.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--requests", type=int, default=600, help="for the latency")
    parser.add_argument("--rounds", type=int, default=3, help="of the streams")
    parser.add_argument("--seconds", type=int, default=8, help="of a paced stream")
    parser.add_argument("--events", type=int, default=10_000, help="of a stream as fast as it goes")
    parser.add_argument("--as", dest="role", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "provider":
        asyncio.run(provide())
    elif options.role == "gateway":
        asyncio.run(forward(Path(options.rest[0]), options.rest[1]))
    elif options.role == "client":
        url, directory, pid, size = options.rest
        found = asyncio.run(load(url, Path(directory), int(pid), [int(n) for n in size.split(",")]))
        print(json.dumps(found), flush=True)
    else:
        result = asyncio.run(measure([options.requests, options.rounds, options.seconds, options.events]))
        if options.json:
            print(json.dumps(result))
        else:
            for key, value in result.items():
                print(f"{key:16} {value}")


if __name__ == "__main__":
    main()
