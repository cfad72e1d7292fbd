"""One streamed answer of the Messages API, put together from its events. Pure: no SDK, no network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_KNOWN = frozenset("text thinking redacted_thinking tool_use".split())
"""Blocks that are understood here; others go back to the model unchanged."""
_CUT = ("max_tokens", "model_context_window_exceeded")
"""Reasons to stop in the middle of a block."""
_USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class Cut(Exception):
    """The stream ended before its answer did."""


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    id: str
    name: str
    input: dict[str, Any]
    wrong: str = ""
    """Why the input is none: not JSON, or no object."""


@dataclass
class Usage:
    """Tokens, of one answer or of many."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in _USAGE))

    @property
    def all(self) -> int:
        """Everything that went in and came out: after an answer, what the conversation fills of the window."""
        return sum(getattr(self, name) for name in _USAGE)


@dataclass(frozen=True)
class Answer:
    """What the model answered."""

    content: list[dict[str, Any]]
    """As it goes back to the model: unchanged, but for what it would refuse to get back."""
    calls: list[Call]
    stop: str
    """Why it stopped: a word of the API's, perhaps one that is not known here."""
    usage: Usage
    why: str = ""
    """Of a refusal."""
    unknown: tuple[str, ...] = ()
    """Types of blocks that are not known here."""

    @property
    def text(self) -> str:
        return "\n".join(b["text"] for b in self.content if b["type"] == "text").strip()


@dataclass
class _Block:
    """A content block that grows."""

    whole: dict[str, Any]
    json: str = ""

    def grow(self, delta: Mapping[str, Any]) -> None:
        """Deltas of a kind that is not known are left out: the API may add some."""
        match delta.get("type"):
            case "text_delta":
                self.whole["text"] = self.whole.get("text", "") + delta["text"]
            case "input_json_delta":
                self.json += delta["partial_json"]
            case "thinking_delta":
                self.whole["thinking"] = self.whole.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                self.whole["signature"] = self.whole.get("signature", "") + delta["signature"]
            case "citations_delta":
                self.whole["citations"] = [*(self.whole.get("citations") or []), delta["citation"]]

    def input(self) -> tuple[dict[str, Any], str]:
        """The input of a tool, and what is wrong with it."""
        if not self.json:
            given = self.whole.get("input")
            return (given, "") if isinstance(given, dict) else ({}, "")
        try:
            given = json.loads(self.json)
        except (ValueError, RecursionError) as error:
            return {}, f"the input is not JSON: {error}"
        return (given, "") if isinstance(given, dict) else ({}, "the input is not a JSON object")

    @property
    def passes(self) -> bool:
        """Whether the model takes it back: it refuses empty text, and thinking that was cut off."""
        kind = self.whole.get("type")
        if kind == "text":
            return bool(str(self.whole.get("text", "")).strip())
        return kind != "thinking" or bool(self.whole.get("signature"))


@dataclass
class Assembly:
    """Takes the events of one answer."""

    _blocks: dict[int, _Block] = field(default_factory=dict)
    _usage: dict[str, int] = field(default_factory=dict)
    _stop: str = ""
    _why: str = ""
    _done: bool = False

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take one event; one of a kind that is not known is left out."""
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = _Block(dict(event["content_block"]))
            case "content_block_delta":
                if event["index"] in self._blocks:
                    self._blocks[event["index"]].grow(event["delta"])
            case "message_delta":
                delta = event["delta"]
                self._stop = str(delta.get("stop_reason") or self._stop)
                self._why = _why(delta.get("stop_details"))
                self._count(event.get("usage"))
            case "message_stop":
                self._done = True

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """The counts are totals, and one that is left out stays as it was."""
        for name in _USAGE:
            if isinstance(value := (usage or {}).get(name), int):
                self._usage[name] = value

    def answer(self) -> Answer:
        """The whole. Raises :class:`Cut` where the end did not come."""
        if not self._done:
            raise Cut("the answer was cut off in the middle")
        content, calls, unknown = [], [], []
        for block in (self._blocks[index] for index in sorted(self._blocks)):
            whole, last = block.whole, block is self._blocks[max(self._blocks)]
            if not block.passes:
                continue
            if whole.get("type") == "tool_use":
                whole["input"], wrong = block.input()
                if last and self._stop in _CUT and not block.json and not whole["input"]:
                    wrong = "the call was cut off before its input"  # not one that takes nothing
                calls.append(Call(str(whole.get("id")), str(whole.get("name")), whole["input"], wrong))
            elif block.json:  # of a tool that the provider runs
                whole["input"] = block.input()[0]
            if whole.get("type") not in _KNOWN:
                unknown.append(str(whole.get("type")))
            content.append(whole)
        return Answer(content, calls, self._stop, Usage(**self._usage), self._why, tuple(unknown))


def _why(details: object) -> str:
    if not isinstance(details, dict):
        return ""
    return ": ".join(str(details[key]) for key in ("category", "explanation") if details.get(key))


def assemble(events: Iterable[Mapping[str, Any]]) -> Answer:
    """The answer that ``events`` tell of. Raises :class:`Cut`."""
    assembly = Assembly()
    for event in events:
        assembly.feed(event)
    return assembly.answer()
