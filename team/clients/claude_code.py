"""The client ``claude-code``: Anthropic's Claude Code, without a person (facts measured with 2.1.332).

Its output is one JSON object a line: ``system`` (``init``, ``api_retry``, background tasks and others),
``assistant``, ``user`` (tool results) and ``result``. A session may print several results: when a background
task ends after the first, the model gets another turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from team.clients import Outcome, Seen, exits
from team.text import clean, one_line

BIGGEST_LINE = 1 << 20
"""Bytes; a longer line is not parsed."""
TEXT_LINES, RESULT_LINES, WIDTH = 40, 6, 400
"""How much of a message, and of a tool's result, is shown, and how wide."""

# The input that tells best what a tool call does, in order of preference.
_TELLING = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "prompt", "path")
_LIMITED = (429, 529)
_RATE = re.compile(r"rate.?limit|usage limit|hit your .{0,20}limit|overloaded|\b(?:429|529)\b", re.I)
_BUDGET = re.compile(r"team_budget|out of budget|error_max_budget", re.I)


class ClaudeCode:
    """Claude Code in its print mode, all tools allowed: the container is the sandbox."""

    name = "claude-code"
    needs_model = True
    image = "claude-code"

    def argv(self, model: str | None) -> Sequence[str]:
        fixed = ("claude", "-p", "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose")
        return (*fixed, "--model", model) if model else fixed

    def env(self, door: str, token: str) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": door,
            "ANTHROPIC_API_KEY": token,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # HOME goes with the container; what an agent learns belongs in NOTES.md. Halves the first request, too.
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            # A command past its time-out would move to the background, and the session end before it.
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
            # Else 2 minutes, 10 at most: too short for a test suite, or a push that waits. Below [session] silence
            # (30 minutes), since nothing is printed meanwhile: the agent should learn of it before it is stopped.
            "BASH_DEFAULT_TIMEOUT_MS": str(10 * 60 * 1000),
            "BASH_MAX_TIMEOUT_MS": str(25 * 60 * 1000),
        }

    def reader(self) -> ClaudeCodeReader:
        return ClaudeCodeReader()


@dataclass(frozen=True)
class _Result:
    """What a ``result`` event said."""

    ok: bool
    reason: str
    kind: str = ""
    """Subtype and error type."""
    status: int | None = None
    """HTTP status of the model call that failed, where one did."""


class ClaudeCodeReader:
    """Reads stream-json. Tolerates any bytes: what runs beside the client can print into its output."""

    def __init__(self) -> None:
        self._result: _Result | None = None
        self._background = False

    def feed(self, line: bytes) -> Seen:
        event = _parse(line)
        if event is None:
            return Seen(text=_first_lines(line[: 8 * WIDTH].decode("utf-8", "replace"), RESULT_LINES))
        kind = event.get("type")
        if kind == "system":
            return self._system(event)
        if kind == "assistant":
            return Seen(text="\n".join(_spoken(event)))
        if kind == "user":
            return Seen(text="\n".join(_returned(event)))
        if kind == "result":
            return self._ended(event)
        return Seen()

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        result = self._result
        if result is not None and not result.ok:
            return _judge(result)
        if code != 0:
            return exits.judge(code, out_of_memory)
        if result is None:  # SIGINT ends it so, with exit 0
            return Outcome.CRASHED, "ended without a result"
        return Outcome.DONE, result.reason

    def _system(self, event: dict[str, Any]) -> Seen:
        subtype = event.get("subtype")
        if subtype == "init":
            version, model = _word(event.get("claude_code_version")), _word(event.get("model"))
            return Seen(text=f"claude-code {version or '?'}, model {model or '?'}", version=version)
        if subtype == "background_tasks_changed":
            self._background = bool(event.get("tasks"))
        if subtype == "api_retry":
            return Seen(text=_retry(event))
        return Seen()

    def _ended(self, event: dict[str, Any]) -> Seen:
        self._result = result = _result(event)
        # While a background task runs the client stays, and may well go on.
        done = not self._background
        return Seen(text="(finished)", result=done) if result.ok else Seen(result=done, error=result.reason)


def _parse(line: bytes) -> dict[str, Any] | None:
    """The event on ``line``, or None where it is none: not JSON, not an object, too long, too deep."""
    if len(line) > BIGGEST_LINE or not line.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also bad UTF-8, and numbers of thousands of digits
        return None
    return event if isinstance(event, dict) else None


def _spoken(event: dict[str, Any]) -> Iterator[str]:
    """What the model said and which tools it called."""
    for block in _blocks(event):
        if block.get("type") == "text":
            yield from _lines(block.get("text"), TEXT_LINES)
        elif block.get("type") == "tool_use":
            yield f"> {_word(block.get('name')) or 'tool'}: {_telling(block.get('input'))}"


def _returned(event: dict[str, Any]) -> Iterator[str]:
    """The first lines of what tools returned."""
    for block in _blocks(event):
        if block.get("type") == "tool_result":
            mark = "  ! " if block.get("is_error") is True else "  "
            for line in _lines(_plain(block.get("content")), RESULT_LINES):
                yield mark + line


def _blocks(event: dict[str, Any]) -> list[dict[str, Any]]:
    """The content blocks of a message; plain text counts as one block."""
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


def _plain(content: object) -> str:
    """A tool result's content, which is text or a list of blocks, as text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [b.get("text") if b.get("type") == "text" else f"({_word(b.get('type'))})" for b in _dicts(content)]
    return "\n".join(t for t in texts if isinstance(t, str))


def _dicts(values: list[Any]) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)]


def _telling(given: object) -> str:
    """One line on a tool's input: for a shell command its first line."""
    if not isinstance(given, dict):
        return ""
    for key in _TELLING:
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            more = value.strip().count("\n")
            first = one_line(value.strip()[: 2 * WIDTH].split("\n", 1)[0], WIDTH)
            return f"{first} (and {more} more)" if more else first
    return one_line(", ".join(str(key)[:40] for key in list(given)[:10]), WIDTH)


def _lines(text: object, most: int) -> list[str]:
    """At most ``most`` lines of ``text``, each cut to the width; a last line tells how many were left out."""
    if not isinstance(text, str) or not text.strip():
        return []
    parts = text.strip("\n").split("\n")
    shown = [_cut(p) for p in parts[:most]]
    return [*shown, f"… {len(parts) - most} more lines"] if len(parts) > most else shown


def _cut(line: str) -> str:
    line = clean(line[: 2 * WIDTH]).rstrip()
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _first_lines(text: str, most: int) -> str:
    return "\n".join(_lines(text, most))


def _word(value: object) -> str:
    """``value`` as a short word of ours, empty where it is no text."""
    return one_line(value, 60) if isinstance(value, str) else ""


def _number(value: object) -> str:
    """``value`` as a short number, ``?`` where it is none."""
    return str(value)[:8] if isinstance(value, int) and abs(value) < 10**8 and not isinstance(value, bool) else "?"


def _retry(event: dict[str, Any]) -> str:
    delay = event.get("retry_delay_ms")
    seconds = f"{delay / 1000:.1f}" if isinstance(delay, int | float) and 0 <= delay < 10**8 else "?"
    count = f"{_number(event.get('attempt'))} of {_number(event.get('max_retries'))}"
    return f"(retry {count} in {seconds} s: {_number(event.get('error_status'))} {_word(event.get('error'))})"


def _result(event: dict[str, Any]) -> _Result:
    """What a ``result`` event says. An error may well carry the subtype ``success``: ``is_error`` decides."""
    subtype, status = _word(event.get("subtype")), event.get("api_error_status")
    said, errors = event.get("result"), event.get("errors")
    if not isinstance(said, str) or not said.strip():
        said = "; ".join(e for e in errors if isinstance(e, str)) if isinstance(errors, list) else ""
    if event.get("is_error") is False:
        return _Result(True, one_line(said[: 4 * WIDTH]) or "finished")
    reason = one_line(said[: 4 * WIDTH])
    if subtype.startswith("error"):
        reason = f"{subtype}: {reason}" if reason else subtype
    return _Result(
        ok=False,
        reason=one_line(reason or "the client failed without saying why"),
        kind=f"{subtype} {_word(event.get('api_error_type'))}",
        status=status if isinstance(status, int) else None,
    )


def _judge(result: _Result) -> tuple[Outcome, str]:
    """Tell the ends that are nobody's fault (limits, budget) from failures."""
    said = f"{result.kind} {result.reason}"
    if _BUDGET.search(said):
        return Outcome.OUT_OF_BUDGET, result.reason
    if result.status in _LIMITED or (result.status is None and _RATE.search(said)):
        return Outcome.RATE_LIMITED, result.reason
    return Outcome.FAILED, result.reason
