"""One request as it will be forwarded: checked, its model and provider decided, its size known."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from team.gateway.allow import ROUTES, Allowed, Content, Route
from team.gateway.answers import Refusal
from team.gateway.guess import Size
from team.gateway.meter import Shape
from team.gateway.prices import Price, Prices
from team.gateway.providers import Provider
from team.text import one_line

MAX_BODY = 32 << 20
"""Bytes; the Messages API's own bound for a request."""
BODY_SECONDS = 120.0
"""For sending the whole of a request: who waits at the door counts as busy."""
MOST_OUTPUT = 1 << 40
_HOUR = re.compile(rb'"(?:1|\\u0031)(?:h|\\u0068)"')
"""The string ``1h`` in every spelling that JSON has for it."""
MOST_TEXT = 256 << 10
"""Bytes of a request that is kept to compare later ones with."""
# With these alone a provider reads what is sent, all of it and nothing else.
_PLAIN = frozenset(
    "model messages system input instructions tools tool_choice parallel_tool_calls max_tokens max_completion_tokens "
    "max_output_tokens stream stream_options stop stop_sequences temperature top_p top_k metadata user store".split()
)
_PLAIN_TOOL = frozenset("type name description input_schema function parameters strict cache_control".split())
_BOUND = {
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "chat": ("max_completion_tokens", "max_tokens"),
}


@dataclass
class Ask:
    """What a session asks of a model."""

    route: Route
    provider: Provider
    model: str
    body: dict[str, Any]
    raw: bytes
    """``body`` as it goes out: the client's own bytes, unless something in it had to change."""
    price: Price | None
    size: Size

    @property
    def shape(self) -> Shape | None:
        """How the answer is metered; None for what costs nothing."""
        shape = self.route.shape
        return shape if shape in ("messages", "responses", "chat") else None

    def shorten(self, output: int) -> None:
        """Let the answer have at most ``output`` tokens."""
        if output < self.size.max_output:
            names = _BOUND[self.route.shape]
            name = next((n for n in names if self.body.get(n) is not None), names[0])
            self.change(**{name: output})

    def forget(self) -> None:
        """Let go of the body: it may be large, and its answer long."""
        self.body, self.raw = {}, b""

    def change(self, **fields: object) -> None:
        """Change fields of the body."""
        self.body.update(fields)
        self.raw = json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def route_of(request: web.Request, providers: Sequence[Provider]) -> Route:
    """Which call ``request`` is. Raises :class:`Refusal` for a path that is not let through."""
    route = ROUTES.get((request.method, request.path))
    if route is None:
        raise Refusal(403, "permission_error", f"{one_line(request.path, 80)} is not let through by team")
    if not providers:
        raise Refusal(
            403, "permission_error", "this team was started without a model; `team up --budget USD` gives it one"
        )
    if route.shape == "models" and "anthropic-version" not in request.headers:
        return Route(providers[0].api, "models", route.method, route.path)
    return route


async def read(request: web.Request) -> bytes:
    """The body of ``request``. Raises :class:`Refusal` for one too large, or too slow."""
    if (request.content_length or 0) > MAX_BODY:
        raise Refusal(413, "request_too_large", f"a request may have {MAX_BODY} bytes at most")
    if request.headers.get("Content-Encoding", "identity") not in ("identity", ""):
        raise Refusal(415, "invalid_request_error", "send the request without compression")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY:
                    raise Refusal(413, "request_too_large", f"a request may have {MAX_BODY} bytes at most")
    except TimeoutError:
        raise Refusal(408, "invalid_request_error", "the request took too long to send") from None
    return bytes(body)


def make(
    route: Route, raw: bytes, allowed: Allowed, providers: Sequence[Provider], prices: Prices, wanted: str | None
) -> Ask:
    """The request in ``raw``; ``wanted`` is the model of the role, where the configuration names one."""
    if route.shape == "models":
        return Ask(route, _provider(providers, route, ""), "", {}, b"", None, Size(0, 0))
    body = allowed.parse(raw)
    content = allowed.check(route, body)
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refusal(400, "invalid_request_error", "model: expected a name")
    changed: dict[str, object] = {}
    if wanted and not _same_model(model, wanted):
        model = changed["model"] = wanted
    changed |= _needed(route, body)
    price = prices.of(model)
    ask = Ask(route, _provider(providers, route, model), model, body, raw, price, Size(0, 0))
    if changed:
        ask.change(**changed)
    ask.size = _size(ask, content)
    return ask


def _needed(route: Route, body: Mapping[str, Any]) -> dict[str, object]:
    """What must be in a request so that its cost is told, and nothing of it is kept."""
    if route.shape == "responses" and "store" not in body:
        return {"store": False}
    if route.shape == "chat" and body.get("stream"):
        options = body.get("stream_options")
        if not (isinstance(options, dict) and options.get("include_usage") is True):
            return {"stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True}}
    return {}


def _same_model(asked: str, wanted: str) -> bool:
    """Whether ``asked`` is ``wanted``, perhaps with its date."""
    return asked == wanted or asked.startswith(f"{wanted}-20")


def _provider(providers: Sequence[Provider], route: Route, model: str) -> Provider:
    for provider in providers:
        if provider.api == route.api and (not model or provider.takes(route.api, model)):
            return provider
    raise Refusal(
        403, "permission_error", f"no provider for {one_line(model, 60) or route.api}; see [gateway.providers]"
    )


def _size(ask: Ask, content: Content) -> Size:
    if ask.shape is None:
        return Size(len(ask.raw), 0)
    most = MOST_OUTPUT if ask.price is None else ask.price.listed.max_output
    bounds = [name for name in _BOUND[ask.route.shape] if ask.body.get(name) is not None]
    if len(bounds) > 1:
        raise Refusal(400, "invalid_request_error", f"{bounds[1]}: not beside {bounds[0]}; send one of them")
    if bounds:
        name, value = bounds[0], ask.body[bounds[0]]
        # To some servers of the OpenAI API 0 means no bound; to Anthropic it means to fill the cache alone.
        least = 0 if ask.route.shape == "messages" else 1
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_OUTPUT:
            raise Refusal(400, "invalid_request_error", f"{name}: expected a number of tokens")
        most = value
    else:
        if ask.route.shape == "messages":
            raise Refusal(400, "invalid_request_error", "max_tokens: expected a number of tokens")
        if ask.price is None:
            most = 128_000
    thinking = ask.body.get("thinking")
    thought = thinking.get("budget_tokens") if isinstance(thinking, dict) else 0
    return Size(
        bytes=len(ask.raw),
        max_output=most,
        least_output=thought + 1 if isinstance(thought, int) and thought > 0 else 0,
        images=content.images,
        documents=content.documents,
        tools=bool(ask.body.get("tools")),
        hour=_HOUR.search(ask.raw) is not None,
        text=ask.raw if _is_text(ask, content) else b"",
    )


def _is_text(ask: Ask, content: Content) -> bool:
    """Whether the tokens of ``ask`` follow from its bytes, so that those of a request much like it are known, too."""
    if not content.text_alone or not _PLAIN.issuperset(ask.body) or len(ask.raw) > MOST_TEXT:
        return False
    tools = ask.body.get("tools") or []
    return all(_PLAIN_TOOL.issuperset(t) and t.get("type") in (None, "custom", "function") for t in tools)
