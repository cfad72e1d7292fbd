"""Requests through the gateway: passed on untouched, counted to the token, refused in the client's own words."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from team.config import Settings
from team.plan import Plan
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import Fixed, Step
from team.supervisor import gateway_of
from tests.gateway.conftest import KEY, Make, World, message, serve, sit

SCRIPT = Fixed([Step("All is done. " * 20)])


def totals(world: World) -> dict[str, int]:
    """What the ledger says was used."""
    names = {"input": "input_tokens", "output": "output_tokens"}
    names |= {"cache_write": "cache_creation_input_tokens", "cache_read": "cache_read_input_tokens"}
    return {there: sum(e.data[here] for e in world.calls()) for here, there in names.items()}


async def settled(world: World) -> None:
    await world.gateway.drain(10)
    assert world.gateway.books.accounts.reserved().tokens == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_passed_on_byte_for_byte_and_counted(world: Make, stream: bool) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url)
        made.seat.caller.task = lambda: "fix_parser"
        body = json.dumps(message(stream=stream)).encode()
        headers = {"x-api-key": "token-of-the-session", "anthropic-version": "2023-06-01"}
        async with made.seat.http.post(made.seat.url + "/v1/messages?beta=true", data=body, headers=headers) as a:
            through, request_id = await a.read(), a.headers["request-id"]
        async with made.seat.http.post(url + "/v1/messages?beta=true", data=body, headers=headers) as b:
            direct = await b.read()
        assert through == direct and request_id == b.headers["request-id"]
        await settled(made)
        half = {k: v // 2 for k, v in vars(model.totals.usage).items()}
        assert totals(made) == half
        assert KEY not in json.dumps(model.seen) and "token-of-the-session" not in json.dumps(model.seen)
        call = made.calls()[0]
        assert (call.session, call.data["role"], call.data["status"], call.data["unknown"]) == (
            "agent-01.1",
            "worker",
            200,
            False,
        )
        assert (call.agent, call.task, call.data["model"]) == ("agent-01", "fix_parser", "scripted")
        assert call.data["seconds"] >= call.data["first_byte"] > 0
        price = 3 * half["input_tokens"] + 15 * half["output_tokens"]
        price += 3.75 * half["cache_creation_input_tokens"] + 0.3 * half["cache_read_input_tokens"]
        assert call.data["cost"] == pytest.approx(price / 1e6) and call.data["billed"] is True


async def test_500_requests_of_16_sessions_a_tenth_of_them_killed_add_up(world: Make) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url, seats=16)

        async def session(n: int) -> None:
            seat = made.seats[n]
            for turn in range(32 if n < 4 else 31):
                text, stream = "x" * (97 * (n + turn) % 3000), turn % 3 > 0
                body, path = message(text, stream=stream), "/v1/messages"
                if turn % 4 == 3:
                    body, path = {"model": "scripted", "input": text, "stream": stream}, "/v1/responses"
                asked = asyncio.create_task(seat.ask(body, path))
                if (n + turn) % 10 == 0:
                    await asyncio.sleep(0.002 * (turn % 5))
                    asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)

        await asyncio.gather(*(session(n) for n in range(16)))
        await settled(made)
        # A request whose client was gone before it was forwarded reached nobody.
        assert model.totals.requests == sum(e.data["status"] == 200 for e in made.calls()) >= 440
        assert totals(made) == vars(model.totals.usage)
        assert not any(e.data["unknown"] for e in made.calls())
        assert {e.data["path"] for e in made.calls()} == {"/v1/messages", "/v1/responses"}


async def test_a_client_that_hangs_up_in_mid_stream_is_counted(world: Make) -> None:
    model = ScriptedModel(SCRIPT, fault=Fault("slow", delay=0.05))
    async with model.running() as url:
        made = await world(url)
        answer = await made.seat.http.post(made.seat.url + "/v1/messages", json=message(stream=True))
        await answer.content.readany()
        answer.close()
        await settled(made)
        assert totals(made) == vars(model.totals.usage)
        assert made.calls()[0].data["unknown"] is False


async def test_a_stream_that_breaks_off_breaks_off_for_the_client_and_is_booked_as_reserved(world: Make) -> None:
    model = ScriptedModel(SCRIPT, fault=Fault("cut"))
    async with model.running() as url:
        made = await world(url)
        with pytest.raises(aiohttp.ClientError):
            await made.seat.ask(message(stream=True))
        await settled(made)
        call = made.calls()[0].data
        assert totals(made) == vars(model.totals.usage) and call["unknown"] is True
        assert call["booked"] == call["reserved"] > call["cost"] > 0
        assert made.gateway.books.accounts.spent().pico == round(call["booked"] * 1e12)


async def test_a_client_that_never_reads_is_left_behind(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("team.gateway.exchange.Client.__init__.__defaults__", (0.3,))
    usage = {"input_tokens": 7, "output_tokens": 9}

    async def provider(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(400):
            await response.write(b"data: " + b"x" * 50_000 + b"\n\n")
        end = {"type": "message_delta", "usage": usage}
        await response.write(b"event: message_delta\ndata: " + json.dumps(end).encode() + b"\n\n")
        return response

    made = await world(provider)
    host, port = made.seat.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(message(stream=True)).encode()
    writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await asyncio.sleep(0.2)
    await settled(made)
    assert made.calls()[0].data["output"] == 9 and made.calls()[0].data["unknown"] is False
    writer.close()


async def test_what_the_provider_answers_with_html_is_an_error_that_clients_understand(world: Make) -> None:
    async def provider(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>login</html>", content_type="text/html")

    made = await world(provider)
    status, body = await made.seat.ask()
    assert status == 502 and body["error"]["type"] == "api_error" and "base_url" in body["error"]["message"]
    await settled(made)


async def test_a_provider_that_is_not_there_costs_nothing(world: Make) -> None:
    made = await world("http://127.0.0.1:9")
    status, body = await made.seat.ask()
    assert status == 502 and body["type"] == "error"
    await settled(made)
    assert made.gateway.books.accounts.spent().pico == 0


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b'{"model":"a","model":"b"}', 400, "duplicate"),
        (b"[" * 5000 + b"]" * 5000, 400, "not JSON"),
        (b'{"model": "scripted", "max_tokens": NaN}', 400, "not JSON"),
        (b'{"model": "scripted", "max_tokens": 1e999}', 400, ""),
        (json.dumps(message(max_tokens=10**400)).encode(), 400, "max_tokens"),
        (json.dumps(message(max_tokens=True)).encode(), 400, "max_tokens"),
        (b'"text"', 400, "not a JSON object"),
        ("{}".encode("utf-16"), 400, "not JSON"),
        (b"{}", 400, "model"),
        (b'{"x":"' + b"a" * (50 << 20) + b'"}', 413, "bytes at most"),
    ],
)
async def test_bad_bodies_cost_nothing(world: Make, body: bytes, status: int, says: str) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url)
        try:
            got, said = await made.seat.ask(body)
        except aiohttp.ClientError:  # a clean cut while the body was still being sent
            assert status == 413
        else:
            assert got == status and says in said["error"]["message"]
        assert model.seen == []
        await settled(made)


async def test_keys_are_masked_in_what_the_provider_says(world: Make) -> None:
    async def provider(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": f"no: {request.headers['x-api-key']}"}}, status=400)

    made = await world(provider)
    await made.seat.ask()
    await settled(made)
    assert "[masked]" in made.calls()[0].data["error"]
    assert KEY not in json.dumps([e.data for e in made.ledger.events()])


async def test_roles_get_their_model(world: Make) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url, seats=2, roles=("review", "worker"), settings={"models": {"review": "scripted-big"}})
        await made.seats[0].ask()
        await made.seats[1].ask()
        assert [s["model"] for s in model.seen] == ["scripted-big", "scripted"]


async def test_several_providers_each_with_its_key(world: Make, tmp_path: Path) -> None:
    async def openai(request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        assert request.headers["Authorization"] == "Bearer sk-openai-0123456789" and request.path == "/v1/responses"
        assert body["store"] is False
        details = {"cached_tokens": 40, "cache_write_tokens": 25}
        usage = {"input_tokens": 100, "input_tokens_details": details, "output_tokens": 5}
        done = {"type": "response.completed", "response": {"usage": usage}}
        return web.Response(text=f"data: {json.dumps(done)}\n\n", content_type="text/event-stream")

    (tmp_path / "key").write_text("sk-openai-0123456789\n")
    async with AsyncExitStack() as stack, ScriptedModel(SCRIPT).running() as url:
        other = {"api": "openai", "base_url": await serve(stack, openai), "key_file": str(tmp_path / "key")}
        made = await world(url, gateway={"providers": {"openai": other}})
        status, _ = await made.seat.ask({"model": "gpt-x", "input": "hi", "stream": True}, "/v1/responses")
        assert status == 200
        await made.seat.ask()
        await settled(made)
        calls = {e.data["provider"]: e.data for e in made.calls()}
        told = [calls["openai"][name] for name in ("input", "cache_write", "cache_read", "output")]
        assert told == [35, 25, 40, 5]
        assert calls["anthropic"]["output"] > 0


async def test_a_rehearsal_looks_for_no_key_and_bills_nothing(
    world: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    made = await world("http://127.0.0.1:9")
    model = ScriptedModel(SCRIPT)
    async with model.running() as url, AsyncExitStack() as stack:
        plan = Plan(seats=(), settings=Settings(), tree=tmp_path, client="claude-code", runtime="docker", image="")
        rehearsal = await stack.enter_async_context(gateway_of(replace(plan, model_url=url), made.ledger))
        assert rehearsal.secrets() == []
        seat = await sit(stack, rehearsal, 1)
        assert (await seat.ask())[0] == 200
    assert made.calls()[-1].data["billed"] is False
    assert not {"x-api-key", "authorization"} & {name.lower() for name in model.seen[-1]["headers"]}
