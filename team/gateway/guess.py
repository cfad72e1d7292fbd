"""What a request may cost at most, and what such requests did cost: the numbers that reservations are made from."""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from team.gateway.budget import Amount
from team.gateway.prices import Price, Usage

KEPT = 32
"""Answers remembered for each model."""
ENOUGH = 8
"""Answers after which the longest of them tells how long the next may become."""
FRAME = 1024
"""Tokens that a provider may put around a request with tools, beyond its text."""
PICTURE, PAGES = 5_000, 300_000
"""Tokens of one image, and of one document, at most: their bytes tell nothing."""
FIRST_ANSWER = 1024
"""Tokens that an answer gets at least, before any was seen."""
ALIKE, SEAM = 8, 64
"""Requests of each model that later ones are compared with, and tokens that may be different where two are joined."""
AMPLE, PLENTY = 8_192, 4
"""Where many compete for what is left: tokens of an answer at least, and times the longest of the last ones."""
_FREE = 0
Raw = bytes
"""The type, for classes that have a field of its name."""


@dataclass(frozen=True)
class Size:
    """What of a request its bounds are made from."""

    bytes: int
    max_output: int
    """Tokens, for all answers of the request together."""
    least_output: int = 0
    """A bound of the answer below this is refused by the provider (thinking has to fit)."""
    images: int = 0
    documents: int = 0
    tools: bool = False
    hour: bool = False
    """Something may be kept in the cache for an hour."""
    text: Raw = field(default=b"", repr=False)
    """The request itself, where nothing but these bytes tells how many tokens it has."""

    @property
    def most_input(self) -> int:
        """Tokens, at most: no token is shorter than a byte."""
        attached = self.images * PICTURE + self.documents * PAGES
        return self.bytes + attached + (FRAME if self.tools else 0)


@dataclass
class _Seen:
    outputs: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    tokens_per_byte: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    cost_per_byte: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    costs: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    tokens: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    texts: deque[tuple[bytes, int]] = field(default_factory=lambda: deque(maxlen=ALIKE))
    """Requests, and the tokens that went in with them."""


class Guesses:
    """What was seen of each model."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)

    def learn(self, model: str, bytes: int, usage: Usage, price: Price | None, text: bytes = b"") -> None:
        """An answer that the provider told the usage of; ``text`` as in :class:`Size`."""
        cost = price.cost(usage) if price else _FREE
        out = usage.output * price.output_rate(usage.prompt) if price else _FREE
        seen = self._seen[model]
        seen.outputs.append(usage.output)
        seen.costs.append(cost)
        seen.tokens.append(usage.tokens)
        seen.tokens_per_byte.append(usage.prompt / max(bytes, 1))
        seen.cost_per_byte.append((cost - out) / max(bytes, 1))
        if text:
            seen.texts.append((text, usage.prompt))

    def worst(self, model: str, size: Size, price: Price | None) -> Amount:
        """The most that a request of ``size`` may cost."""
        return self._bounded(model, size, price, self._most(size, price), size.max_output)

    def long_enough(self, model: str, size: Size) -> int | None:
        """Tokens that an answer will hardly need more of; None where too little was seen, or it may be no longer."""
        seen = self._seen[model].outputs
        if len(seen) < ENOUGH:
            return None
        tokens = max(AMPLE, PLENTY * max(seen), size.least_output)
        return tokens if tokens < size.max_output else None

    def shorter(self, model: str, size: Size, price: Price | None, output: int) -> Amount:
        """The most that a request of ``size`` may cost with an answer of at most ``output`` tokens."""
        return self._bounded(model, size, price, self._most(size, price), output)

    def typical(self, model: str) -> Amount:
        """What requests to ``model`` cost on average; nothing where none was seen."""
        seen = self._seen.get(model)
        if seen is None or not seen.costs:
            return Amount()
        return Amount(sum(seen.costs) // len(seen.costs), sum(seen.tokens) // len(seen.tokens))

    def closer(self, model: str, size: Size, price: Price | None, counted: int | None, room: Amount) -> int | None:
        """How long the answer may be so that the request fits into ``room``, in tokens; None where too short.

        ``counted``: input tokens as the provider counts them. Without, whatever was not in an earlier request may have
        a token for each of its bytes: what others did cost tells nothing of the next one.
        """
        into = self._closest(model, size, price, counted)
        if not into.fits(room):
            return None
        rate = price.output_rate(into.tokens) if price else _FREE
        longest = min(size.max_output, room.tokens - into.tokens)
        if rate:
            longest = min(longest, (room.pico - into.pico) // rate)
        seen = self._seen[model].outputs
        least = min(size.max_output, max(size.least_output, max(seen, default=FIRST_ANSWER), 1))
        return longest if longest >= least else None

    def bounded(self, model: str, size: Size, price: Price | None, counted: int | None, output: int) -> Amount:
        """The most that the request costs with an answer of at most ``output`` tokens."""
        into = self._closest(model, size, price, counted)
        return into + Amount(output * (price.output_rate(into.tokens) if price else _FREE), output)

    def _most(self, size: Size, price: Price | None) -> int:
        return size.most_input if price is None else min(size.most_input, price.listed.context)

    def _closest(self, model: str, size: Size, price: Price | None, counted: int | None) -> Amount:
        """What goes in, looked at as closely as can be."""
        most = self._most(size, price)
        if counted is not None:  # "an estimate", says the provider: a little more
            most = min(most, counted + counted // 20)
        elif size.text:
            more = SEAM + (FRAME if size.tools else 0)
            told = (tokens + _unlike(size.text, text) + more for text, tokens in self._seen[model].texts)
            most = min(most, *told, most)
        return self._bounded(model, size, price, most, 0)

    def _bounded(self, model: str, size: Size, price: Price | None, tokens: int, output: int) -> Amount:
        """``tokens`` in at the dearest rate, but never less than such requests did cost, and ``output`` out."""
        seen = self._seen[model]
        before = Amount(
            round(size.bytes * max(seen.cost_per_byte, default=0.0)),
            round(size.bytes * max(seen.tokens_per_byte, default=0.0)),
        )
        into = price.dearest_input(tokens, hour=size.hour) if price else _FREE
        rate = price.output_rate(tokens) if price else _FREE
        return Amount(max(into, before.pico) + output * rate, max(tokens, before.tokens) + output)


def _unlike(new: bytes, old: bytes) -> int:
    """Bytes of ``new`` that are in neither the beginning nor the end that it has in common with ``old``."""
    most = min(len(new), len(old))
    head = _common(most, lambda n: new[:n] == old[:n])
    tail = _common(most - head, lambda n: new[len(new) - n :] == old[len(old) - n :])
    return len(new) - head - tail


def _common(most: int, same: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` for which ``same`` holds; it holds for all smaller ones."""
    return bisect.bisect_left(range(1, most + 1), True, key=lambda n: not same(n))
