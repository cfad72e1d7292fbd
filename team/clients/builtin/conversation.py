"""The conversation as it is sent: each message is made into bytes once, so that a turn is a prefix of the next one.

Only a trim, rare and large, or a compaction rewrites what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

KEPT_RESULTS = 8
"""Newest tool results that a trim leaves alone."""
WORTH_TRIMMING = 1_500
"""Characters of a result; shorter ones stay."""
_CACHE = {"type": "ephemeral"}


def encode(value: Any) -> bytes:
    """JSON, always the same for the same value. What is not Unicode (half of a pair) becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


@dataclass
class Conversation:
    """Everything that the model is sent."""

    head: bytes
    """The request up to its messages: model, settings, tools, system. The same bytes in every turn."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    _encoded: list[bytes] = field(default_factory=list)
    _trimmed: int = 0
    """Messages before this one have been trimmed."""

    def add(self, role: str, content: Sequence[dict[str, Any]]) -> None:
        """A message at the end."""
        message = {"role": role, "content": list(content)}
        self.messages.append(message)
        self._encoded.append(encode(message))

    def say(self, text: str) -> None:
        """A message of ours: to the person's side of the conversation. Behind tool results it joins them."""
        self.add("user", [{"type": "text", "text": text}])

    def body(self, max_tokens: int | None = None) -> bytes:
        """The request; with ``max_tokens``, for this once with room for a longer answer."""
        head = self.head
        if max_tokens is not None:
            begin, end = b'"max_tokens":', b","
            at = head.index(begin) + len(begin)
            head = head[:at] + str(max_tokens).encode() + head[head.index(end, at) :]
        return head + b",".join(self._encoded) + b"]}"

    @property
    def size(self) -> int:
        """Bytes of the request."""
        return len(self.head) + sum(map(len, self._encoded)) + len(self._encoded) + 1

    def trimmable(self) -> int:
        """Bytes that a trim would free, about."""
        return sum(len(b["content"]) for b in self._old_results())

    def trim(self, store: Callable[[str], str]) -> None:
        """Replace old tool results by a line each that names a file with the text, which ``store`` writes."""
        for block in self._old_results():
            text = block["content"]
            block["content"] = f"{text[:400]}\n… {len(text)} characters, left out here to save room: {store(text)}"
        self._encoded = [encode(message) for message in self.messages]

    def _old_results(self) -> list[dict[str, Any]]:
        results = [b for m in self.messages if m["role"] == "user" for b in m["content"] if b["type"] == "tool_result"]
        old = results[:-KEPT_RESULTS]
        return [b for b in old if len(b["content"]) >= WORTH_TRIMMING]

    def drop(self, types: Sequence[str]) -> bool:
        """Leave out blocks of ``types``, which the other side does not take back; whether there were any."""
        found = False
        for message in self.messages:
            kept = [b for b in message["content"] if b["type"] not in types]
            found = found or len(kept) < len(message["content"])
            message["content"] = kept or [{"type": "text", "text": "(left out)"}]
        self._encoded = [encode(message) for message in self.messages]
        return found

    def restart(self, texts: Sequence[str]) -> None:
        """Begin anew with one message of ours."""
        self.messages, self._encoded = [], []
        self.add("user", [{"type": "text", "text": text} for text in texts])


def head(model: str, max_tokens: int, system: str, tools: Sequence[dict[str, Any]], extra: dict[str, Any]) -> bytes:
    """The beginning of every request. Marked for the cache: the end of the system text, which is the same for all
    sessions, and, by the field of the request itself, whatever comes last."""
    fields = {
        "model": model,
        "max_tokens": max_tokens,
        "stream": True,
        "cache_control": _CACHE,
        **extra,
        "tools": list(tools),
        "system": [{"type": "text", "text": system, "cache_control": _CACHE}],
    }
    return encode(fields)[:-1] + b',"messages":['
