"""The client ``codex``: OpenAI's Codex, without a person (facts measured with 0.171.0).

Its output is one JSON object a line: ``thread.started``, ``turn.started``, ``item.started``, ``item.completed``,
``error`` (also for each retry) and, at the end, ``turn.completed`` or ``turn.failed``. It tells neither its version
nor a cost in dollars.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from team.clients import DOOR, Api, Outcome, Seen, exits
from team.clients.lines import RESULT_LINES, TEXT_LINES, WIDTH, cut, first_lines, lines, parse, telling, word
from team.text import one_line

IDLE_MS = 600_000
"""How long a model call may say nothing: it may wait in the gateway. Its own default is half of that."""
# `unexpected status 401 Unauthorized: ...`, `exceeded retry limit, last status: 429 Too Many Requests`.
_STATUS = re.compile(r"\b(?:unexpected|last) status:? (\d{3})\b")
BIGGEST_COMMAND = 1 << 16
"""Characters; a longer one is shown as it came, quoted."""


class Codex:
    """``codex exec``, everything allowed: the container is the sandbox."""

    name = "codex"
    api: Api = "openai"
    needs_model = True
    image = "codex"

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        # A provider of our own: the built-in one ignores OPENAI_BASE_URL and opens a WebSocket to its own host.
        provider = (
            f'{{name="team", base_url={json.dumps(door + "/v1")}, env_key="OPENAI_API_KEY", wire_api="responses", '
            f"stream_idle_timeout_ms={IDLE_MS}}}"
        )
        settings = {
            "model_provider": "team",
            "model_providers.team": provider,
            # Else each request offers the provider's own search, which the gateway refuses.
            "web_search": "disabled",
            "check_for_update_on_startup": "false",
            "analytics.enabled": "false",
        }
        fixed = ["codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        for name, value in settings.items():
            fixed += ["-c", f"{name}={value}"]
        return (*fixed, *(("-m", model) if model else ()), "-")  # the prompt is on standard input

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        return {"OPENAI_API_KEY": token}

    def reader(self) -> CodexReader:
        return CodexReader()


class CodexReader:
    """Reads the events of ``codex exec --json``. Tolerates any bytes: what runs beside it can print among them."""

    def __init__(self) -> None:
        self._completed = False
        self._failed: str | None = None
        self._spoke = ""

    def feed(self, line: bytes) -> Seen:
        event = parse(line)
        if event is None:
            return Seen(text=first_lines(line[: 8 * WIDTH].decode("utf-8", "replace"), RESULT_LINES))
        kind = event.get("type")
        if kind == "turn.started":
            return Seen(goes_on=True)
        if kind in ("item.started", "item.completed"):
            return self._item(event.get("item"), begun=kind == "item.started")
        if kind == "error":
            return Seen(text=f"({one_line(_message(event), WIDTH)})")
        if kind == "turn.completed":
            self._completed, self._failed = True, None
            return Seen(text="(finished)", result=True)
        if kind == "turn.failed":
            self._completed, self._failed = False, _message(event.get("error"))
            return Seen(error=self._failed, result=True)
        return Seen()

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        if self._failed is not None:
            status = _STATUS.search(self._failed)
            return exits.refused(int(status[1]) if status else None, self._failed), self._failed
        if code != 0:
            return exits.judge(code, out_of_memory)
        if not self._completed:
            return Outcome.CRASHED, "ended before its turn was completed"
        return Outcome.DONE, self._spoke or "finished"

    def _item(self, item: object, *, begun: bool) -> Seen:
        """What the agent says and does. What takes long is told when it begins, its result when it ends."""
        if not isinstance(item, dict):
            return Seen()
        if item.get("type") == "agent_message" and not begun:
            self._spoke = one_line(_string(item.get("text"))[: 4 * WIDTH])
        return Seen(text="\n".join(_began(item) if begun else _ended(item)))


def _began(item: dict[str, Any]) -> Iterator[str]:
    kind = item.get("type")
    if kind == "command_execution":
        yield f"> {_command(_string(item.get('command')))}"
    elif kind in ("mcp_tool_call", "collab_tool_call"):
        yield f"> {word(item.get('tool')) or word(kind)}"


def _ended(item: dict[str, Any]) -> Iterator[str]:
    kind = item.get("type")
    if kind == "agent_message":
        yield from lines(item.get("text"), TEXT_LINES)
    elif kind == "command_execution":
        mark = "  ! " if item.get("exit_code") not in (0, None) else "  "
        yield from (mark + line for line in lines(item.get("aggregated_output"), RESULT_LINES))
    elif kind == "file_change":
        changes = item.get("changes")
        for change in changes[:RESULT_LINES] if isinstance(changes, list) else []:
            if isinstance(change, dict):
                yield f"> {word(change.get('kind')) or 'change'} {cut(_string(change.get('path')))}"
    elif kind == "error":  # a warning: the turn goes on
        yield f"({one_line(_string(item.get('message')), WIDTH)})"


def _command(text: str) -> str:
    """The first line of a shell command, without the shell that codex puts before it."""
    try:
        words = shlex.split(text) if len(text) <= BIGGEST_COMMAND else []
    except ValueError:
        words = []
    inner = words[2] if len(words) == 3 and words[1] in ("-lc", "-c") else text
    return telling({"command": inner})


def _message(holder: object) -> str:
    """The words of an error on one line. With status 400 they are the whole body of the answer."""
    said = _string(holder.get("message")) if isinstance(holder, dict) else ""
    return one_line(said[: 4 * WIDTH]) or "the client failed without saying why"


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
