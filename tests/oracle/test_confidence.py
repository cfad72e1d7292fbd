"""Repeats of a flaky check: as many as the confidence needs, and no more."""

from __future__ import annotations

import random

import pytest

from team.errors import TeamError
from team.oracle.confidence import Repeated
from team.oracle.search import Search, Units, Verdict

FAILS, PASSES, UNTESTABLE = Verdict.FAILS, Verdict.PASSES, Verdict.UNTESTABLE


def decided(repeated: Repeated, truth: Verdict, rate: float, chance: random.Random) -> Verdict:
    wrong = PASSES if truth is FAILS else FAILS
    while True:
        verdict = repeated.tell(wrong if chance.random() < rate else truth)
        if verdict is not None:
            return verdict


@pytest.mark.parametrize("outcome", list(Verdict))
def test_a_steady_check_is_never_repeated(outcome: Verdict) -> None:
    repeated = Repeated(confidence=0.999999)
    assert repeated.missing == 1
    assert repeated.tell(outcome) is outcome
    assert repeated.count == 1


@pytest.mark.parametrize("truth", [FAILS, PASSES])
@pytest.mark.parametrize(("rate", "most"), [(0.05, 4), (0.2, 9), (0.4, 100)])
def test_the_confidence_holds(truth: Verdict, rate: float, most: float) -> None:
    chance, runs, repeats, wrong = random.Random(7), 3000, 0, 0
    for _ in range(runs):
        repeated = Repeated(rate, 0.999)
        wrong += decided(repeated, truth, rate, chance) is not truth
        repeats += repeated.count
    assert wrong <= 9
    assert repeats / runs <= most


def test_says_how_many_can_run_at_once() -> None:
    repeated = Repeated(0.2, 0.999)
    assert repeated.missing == 5
    assert [repeated.tell(FAILS) for _ in range(4)] == [None] * 4
    assert repeated.missing == 1
    assert repeated.tell(PASSES) is None
    assert repeated.missing == 2
    assert repeated.tell(FAILS) is None
    assert repeated.tell(FAILS) is FAILS


def test_a_check_said_to_be_steady_that_disagrees_is_repeated() -> None:
    repeated = Repeated(0, 0.99)
    assert repeated.tell(PASSES) is PASSES
    assert repeated.tell(FAILS) is None
    assert repeated.missing > 1


def test_what_cannot_be_built_once_in_a_while_is_not_untestable() -> None:
    repeated = Repeated(0.2, 0.9)
    assert repeated.tell(FAILS) is None
    assert repeated.tell(UNTESTABLE) is None
    assert repeated.tell(FAILS) is FAILS


@pytest.mark.parametrize(("flaky", "confidence"), [(0.5, 0.99), (-0.1, 0.99), (0.2, 1), (0.2, 0.3)])
def test_what_no_number_of_repeats_can_give(flaky: float, confidence: float) -> None:
    with pytest.raises(TeamError, match="must be from"):
        Repeated(flaky, confidence)


def test_a_whole_search_with_a_check_that_is_wrong_one_time_in_five() -> None:
    culprits = [frozenset({12}), frozenset({70}), frozenset({30, 80})]
    right = 0
    for seed in range(40):
        chance = random.Random(seed)
        search = Search(100, width=2)

        def verdict(units: Units, chance: random.Random = chance) -> Verdict:
            truth = FAILS if any(one <= units for one in culprits) else PASSES
            return decided(Repeated(0.2, 1 - 0.01 / 60), truth, 0.2, chance)

        while asked := search.ask():
            for units in asked:
                search.tell(units, verdict(units))
        right += set(search.found) == set(culprits)
    assert right >= 39
