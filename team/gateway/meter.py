"""Reads the tokens that a provider bills from its own answer, whole or streamed, as the bytes pass by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import jiter

from team.gateway.prices import Usage

Shape = Literal["messages", "responses", "chat"]
MOST_KEPT = 32 << 20
"""Bytes of a whole answer, or of one line of a stream, that are read; what is longer is not known."""
_BILLS = (b'"usage"', b'"error"')
"""Only lines with one of these are parsed: text and tool input pass unread."""


class Meter:
    """Feed it every chunk of an answer; then ask for :attr:`usage` and whether it is :attr:`known` to be all."""

    def __init__(self, shape: Shape, *, stream: bool) -> None:
        self.usage = Usage()
        self.known = False
        """The provider told the end of the count."""
        self.error = ""
        """Type of an error in mid-stream."""
        self._shape, self._stream = shape, stream
        self._kept = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the answer."""
        if not self._stream:
            if len(self._kept) + len(chunk) <= MOST_KEPT:
                self._kept += chunk
            else:
                self._skipping = True
            return
        end = chunk.rfind(b"\n") + 1
        if end:
            self._lines(chunk[:end])
        if self._skipping or len(self._kept) + len(chunk) - end > MOST_KEPT:
            self._kept.clear()
            self._skipping = True
        else:
            self._kept += chunk[end:]

    def _lines(self, text: bytes) -> None:
        """The end of the line that was kept, and whole lines. Most have nothing to read: that costs one look."""
        if self._skipping:
            text = text[text.find(b"\n") + 1 :]
            self._skipping = False
        elif self._kept:
            text = bytes(self._kept) + text
            self._kept.clear()
        if any(word in text for word in _BILLS):
            for line in text.split(b"\n"):
                self._line(line)

    def end(self) -> None:
        """The answer is over."""
        if self._stream:
            self._line(bytes(self._kept))
        elif not self._skipping and isinstance(body := _parse(bytes(self._kept)), dict):
            self._tell(body.get("usage"), final=True)
        self._kept.clear()

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:") or not any(word in line for word in _BILLS):
            return
        event = _parse(line[5:].strip())
        if not isinstance(event, dict):
            return
        if self._shape == "messages":
            self._message_event(event)
        elif self._shape == "responses":
            self._response_event(event)
        elif event.get("usage"):
            self._tell(event["usage"], final=True)
        if isinstance(error := event.get("error"), dict):
            self.error = str(error.get("type") or error.get("code") or "error")

    def _message_event(self, event: dict[str, Any]) -> None:
        if event.get("type") == "message_start" and isinstance(message := event.get("message"), dict):
            self._tell(message.get("usage"), final=False)
        elif event.get("type") == "message_delta":
            self._tell(event.get("usage"), final=True)

    def _response_event(self, event: dict[str, Any]) -> None:
        over = event.get("type") in ("response.completed", "response.incomplete", "response.failed")
        if over and isinstance(response := event.get("response"), dict):
            self._tell(response.get("usage"), final=True)

    def _tell(self, told: object, *, final: bool) -> None:
        """Counts are cumulative: what a later event tells replaces what an earlier one told."""
        if not isinstance(told, dict):
            return
        if self._shape == "messages":
            self.usage = _anthropic(told, self.usage)
        else:
            self.usage = _openai(told)
        self.known = self.known or final


def _parse(data: bytes) -> object:
    try:
        return jiter.from_json(data)
    except ValueError:
        return None


def _count(told: dict[str, Any], name: str, otherwise: int = 0) -> int:
    value = told.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise


def _anthropic(told: dict[str, Any], before: Usage) -> Usage:
    """``input_tokens`` leaves out what was read from and written to the cache. A ``message_delta`` may tell the
    output alone."""
    writes = _count(told, "cache_creation_input_tokens", before.cache_write + before.cache_write_1h)
    kinds = told.get("cache_creation")
    hour = _count(kinds, "ephemeral_1h_input_tokens") if isinstance(kinds, dict) else before.cache_write_1h
    hour = min(hour, writes)
    details = told.get("output_tokens_details")
    usage = Usage(
        input=_count(told, "input_tokens", before.input),
        output=_count(told, "output_tokens", before.output),
        cache_write=writes - hour,
        cache_write_1h=hour,
        cache_read=_count(told, "cache_read_input_tokens", before.cache_read),
        reasoning=_count(details, "thinking_tokens") if isinstance(details, dict) else before.reasoning,
    )
    # A compaction is billed beside what the top level tells.
    iterations = told.get("iterations")
    for part in iterations if isinstance(iterations, list) else []:
        if isinstance(part, dict) and part.get("type") == "compaction":
            usage += replace(_anthropic({**part, "iterations": None}, Usage()), reasoning=0)
    return usage


def _openai(told: dict[str, Any]) -> Usage:
    """Responses and Chat Completions say the same with different names; the prompt includes what was read from the
    cache and written to it."""
    prompt = _count(told, "input_tokens", _count(told, "prompt_tokens"))
    output = _count(told, "output_tokens", _count(told, "completion_tokens"))
    into = told.get("input_tokens_details") or told.get("prompt_tokens_details")
    out = told.get("output_tokens_details") or told.get("completion_tokens_details")
    details = into if isinstance(into, dict) else {}
    cached = min(prompt, _count(details, "cached_tokens"))
    written = min(prompt - cached, _count(details, "cache_write_tokens"))
    return Usage(
        input=prompt - cached - written,
        output=output,
        cache_write=written,
        cache_read=cached,
        reasoning=_count(out, "reasoning_tokens") if isinstance(out, dict) else 0,
    )
