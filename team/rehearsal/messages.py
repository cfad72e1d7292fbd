"""The Anthropic Messages API, as far as a scripted model speaks it: reading a request, rendering an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from team.rehearsal.script import WHO, Ask, Step

TOOLS = ("Bash", "bash")
"""The shell tool of Claude Code; of opencode and the stand-in."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer, or of many. Derived from sizes alone, so the same request always costs the same."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{k: v + getattr(other, k) for k, v in vars(self).items()})


class BadRequest(ValueError):
    """The request is none that the API knows; the message says why."""


def parse(raw: bytes) -> dict[str, Any]:
    """The body of a request; raises :class:`BadRequest`."""
    try:
        body = json.loads(raw)
    except ValueError:
        raise BadRequest("the body is not JSON") from None
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise BadRequest("messages: at least one message is required")
    if not isinstance(body.get("model"), str):
        raise BadRequest("model: Field required")
    return body


def read(body: Mapping[str, Any]) -> Ask:
    """Who asks and where in its conversation it is."""
    results = [text for m in body["messages"] if m.get("role") == "user" for text in _results(m.get("content"))]
    prompt = _text(next((m.get("content") for m in body["messages"] if m.get("role") == "user"), ""))
    who = WHO.search(prompt) or WHO.search(_text(body.get("system", "")))
    return Ask(
        agent=who["agent"] if who else "",
        session=who["session"] if who else "",
        turn=len(results),
        last_tool_result=results[-1] if results else "",
        prompt=prompt,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(b.get("text", "") for b in blocks if isinstance(b, dict) and b.get("type") == "text")


def _results(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield _text(block.get("content", ""))


def blocks(step: Step, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``step`` as content blocks, calling the shell tool that the request offers."""
    if not step.commands:
        return [{"type": "text", "text": step.text}]
    tool = next((t for t in body.get("tools") or [] if t.get("name") in TOOLS), None)
    if tool is None:
        return [{"type": "text", "text": "No shell tool is offered, so there is nothing to do."}]
    known = tool.get("input_schema", {}).get("properties", {})
    said: list[dict[str, Any]] = [{"type": "text", "text": step.text}] if step.text else []
    for n, command in enumerate(step.commands):
        given: dict[str, Any] = {"command": command}
        if "description" in known:
            given["description"] = command.strip().split("\n", 1)[0][:60]
        if "timeout" in known and step.seconds:
            given["timeout"] = int(step.seconds * 1000)
        said.append({"type": "tool_use", "id": f"toolu_{_digest(body, n)}", "name": tool["name"], "input": given})
    return said


def _digest(body: Mapping[str, Any], n: int) -> str:
    last = json.dumps([len(body["messages"]), body["messages"][-1], n], sort_keys=True)
    return hashlib.sha256(last.encode()).hexdigest()[:24]


def usage(raw: bytes, content: list[dict[str, Any]]) -> Usage:
    """Tokens of an answer: a quarter of the bytes each way; half of the input read from cache, an eighth written."""
    size = max(8, len(raw) // 4)
    read_, made = size // 2, size // 8
    return Usage(size - read_ - made, max(1, len(json.dumps(content)) // 4), made, read_)


def message(body: Mapping[str, Any], content: list[dict[str, Any]], spent: Usage) -> dict[str, Any]:
    """The whole answer, as sent when the request does not ask for a stream."""
    return {
        "id": f"msg_{_digest(body, -1)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if content[-1]["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": dict(vars(spent)),
    }


def events(whole: Mapping[str, Any], piece: int = 48) -> Iterator[dict[str, Any]]:
    """The events of a stream that carries ``whole``, its text and inputs in pieces of ``piece`` characters."""
    told = {**whole["usage"], "output_tokens": 1}
    start = {**whole, "content": [], "stop_reason": None, "usage": told}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, key, text = {**block, "text": ""}, "text", block["text"]
        else:
            empty, key, text = {**block, "input": {}}, "partial_json", json.dumps(block["input"])
        kind = "text_delta" if key == "text" else "input_json_delta"
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for at in range(0, len(text), piece):
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text[at : at + piece]}}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
    yield {"type": "message_stop"}


def encode(event: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def told(event: Mapping[str, Any], spent: Usage) -> tuple[Usage, int] | None:
    """What ``event`` tells of the usage, and how many answers that makes: the start tells the input and one token,
    the end tells the rest."""
    if event["type"] == "message_start":
        return replace(spent, output_tokens=1), 1
    if event["type"] == "message_delta":
        return Usage(output_tokens=spent.output_tokens - 1), 0
    return None


def error(kind: str, text: str) -> dict[str, Any]:
    """The body of a refusal."""
    return {"type": "error", "error": {"type": kind, "message": text}}
