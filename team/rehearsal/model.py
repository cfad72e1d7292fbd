"""A scripted model server: the provider's side, on loopback or a unix socket, for nothing. It speaks Anthropic's
Messages API and OpenAI's Responses API.

In our process: ``async with ScriptedModel(script).running() as url``. On its own: ``python -m team.rehearsal.model``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from team.rehearsal import messages, responses
from team.rehearsal.messages import Usage
from team.rehearsal.script import Ask, Script, Step

ERRORS = {
    "400": (400, "invalid_request_error", "bad request"),
    "401": (401, "authentication_error", "invalid x-api-key"),
    "403": (403, "permission_error", "not allowed"),
    "429": (429, "rate_limit_error", "This request would exceed your rate limit"),
    "500": (500, "api_error", "Internal server error"),
    "503": (503, "overloaded_error", "The server is currently overloaded"),
    "529": (529, "overloaded_error", "Overloaded"),
}
FAULTS: tuple[str, ...] = (*ERRORS, "hang", "cut", "slow", "loop")
_SECRET_HEADERS = ("x-api-key", "authorization")


class Api(Protocol):
    """One provider's way to speak: a module such as :mod:`team.rehearsal.messages`."""

    def parse(self, raw: bytes) -> dict[str, Any]: ...
    def read(self, body: Mapping[str, Any]) -> Ask: ...
    def blocks(self, step: Step, body: Mapping[str, Any]) -> list[dict[str, Any]]: ...
    def usage(self, raw: bytes, content: list[dict[str, Any]]) -> Usage: ...
    def message(self, body: Mapping[str, Any], content: list[dict[str, Any]], spent: Usage) -> dict[str, Any]: ...
    def events(self, whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]: ...
    def encode(self, event: Mapping[str, Any]) -> bytes: ...
    def told(self, event: Mapping[str, Any], spent: Usage) -> tuple[Usage, int] | None: ...
    def error(self, kind: str, text: str) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with message calls."""

    kind: str
    """A status of :data:`ERRORS`; ``hang`` before the first event; ``cut`` in mid-stream; ``slow`` stream;
    ``loop``: the first answer to each conversation again and again."""
    first: int | None = None
    """Only the first so many calls of all."""
    seconds: float | None = None
    """Only so long after the first call."""
    headers: Mapping[str, str] | None = None
    """Sent with an error, for example ``{"retry-after": "3"}``."""
    delay: float = 5.0
    """Seconds between two events of a ``slow`` stream."""
    message: str = ""
    """Instead of the usual words of an error."""


@dataclass
class Totals:
    """What this provider would bill: exact, told as it was told to the clients."""

    requests: int = 0
    """Message calls, answered or refused."""
    answered: int = 0
    """Those that cost tokens."""
    usage: Usage = field(default_factory=Usage)

    def as_json(self) -> dict[str, int]:
        return {"requests": self.requests, "answered": self.answered, **vars(self.usage)}


class Gathering:
    """Lets the first answer of each agent's first session wait until ``size`` of them ask, so that they race."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds = size, seconds
        self._here: set[str] = set()
        self._all = asyncio.Event()

    async def arrive(self, ask: Ask) -> None:
        if self._size < 2 or self._all.is_set() or ask.turn or not ask.first_session:
            return
        self._here.add(ask.agent)
        if len(self._here) >= self._size:
            self._all.set()
        try:
            await asyncio.wait_for(self._all.wait(), self._seconds)
        except TimeoutError:
            self._all.set()  # somebody is late: nobody waits a second time


class ScriptedModel:
    """The server. Everything it tells a client is decided by ``script`` and ``fault``, which may change at any time."""

    def __init__(
        self,
        script: Script,
        *,
        fault: Fault | None = None,
        gather: int = 0,
        gather_seconds: float = 15.0,
        log: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.script, self.fault = script, fault
        self.totals = Totals()
        self.keys: dict[str, Totals] = {}
        """Totals by key, named by :func:`key_name`."""
        self.statuses: Counter[int] = Counter()
        self.seen: list[dict[str, Any]] = []
        """What came in, one record a request, keys hashed; also in ``log`` as JSON lines."""
        self._gathering = Gathering(gather, gather_seconds)
        self._log, self._clock = log, clock
        self._began: float | None = None

    def app(self) -> web.Application:
        """The server as an aiohttp application."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/messages/count_tokens", self._count)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/usage", self._usage)
        app.router.add_route("*", "/{rest:.*}", self._other)
        return app

    @asynccontextmanager
    async def running(self, host: str = "127.0.0.1", port: int = 0, unix: Path | None = None) -> AsyncIterator[str]:
        """Serve until the block ends; gives the base URL (of ``unix`` too, where the host means nothing)."""
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await runner.setup()
        try:
            if unix is not None:
                unix.unlink(missing_ok=True)  # noqa: ASYNC240
                await web.UnixSite(runner, str(unix)).start()
                yield "http://localhost"
            else:
                await web.TCPSite(runner, host, port).start()
                yield f"http://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, messages)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        return await self._call(request, responses)

    async def _call(self, request: web.Request, api: Api) -> web.StreamResponse:
        raw = await request.read()
        accounts = self._accounts(request)
        for account in accounts:
            account.requests += 1
        self._began = self._clock() if self._began is None else self._began
        fault = self._fault_now()
        try:
            body = api.parse(raw)
        except messages.BadRequest as e:
            self._record(request, 400, size=len(raw))
            return _refusal(400, api.error("invalid_request_error", str(e)))
        ask = api.read(body)
        if fault and fault.kind in ERRORS:
            status, kind, text = ERRORS[fault.kind]
            self._record(request, status, size=len(raw), ask=ask, body=body)
            return _refusal(status, api.error(kind, fault.message or text), fault.headers)
        self._record(request, 200, size=len(raw), ask=ask, body=body)
        if fault and fault.kind == "hang":
            await asyncio.sleep(3600)
        await self._gathering.arrive(ask)
        content = self._content(ask, body, fault, api)
        spent = api.usage(raw, content)
        whole = api.message(body, content, spent)
        if not body.get("stream"):
            _book(accounts, spent, 1)
            return web.json_response(whole, headers=_request_id(raw))
        return await self._stream(request, api, whole, spent, fault, accounts, raw)

    def _content(self, ask: Ask, body: Mapping[str, Any], fault: Fault | None, api: Api) -> list[dict[str, Any]]:
        if "messages" in body and not body.get("tools"):  # titles, quota probes
            return api.blocks(Step("ok"), body)
        turn = 0 if fault and fault.kind == "loop" else ask.turn
        result = "" if fault and fault.kind == "loop" else ask.last_tool_result
        return api.blocks(self.script.next(ask.agent, ask.session, turn, result, ask.prompt), body)

    async def _stream(
        self,
        request: web.Request,
        api: Api,
        whole: dict[str, Any],
        spent: Usage,
        fault: Fault | None,
        accounts: list[Totals],
        raw: bytes,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"cache-control": "no-cache", **_request_id(raw)})
        response.content_type = "text/event-stream"
        response.charset = "utf-8"
        await response.prepare(request)
        sequence = list(api.events(whole))
        if fault and fault.kind == "cut":
            sequence = sequence[: max(3, len(sequence) // 2)]
        for event in sequence:
            if fault and fault.kind == "slow":
                await asyncio.sleep(fault.delay)
            await response.write(api.encode(event))
            if told := api.told(event, spent):  # what was told is what is billed
                _book(accounts, *told)
        if fault and fault.kind == "cut" and request.transport is not None:
            request.transport.abort()
        else:
            await response.write_eof()
        return response

    async def _count(self, request: web.Request) -> web.Response:
        raw = await request.read()
        self._record(request, 200, size=len(raw))
        return web.json_response({"input_tokens": max(8, len(raw) // 4)})

    async def _models(self, request: web.Request) -> web.Response:
        self._record(request, 200)
        model = {"type": "model", "id": "scripted", "display_name": "Scripted", "created_at": "2025-01-01T00:00:00Z"}
        return web.json_response({"data": [model], "has_more": False, "first_id": "scripted", "last_id": "scripted"})

    async def _usage(self, request: web.Request) -> web.Response:
        return web.json_response(self.report())

    async def _other(self, request: web.Request) -> web.Response:
        found = request.method == "HEAD"
        self._record(request, 200 if found else 404)
        return web.Response() if found else _refusal(404, messages.error("not_found_error", request.path))

    def report(self) -> dict[str, Any]:
        """The provider's own count, as JSON-ready data; ``GET /usage`` gives the same."""
        return {
            "totals": self.totals.as_json(),
            "keys": {name: totals.as_json() for name, totals in self.keys.items()},
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
        }

    def _accounts(self, request: web.Request) -> list[Totals]:
        sent = next((request.headers[h] for h in _SECRET_HEADERS if h in request.headers), "")
        return [self.totals, self.keys.setdefault(key_name(sent.removeprefix("Bearer ")), Totals())]

    def _fault_now(self) -> Fault | None:
        fault = self.fault
        if fault is None or (fault.first is not None and self.totals.requests > fault.first):
            return None
        if fault.seconds is not None and self._clock() - (self._began or 0.0) >= fault.seconds:
            return None
        return fault

    def _record(
        self, request: web.Request, status: int, *, size: int = 0, ask: Ask | None = None, body: Any = None
    ) -> None:
        record: dict[str, Any] = {
            "method": request.method,
            "path": request.path_qs,
            "status": status,
            "bytes": size,
            "headers": {k: _shown(k, v) for k, v in request.headers.items()},
        }
        if ask is not None:
            record |= {"agent": ask.agent, "session": ask.session, "turn": ask.turn}
            record["result"] = ask.last_tool_result[-400:]
        if body is not None:
            record |= {"model": body["model"], "stream": bool(body.get("stream")), "fields": sorted(body)}
            record["tools"] = [t.get("name") for t in body.get("tools") or []]
        self.statuses[status] += 1
        self.seen.append(record)
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")


def _shown(header: str, value: str) -> str:
    return key_name(value.removeprefix("Bearer ")) if header.lower() in _SECRET_HEADERS else value


def key_name(key: str) -> str:
    """What a key is called in logs and totals: a piece of its hash, ``none`` for an empty one."""
    return hashlib.sha256(key.encode()).hexdigest()[:12] if key else "none"


def _book(accounts: list[Totals], spent: Usage, answers: int) -> None:
    for account in accounts:
        account.usage += spent
        account.answered += answers


def _request_id(raw: bytes) -> dict[str, str]:
    return {"request-id": f"req_{hashlib.sha256(raw).hexdigest()[:20]}"}


def _refusal(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(body, status=status, headers=headers)


if __name__ == "__main__":
    from team.rehearsal.serve import main

    main()
