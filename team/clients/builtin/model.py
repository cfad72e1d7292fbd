"""One call of the model: streamed through the SDK, asked again where the gateway cannot do that for us."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2

from team.clients.builtin.answer import Answer, Cut, assemble

TRIES = 10
"""Of one call. Limits are waited for in the gateway, which then answers with how long is left."""
PAID_TRIES = 4
"""Of one call whose answers break in the middle: each of them costs as much as a whole one."""
LONGEST_WAIT = 60.0
MOST_ASKED = 3600.0
"""Seconds of one wait that an answer may ask for."""
READ_SECONDS = 3600.0
"""Between two pieces of an answer. The gateway waits for pauses and budgets, and it is what gives up first."""
_AGAIN = (408, 409, 425, 429)
_PASSING = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")
"""Errors in mid-stream, where no status tells."""

_TOO_LONG = ("too long", "context limit", "context window", "context length")


_NONSENSE = (AttributeError, LookupError, TypeError, ValueError)
"""What reading an answer raises whose events are not of the API's shape."""


class Refused(Exception):
    """The model's side does not answer; asking again makes no sense."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def too_long(self) -> bool:
        """Whether the conversation does not fit the model."""
        said = str(self).lower()
        return self.status == 413 or (self.status == 400 and any(words in said for words in _TOO_LONG))


@dataclass
class Model:
    """The model behind the door."""

    client: anthropic.Anthropic
    say: Callable[[str], None]
    """Told of each wait."""
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random

    def ask(self, body: bytes) -> Answer:
        """The answer to the request ``body``. Raises :class:`Refused`."""
        broke = 0
        for tried in range(1, TRIES + 1):
            try:
                return self._once(body)
            except (anthropic.APIError, httpx2.HTTPError, Cut, *_NONSENSE) as error:
                reason, status = _words(error), _status(error)
                broke += isinstance(error, Cut | httpx2.HTTPError)
                if tried == TRIES or broke == PAID_TRIES or not _passes(error):
                    raise Refused(reason, status) from None
                wait = _asked_to_wait(error)
                if wait is None:
                    wait = min(LONGEST_WAIT, 0.5 * 2 ** (tried - 1)) * (0.75 + self.random() / 4)
                self.say(f"asking again in {wait:.1f} s: {reason}")
                self.sleep(wait)
        raise AssertionError("unreachable")

    def _once(self, body: bytes) -> Answer:
        # Events as plain data: what the model said goes back to it as it came, whatever the SDK knows of it.
        with self.client.post(
            "/v1/messages",
            cast_to=object,
            content=body,
            options={"headers": {"content-type": "application/json"}},
            stream=True,
            stream_cls=anthropic.Stream[object],
        ) as stream:
            events: Any = stream
            return assemble(events)


def connect(url: str, key: str) -> anthropic.Anthropic:
    """A client that leaves retries and time-outs to the gateway."""
    # The door is plain HTTP on loopback: no proxy leads there, and certificates need not be loaded.
    http = anthropic.DefaultHttpxClient(trust_env=False, verify=not url.startswith("http://"))
    timeout = anthropic.Timeout(READ_SECONDS, connect=30.0)
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=timeout, http_client=http)


def _passes(error: Exception) -> bool:
    """Whether the same request may be answered later."""
    if not isinstance(error, anthropic.APIStatusError):
        return not isinstance(error, _NONSENSE)
    if error.status_code < 400:  # in mid-stream
        return error.type is None or error.type in _PASSING
    return error.status_code in _AGAIN or error.status_code >= 500


def _status(error: Exception) -> int | None:
    """The status of a refusal; an error in mid-stream has none, since the answer had begun well."""
    status = error.status_code if isinstance(error, anthropic.APIStatusError) else None
    return status if status is None or status >= 400 else None


def _asked_to_wait(error: Exception) -> float | None:
    """Seconds that the answer asks us to wait."""
    if not isinstance(error, anthropic.APIStatusError):
        return None
    try:
        return min(MOST_ASKED, max(0.0, float(error.response.headers.get("retry-after", ""))))
    except ValueError:
        return None


def _words(error: Exception) -> str:
    if isinstance(error, anthropic.APIStatusError):
        return f"API error {error.status_code} {error.type or ''}: {error.api_message or error.message}"
    if isinstance(error, _NONSENSE):
        return f"the answer makes no sense: {error!r}"
    cause = error.__cause__ or error
    return f"the connection broke: {cause}" if not isinstance(error, Cut) else str(error)
