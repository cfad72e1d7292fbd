"""A small client for rehearsals without an engine: the Messages API, one tool, nothing but the standard library.

Reads the prompt on standard input and prints events in the manner of Claude Code's ``stream-json``. Runs by itself:
``python3 standin.py``, with ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY set.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

VERSION = "1"
MODEL = "stand-in"
TOOL = {
    "name": "bash",
    "description": "Run a shell command in the work tree.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
COMMAND_SECONDS = 600
MOST_OUTPUT = 30_000


class Refused(Exception):
    """The model's side answered with an error."""


def emit(kind: str, **fields: Any) -> None:
    print(json.dumps({"type": kind, **fields}), flush=True)


def ask(conversation: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One streamed call: the answer's content blocks and its usage."""
    body = {"model": MODEL, "max_tokens": 4096, "stream": True, "tools": [TOOL], "messages": conversation}
    headers = {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-api-key": os.environ.get("ANTHROPIC_API_KEY", ""),
    }
    url = os.environ["ANTHROPIC_BASE_URL"].rstrip("/") + "/v1/messages"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=600) as answer:
            return collect(answer)
    except urllib.error.HTTPError as e:
        raise Refused(f"API Error: {e.code} {e.read(2000).decode('utf-8', 'replace')}") from None
    except OSError as e:
        raise Refused(f"API Error: {e}") from None


def collect(stream: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Put the pieces of a stream together; a stream that stops early is an error."""
    blocks: list[dict[str, Any]] = []
    usage: dict[str, Any] = {}
    for line in stream:
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        if event["type"] == "message_start":
            usage.update(event["message"]["usage"])
        elif event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[-1]["json"] += delta.get("partial_json", "")
            if "text" in delta:
                blocks[-1]["text"] += delta["text"]
        elif event["type"] == "message_delta":
            usage.update(event["usage"])
        elif event["type"] == "error":
            raise Refused(f"API Error: {event['error']}")
        elif event["type"] == "message_stop":
            for block in blocks:
                text = block.pop("json")
                if block["type"] == "tool_use":
                    block["input"] = json.loads(text or "{}")
            return blocks, usage
    raise Refused("API Error: the stream was cut")


def run(block: dict[str, Any]) -> dict[str, Any]:
    """Run one tool call; what it printed goes back to the model."""
    command = block["input"].get("command", "")
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
        )
        text, failed = done.stdout.decode("utf-8", "replace"), done.returncode != 0
        if failed:
            text = f"Exit code {done.returncode}\n{text}"
    except subprocess.TimeoutExpired:
        text, failed = f"Command timed out after {COMMAND_SECONDS} s", True
    return {"type": "tool_result", "tool_use_id": block["id"], "content": text[-MOST_OUTPUT:], "is_error": failed}


def converse(prompt: str) -> tuple[str, int, dict[str, int]]:
    """Loop until the model calls no tool; gives its closing words and the number of calls and tokens."""
    conversation: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    total: dict[str, int] = {}
    turns = 0
    while True:
        blocks, usage = ask(conversation)
        turns += 1
        for key, value in usage.items():
            if isinstance(value, int):
                total[key] = total.get(key, 0) + value
        conversation.append({"role": "assistant", "content": blocks})
        emit("assistant", message={"role": "assistant", "model": MODEL, "content": blocks, "usage": usage})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return "".join(block.get("text", "") for block in blocks), turns, total
        conversation.append({"role": "user", "content": [run(block) for block in calls]})
        emit("user", message=conversation[-1])


def main() -> int:
    began = time.monotonic()
    emit(
        "system",
        subtype="init",
        cwd=str(Path.cwd()),
        session_id=f"standin-{os.getpid()}",
        tools=["bash"],
        model=MODEL,
        claude_code_version=f"stand-in {VERSION}",
    )
    failed, text, turns, usage = False, "", 0, dict[str, int]()
    try:
        text, turns, usage = converse(sys.stdin.read())
    except Refused as e:
        failed, text = True, str(e)
    emit(
        "result",
        subtype="success",
        is_error=failed,
        result=text,
        num_turns=turns,
        duration_ms=int((time.monotonic() - began) * 1000),
        total_cost_usd=0,
        usage=usage,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
