"""The scripted model as a provider of the Responses API: the wire, the faults, the count."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from team.rehearsal import responses
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import Step, commands

PROMPT = "# Hello\n\nYou are agent-03 (role worker), session agent-03.7.\n\nWork."
PLAIN = {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}, "yield_time_ms": {}}}}
CODE = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def body(*results: Any, stream: bool = False, code: bool = False, prompt: str = PROMPT) -> dict[str, Any]:
    items = [said("developer", "You are Codex"), said("user", "<environment_context>"), said("user", prompt)]
    if code:
        items.insert(0, {"type": "additional_tools", "role": "developer", "tools": [CODE]})
    for n, result in enumerate(results):
        items.append({"type": "function_call", "call_id": f"c{n}", "name": "exec_command", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{n}", "output": result})
    return {"model": "m", "stream": stream, "input": items, "store": False} | ({} if code else {"tools": [PLAIN]})


async def post(url: str, data: Any) -> tuple[int, str, Any]:
    headers = {"Authorization": "Bearer sk-one"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/responses", json=data, headers=headers) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def test_a_stream_has_the_events_of_the_real_one() -> None:
    script = commands("echo " + 60 * "x", text="Done.")
    async with ScriptedModel(script).running() as url:
        status, text, headers = await post(url, body(stream=True))
        _, closing, _ = await post(url, body("x", stream=True))
    found = events(text)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    kinds = [e["type"] for e in found]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-3:] == ["response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    pieces = [e["delta"] for e in found if e["type"] == "response.function_call_arguments.delta"]
    (item,) = found[-1]["response"]["output"]
    assert len(pieces) > 1 and "".join(pieces) == item["arguments"] == found[-3]["arguments"]
    assert [e["type"].removeprefix("response.") for e in events(closing)] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


async def test_who_asks_is_told_by_the_prompt_among_other_messages() -> None:
    ask = responses.read(body("one", [{"type": "input_text", "text": "two"}]))
    assert (ask.agent, ask.session, ask.turn, ask.last_tool_result) == ("agent-03", "agent-03.7", 2, "two")
    assert ask.prompt == PROMPT
    assert responses.read(body(prompt="who am I?")).prompt == "who am I?"


async def test_what_was_told_is_what_is_counted() -> None:
    model = ScriptedModel(commands("echo hi"))
    async with model.running() as url:
        told = [
            events((await post(url, body(stream=True)))[1])[-1]["response"]["usage"],
            json.loads((await post(url, body("x")))[1])["usage"],
        ]
    used = model.totals.usage
    assert (model.totals.requests, model.totals.answered) == (2, 2)
    assert used.input_tokens + used.cache_read_input_tokens == sum(u["input_tokens"] for u in told)
    assert used.cache_read_input_tokens == sum(u["input_tokens_details"]["cached_tokens"] for u in told) > 0
    assert used.output_tokens == sum(u["output_tokens"] for u in told)


async def test_the_shell_is_called_as_the_request_offers_it() -> None:
    (plain,) = responses.blocks(Step(commands=("ls",)), body())
    assert plain["type"] == "function_call" and json.loads(plain["arguments"])["cmd"] == "ls"
    (script,) = responses.blocks(Step(commands=('echo "it\'s" `x`',)), body(code=True))
    assert (script["type"], script["name"]) == ("custom_tool_call", "exec")
    assert json.dumps('echo "it\'s" `x`') in script["input"]
    (none,) = responses.blocks(Step(commands=("ls",)), body() | {"tools": []})
    assert "No shell tool" in none["content"][0]["text"]


async def test_a_command_that_goes_on_is_asked_again_and_counts_once() -> None:
    going = "Wall time: 30 seconds\nProcess running with session ID 7\nOutput:\n== ON"
    step = Step(commands=("next",))
    (again,) = responses.blocks(step, body(going))
    assert again["name"] == "write_stdin" and json.loads(again["arguments"])["session_id"] == 7
    ask = responses.read(body("first", going, "Process exited with code 0\n== OVER"))
    assert ask.turn == 2 and "== ON" in ask.last_tool_result and "== OVER" in ask.last_tool_result


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [("401", 401, "invalid_api_key"), ("429", 429, "rate_limit_exceeded"), ("503", 503, "server_is_overloaded")],
)
async def test_an_error_has_this_apis_shape_and_costs_nothing(kind: str, status: int, code: str) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault(kind, headers={"retry-after": "3"}))
    async with model.running() as url:
        got, text, headers = await post(url, body())
    assert got == status and headers["retry-after"] == "3"
    assert json.loads(text)["error"]["code"] == code
    assert model.totals.answered == 0


async def test_a_cut_stream_ends_without_its_end_and_tells_no_usage() -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("cut"))
    async with model.running() as url:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(url, body(stream=True))
    assert model.totals.answered == 0


async def test_rubbish_is_refused() -> None:
    async with ScriptedModel(commands("echo hi")).running() as url:
        rubbish: tuple[Any, ...] = (
            [],
            {"model": "m"},
            {"model": "m", "input": []},
            {"model": "m", "input": [3]},
            {"input": "x"},
        )
        for data in rubbish:
            status, text, _ = await post(url, data)
            assert status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error"
        assert (await post(url, {"model": "m", "input": "just words"}))[0] == 200
