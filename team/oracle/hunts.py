"""The parts of a search: a line of units in which one is hunted, a lane of many units, a group that grows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import combinations, pairwise

Units = frozenset[int]

LAST = 0.4  # from this chance on that all the rest passes, all the rest is what to test
_SMALL = 4  # a group of so many units has few enough parts to test them all


class Verdict(StrEnum):
    """What a check says of a set: UNTESTABLE when it cannot be built, linked or decided."""

    FAILS = "fails"
    PASSES = "passes"
    UNTESTABLE = "untestable"


class Hunt:
    """Looks for the unit of a line at which the line's beginning, with the fixed units, starts to fail."""

    def __init__(self, line: list[int], fixed: int = 0, fail: int | None = None) -> None:
        self.line, self.fixed = line, fixed
        self.low = -1  # so many units from the line's beginning do not fail
        self.fail = fail  # so many fail
        self.asked: dict[int, int] = {}

    def mask(self, at: int) -> int:
        return self.fixed | mask_of(self.line[:at], max(self.line[:at], default=-1) + 1)

    @property
    def open(self) -> range:
        """Where a test can tell more."""
        assert self.fail is not None
        return range(self.low + 1, self.fail)

    @property
    def finished(self) -> bool:
        return False

    def learn(self, at: int, verdict: Verdict) -> None:
        if at not in self.open:
            return
        if verdict is Verdict.FAILS:
            self.fail = at
        else:
            self.low = at

    def cuts(self, slots: int, chance: Callable[[int], float]) -> list[int]:
        """Where to test, with so many workers: the places that leave each outcome as likely as another."""
        if not self.open or self.low < 0:
            return list(self.open[:1])
        if self.asked:
            return _between(self.open, self.asked.values(), slots)
        return self.shares(slots, chance)

    def shares(self, slots: int, chance: Callable[[int], float]) -> list[int]:
        gaps = len(self.open) + 1
        return sorted({self.low + (i + 1) * gaps // (slots + 1) for i in range(slots)} - {self.low})


class Lane(Hunt):
    """A part of the units, searched for one culprit after another from its beginning.

    A unit that makes untestable what passes without it waits at the end, as it may need others.
    """

    def __init__(self, line: list[int], clean: int = 0, aside: Sequence[int] = (), *, passed: int = 0) -> None:
        super().__init__(line)
        self.passed = passed  # so many units passed, if only in parts
        self.clean = self.low = clean  # so many units from the line's beginning pass
        self.bad: int | None = None  # so many cannot be tested
        self.doubt: int | None = None  # the same, but perhaps by chance: the next place is tried first
        self.waiting = 0  # so many units before ``fail`` wait there
        self.aside = list(aside)  # those that wait while nothing is known to fail

    @property
    def open(self) -> range:
        if self.bad is not None:
            return range(self.clean + 1, self.bad)
        if self.fail is None:
            return range(self.clean + 1, len(self.line) + 1)
        if self.clean < self.fail - self.waiting and self.waiting:
            return range(self.clean + 1, self.fail - self.waiting + 1)
        return range(self.low + 1, self.fail)

    @property
    def finished(self) -> bool:
        return self.fail is None and self.clean == len(self.line)

    def learn(self, at: int, verdict: Verdict) -> None:
        if at <= self.low or (self.fail is not None and at >= self.fail):
            return
        if verdict is Verdict.FAILS:
            self.fail, self.waiting = at, 0
        elif verdict is Verdict.PASSES:
            self.clean = self.low = at
        elif self.fail is not None and self.clean >= self.fail - self.waiting:
            self.low = at
        elif self.bad is None and self.doubt is None:
            self.doubt = at
        elif at != self.doubt:
            self.bad = min(at, self.bad or at, self.doubt or at)
        self._tidy()

    def cuts(self, slots: int, chance: Callable[[int], float]) -> list[int]:
        cuts, places = set(super().cuts(slots, chance)), self.open
        if self.doubt in cuts:
            cuts.remove(self.doubt)
            cuts.add(self.doubt + 1 if self.doubt + 1 in places else self.doubt - 1)
        return sorted(cuts)

    def _tidy(self) -> None:
        end = len(self.line) + 1 if self.fail is None else self.fail
        if self.bad is not None and not self.clean < self.bad < end:
            self.bad = None
        if self.doubt is not None and (self.bad is not None or not self.clean < self.doubt < end):
            self.doubt = None
        if self.doubt is not None and list(self.open) == [self.doubt]:
            self.bad, self.doubt = self.doubt, None

    def shares(self, slots: int, chance: Callable[[int], float]) -> list[int]:
        known = self.fail is not None or self.bad is not None
        places = self.open
        if not known and (self.clean < self.passed or (slots == 1 and chance(len(places)) >= LAST)):
            cuts = {places[-1]}
        else:
            end = chance(len(places) + 1) if known else 0.0
            levels = (1 - (i + 1) / (slots + 1) * (1 - end) for i in range(slots))
            cuts = {
                places[bisect_left(places, -level, key=lambda at: -chance(at - places.start + 1), hi=len(places) - 1)]
                for level in levels
            }
        return sorted(cuts)

    def take(self) -> tuple[int, list[int]]:
        """Takes out the unit at the boundary; gives it, and the units before it."""
        assert self.fail is not None
        before = self.line[: self.fail - 1]
        unit = self.line.pop(self.fail - 1)
        self.fail = None
        self._forget()
        return unit, before

    def put_aside(self) -> None:
        unit = self.line.pop(self.clean)
        if self.fail is None:
            self.aside.append(unit)
        else:
            self.line.insert(self.fail - 1, unit)
        waiting = self.waiting + (self.fail is not None)
        self._forget()
        self.waiting = waiting

    @property
    def untouched(self) -> int:
        """How many units at the end could as well be a lane of their own."""
        if self.fail is not None:
            return len(self.line) - self.fail
        return 0 if self.clean < self.passed else (len(self.line) - self.clean) // 2

    def split(self) -> Lane:
        at = len(self.line) - self.untouched
        self.line, rest = self.line[:at], self.line[at:]
        self.asked = {mask: cut for mask, cut in self.asked.items() if cut <= at}
        self._tidy()
        return Lane(rest)

    def _forget(self) -> None:
        self.low, self.bad, self.doubt, self.waiting = self.clean, None, None, 0
        self.asked.clear()

    def left(self, chance: Callable[[int], float]) -> float:
        """How many checks it may still take: for the unit hunted now, and for as many as the rest may hold."""
        rest = len(self.line) - (self.fail or self.clean)
        culprits = -math.log(max(chance(rest), 1e-9)) if self.passed <= self.clean else 0
        now = math.log2(self.fail - self.low) + 2 if self.fail is not None else 0
        return now + culprits * (math.log2(1 + rest / max(1.0, culprits)) + 2)


class Group:
    """A minimal failing set as it grows: units that it must have, and the line that has the others."""

    def __init__(self, unit: int, before: list[int], mask: int) -> None:
        self.first, self.units, self.mask = unit, [unit], mask
        self.hunt = Hunt(before, mask, len(before))
        self.complete = False

    def grow(self) -> None:
        at = self.hunt.fail
        assert at is not None
        if at == 0:
            self.complete = True
            return
        self.units.append(self.hunt.line[at - 1])
        self.mask |= 1 << self.units[-1]
        self.hunt = Hunt(self.hunt.line[: at - 1], self.mask, at - 1)

    def reduce(self, mask: int) -> None:
        self.mask = mask
        self.units = [unit for unit in self.units if mask >> unit & 1]

    def coupled(self, memory: Mapping[int, Verdict]) -> bool:
        """Whether it cannot be tested without one of its units."""
        return any(memory.get(self.mask & ~(1 << unit)) is Verdict.UNTESTABLE for unit in self.units)

    def proofs(self, memory: Mapping[int, Verdict]) -> list[int]:
        """What must be tested before it counts as minimal: itself first, then it without each of its units.

        Where these cannot be tested they prove little: then every part of a small group is tried, or each unit alone.
        """
        if not self.complete:
            return []
        masks = [self.mask] + [self.mask & ~(1 << unit) for unit in self.units]
        if self.coupled(memory):
            sizes = range(1, len(self.units) - 1 if len(self.units) <= _SMALL else 2)
            masks += [mask_of(part, max(part) + 1) for size in sizes for part in combinations(self.units, size)]
        return masks

    @property
    def left(self) -> float:
        """How many checks it may still take: one as long as it is likely a single unit."""
        single = self.complete or (len(self.units) == 1 and self.hunt.low < 0)
        return 1 if single else math.log2(1 + len(self.hunt.open)) + len(self.units) + 1

    def suspects(self) -> Units:
        return frozenset(self.units) | (frozenset() if self.complete else frozenset(self.hunt.line))


def _between(places: range, asked: Iterable[int], slots: int) -> list[int]:
    """Halves the largest gaps that the tests under way leave."""
    edges = sorted({places.start - 1, places.stop, *(at for at in asked if at in places)})
    cuts: list[int] = []
    for _ in range(slots):
        width, at = max((b - a, a) for a, b in pairwise(edges))
        if width < 2:
            break
        cuts.append(at + width // 2)
        edges = sorted([*edges, cuts[-1]])
    return cuts


def mask_of(units: Iterable[int], n: int) -> int:
    digits = bytearray(b"0") * (n + 1)
    for unit in units:
        digits[n - unit] = 49
    return int(digits, 2)


def units_of(mask: int) -> Units:
    return frozenset(unit for unit, digit in enumerate(reversed(f"{mask:b}")) if digit == "1")
