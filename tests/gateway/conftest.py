"""A gateway with everything around it: real HTTP on both sides, a scripted provider, a real ledger."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from team.clients import Outcome
from team.config import Settings, UserSettings
from team.gateway.gateway import Caller, Gateway
from team.ledger import Event, Kind, Ledger
from team.plan import Key

KEY = "sk-ant-real-key-0123456789"
PRICED = {
    "prices": {"scripted": {"input": 3, "output": 15, "cache_write": 3.75, "cache_write_1h": 6, "cache_read": 0.3}}
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seat:
    """A session in front of its door."""

    caller: Caller
    url: str
    http: aiohttp.ClientSession
    ended: list[tuple[Outcome, str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    async def ask(
        self, body: Any = None, path: str = "/v1/messages", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(message() if body is None else body).encode()
        async with self.http.post(self.url + path, data=data, headers=headers) as answer:
            raw = await answer.read()
            return answer.status, json.loads(raw) if answer.content_type == "application/json" else {"raw": raw}


@dataclass
class World:
    gateway: Gateway
    ledger: Ledger
    seats: list[Seat]

    def calls(self) -> list[Event]:
        return list(self.ledger.events(Kind.MODEL_CALL))

    @property
    def seat(self) -> Seat:
        return self.seats[0]


Make = Callable[..., Awaitable[World]]


def message(text: str = "Hello", **more: Any) -> dict[str, Any]:
    """A small request of the Messages API."""
    return {"model": "scripted", "max_tokens": 64, "messages": [{"role": "user", "content": text}], **more}


async def serve(stack: AsyncExitStack, handler: Handler) -> str:
    """A server on loopback that answers everything with ``handler``; its URL."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}"


async def sit(stack: AsyncExitStack, gateway: Gateway, n: int, role: str = "worker") -> Seat:
    """A seat with its own door and its own connections."""
    agent = f"agent-{n:02}"
    caller = Caller(agent, role, f"{agent}.1")
    runner = web.AppRunner(_door(gateway, caller), access_log=None, shutdown_timeout=0.2, auto_decompress=False)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    http = await stack.enter_async_context(aiohttp.ClientSession())
    seat = Seat(caller, f"http://127.0.0.1:{runner.addresses[0][1]}", http)
    caller.end = lambda outcome, reason: seat.ended.append((outcome, reason))
    caller.stop_team, caller.say = seat.stopped.append, seat.log.append
    return seat


def _door(gateway: Gateway, caller: Caller) -> web.Application:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await gateway.handle(request, caller)

    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{rest:.*}", handle)
    return app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No state outside the test's directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes a world: ``await world(provider, seats=..., budget=..., gateway=...)``."""
    async with AsyncExitStack() as stack:

        async def make(
            provider: Handler | str,
            *,
            seats: int = 1,
            budget: dict[str, Any] | None = None,
            gateway: dict[str, Any] | None = None,
            settings: dict[str, Any] | None = None,
            roles: tuple[str, ...] = (),
            key: Key | None = Key(KEY),  # noqa: B008 - frozen
        ) -> World:
            url = provider if isinstance(provider, str) else await serve(stack, provider)
            ledger = Ledger(tmp_path / "ledger.db")
            stack.callback(ledger.close)
            team = Settings.model_validate({**(settings or {}), "budget": budget or {}})
            user = UserSettings.model_validate({"gateway": PRICED | (gateway or {})})
            made = await stack.enter_async_context(Gateway(ledger, team, user, base_url=url, key=key, environ={}))
            sat = [await sit(stack, made, n + 1, roles[n] if roles else "worker") for n in range(seats)]
            return World(made, ledger, sat)

        yield make
