"""The OpenAI Responses API, as far as a scripted model speaks it: the same functions as :mod:`team.rehearsal.messages`.

Codex offers its shell in two ways. To models that it does not know, as the function ``exec_command``. To its own
models, as JavaScript that calls ``tools.exec_command``: the tool ``exec``, told in an input item, not in ``tools``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from team.rehearsal.messages import BadRequest, Usage, encode
from team.rehearsal.script import WHO, Ask, Step

__all__ = ["blocks", "encode", "error", "events", "message", "parse", "read", "told", "usage"]

_SHELLS = {"exec": "", "exec_command": "cmd", "shell_command": "command", "bash": "command"}
"""Names of the shell tools, the best first, and which argument holds the command; ``exec`` takes JavaScript."""
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_RUNNING = re.compile(r"^Process running with session ID (\d+)", re.M)
"""The result of a command that takes longer than one look: it goes on, and is asked again."""
_SHORT_LOOK, _LONG_LOOK = 30_000, 300_000
"""Milliseconds that codex waits at most for a command that begins, for one that goes on."""
_CREATED = 1_764_547_200
_ERRORS = {
    "authentication_error": ("invalid_request_error", "invalid_api_key"),
    "permission_error": ("invalid_request_error", None),
    "not_found_error": ("invalid_request_error", None),
    "rate_limit_error": ("requests", "rate_limit_exceeded"),
    "overloaded_error": ("server_error", "server_is_overloaded"),
    "api_error": ("server_error", None),
}


def parse(raw: bytes) -> dict[str, Any]:
    """The body of a request; raises :class:`BadRequest`. A plain string as input becomes one message."""
    try:
        body = json.loads(raw)
    except ValueError:
        raise BadRequest("We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise BadRequest("Missing required parameter: 'model'.")
    if isinstance(body.get("input"), str):
        body["input"] = [{"type": "message", "role": "user", "content": body["input"]}]
    items = body.get("input")
    if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
        raise BadRequest("Missing required parameter: 'input'.")
    return body


def read(body: Mapping[str, Any]) -> Ask:
    """Who asks and where in its conversation it is. A command that was asked for several times counts once."""
    said = [_text(item.get("content")) for item in body["input"] if item.get("role") == "user"]
    # Beside the prompt there are messages about the environment and the project's AGENTS.md.
    prompt = next((text for text in said if WHO.search(text)), said[-1] if said else "")
    who = WHO.search(prompt)
    results = list(_results(body))
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
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _results(body: Mapping[str, Any]) -> Iterator[str]:
    """What each finished command printed."""
    so_far = ""
    for item in body["input"]:
        if item.get("type") in _OUTPUTS:
            so_far += _text(item.get("output"))
            if not _RUNNING.search(_text(item.get("output"))):
                yield so_far
                so_far = ""


def _goes_on(body: Mapping[str, Any]) -> int | None:
    """The process that the last result left running."""
    last = body["input"][-1]
    found = _RUNNING.search(_text(last.get("output"))) if last.get("type") in _OUTPUTS else None
    return int(found[1]) if found else None


def _tools(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All tools that are offered, also in namespaces and in input items."""
    items = (item for item in body["input"] if item.get("type") == "additional_tools")
    groups = [body, *items]
    while groups:
        for tool in groups.pop(0).get("tools") or []:
            yield tool
            groups.append(tool)


def blocks(step: Step, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``step`` as output items, calling the shell tool that the request offers."""
    process = _goes_on(body)
    if process is not None:
        return [_call(body, 0, "write_stdin", {"session_id": process, "chars": "", "yield_time_ms": _LONG_LOOK})]
    offered = {tool.get("name"): tool for tool in _tools(body)}
    name = next((name for name in _SHELLS if name in offered), None)
    if not step.commands:
        return [_said(body, step.text)]
    if name is None:
        return [_said(body, "No shell tool is offered, so there is nothing to do.")]
    items = [_said(body, step.text)] if step.text else []
    for n, command in enumerate(step.commands):
        if name == "exec":
            items.append(_script(body, n, command))
        else:
            known = (offered[name].get("parameters") or {}).get("properties") or {}
            items.append(_call(body, n, name, _arguments(_SHELLS[name], command, step, known)))
    return items


def _said(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {
        "id": f"msg_{_digest(body, -2)}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def _call(body: Mapping[str, Any], n: int, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    digest = _digest(body, n)
    return {
        "id": f"fc_{digest}",
        "type": "function_call",
        "status": "completed",
        "arguments": json.dumps(arguments),
        "call_id": f"call_{digest}",
        "name": name,
    }


def _arguments(key: str, command: str, step: Step, known: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {key: command}
    if "yield_time_ms" in known:
        arguments["yield_time_ms"] = _SHORT_LOOK
    for name in ("timeout", "timeout_ms"):
        if name in known and step.seconds:
            arguments[name] = int(step.seconds * 1000)
    if "description" in known:
        arguments["description"] = command.strip().split("\n", 1)[0][:60]
    return arguments


def _script(body: Mapping[str, Any], n: int, command: str) -> dict[str, Any]:
    """JavaScript that runs ``command`` to its end and shows what it printed."""
    digest = _digest(body, n)
    text = f"""\
// @exec: {{"yield_time_ms": {2 * _LONG_LOOK}}}
let seen = await tools.exec_command({json.dumps({"cmd": command, "yield_time_ms": _SHORT_LOOK})});
let said = seen.output;
while (seen.session_id !== undefined && seen.exit_code === undefined) {{
  seen = await tools.write_stdin({{session_id: seen.session_id, yield_time_ms: {_LONG_LOOK}}});
  said += seen.output;
}}
text(said);
"""
    return {
        "id": f"ctc_{digest}",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": f"call_{digest}",
        "name": "exec",
        "input": text,
    }


def _digest(body: Mapping[str, Any], n: int) -> str:
    last = json.dumps([len(body["input"]), body["input"][-1], n], sort_keys=True)
    return hashlib.sha256(last.encode()).hexdigest()[:40]


def usage(raw: bytes, content: list[dict[str, Any]]) -> Usage:
    """Tokens of an answer: a quarter of the bytes each way, half of the input read from cache."""
    size = max(8, len(raw) // 4)
    return Usage(size - size // 2, max(1, len(json.dumps(content)) // 4), 0, size // 2)


def message(body: Mapping[str, Any], content: list[dict[str, Any]], spent: Usage) -> dict[str, Any]:
    """The whole response, as sent when the request does not ask for a stream."""
    size = spent.input_tokens + spent.cache_read_input_tokens
    return {
        "id": f"resp_{_digest(body, -1)}",
        "object": "response",
        "created_at": _CREATED,
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": body["model"],
        "output": content,
        "parallel_tool_calls": bool(body.get("parallel_tool_calls", True)),
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": size,
            "input_tokens_details": {"cached_tokens": spent.cache_read_input_tokens},
            "output_tokens": spent.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": size + spent.output_tokens,
        },
        "user": None,
    }


def events(whole: Mapping[str, Any], piece: int = 48) -> Iterator[dict[str, Any]]:
    """The events of a stream that carries ``whole``, its texts in pieces of ``piece`` characters."""
    for number, event in enumerate(_events(whole, piece)):
        yield {"type": event.pop("type"), "sequence_number": number, **event}


def _events(whole: Mapping[str, Any], piece: int) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        yield from _item_events(item, index, piece)
    yield {"type": "response.completed", "response": dict(whole)}


def _item_events(item: dict[str, Any], index: int, piece: int) -> Iterator[dict[str, Any]]:
    at: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        (part,) = item["content"]
        at["content_index"] = 0
        kind, name, text = "output_text", "text", part["text"]
        empty: dict[str, Any] = {"content": []}
        opened = [{"type": "response.content_part.added", **at, "part": {**part, "text": ""}}]
        closed = [{"type": "response.content_part.done", **at, "part": part}]
    else:
        name = "arguments" if item["type"] == "function_call" else "input"
        kind = f"{item['type']}_{name}"
        text, empty, opened, closed = item[name], {name: ""}, [], []
    begun = {**item, "status": "in_progress", **empty}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield from opened
    for start in range(0, len(text), piece):
        yield {"type": f"response.{kind}.delta", **at, "delta": text[start : start + piece]}
    yield {"type": f"response.{kind}.done", **at, name: text}
    yield from closed
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def told(event: Mapping[str, Any], spent: Usage) -> tuple[Usage, int] | None:
    """What ``event`` tells of the usage, and how many answers that makes: all of it, at the end."""
    return (spent, 1) if event["type"] == "response.completed" else None


def error(kind: str, text: str) -> dict[str, Any]:
    """The body of a refusal; ``kind`` is the Messages API's word for it."""
    type_, code = _ERRORS.get(kind, (kind, None))
    return {"error": {"message": text, "type": type_, "param": None, "code": code}}
