"""Which cases a seat runs: an arc of a circle on which every case has its place.

The arcs of consecutive seats touch, and each is as long as the rate. So any N >= 1/rate consecutive seats go round the
whole circle: their union is every case, whatever the rate and wherever the cases lie. Integers and fractions only, so
that it holds to the last case.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

ROUND = 1 << 32
"""The length of the circle."""
TENTHS = 10
DEFAULT = "10%"
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*(%?)\Z")
_NUMBER = re.compile(r"(\d{1,9})\Z")
# The fractional part of the golden ratio, of ROUND: odd, so a whole round comes back only after ROUND steps.
_GOLDEN = 2654435769


def rate(text: str) -> Fraction:
    """The rate in ``10%``, ``7.5%`` or ``0.1``. Raises :class:`ValueError` with one line."""
    match = _RATE.match(text.strip())
    value = Fraction(match[1]) / (100 if match[2] else 1) if match else Fraction(0)
    if match and not match[2] and value == 1:
        raise ValueError(f"{text!r} may be 1% or 100%; write which")
    if not 0 < value <= 1:
        raise ValueError(f"{text!r} is no rate; write a percentage above 0 and up to 100, like --fast=10%")
    return value


def percent(text: str) -> str:
    """The rate in ``text`` as it is shown: ``10%``, however it was written."""
    return f"{float(rate(text)) * 100:g}%"


def seat(agent: str) -> int:
    """The number at the end of the agent's name; for a name without one, a number made from the name."""
    match = _NUMBER.search(agent)
    return int(match[1]) if match else _hash(agent)


@dataclass(frozen=True)
class Arc:
    """The part of the circle from ``start``, ``length`` long."""

    start: int
    length: int

    def __contains__(self, position: object) -> bool:
        return isinstance(position, int) and (position - self.start) % ROUND < self.length


def arc(number: int, share: Fraction) -> Arc:
    """The arc of seat ``number`` at the rate ``share``: it ends exactly where that of the next seat begins."""
    start, end = math.floor(number * share * ROUND), math.floor((number + 1) * share * ROUND)
    return Arc(start % ROUND, min(end - start, ROUND))


class Spread:
    """Gives places to new cases, so that arcs of every length take like time.

    Each goes to the tenth of the circle that takes the least time so far (with the longest first this is the LPT
    rule of scheduling, Graham 1969): at the default rate the arcs are these tenths. Within its tenth the n-th case
    lies at the n-th multiple of the golden ratio: of any run of them, every part holds its share to within a few
    (Knuth, The Art of Computer Programming 3, 6.4, theorem S), which serves the other rates.
    """

    def __init__(self, counts: Sequence[int], loads: Sequence[float]) -> None:
        """``counts``: cases that lie in each of the ten tenths already; ``loads``: the seconds that they take."""
        self._counts = list(counts)
        self._heap = [(load, tenth) for tenth, load in enumerate(loads)]
        heapq.heapify(self._heap)

    def place(self, seconds: float) -> int:
        """The place of the next case, which takes ``seconds``."""
        load, tenth = heapq.heappop(self._heap)
        heapq.heappush(self._heap, (load + seconds, tenth))
        n = self._counts[tenth]
        self._counts[tenth] = n + 1
        low, end = tenth * ROUND // TENTHS, (tenth + 1) * ROUND // TENTHS
        return low + ((n * _GOLDEN) % ROUND * (end - low) >> 32)


def stray(name: str) -> int:
    """The place of a case that nobody keeps a place for: by its name alone."""
    return _hash(name)


def order(names: Sequence[str], seconds: Sequence[float | None]) -> list[int]:
    """In which order new cases get their places: the longest first, else by a hash, so that the order in which a
    suite lists its cases has no say."""
    return sorted(range(len(names)), key=lambda i: (-(seconds[i] or 0), _hash(names[i]), names[i]))


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big")
