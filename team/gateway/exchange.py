"""One request to a provider and its answer: passed through as it arrives, read to its end even when nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from team.gateway.answers import Refusal
from team.gateway.health import UNREACHED
from team.gateway.meter import Meter, Shape
from team.gateway.prices import Usage
from team.text import mask, one_line

CLIENT_SECONDS = 60.0
"""How long a client may leave what was sent to it unread before it is left behind."""
ERROR_BYTES = 1 << 20
"""Of an error that is read before it is passed on."""
NOT_RETURNED = frozenset(
    "connection keep-alive proxy-authenticate te trailer transfer-encoding upgrade content-length set-cookie".split()
)


@dataclass
class Sent:
    """What goes to the provider."""

    method: str
    url: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    secrets: list[str] = field(default_factory=list, repr=False)


class Client:
    """The other side. Once it is gone, writing to it does nothing."""

    def __init__(self, request: web.Request, seconds: float = CLIENT_SECONDS) -> None:
        self._request, self._seconds = request, seconds
        self.response: web.StreamResponse | None = None
        self._gone = False

    @property
    def gone(self) -> bool:
        transport = self._request.transport
        return self._gone or transport is None or transport.is_closing()

    async def begin(self, answer: aiohttp.ClientResponse) -> None:
        """Send status and headers of ``answer``."""
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in NOT_RETURNED:
                response.headers.add(name, value)
        if answer.content_length is not None and self._request.method != "HEAD":
            response.content_length = answer.content_length
        self.response = response
        await self._do(response.prepare(self._request))

    async def write(self, chunk: bytes) -> None:
        assert self.response is not None
        await self._do(self.response.write(chunk))

    async def finish(self) -> None:
        assert self.response is not None
        await self._do(self.response.write_eof())

    def cut(self) -> None:
        """The client must see a cut, not a short answer that looks whole."""
        self._gone = True
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _do(self, writing: Coroutine[Any, Any, object]) -> None:
        if self.gone:
            writing.close()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await writing
        except (ConnectionError, RuntimeError):
            self._gone = True
        except TimeoutError:
            self.cut()


@dataclass
class Answer:
    """What came back, for the books; ``body`` of errors alone."""

    status: int = 0
    usage: Usage = field(default_factory=Usage)
    unknown: bool = False
    error: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    refusal: Refusal | None = None
    """Instead of an answer that could not be passed on."""


class Exchange:
    """Asks one provider once."""

    def __init__(self, http: aiohttp.ClientSession, sent: Sent, shape: Shape | None) -> None:
        self._http, self._sent, self._shape = http, sent, shape

    async def run(self, client: Client, held: frozenset[int], on_answer: Callable[[int], None]) -> Answer:
        """Pass the answer on to ``client``, unless its status is one of ``held``: then its body is in the result.
        ``on_answer`` is told the status as soon as it is there."""
        answer = Answer()
        try:
            async with self._http.request(
                self._sent.method,
                self._sent.url,
                params=self._sent.query,
                data=self._sent.body or None,
                headers=self._sent.headers,
                allow_redirects=False,
            ) as got:
                on_answer(got.status)
                answer.status, answer.headers = got.status, got.headers
                await self._take(got, client, answer, held)
        except aiohttp.ClientConnectorError as error:  # nothing was sent
            self._fail(answer, client, error)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            answer.unknown = answer.unknown or answer.status == 0
            self._fail(answer, client, error)
        return answer

    async def _take(self, got: aiohttp.ClientResponse, client: Client, answer: Answer, held: frozenset[int]) -> None:
        kind = got.content_type
        if got.status in held:
            answer.body = await _head(got)
            answer.error = self._words(answer.body.decode("utf-8", "replace"))
            return
        if got.status >= 300 and not _is_api(kind):
            answer.error = f"answered {got.status} with {one_line(kind, 40)}"
        elif got.status < 300 and not (_is_api(kind) or kind == "text/event-stream"):
            answer.error = f"answered {one_line(kind, 40)}, which is no answer of a model API"
        if answer.error:
            status = got.status if got.status >= 400 else 502
            answer.refusal = Refusal(status, "api_error", f"the provider {answer.error}; check its base_url")
            return
        await self._pass(got, client, answer)

    async def _pass(self, got: aiohttp.ClientResponse, client: Client, answer: Answer) -> None:
        metered = self._shape is not None and got.status == 200
        meter = Meter(self._shape, stream=got.content_type == "text/event-stream") if metered and self._shape else None
        await client.begin(got)
        try:
            async for chunk in got.content.iter_any():
                if meter is not None:
                    meter.feed(chunk)
                elif len(answer.body) < 4096:
                    answer.body += chunk[:4096]
                await client.write(chunk)
        finally:
            if meter is not None:
                meter.end()
                answer.usage, answer.unknown, answer.error = meter.usage, not meter.known, meter.error
        if got.status >= 400:
            answer.error = self._words(answer.body.decode("utf-8", "replace"))

    def _fail(self, answer: Answer, client: Client, error: BaseException) -> None:
        answer.error = self._words(str(error) or type(error).__name__)
        if client.response is not None:
            client.cut()
            return
        answer.refusal = Refusal(502, "api_error", f"{UNREACHED}: {answer.error}")

    def _words(self, text: str) -> str:
        return mask(one_line(text, 300), self._sent.secrets)


def _is_api(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


async def _head(got: aiohttp.ClientResponse) -> bytes:
    body = b""
    async for chunk in got.content.iter_any():
        body += chunk
        if len(body) > ERROR_BYTES:
            break
    return body
