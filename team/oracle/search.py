"""Which units of the candidate make a check fail: the search alone, without processes, clock or chance.

The way was chosen by counting (``python -m benchmarks.oracle``): checks among 1,000 units, means of 100 random cases
(of about 20 for the other ways), with all that proves the result: everything fails, the reference passes, each set is
minimal, the rest passes.

===================  =====  =====  =====  =====  ======  ============================================================
checks                 k=1    k=4   k=16   pair  triple  (k: culprits that fail alone)
===================  =====  =====  =====  =====  ======  ============================================================
this                    14     46    144     26      37  the bound 1.5 (k log2(n/k) + k) is 16, 54 and 167
... to prove one set                         24      35  like ddmin: that the reference passes is taken for granted
plain ddmin                                  60     112  distinct sets; it runs 85 and 144 checks
all the rest first      14     46    157                 halving from all that is left after each find
rounds of 4 at once    6.6   14.5   38.8     13      18
... one lane only      6.0   20.1   61.5     12      17  only 5-way search, in one line
===================  =====  =====  =====  =====  ======  ============================================================

- Units lie in a line. What passes so far stays in, so a test is a beginning of the line, and the unit at which
  it starts to fail is a culprit, or the last of a group (prefix search, as in Go's bisect). Alone it fails: a culprit.
  If not, it is kept in and the units before it are searched for the next of the group. That takes log2(n) a unit, where
  ddmin, which must leave out one part after another, takes several times as many.
- How far the next test reaches is generalised binary splitting (Hwang 1972): as far as leaves either outcome
  as likely. The density of culprits is not known; it is learnt from what was found among how many units.
- With several workers the line is cut into lanes, searched side by side, and split again where workers are free; only
  what is left is put into finer cuts at once, (j+1)-way: j cuts of one line tell log2(j+1) bits, j lanes up to j.
  When each lane passes, they are put together, which finds the groups across them.
- What cannot be tested: the place next to it is tried; then the unit that makes it so is narrowed down and put behind
  the others, as it may need one of them (Zeller's dd tries other splits and complements for the same reason). Units
  that stay so are left as suspects. Within a group "cannot be tested" counts as "does not fail", as in ddmin.
- As long as no verdict contradicts it, a superset of a failing set is taken to fail and a subset of a passing one to
  pass. Then nothing is implied any more, and only tests count. A set is found only by tests, either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from team.oracle.hunts import LAST, Group, Hunt, Lane, Units, Verdict, mask_of, units_of

__all__ = ["Search", "Units", "Verdict"]

_SPARSER = 2.5  # how much likelier each halving of the culprits' density is, before anything is known
_EXPECTED = 0.7  # below this chance that it passes, a part of the units is worth a worker of its own


class Search:
    """Finds minimal failing sets among the units 0..n-1; asks for checks and is told their verdicts, in any order."""

    def __init__(self, n: int, *, width: int = 1, order: Sequence[int] | None = None, most: int | None = None) -> None:
        """``width``: how many checks can run at once. ``order``: which units lie together. ``most``: sets to find."""
        self._order = list(range(n)) if order is None else list(order)
        if n < 0 or width < 1 or sorted(self._order) != list(range(n)):
            raise ValueError("a search needs n >= 0 units, width >= 1 and, as order, each of 0..n-1 once")
        self._n, self._width, self._most = n, width, most
        self._memory: dict[int, Verdict] = {}
        self._pending: set[int] = set()
        self._found: list[Units] = []
        self._unclear: Units = frozenset()  # of sets that were implied to fail, and did not when they were tested
        self._kept = 0  # units of found sets that stay with the reference
        self._monotone = True
        self._passing: list[int] = []
        self._failing: list[int] = []
        self._restart()

    # -- for the caller ---------------------------------------------------------------------------------------

    def ask(self) -> list[Units]:
        """Sets worth testing now, as many as workers are free; empty: done, or waits for what was asked."""
        free = self._width - len(self._pending)
        wants = self._wants(free) if free > 0 else {}
        for mask, hunts in wants.items():
            self._pending.add(mask)
            for hunt, at in hunts:
                hunt.asked[mask] = at
        return [units_of(mask) for mask in wants]

    def tell(self, units: Units, verdict: Verdict) -> None:
        """Takes a verdict; also of a set that nobody asked for, as from a cache. The first of a set stands."""
        if units and not 0 <= min(units) <= max(units) < self._n:
            raise ValueError(f"units are 0..{self._n - 1}, not {min(units)}..{max(units)}")
        mask = mask_of(units, self._n)
        self._pending.discard(mask)
        if mask in self._memory:
            return
        contradicts = self._monotone and self._implied(mask) not in (None, verdict)
        self._memory[mask] = verdict
        self._settled = False
        if verdict is Verdict.FAILS:
            self._failing.append(mask)
        elif verdict is Verdict.PASSES:
            self._passing.append(mask)
        if contradicts and verdict is not Verdict.UNTESTABLE:
            self._monotone = False
            self._restart()

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask."""
        self._settle()
        return self._done

    @property
    def found(self) -> list[Units]:
        """Minimal failing sets so far: each was seen to fail, and not to fail without any one of its units."""
        self._settle()
        return list(self._found)

    @property
    def suspects(self) -> Units:
        """Units that may belong to a set not yet found; when done, those that could not be judged."""
        self._settle()
        return self._unclear | (self._undecided if self._done else self._open_units())

    def _open_units(self) -> Units:
        rest = [unit for lane in self._lanes for unit in lane.line[lane.clean :] + lane.aside]
        return frozenset(rest).union(*(group.suspects() for group in self._groups))

    @property
    def left(self) -> float:
        """How many checks are still to be expected: an estimate, for people."""
        self._settle()
        if self._done:
            return 0.0
        chance = self._chance()
        return 1 + sum(group.left for group in self._groups) + sum(lane.left(chance) for lane in self._lanes)

    # -- what is known ----------------------------------------------------------------------------------------

    def _known(self, mask: int) -> Verdict | None:
        return self._memory.get(mask) or (self._implied(mask) if self._monotone else None)

    def _implied(self, mask: int) -> Verdict | None:
        """As long as nothing contradicts it: a superset of what fails fails, a subset of what passes passes."""
        if any(not failing & ~mask for failing in self._failing):
            return Verdict.FAILS
        return Verdict.PASSES if any(not mask & ~passing for passing in self._passing) else None

    def _chance(self) -> Callable[[int], float]:
        """The chance that a number of untested units holds no culprit, after what was found among how many."""
        scanned = sum(max(lane.clean, lane.passed) for lane in self._lanes)
        halvings = range(1, max(2, self._n.bit_length() + 2))
        weights = [
            (1 - 0.5**j, self._culprits * math.log(0.5**j) + scanned * math.log1p(-(0.5**j)) + j * math.log(_SPARSER))
            for j in halvings
        ]
        top = max(weight for _, weight in weights)
        shares = [(clean, math.exp(weight - top)) for clean, weight in weights]
        total = sum(share for _, share in shares)
        return lambda units: sum(share * clean**units for clean, share in shares) / total

    # -- the course of the search -----------------------------------------------------------------------------

    def _restart(self) -> None:
        """Starts anew with all units that no found set keeps out; the memory spares what was tested."""
        line = [unit for unit in self._order if not self._kept >> unit & 1]
        lanes = max(1, min(self._width, len(line)))
        edges = [len(line) * i // lanes for i in range(lanes + 1)]
        self._lanes = [Lane(line[a:b]) for a, b in pairwise(edges)]
        self._groups: list[Group] = []
        self._out = self._kept
        self._culprits = len(self._found)
        self._settled = self._done = False
        self._undecided: Units = frozenset()

    def _settle(self) -> None:
        """Draws every conclusion from what is known."""
        if self._settled:
            return
        self._settled = True
        while not self._done and self._step():
            pass

    def _step(self) -> bool:
        nothing = self._memory.get(0)
        if nothing in (Verdict.FAILS, Verdict.UNTESTABLE):
            self._found = [frozenset()] if nothing is Verdict.FAILS else []
            self._undecided = frozenset() if nothing is Verdict.FAILS else frozenset(range(self._n))
            self._done = True
            return False
        if any(self._advance_group(group) for group in list(self._groups)):
            if self._most is not None and len(self._found) >= self._most:
                self._undecided, self._done = self._open_units(), True
            return True
        if any(self._advance_lane(lane) for lane in self._lanes):
            return True
        if nothing is None or self._groups:
            return False
        if self._known(self._whole) is Verdict.PASSES:
            self._done = True
            return False
        return all(lane.finished for lane in self._lanes) and self._conclude()

    @property
    def _whole(self) -> int:
        return ~self._out & ((1 << self._n) - 1)

    def _advance_lane(self, lane: Lane) -> bool:
        if lane.fail is None and (verdict := self._known(lane.mask(len(lane.line)))):
            lane.learn(len(lane.line), verdict)
        if lane.finished or not self._follow(lane):
            return False
        if lane.bad is not None:
            lane.put_aside()
            return True
        unit, before = lane.take()
        self._out |= 1 << unit
        self._culprits += 1
        self._groups.append(Group(unit, before, 1 << unit))
        return True

    def _follow(self, hunt: Hunt) -> bool:
        """Takes what is known about the cuts that a hunt would make; says whether it stands at a boundary."""
        for mask, at in list(hunt.asked.items()):
            if verdict := self._known(mask):
                del hunt.asked[mask]
                hunt.learn(at, verdict)
        while hunt.open:
            cuts = hunt.cuts(1, self._chance())
            verdict = self._known(hunt.mask(cuts[0])) if cuts else None
            if verdict is None:
                return False
            hunt.learn(cuts[0], verdict)
        return True

    def _advance_group(self, group: Group) -> bool:
        if not group.complete:
            if not self._follow(group.hunt):
                return False
            group.grow()
            return True
        proofs = group.proofs(self._memory)
        for mask in proofs[1:]:
            if self._memory.get(mask) is Verdict.FAILS:
                group.reduce(mask)
                return True
        if any(mask not in self._memory for mask in proofs):
            return False
        self._groups.remove(group)
        if self._memory[group.mask] is Verdict.FAILS:
            self._keep(group, coupled=group.coupled(self._memory))
        else:
            self._unclear |= frozenset(group.units)
        return True

    def _keep(self, group: Group, coupled: bool) -> None:
        """A set is found; one unit of it stays with the reference, or all when parts of it cannot be tested."""
        self._found.append(frozenset(group.units))
        if coupled or group.first not in group.units:
            self._kept |= group.mask
            self._restart()
        else:
            self._kept |= 1 << group.first

    def _conclude(self) -> bool:
        """All lanes pass, each for itself: makes one of them, and tries again what could not be tested."""
        if len(self._lanes) > 1:
            first, rest = self._lanes[0], self._lanes[1:]
            aside = [unit for lane in self._lanes for unit in lane.aside]
            line = first.line + [unit for lane in rest for unit in lane.line]
            self._lanes = [Lane(line, len(first.line), aside, passed=len(line))]
            return True
        lane = self._lanes[0]
        for trial in self._trials(lane):
            verdict = self._known(trial.mask(len(trial.line)))
            if verdict is None:
                return False
            if verdict is Verdict.FAILS and len(trial.line) == 1:
                self._lanes.append(trial)
                lane.aside.remove(trial.line[0])
                return True
            if verdict is not Verdict.UNTESTABLE and len(trial.line) > 1:
                self._lanes = [trial]
                return True
        self._undecided = frozenset(lane.aside)
        self._done = True
        return False

    def _trials(self, lane: Lane) -> Iterable[Lane]:
        """What may tell more of units that cannot be tested: all of them, each alone, all but one."""
        if not lane.aside:
            return
        at = len(lane.line)
        yield Lane(lane.line + lane.aside, clean=at)
        yield from (Lane([unit]) for unit in lane.aside if lane.line)
        if len(lane.aside) > 2:
            for unit in lane.aside:
                others = [other for other in lane.aside if other != unit]
                yield Lane(lane.line + others, clean=at, aside=[unit])

    # -- what to test next ------------------------------------------------------------------------------------

    def _wants(self, free: int) -> dict[int, list[tuple[Hunt, int]]]:
        while True:
            self._settle()
            if self._done:
                return {}
            wants = self._collect(free)
            if self._settled:
                return wants

    def _collect(self, free: int) -> dict[int, list[tuple[Hunt, int]]]:
        """The sets to ask for, each with the hunt that wants it and where that hunt's line is cut."""
        wants: dict[int, list[tuple[Hunt, int]]] = {}

        def want(mask: int) -> None:
            if len(wants) < free and mask not in self._memory and mask not in self._pending:
                wants.setdefault(mask, [])

        want((1 << self._n) - 1)
        want(0)
        for group in self._groups:
            for mask in group.proofs(self._memory):
                want(mask)
        self._want_last(want)
        if self._split(free - len(wants)):
            return {}
        hunts = self._hunts()
        chance = self._chance()
        for i, hunt in enumerate(hunts):
            slots = -(-(free - len(wants)) // (len(hunts) - i))
            for at in hunt.cuts(slots, chance) if slots > 0 else []:
                mask = hunt.mask(at)
                if verdict := self._known(mask):
                    hunt.learn(at, verdict)
                    self._settled = False
                    continue
                want(mask)
                if mask in wants:
                    wants[mask].append((hunt, at))
        return wants

    def _hunts(self) -> list[Hunt]:
        """All that goes on, the nearest to a find first."""
        lanes = sorted((lane for lane in self._lanes if not lane.finished), key=lambda lane: lane.fail is None)
        return [*(group.hunt for group in self._groups if not group.complete), *lanes]

    def _split(self, free: int) -> bool:
        """Gives workers that have no hunt of their own a part where a culprit is to be expected."""
        chance = self._chance()
        lane = max(self._lanes, key=lambda lane: lane.untouched)
        if len(self._hunts()) >= free or chance(lane.untouched) > _EXPECTED:
            return False
        self._lanes.append(lane.split())
        self._settled = False
        return True

    def _want_last(self, want: Callable[[int], None]) -> None:
        """The check that all the rest passes, when it is likely to or nothing else is left."""
        if all(lane.finished for lane in self._lanes) and len(self._lanes) == 1:
            for trial in self._trials(self._lanes[0]):
                if self._known(mask := trial.mask(len(trial.line))) is None:
                    want(mask)
        elif len(self._lanes) > 1 and all(lane.fail is None for lane in self._lanes):
            rest = sum(len(lane.line) - lane.clean for lane in self._lanes)
            if self._known(self._whole) is None and self._chance()(rest) >= LAST:
                want(self._whole)
