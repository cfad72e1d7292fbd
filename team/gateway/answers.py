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


def failure(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error in the shape of Anthropic's API."""
    return web.json_response(
        {"type": "error", "error": {"type": kind, "message": message}}, status=status, headers=headers
    )


def answer(api: Api, refusal: Refusal) -> web.Response:
    """``refusal`` in the shape of ``api``."""
    if api == "anthropic":
        return failure(refusal.status, refusal.kind, refusal.message, refusal.headers)
    error = {"message": refusal.message, "type": refusal.kind, "code": refusal.kind, "param": None}
    return web.json_response({"error": error}, status=refusal.status, headers=refusal.headers)
