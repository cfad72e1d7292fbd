"""Asks a provider how many tokens a request has, which costs nothing: for requests at the edge of a budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import aiohttp
import jiter

from team.gateway.ask import Ask

COUNT_SECONDS = 20.0
_MOST = 1 << 16
_AT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "messages": (
        "/v1/messages/count_tokens",
        ("model", "messages", "system", "tools", "tool_choice", "thinking"),
    ),
    "responses": (
        "/v1/responses/input_tokens",
        ("model", "input", "instructions", "tools", "tool_choice", "reasoning", "text", "parallel_tool_calls"),
    ),
}


async def count(http: aiohttp.ClientSession, ask: Ask, headers: Mapping[str, str]) -> int | None:
    """Tokens of input of ``ask``, or None where the provider does not say."""
    if ask.route.shape not in _AT:
        return None
    path, fields = _AT[ask.route.shape]
    body = json.dumps({name: ask.body[name] for name in fields if name in ask.body}).encode("utf-8", "replace")
    try:
        async with (
            asyncio.timeout(COUNT_SECONDS),
            http.post(ask.provider.base_url + path, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            told = jiter.from_json(await answer.content.read(_MOST)) if answer.status == 200 else {}
    except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError):
        return None
    tokens = told.get("input_tokens") if isinstance(told, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None
