"""Forwards a session's model calls to the provider: adds the real key, streams the answer through untouched."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from team.plan import Key
from team.text import mask, one_line

# (method, path): nothing else is forwarded, and a URL is never joined with what a client sent.
ALLOWED = frozenset({("POST", "/v1/messages"), ("POST", "/v1/messages/count_tokens"), ("GET", "/v1/models")})
MAX_BODY = 32 << 20
"""Bytes; the Messages API's own bound for a request."""
BODY_SECONDS = 120.0
"""For sending the whole of a request: who waits at the door counts as busy."""

# RFC 9110, 7.6.1, and what belongs to one connection or to the session's token.
_NOT_FORWARDED = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    "upgrade host content-length x-api-key authorization cookie expect accept-encoding".split()
)
_NOT_RETURNED = frozenset(
    "connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade content-length set-cookie".split()
)


@dataclass
class Call:
    """What a forwarded call was, for the ledger."""

    path: str
    model: str = ""
    status: int = 0
    bytes: int = 0


class Forwarder:
    """One connection pool to one provider, for the whole team."""

    def __init__(self, base_url: str, key: Key | None) -> None:
        self._base = base_url.rstrip("/")
        self._key = key
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Forwarder:
        self._http = aiohttp.ClientSession(
            auto_decompress=False,
            # A corporate proxy: HTTPS_PROXY and NO_PROXY of the host. It has no way to a model on this machine.
            trust_env=not is_loopback(self._base),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600),
            connector=aiohttp.TCPConnector(limit=0),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def forward(self, request: web.Request, call: Call) -> web.StreamResponse:
        """Answer ``request`` with the provider's answer, and fill in ``call``."""
        if not self._base or self._http is None:
            return failure(503, "api_error", "this team was started without a model")
        if (request.method, request.path) not in ALLOWED:
            return failure(403, "permission_error", f"{one_line(request.path, 80)} is not let through by team")
        if (request.content_length or 0) > MAX_BODY:
            return failure(413, "request_too_large", f"a request may have {MAX_BODY} bytes at most")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(request)
        except TimeoutError:
            return failure(408, "invalid_request_error", "the request took too long to send")
        if body is None:
            return failure(413, "request_too_large", f"a request may have {MAX_BODY} bytes at most")
        call.model = _model(body)
        query = {"beta": "true"} if request.query.get("beta") == "true" else None
        try:
            async with self._http.request(
                request.method,
                self._base + request.path,
                params=query,
                data=body or None,
                headers=self._headers(request.headers),
                allow_redirects=False,
            ) as answer:
                return await _stream(request, answer, call)
        except (aiohttp.ClientError, TimeoutError) as error:
            if request.transport is None:  # the client has gone: nobody reads this
                raise
            reason = mask(one_line(str(error) or type(error).__name__), [self._key.value] if self._key else [])
            call.status = call.status or 502
            return failure(502, "api_error", f"the model could not be reached: {reason}")

    def _headers(self, sent: Mapping[str, str]) -> dict[str, str]:
        headers = {k: v for k, v in sent.items() if k.lower() not in _NOT_FORWARDED}
        headers["Accept-Encoding"] = "identity"
        if self._key is not None and self._key.bearer:
            headers["Authorization"] = f"Bearer {self._key.value}"
        elif self._key is not None:
            headers["x-api-key"] = self._key.value
        return headers


def is_loopback(url: str) -> bool:
    """Whether ``url`` is served by this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def failure(status: int, kind: str, message: str) -> web.Response:
    """An error in the shape of the Messages API, which clients understand."""
    return web.json_response({"type": "error", "error": {"type": kind, "message": message}}, status=status)


async def _read(request: web.Request) -> bytes | None:
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


def _model(body: bytes) -> str:
    try:
        model = json.loads(body)["model"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return one_line(model, 80) if isinstance(model, str) else ""


async def _stream(request: web.Request, answer: aiohttp.ClientResponse, call: Call) -> web.StreamResponse:
    call.status = answer.status
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() not in _NOT_RETURNED:
            response.headers.add(name, value)
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            call.bytes += len(chunk)
            await response.write(chunk)
        await response.write_eof()
    except aiohttp.ClientError:
        # The answer broke off. So does ours: the client must see a cut, not a short answer that looks whole.
        if request.transport is not None:
            request.transport.close()
    return response
