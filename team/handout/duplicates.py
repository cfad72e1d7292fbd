"""Finds code that was written twice, in any language: winnowed fingerprints of tokens, then exact comparison.

The same code with other names is found as well, where each name stands for one other name. The libraries that do this
know one language, compare whole files, or run an interpreter's lexer on hostile text; none is bounded.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from team.handout.tokens import Tokenizer, Tokens
from team.handout.tree import is_test

SHORTEST = 40
"""Tokens of the shortest copy that is surely found; about five lines."""
LINES = 5
_GRAM = 20
_WINDOW = SHORTEST - _GRAM + 1
_COMMON = 16
"""A fingerprint in more places is a habit of the language, not a copy."""
_PAIRS = 200_000
_RENAMED = 70
"""Tokens that a copy needs whose names are mostly others."""
_CONSISTENT = 0.85
_VARIED = 0.35
"""Share of different three-token runs below which it is a table."""
Late = Callable[[], bool]


@dataclass(frozen=True)
class Place:
    """Lines ``first`` to ``last`` of a file, both included."""

    path: str
    first: int
    last: int

    def common(self, other: Place) -> int:
        """Lines that both have."""
        return 0 if self.path != other.path else max(0, min(self.last, other.last) - max(self.first, other.first) + 1)

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass
class Copies:
    """The same code in several places."""

    places: list[Place]
    tokens: int
    same: float
    """The share of tokens that are equal as written."""
    sample: str
    """The first line of it that tells something, as an agent wrote it."""
    score: float = field(default=0.0, compare=False)

    @property
    def lines(self) -> int:
        """Lines that would be saved."""
        return sum(map(len, self.places)) - max(map(len, self.places))


@dataclass(frozen=True)
class _Match:
    """``length`` tokens of equal shape in files ``a`` and ``b``."""

    a: Tokens
    at: int
    b: Tokens
    bt: int
    length: int


def find(texts: Iterable[tuple[str, str]], late: Late = lambda: False, most: int = 12) -> list[Copies]:
    """What is written twice in ``texts`` (path and content), the most worth first, at most ``most`` findings.

    ``late`` tells that time is up: what was found until then is returned.
    """
    tokenizer = Tokenizer()
    known: list[Tokens] = []
    prints: dict[int, list[tuple[int, int]]] = {}
    for path, text in texts:
        if late():
            break
        tokens = tokenizer.tokens(path, text)
        if tokens is None or len(tokens.raw) < SHORTEST:
            continue
        known.append(tokens)
        for value, position in _winnow(tokens.shape):
            prints.setdefault(value, []).append((len(known) - 1, position))
    found = (copies for match in _matches(known, prints, late) if (copies := _judge(match)) is not None)
    return _classes(sorted(found, key=lambda c: -c.score), most)


def _winnow(shape: array[int]) -> Iterator[tuple[int, int]]:
    """Fingerprints with their positions: of every window the smallest, so that no long enough copy has none."""
    view = memoryview(shape).cast("B")
    size = shape.itemsize
    window: deque[tuple[int, int]] = deque()
    last = -1
    for position in range(len(shape) - _GRAM + 1):
        value = zlib.crc32(view[position * size : (position + _GRAM) * size])
        while window and window[-1][0] >= value:
            window.pop()
        window.append((value, position))
        if window[0][1] <= position - _WINDOW:
            window.popleft()
        if position >= _WINDOW - 1 and window[0][1] != last:
            last = window[0][1]
            yield window[0]


def _matches(known: list[Tokens], prints: dict[int, list[tuple[int, int]]], late: Late) -> Iterator[_Match]:
    """The longest matches around every pair of equal fingerprints, each once."""
    done: dict[tuple[int, int, int], int] = {}
    tried = 0
    for value in sorted(prints):
        places = prints[value]
        if not 1 < len(places) <= _COMMON:
            continue
        for (a, at), (b, bt) in combinations(places, 2):
            # A match is told from others by its diagonal and where it ends on it.
            if done.get((a, b, bt - at), -1) >= at:
                continue
            tried += 1
            if tried > _PAIRS or (tried % 64 == 0 and late()):
                return
            match = _extend(known[a], at, known[b], bt)
            if match is not None:
                done[a, b, bt - at] = max(done.get((a, b, bt - at), -1), match.at + match.length - 1)
                yield match


def _extend(a: Tokens, at: int, b: Tokens, bt: int) -> _Match | None:
    """The longest match around a fingerprint; None where only its checksum was equal, or it is too short."""
    x, y = a.shape, b.shape
    if x[at : at + _GRAM] != y[bt : bt + _GRAM]:
        return None
    begin = 0
    while at - begin > 0 and bt - begin > 0 and x[at - begin - 1] == y[bt - begin - 1]:
        begin += 1
    end, most = _GRAM, min(len(x) - at, len(y) - bt)
    while end < most and x[at + end] == y[bt + end]:
        end += 1
    length = begin + end
    if a is b:  # a place is no copy of itself
        length = min(length, bt - at)
    return _Match(a, at - begin, b, bt - begin, length) if length >= SHORTEST else None


def _judge(match: _Match) -> Copies | None:
    """What the match is worth; None where it only looks alike."""
    x = match.a.raw[match.at : match.at + match.length]
    y = match.b.raw[match.bt : match.bt + match.length]
    shape = match.a.shape[match.at : match.at + match.length]
    same = sum(p == q for p, q in zip(x, y, strict=True)) / match.length
    varied = len(set(zip(shape, shape[1:], shape[2:], strict=False))) / match.length
    first, second = (_place(t, p, match.length) for t, p in ((match.a, match.at), (match.b, match.bt)))
    lines = min(_code_lines(t, p, match.length) for t, p in ((match.a, match.at), (match.b, match.bt)))
    names = [(p, q) for p, q, s in zip(x, y, shape, strict=True) if s == Tokenizer.NAME]
    steady = _steady(names)
    if lines < LINES or varied < _VARIED or steady < _CONSISTENT or (same < 0.75 and match.length < _RENAMED):
        return None
    weight = 0.5 if is_test(first.path) and is_test(second.path) else 1.0
    sample = _telling(match.a.text[first.first - 1 : first.last])
    return Copies([first, second], match.length, same, sample, lines * steady * (0.5 + same) * weight)


def _place(tokens: Tokens, position: int, length: int) -> Place:
    return Place(tokens.path, tokens.lines[position], tokens.lines[position + length - 1])


def _telling(lines: list[str]) -> str:
    """The first line that is more than brackets and a word."""
    return next((line for line in lines if sum(map(str.isalnum, line)) > 8), lines[0]).strip()


def _code_lines(tokens: Tokens, position: int, length: int) -> int:
    return len(set(tokens.lines[position : position + length]))


def _steady(names: list[tuple[int, int]]) -> float:
    """How far each name of the one stands for one name of the other, from 0 to 1."""
    if not names:
        return 1.0
    shares = []
    for key in (0, 1):
        most: dict[int, int] = {}
        for pair, count in Counter(names).items():
            most[pair[key]] = max(most.get(pair[key], 0), count)
        shares.append(sum(most.values()) / len(names))
    return min(shares)


def _classes(pairs: list[Copies], most: int) -> list[Copies]:
    """Pairs that share a place as one finding, and no place told twice."""
    kept: list[Copies] = []
    for pair in pairs:
        homes = [(k, p, q) for k in kept for p in k.places for q in pair.places if p.common(q) > 0.4 * len(q)]
        if not homes:
            if len(kept) < most:
                kept.append(pair)
            continue
        home, there, here = homes[0]
        if here.common(there) < 0.6 * len(there):  # a copy of a part
            continue
        new = [p for p in pair.places if not any(p.common(q) for k in kept for q in k.places)]
        if len(new) == 1 and len(home.places) < _COMMON:
            home.places += new
    return kept
