"""The client ``claude-code``: Anthropic's Claude Code, without a person (facts measured with 2.1.332).

Its output is one JSON object a line: ``system`` (``init``, ``api_retry``, background tasks and others),
``assistant``, ``user`` (tool results) and ``result``. A session may print several results: when a background
task ends after the first, the model gets another turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from team.clients import DOOR, Api, Outcome, Seen, exits
from team.clients.lines import RESULT_LINES, TEXT_LINES, WIDTH, first_lines, lines, number, parse, telling, word
from team.text import one_line


class ClaudeCode:
    """Claude Code in its print mode, all tools allowed: the container is the sandbox."""

    name = "claude-code"
    api: Api = "anthropic"
    needs_model = True
    image = "claude-code"

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        fixed = ("claude", "-p", "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose")
        return (*fixed, "--model", model) if model else fixed

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
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
        event = parse(line)
        if event is None:
            return Seen(text=first_lines(line[: 8 * WIDTH].decode("utf-8", "replace"), RESULT_LINES))
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
            return exits.refused(result.status, f"{result.kind} {result.reason}"), result.reason
        if code != 0:
            return exits.judge(code, out_of_memory)
        if result is None:  # SIGINT ends it so, with exit 0
            return Outcome.CRASHED, "ended without a result"
        return Outcome.DONE, result.reason

    def _system(self, event: dict[str, Any]) -> Seen:
        subtype = event.get("subtype")
        if subtype == "init":
            version, model = word(event.get("claude_code_version")), word(event.get("model"))
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


def _spoken(event: dict[str, Any]) -> Iterator[str]:
    """What the model said and which tools it called."""
    for block in _blocks(event):
        if block.get("type") == "text":
            yield from lines(block.get("text"), TEXT_LINES)
        elif block.get("type") == "tool_use":
            yield f"> {word(block.get('name')) or 'tool'}: {telling(block.get('input'))}"


def _returned(event: dict[str, Any]) -> Iterator[str]:
    """The first lines of what tools returned."""
    for block in _blocks(event):
        if block.get("type") == "tool_result":
            mark = "  ! " if block.get("is_error") is True else "  "
            for line in lines(_plain(block.get("content")), RESULT_LINES):
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
    texts = [b.get("text") if b.get("type") == "text" else f"({word(b.get('type'))})" for b in _dicts(content)]
    return "\n".join(t for t in texts if isinstance(t, str))


def _dicts(values: list[Any]) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)]


def _retry(event: dict[str, Any]) -> str:
    delay = event.get("retry_delay_ms")
    seconds = f"{delay / 1000:.1f}" if isinstance(delay, int | float) and 0 <= delay < 10**8 else "?"
    count = f"{number(event.get('attempt'))} of {number(event.get('max_retries'))}"
    return f"(retry {count} in {seconds} s: {number(event.get('error_status'))} {word(event.get('error'))})"


def _result(event: dict[str, Any]) -> _Result:
    """What a ``result`` event says. An error may well carry the subtype ``success``: ``is_error`` decides."""
    subtype, status = word(event.get("subtype")), event.get("api_error_status")
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
        kind=f"{subtype} {word(event.get('api_error_type'))}",
        status=status if isinstance(status, int) else None,
    )
