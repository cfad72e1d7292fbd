"""What a request may cost at most, and what such requests did cost: the numbers that reservations are made from."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from team.gateway.budget import Amount
from team.gateway.prices import Price, Usage

KEPT = 32
"""Answers remembered for each model."""
ENOUGH = 8
"""Answers after which what was seen stands for what may come, where a provider cannot count."""
FRAME = 1024
"""Tokens that a provider may put around a request with tools, beyond its text."""
PICTURE, PAGES = 5_000, 300_000
"""Tokens of one image, and of one document, at most: their bytes tell nothing."""
FIRST_ANSWER = 1024
"""Tokens that an answer gets at least, before any was seen."""
MORE = 1.25
"""How many times the dearest of the last answers stands for one that may come."""
AMPLE, PLENTY = 8_192, 4
"""Where many compete for what is left: tokens of an answer at least, and times the longest of the last ones."""
_FREE = 0


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


class Guesses:
    """What was seen of each model."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)

    def learn(self, model: str, bytes: int, usage: Usage, price: Price | None) -> None:
        """An answer that the provider told the usage of."""
        cost = price.cost(usage) if price else _FREE
        out = usage.output * price.output_rate(usage.prompt) if price else _FREE
        seen = self._seen[model]
        seen.outputs.append(usage.output)
        seen.costs.append(cost)
        seen.tokens.append(usage.tokens)
        seen.tokens_per_byte.append(usage.prompt / max(bytes, 1))
        seen.cost_per_byte.append((cost - out) / max(bytes, 1))

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

        ``counted``: input tokens as the provider counts them. Without, the densest of the last answers stands for
        them, and a quarter more.
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
        if counted is not None:  # "an estimate", says the provider: a little more
            return self._bounded(model, size, price, min(self._most(size, price), counted + counted // 20), 0)
        seen = self._seen[model]
        if len(seen.costs) < ENOUGH or size.images or size.documents:
            return self._bounded(model, size, price, self._most(size, price), 0)
        pico, tokens = max(seen.cost_per_byte), max(seen.tokens_per_byte)
        return Amount(round(pico * size.bytes * MORE), round(tokens * size.bytes * MORE))

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
