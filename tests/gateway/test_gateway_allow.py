"""What is let through, and what is refused with the setting that would let it through."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from team.rehearsal.model import ScriptedModel
from team.rehearsal.script import Fixed, Step
from tests.gateway.conftest import Make, message

SCRIPT = Fixed([Step("Done.")])


def content(*blocks: dict[str, Any]) -> dict[str, Any]:
    return message() | {"messages": [{"role": "user", "content": list(blocks)}]}


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source}


REFUSED = [
    (message(mcp_servers=[{"type": "url", "url": "https://x", "name": "x"}]), "mcp_servers"),
    (message(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "web_search_20250305"),
    (message(tools=[{"type": "web_fetch_20260318", "name": "web_fetch"}]), "web_fetch_20260318"),
    (message(tools=[{"type": "code_execution_20260521", "name": "c"}]), "code_execution_20260521"),
    (message(tools=[{"type": "mcp_toolset", "mcp_server_name": "x"}]), "mcp_toolset"),
    (message(tools=[{"type": "advisor_20260301", "name": "a"}]), "advisor_20260301"),
    (message(service_tier="priority"), "service_tier"),
    (message(speed="fast"), "speed"),
    (message(container="c_1"), "container"),
    (message(fallbacks=[{"model": "dear"}]), "fallbacks"),
    (message(Tools=[]), "Tools"),
    (message(context_management={"edits": [{"type": "compact_20260112"}]}), "compact_20260112"),
    (content(image(type="url", url="https://evil.example/x.png")), "url"),
    (content(image(type="file", file_id="f_1")), "file"),
    (content({"type": "document", "source": {"type": "content", "content": [image(type="url", url="x")]}}), "url"),
    (content({"type": "tool_result", "tool_use_id": "t", "content": [image(type="url", url="x")]}), "url"),
    (content({"type": "container_upload", "file_id": "f"}), "container_upload"),
    (content({"type": "mcp_tool_result", "content": []}), "mcp_tool_result"),
    (
        content({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_search_1"}}}),
        "web_search_1",
    ),
    (content({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference"}}), "mcp_toolset_reference"),
]


@pytest.mark.parametrize(("body", "name"), REFUSED)
async def test_what_reaches_out_or_bills_apart_is_refused(world: Make, body: dict[str, Any], name: str) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url)
        status, said = await made.seat.ask(body)
        assert status == 403 and said["type"] == "error" and said["error"]["type"] == "permission_error"
        assert name in said["error"]["message"] and "[gateway]" in said["error"]["message"]
        assert model.seen == [] and made.gateway.books.accounts.spent().tokens == 0


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/responses", {"input": "x", "background": True}, "background"),
        ("/v1/responses", {"input": "x", "previous_response_id": "r_1"}, "previous_response_id"),
        ("/v1/responses", {"input": "x", "store": True}, "store"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}]}, "web_search"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "mcp", "server_url": "https://x"}]}, "mcp"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "code_interpreter"}]}, "code_interpreter"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}, "mcp"),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x"}]}]},
            "image_url",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]}]},
            "file_url",
        ),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "file_id",
        ),
        ("/v1/responses", {"input": "x", "service_tier": "priority"}, "service_tier"),
        ("/v1/chat/completions", {"messages": [], "n": 5}, "'n'"),
        ("/v1/chat/completions", {"messages": [], "web_search_options": {}}, "web_search_options"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]},
            "image_url",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
            "file_id",
        ),
    ],
)
async def test_the_same_for_openai(world: Make, path: str, body: dict[str, Any], name: str) -> None:
    other = {"api": "openai", "base_url": "http://127.0.0.1:9/v1"}
    made = await world("http://127.0.0.1:9", gateway={"providers": {"openai": other}})
    status, said = await made.seat.ask({"model": "m", **body}, path)
    assert status == 400 and name in said["error"]["message"] and "code" in said["error"]


@pytest.mark.parametrize(
    "path",
    ["/v1/messages/batches", "/v1/files", "/v1/complete", "/v1/messages/../files", "/v1/agents", "/v1/responses/x"],
)
async def test_other_paths_are_refused(world: Make, path: str) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url)
        assert (await made.seat.ask(message(), path))[0] == 403 and model.seen == []


async def test_what_the_person_allows_goes_through(world: Make) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        allowed = {"allow_fields": ["mcp_servers"], "allow_tools": ["web_search_*"], "allow_sources": ["url"]}
        made = await world(url, gateway=allowed | {"allow_betas": ["my-beta-*"]})
        body = content(image(type="url", url="https://x")) | {
            "mcp_servers": [{"name": "x"}],
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        }
        assert (await made.seat.ask(body, headers={"anthropic-beta": "my-beta-1"}))[0] == 200
        assert model.seen[0]["headers"]["anthropic-beta"] == "my-beta-1"


async def test_what_claude_code_sends_goes_through(world: Make) -> None:
    model = ScriptedModel(SCRIPT)
    betas = (
        "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
        "mid-conversation-tool-changes-2026-07-01,thinking-token-count-2026-05-13,advanced-tool-use-2025-11-20,"
        "effort-2025-11-24,thinking-display-updates-2026-08-18"
    )
    body = {
        "model": "scripted",
        "max_tokens": 32000,
        "stream": True,
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "tools": [
            {"name": "Bash", "description": "", "input_schema": {"type": "object"}},
            {"type": "custom", "name": "x"},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "x"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": ""},
                    {
                        "type": "tool_use",
                        "id": "t",
                        "name": "Bash",
                        "input": {"source": {"type": "url"}, "type": "mcp"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [
                            {"type": "text", "text": "hi"},
                            image(type="base64", media_type="image/png", data=""),
                        ],
                    }
                ],
            },
        ],
    }
    async with model.running() as url:
        made = await world(url)
        dropped = "X-Other Cookie X-HTTP-Method-Override X-Original-URL X-Forwarded-Host Forwarded Via".split()
        headers = {"anthropic-beta": betas + ",files-api-2025-04-14, evil", **dict.fromkeys(dropped, "v1/files")}
        for _ in range(2):
            assert (await made.seat.ask(body, "/v1/messages?beta=true", headers))[0] == 200
        sent = model.seen[0]["headers"]
        assert sent["anthropic-beta"] == betas and not {n.lower() for n in sent} & {n.lower() for n in dropped}
        assert len([line for line in made.seat.log if "files-api" in line]) == 1


async def test_counting_and_listing_cost_nothing(world: Make) -> None:
    model = ScriptedModel(SCRIPT)
    async with model.running() as url:
        made = await world(url, budget={"tokens": 0})
        body = {k: v for k, v in message().items() if k != "max_tokens"}
        status, said = await made.seat.ask(body, "/v1/messages/count_tokens")
        assert status == 200 and said["input_tokens"] > 0
        async with made.seat.http.get(made.seat.url + "/v1/models", headers={"anthropic-version": "1"}) as answer:
            assert answer.status == 200
        async with made.seat.http.head(made.seat.url + "/") as answer:
            assert answer.status == 200
        assert (await made.seat.ask())[0] == 403
        assert [e.data["path"] for e in made.calls()] == ["/v1/messages/count_tokens", "/v1/models"]


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": [{"type": "compaction"}]},
        {"context_management": {"edits": {"type": "compact_20260112"}}},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": [{"type": "url", "url": "x"}]}]}]},
    ],
)
async def test_what_has_another_shape_is_not_passed_unseen(world: Make, more: dict[str, Any]) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        raise AssertionError

    made = await world(never)
    assert (await made.seat.ask(message(**more)))[0] == 400
