"""Ends sessions that go round in circles: seen in the conversation that every request carries, for any client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from team.config import Breaker as Settings
from team.text import one_line

_LOOKED_AT = 4096
"""Characters of a call that patterns are matched with."""


class Broken(Exception):
    """The session must end; the message says why."""


@dataclass
class Breaker:
    """Watches one session. Client and subagents may interleave conversations: each request is judged by itself."""

    settings: Settings = field(default_factory=Settings)
    turns: int = 0
    warned: set[str] = field(default_factory=set)

    def look(self, body: dict[str, Any]) -> str:
        """A warning about ``body``, or nothing. Raises :class:`Broken`."""
        self.turns += 1
        if self.settings.turns is not None and self.turns > self.settings.turns:
            raise Broken(f"made {self.settings.turns} model calls ([breaker] turns)")
        call, times = repeated(body, max(self.settings.repeats, self.settings.most))
        if times < min(self.settings.repeats, self.settings.most):
            return ""
        if any(fnmatchcase(call[:_LOOKED_AT], pattern) for pattern in self.settings.polling):
            return ""
        said = f"the same tool call {times} times running: {one_line(call, 120)}"
        if times >= self.settings.most:
            raise Broken(f"{said} ([breaker] most)")
        if call in self.warned:
            return ""
        self.warned.add(call)
        return f"{said}; at {self.settings.most} the session ends ([breaker] most)"


def repeated(body: dict[str, Any], most: int) -> tuple[str, int]:
    """The newest tool call in ``body``, and how many times it was made without another one in between."""
    newest, times = "", 0
    for call in _calls_backwards(body):
        if not times:
            newest = call
        elif call != newest:
            break
        times += 1
        if times >= most:
            break
    return newest, times


def _calls_backwards(body: dict[str, Any]) -> Iterator[str]:
    """Tool calls, newest first: name and input as one text."""
    items = body.get("messages") or body.get("input")
    for item in reversed(items) if isinstance(items, list) else ():
        if not isinstance(item, dict):
            continue
        if item.get("type") in ("function_call", "custom_tool_call", "local_shell_call"):  # Responses
            yield _words(item.get("name"), item.get("arguments") or item.get("input") or item.get("action"))
        for call in reversed(_list(item.get("tool_calls"))):  # Chat Completions
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield _words(function.get("name"), function.get("arguments"))
        for block in reversed(_list(item.get("content"))):  # Messages
            if isinstance(block, dict) and block.get("type") == "tool_use":
                yield _words(block.get("name"), block.get("input"))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(name: object, given: object) -> str:
    return f"{name}: {given if isinstance(given, str) else json.dumps(given, sort_keys=True, ensure_ascii=False)}"
