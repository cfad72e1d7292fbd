"""The client ``opencode``, without a person (facts measured with 1.18.33).

Its output is one JSON object a line: ``step_start``, ``text``, ``tool_use`` (when the tool has ended), ``step_finish``
and ``error``. Each call of the model is a step; the last one finishes with another reason than ``tool-calls``. It tells
nothing while it retries, and not its version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from team.clients import DOOR, Api, Outcome, Seen, exits
from team.clients.lines import RESULT_LINES, TEXT_LINES, WIDTH, first_lines, lines, parse, telling, word
from team.text import one_line

PROVIDER = "anthropic"
"""Of models that are named without one; ``openai/NAME`` works as well."""
BASH_MS = 10 * 60 * 1000
"""Default time-out of a command; its own, 2 minutes, is too short for a test suite or a push that waits."""


class OpenCode:
    """``opencode run``, everything allowed: the container is the sandbox."""

    name = "opencode"
    api: Api = "anthropic"
    needs_model = True
    image = "opencode"

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        # Without a title it would ask a second model for one. Without a message it reads standard input.
        fixed = ("opencode", "run", "--auto", "--format", "json", "--title", "team")
        return (*fixed, "--model", "/".join(_named(model))) if model else fixed

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        provider, name = _named(model or "")
        told: dict[str, Any] = {"options": {"baseURL": f"{door}/v1", "apiKey": token}}
        if name:  # one that is newer than opencode would be unknown to it
            told["models"] = {name: {}}
        config = {
            "provider": {provider: told},
            "enabled_providers": [provider],
            "share": "disabled",
            "autoupdate": False,
            "snapshot": False,  # a second repository of the work tree, to undo with
        }
        return {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS": str(BASH_MS),
        }

    def reader(self) -> OpenCodeReader:
        return OpenCodeReader()


def _named(model: str) -> tuple[str, str]:
    """Provider and name of ``model``."""
    provider, slash, name = model.partition("/")
    return (provider, name) if slash else (PROVIDER, model)


class OpenCodeReader:
    """Reads the events of ``opencode run --format json``. Tolerates any bytes."""

    def __init__(self) -> None:
        self._finished = ""
        """The reason of the last step, once it is not to call tools."""
        self._failed: str | None = None
        self._status: int | None = None
        self._said = ""
        """Everything that the error told: its short message may leave out the kind."""
        self._spoke = ""

    def feed(self, line: bytes) -> Seen:
        event = parse(line)
        if event is None:
            return Seen(text=first_lines(line[: 8 * WIDTH].decode("utf-8", "replace"), RESULT_LINES))
        kind, part = event.get("type"), event.get("part")
        if kind == "error":
            return self._error(event.get("error"))
        if not isinstance(part, dict):
            return Seen()
        if kind == "step_start":
            self._finished, self._failed = "", None
            return Seen(goes_on=True)
        if kind == "text":
            self._spoke = one_line(_string(part.get("text"))[: 4 * WIDTH])
            return Seen(text="\n".join(lines(part.get("text"), TEXT_LINES)))
        if kind == "tool_use":
            return Seen(text="\n".join(_used(part)))
        if kind == "step_finish" and part.get("reason") != "tool-calls":
            self._finished = word(part.get("reason")) or "?"
            return Seen(text=f"(finished: {self._finished})", result=True)
        return Seen()

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        if self._failed is not None:
            return exits.refused(self._status, self._said), self._failed
        if code != 0:
            return exits.judge(code, out_of_memory)
        if not self._finished:
            return Outcome.CRASHED, "ended in the middle of a step"
        if self._finished != "stop":
            return Outcome.FAILED, f"the model's last answer ended with {self._finished!r}"
        return Outcome.DONE, self._spoke or "finished"

    def _error(self, error: object) -> Seen:
        error = error if isinstance(error, dict) else {}
        data = error.get("data")
        data = data if isinstance(data, dict) else {}
        name, status, said = word(error.get("name")), data.get("statusCode"), _string(data.get("message"))
        self._status = status if isinstance(status, int) else None
        told = f"{name}: {said[: 4 * WIDTH]}" if said.strip() else name
        self._failed = one_line(told) or "the client failed without saying why"
        self._said = f"{self._failed} {_string(data.get('responseBody'))[: 8 * WIDTH]}"
        if self._status is not None:
            self._failed = f"{self._failed} ({str(self._status)[:8]})"
        return Seen(error=self._failed)


def _used(part: dict[str, Any]) -> Iterator[str]:
    """A tool call, and the first lines of what it returned."""
    state = part.get("state")
    state = state if isinstance(state, dict) else {}
    yield f"> {word(part.get('tool')) or 'tool'}: {telling(state.get('input'))}"
    metadata = state.get("metadata")
    code = metadata.get("exit") if isinstance(metadata, dict) else None
    failed = state.get("status") == "error" or code not in (0, None)
    mark = "  ! " if failed else "  "
    shown = state.get("error") if state.get("status") == "error" else state.get("output")
    yield from (mark + line for line in lines(shown, RESULT_LINES))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
