"""The scripted model as a provider: the wire, the faults, the count."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest

from team.rehearsal.model import Fault, ScriptedModel, key_name
from team.rehearsal.script import WHO, ByAgent, Step, commands

BASH = {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {}, "description": {}}}}
PROMPT = "# Hello\n\nYou are agent-03 (role worker), session agent-03.7.\n\nWork."


def body(*, stream: bool = False, tools: bool = True, results: int = 0, prompt: str = PROMPT) -> dict[str, Any]:
    said: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    for n in range(results):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {}}
        said.append({"role": "assistant", "content": [call]})
        said.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"out {n}"}]}
        )
    return {
        "model": "m",
        "max_tokens": 100,
        "stream": stream,
        "messages": said,
        "tools": [BASH] if tools else [],
    }


async def post(url: str, data: dict[str, Any], key: str = "sk-one") -> tuple[int, str, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/messages?beta=true", json=data, headers={"x-api-key": key}) as answer,
    ):
        return answer.status, await answer.text(), answer.headers


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


async def test_a_stream_has_the_events_of_the_real_one() -> None:
    async with ScriptedModel(commands("echo hi")).running() as url:
        status, text, headers = await post(url, body(stream=True))
    kinds = [e["type"] for e in events(text)]
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events(text)[-2]["delta"]["stop_reason"] == "tool_use"


async def test_anthropics_own_library_understands_it() -> None:
    async with ScriptedModel(commands("echo hi", "ls")).running() as url:
        client = anthropic.AsyncAnthropic(base_url=url, api_key="sk-one", max_retries=0)
        whole = await client.messages.create(**body(results=1))
        async with client.messages.stream(**{k: v for k, v in body(results=1).items() if k != "stream"}) as stream:
            streamed = await stream.get_final_message()
        counted = await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x"}])
        models = await client.models.list()
        await client.close()
    assert whole.content[0].input["command"] == "ls"
    assert streamed.content[0].input == whole.content[0].input  # type: ignore[union-attr]
    assert counted.input_tokens > 0 and models.data[0].id == "scripted"


async def test_each_agent_follows_its_own_script_by_its_own_turn() -> None:
    script = ByAgent({"agent-03": commands("one", "two")}, commands("other"))
    async with ScriptedModel(script).running() as url:
        answers = [json.loads((await post(url, body(results=n)))[1])["content"][0] for n in range(3)]
        other = json.loads((await post(url, body(prompt="who am I?")))[1])["content"][0]
    assert [a.get("input", {}).get("command") for a in answers] == ["one", "two", None]
    assert other["input"]["command"] == "other"


async def test_a_request_without_tools_gets_a_short_text() -> None:
    async with ScriptedModel(commands("echo hi")).running() as url:
        _, text, _ = await post(url, body(tools=False))
    assert json.loads(text)["content"] == [{"type": "text", "text": "ok"}]


async def test_the_tool_is_called_as_the_request_offers_it() -> None:
    plain = {"name": "bash", "input_schema": {"type": "object", "properties": {"command": {}, "timeout": {}}}}
    step = Step(commands=("make test",), seconds=60)
    async with ScriptedModel(ByAgent({}, commands())).running() as url:
        _, text, _ = await post(url, body())
        assert json.loads(text)["content"][0]["text"] == "Done."
    from team.rehearsal.messages import blocks

    (block,) = blocks(step, {**body(), "tools": [{"name": "Edit"}, plain]})
    assert block["name"] == "bash" and block["input"] == {"command": "make test", "timeout": 60_000}


async def test_what_was_told_is_what_is_counted_and_by_key() -> None:
    model = ScriptedModel(commands("echo hi"))
    told = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    async with model.running() as url:
        for n in range(6):
            _, text, _ = await post(url, body(stream=bool(n % 2), results=n), key=f"sk-{n % 2}")
            usage = events(text)[-2]["usage"] if n % 2 else json.loads(text)["usage"]
            told = {k: v + usage[k] for k, v in told.items()}
        async with aiohttp.ClientSession() as http, http.get(f"{url}/usage") as answer:
            report = await answer.json()
    assert report["totals"] == {"requests": 6, "answered": 6, **told}
    assert set(report["keys"]) == {key_name("sk-0"), key_name("sk-1")}
    assert sum(k["output_tokens"] for k in report["keys"].values()) == told["output_tokens"]


async def test_the_same_request_costs_the_same_whatever_the_time() -> None:
    async with ScriptedModel(commands("echo hi")).running() as url:
        first, second = [(await post(url, body(results=1)))[1] for _ in range(2)]
    assert first == second


@pytest.mark.parametrize(("kind", "status"), [("401", 401), ("429", 429), ("529", 529), ("500", 500)])
async def test_an_error_costs_nothing_and_ends_after_the_first_calls(kind: str, status: int) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault(kind, first=2, headers={"retry-after": "3"}))
    async with model.running() as url:
        answers = [await post(url, body()) for _ in range(3)]
    assert [a[0] for a in answers] == [status, status, 200]
    assert answers[0][2]["retry-after"] == "3"
    assert model.totals.requests == 3 and model.totals.answered == 1


async def test_a_fault_ends_after_its_seconds() -> None:
    now = [0.0]
    model = ScriptedModel(commands("echo hi"), fault=Fault("529", seconds=30), clock=lambda: now[0])
    async with model.running() as url:
        statuses = []
        for now[0] in (5.0, 34.9, 35.0):
            statuses.append((await post(url, body()))[0])
    assert statuses == [529, 529, 200]


async def test_a_hang_sends_nothing() -> None:
    async with ScriptedModel(commands("echo hi"), fault=Fault("hang")).running() as url:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(post(url, body(stream=True)), 0.3)


async def test_a_cut_stream_ends_without_its_end_and_counts_what_was_told() -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("cut"))
    async with model.running() as url:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(url, body(stream=True))
    assert model.totals.usage.output_tokens == 1 and model.totals.usage.input_tokens > 0


async def test_a_slow_stream_takes_its_time_and_a_loop_never_gets_on() -> None:
    async with ScriptedModel(commands("one", "two"), fault=Fault("slow", delay=0.02)).running() as url:
        began = asyncio.get_running_loop().time()
        await post(url, body(stream=True))
        assert asyncio.get_running_loop().time() - began > 0.1
    async with ScriptedModel(commands("one", "two"), fault=Fault("loop")).running() as url:
        _, text, _ = await post(url, body(results=5))
    assert json.loads(text)["content"][0]["input"]["command"] == "one"


async def test_rubbish_is_refused_as_the_real_one_does() -> None:
    async with ScriptedModel(commands("echo hi")).running() as url, aiohttp.ClientSession() as http:
        for data in (b"{", b"[]", b'{"messages": [{}]}', b'{"model": "m", "messages": []}'):
            async with http.post(f"{url}/v1/messages", data=data) as answer:
                assert answer.status == 400
                assert (await answer.json())["error"]["type"] == "invalid_request_error"
        async with http.head(url) as answer:
            assert answer.status == 200
        async with http.get(f"{url}/v1/files") as answer:
            assert answer.status == 404


async def test_the_log_shows_who_asked_but_no_key(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with ScriptedModel(commands("echo hi"), log=log).running() as url:
        await post(url, body(results=1), key="sk-very-secret")
    record = json.loads(log.read_text())
    assert (record["agent"], record["session"], record["turn"]) == ("agent-03", "agent-03.7", 1)
    assert "sk-very-secret" not in log.read_text() and key_name("sk-very-secret") in log.read_text()


async def test_agents_that_gather_get_their_first_answer_together() -> None:
    async with ScriptedModel(commands("echo hi"), gather=2).running() as url:
        first = asyncio.create_task(post(url, body(prompt="You are agent-01 (role worker), session agent-01.1")))
        await asyncio.sleep(0.1)
        assert not first.done()
        await post(url, body(prompt="You are agent-02 (role worker), session agent-02.1"))
        assert (await asyncio.wait_for(first, 1))[0] == 200


async def test_agents_that_gather_do_not_wait_for_ever() -> None:
    async with ScriptedModel(commands("echo hi"), gather=9, gather_seconds=0.1).running() as url:
        for n in (1, 2):
            prompt = f"You are agent-0{n} (role worker), session agent-0{n}.1"
            assert (await asyncio.wait_for(post(url, body(prompt=prompt)), 1))[0] == 200


async def test_it_serves_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    async with ScriptedModel(commands("echo hi")).running(unix=path) as url:
        connector = aiohttp.UnixConnector(str(path))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.post(f"{url}/v1/messages", json=body()) as a,
        ):
            assert a.status == 200


def test_who_asks_is_read_from_the_line_of_the_prompt() -> None:
    found = WHO.search("x\nYou are review-01 (role review), session review-01.12. Go.")
    assert found and found.groups() == ("review-01", "review", "review-01.12")


def test_as_a_program_it_says_where_it_is_and_what_is_wrong_with_a_script(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "team.rehearsal.model"]
    bad = subprocess.run([*run, "--script", "nowhere"], capture_output=True, text=True)
    assert bad.returncode == 2 and "--script nowhere" in bad.stderr
    steps = tmp_path / "s.json"
    steps.write_text('[{"command": "ls"}, {"text": "bye"}]')
    argv = [*run, "--script", str(steps), "--unix", str(tmp_path / "m.sock")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and "scripted model at" in process.stdout.readline()
        process.terminate()
