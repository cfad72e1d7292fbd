"""Errors of our own, in the shape of the API that the client speaks."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from team.clients import Api


class Refusal(Exception):
    """A request that is not forwarded, or not answered with what the provider said."""

    def __init__(self, status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, headers


# Codex asks again six times after a 403, never after a 429, and five times after a 503 whose code is any but
# `server_is_overloaded`.
_FOR_OPENAI = {403: 400, 429: 503}


def answer(api: Api, refusal: Refusal) -> web.Response:
    """``refusal`` in the shape of ``api``, with a status that its clients take as it is meant: to be asked again or
    not."""
    status = refusal.status
    body: dict[str, object] = {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}
    if api == "openai":
        status = _FOR_OPENAI.get(status, status)
        body = {"error": {"message": refusal.message, "type": refusal.kind, "code": refusal.kind, "param": None}}
    return web.json_response(body, status=status, headers=refusal.headers)


def api_of(path: str) -> Api:
    """Whose API a request to ``path`` speaks."""
    return "openai" if path in ("/v1/responses", "/v1/chat/completions") else "anthropic"
