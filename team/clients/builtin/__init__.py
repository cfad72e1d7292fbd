"""The client ``builtin``: an agent of our own on the ``anthropic`` SDK. This module is its host's side.

What runs in the container is :mod:`team.clients.builtin.main`, from the mounted package. Its output is one JSON object
a line: ``start``, ``assistant``, ``tools``, ``note`` and, at the end, ``result``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any

from team.clients import DOOR, Api, Outcome, Seen, exits
from team.clients.builtin.options import MODEL, MODEL_VARIABLE, WINDOW, WINDOW_VARIABLE
from team.clients.lines import RESULT_LINES, TEXT_LINES, WIDTH, first_lines, lines, parse, telling, word
from team.text import one_line

_OWN = {o.value: o for o in (Outcome.FAILED, Outcome.OUT_OF_BUDGET, Outcome.TIMED_OUT)}
"""What it may say of its own end, beside ``done``."""


class Builtin:
    """Our own loop: model, tools, repeat. All tools that the policy allows: the container is the sandbox."""

    name = "builtin"
    needs_model = True
    image = "builtin"

    def asks(self, model: str | None) -> tuple[Api, str | None]:
        return "anthropic", model or MODEL

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        return ("team-builtin",)  # on PATH in a session, from the mounted package

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": door,
            "ANTHROPIC_API_KEY": token,
            MODEL_VARIABLE: model or MODEL,
            WINDOW_VARIABLE: str(_window(model or MODEL)),
        }

    def reader(self) -> BuiltinReader:
        return BuiltinReader()


@cache
def _window(model: str) -> int:
    """Tokens that ``model`` takes at once, as the table of prices has it. Beyond ``long_above`` everything costs
    more, so a session ends before."""
    table = tomllib.loads(resources.files("team.gateway").joinpath("prices.toml").read_text("utf-8"))["models"]
    listed = table.get(model) or table.get(model.rpartition("-")[0]) or {}
    bounds = [int(listed[bound]) for bound in ("context", "long_above") if bound in listed]
    return min([WINDOW, *bounds])


class BuiltinReader:
    """Reads its events. Tolerates any bytes: what runs beside it can print among them."""

    def __init__(self) -> None:
        self._ended = False
        self._failed: str | None = None
        self._outcome = Outcome.FAILED
        self._spoke = ""

    def feed(self, line: bytes) -> Seen:
        event = parse(line)
        if event is None:
            return Seen(text=first_lines(line[: 8 * WIDTH].decode("utf-8", "replace"), RESULT_LINES))
        kind = event.get("type")
        if kind == "start":
            version, model = word(event.get("version")), word(event.get("model"))
            return Seen(text=f"builtin {version or '?'}, model {model or '?'}", version=version)
        if kind == "assistant":
            return Seen(text="\n".join(_spoken(event)))
        if kind == "tools":
            return Seen(text="\n".join(_returned(event)))
        if kind == "note":
            return Seen(text=f"({one_line(_string(event.get('text')), WIDTH)})")
        if kind == "result":
            return self._result(event)
        return Seen()

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        if self._failed is not None:
            return self._outcome, self._failed
        if code != 0:
            return exits.judge(code, out_of_memory)
        if not self._ended:
            return Outcome.CRASHED, "ended without a result"
        return Outcome.DONE, self._spoke or "finished"

    def _result(self, event: dict[str, Any]) -> Seen:
        said, reason = word(event.get("outcome")), one_line(_string(event.get("reason"))[: 4 * WIDTH])
        self._ended = True
        if said == "done":
            self._failed, self._spoke = None, reason
            return Seen(text="(finished)", result=True)
        self._failed = reason or "the client failed without saying why"
        status = event.get("status")
        if said == "refused":  # by the model's side
            self._outcome = exits.refused(status if isinstance(status, int) else None, self._failed)
        else:
            self._outcome = _OWN.get(said, Outcome.FAILED)
        return Seen(result=True, error=self._failed)


def _spoken(event: dict[str, Any]) -> Iterator[str]:
    """What the model said and which tools it called."""
    for block in _dicts(event.get("content")):
        if block.get("type") == "text":
            yield from lines(block.get("text"), TEXT_LINES)
        elif block.get("type") == "tool_use":
            yield f"> {word(block.get('name')) or 'tool'}: {_doing(block.get('input'))}"


def _returned(event: dict[str, Any]) -> Iterator[str]:
    """The first lines of what tools returned."""
    for block in _dicts(event.get("content")):
        mark = "  ! " if block.get("is_error") is True else "  "
        yield from (mark + line for line in lines(block.get("content"), RESULT_LINES))


def _doing(given: object) -> str:
    """One line on a call; for the editor its command and the path."""
    path = given.get("path") if isinstance(given, dict) else None
    return one_line(f"{telling(given)} {path}", WIDTH) if isinstance(path, str) else telling(given)


def _dicts(values: object) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
