"""What a request may cost at most, where the provider does not count: by what it has in common with earlier ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.config import UserSettings
from team.gateway import ask, providers
from team.gateway.allow import ROUTES, Allowed
from team.gateway.guess import FRAME, SEAM, Guesses, Size, _unlike
from team.gateway.prices import Prices, Usage
from tests.gateway.conftest import message


@given(st.binary(max_size=60), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=60))
def test_only_what_is_new_counts(head: bytes, old: bytes, new: bytes, tail: bytes) -> None:
    assert _unlike(head + new + tail, head + old + tail) <= len(new)
    assert _unlike(head + tail, head + tail) == 0


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_bytes_in_common_are_counted_once(old: str, new: str) -> None:
    """No part of the old request stands for two parts of the new one, so the bound holds."""
    assert _unlike(new.encode(), old.encode()) >= max(len(new) - len(old), 0)


def test_a_longer_conversation_is_bounded_by_its_beginning() -> None:
    guesses, began = Guesses(), b"x" * 50_000
    guesses.learn("m", len(began), Usage(input=9_000, output=7), None, began)
    for tools, more in ((False, 0), (True, FRAME)):
        size = Size(50_300, 64, tools=tools, text=began + b"y" * 300)
        assert guesses.bounded("m", size, None, None, 64).tokens == 9_000 + 300 + SEAM + more + 64
    other = Size(50_000, 64, text=b"z" * 50_000)
    assert guesses.bounded("m", other, None, None, 64).tokens == 50_000 + 64
    assert guesses.bounded("m", Size(50_000, 64), None, None, 64).tokens == 50_000 + 64


@pytest.mark.parametrize(
    ("path", "more", "alone"),
    [
        ("/v1/messages", {}, True),
        ("/v1/messages", {"tools": [{"name": "x", "input_schema": {}}]}, True),
        ("/v1/messages", {"tools": [{"name": "x", "input_schema": {}, "defer_loading": True}]}, False),
        ("/v1/messages", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, False),
        ("/v1/messages", {"context_management": {"edits": []}}, False),
        ("/v1/messages", {"thinking": {"type": "adaptive"}}, False),
        (
            "/v1/messages",
            {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": ""}]}]},
            False,
        ),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, True),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x" * (300 << 10)}]}, False),
        ("/v1/chat/completions", {"tools": [{"type": "function", "function": {"name": "x"}}]}, True),
        ("/v1/chat/completions", {"messages": [{"role": "assistant", "reasoning_content": "x"}]}, False),
    ],
)
def test_a_request_is_compared_only_where_its_bytes_tell_all(path: str, more: dict[str, Any], alone: bool) -> None:
    route = ROUTES["POST", path]
    raw = json.dumps(message() | more).encode()
    known = providers.providers(UserSettings(), {})
    made = ask.make(route, raw, Allowed(), known, Prices(), None)
    assert made.size.text == (raw if alone else b"")
