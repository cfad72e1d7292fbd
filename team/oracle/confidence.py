"""How often the check of a set is to be repeated, when checks are flaky, until its verdict is sure enough."""

from __future__ import annotations

import math

from team.errors import TeamError
from team.oracle.search import Verdict

_SURPRISE = 0.2  # the rate to reckon with once a check that was said to be steady has disagreed with itself


class Repeated:
    """The outcomes of one set: says its verdict as soon as they suffice, or that one more is needed.

    Wald's sequential test: where a check is wrong at a rate r, either way, one outcome makes its side (1 - r) / r times
    likelier, so a set is decided when one side is ahead of the other by a number that rate and confidence give.
    At 20 % and 99.9 % that is 5 ahead, after 8 outcomes on average; a fixed number would have to be 21.
    At a rate of 0 the first outcome decides.
    """

    def __init__(self, flaky: float = 0.0, confidence: float = 0.99) -> None:
        """``flaky``: how often the check is wrong by chance, from 0 to below 0.5. ``confidence``: of this verdict.

        Raises :class:`TeamError` where no number of outcomes could tell.
        """
        if not 0 <= flaky < 0.5:
            raise TeamError(
                f"a check that is wrong at a rate of {flaky:g} tells nothing: it must be from 0 to below 0.5"
            )
        if not 0.5 <= confidence < 1:
            raise TeamError(f"a confidence of {confidence:g} cannot be had: it must be from 0.5 to below 1, like 0.99")
        self._flaky, self._confidence = flaky, confidence
        self._outcomes = dict.fromkeys(Verdict, 0)

    def tell(self, outcome: Verdict) -> Verdict | None:
        """Takes one outcome; the verdict, or None: once more."""
        self._outcomes[outcome] += 1
        return self.verdict

    @property
    def verdict(self) -> Verdict | None:
        """What the outcomes say so far. What cannot be built at the first try is untestable at once; later
        that needs to happen more often than not."""
        fails, passes = self._outcomes[Verdict.FAILS], self._outcomes[Verdict.PASSES]
        if self._outcomes[Verdict.UNTESTABLE] > fails + passes:
            return Verdict.UNTESTABLE
        if self.missing:
            return None
        return Verdict.FAILS if fails > passes else Verdict.PASSES

    @property
    def missing(self) -> int:
        """How many more outcomes it takes at least; so many can run at once."""
        fails, passes = self._outcomes[Verdict.FAILS], self._outcomes[Verdict.PASSES]
        rate = self._flaky or (_SURPRISE if fails and passes else 0)
        ahead = 1
        if rate:
            ahead = max(1, math.ceil(math.log(self._confidence / (1 - self._confidence)) / math.log((1 - rate) / rate)))
        return max(0, ahead - abs(fails - passes))

    @property
    def count(self) -> int:
        """How many outcomes were told."""
        return sum(self._outcomes.values())
