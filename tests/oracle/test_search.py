"""The search: finds every minimal failing set that it can, proves each, and never asks twice."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from team.oracle.search import Search, Units, Verdict

FAILS, PASSES, UNTESTABLE = Verdict.FAILS, Verdict.PASSES, Verdict.UNTESTABLE
Check = Callable[[Units], Verdict]

quick = settings(max_examples=60, deadline=None)


def failing(sets: Iterable[Iterable[int]]) -> Check:
    """A check that fails as soon as one of these sets is whole."""
    wholes = [frozenset(one) for one in sets]
    return lambda units: FAILS if any(whole <= units for whole in wholes) else PASSES


def run(search: Search, check: Check, late: random.Random | None = None) -> dict[Units, Verdict]:
    """Answers until the search is done; with ``late`` one at a time, in any order."""
    told: dict[Units, Verdict] = {}
    open_: list[Units] = []
    while True:
        asked = search.ask()
        assert not set(asked) & (told.keys() | set(open_)), "asked twice"
        open_ += asked
        if not open_:
            assert search.done
            return told
        for _ in range(1 if late else len(open_)):
            units = open_.pop(late.randrange(len(open_)) if late else 0)
            told[units] = check(units)
            search.tell(units, told[units])


def assert_minimal(found: Iterable[Units], check: Check, told: dict[Units, Verdict]) -> None:
    for units in found:
        assert told[units] is FAILS
        for unit in units:
            assert told[units - {unit}] is check(units - {unit}) is not FAILS


@st.composite
def cases(draw: st.DrawFn, groups: int = 4) -> tuple[int, list[Units]]:
    """A number of units and minimal failing sets among them, none within another."""
    n = draw(st.integers(1, 200))
    unit = st.integers(0, n - 1)
    drawn = draw(st.lists(st.frozensets(unit, min_size=1, max_size=groups), max_size=5))
    return n, [one for one in set(drawn) if not any(other < one for other in drawn)]


@quick
@given(cases(), st.integers(1, 6), st.randoms(use_true_random=False), st.booleans())
def test_finds_minimal_sets_until_the_rest_passes(
    case: tuple[int, list[Units]], width: int, chance: random.Random, one_by_one: bool
) -> None:
    n, sets = case
    order = chance.sample(range(n), n)
    search, check = Search(n, width=width, order=order), failing(sets)
    told = run(search, check, chance if one_by_one else None)
    assert len(set(search.found)) == len(search.found)
    assert set(search.found) <= set(sets)
    assert_minimal(search.found, check, told)
    assert {one for one in sets if len(one) == 1} <= set(search.found)
    assert all(any(one & found for found in search.found) for one in sets), "the rest does not pass"
    assert not search.suspects
    assert search.left == 0


@quick
@given(cases(), st.integers(1, 5), st.integers(0, 1000))
def test_resumes_from_what_is_known(case: tuple[int, list[Units]], width: int, cut: int) -> None:
    n, sets = case
    check = failing(sets)
    whole = Search(n, width=width)
    told = run(whole, check)
    known = dict(list(told.items())[: cut % (len(told) + 1)])
    resumed = Search(n, width=width)
    for units, verdict in known.items():
        resumed.tell(units, verdict)
    again = run(resumed, check)
    assert not again.keys() & known.keys()
    assert set(resumed.found) <= set(sets)
    assert_minimal(resumed.found, check, known | again)
    if len(known) == len(told):
        assert not again
        assert resumed.found == whole.found


@quick
@given(cases(), st.integers(1, 4), st.sets(st.integers(0, 199), max_size=4), st.booleans())
def test_units_that_cannot_be_built_hide_no_other(
    case: tuple[int, list[Units]], width: int, broken: set[int], more: bool
) -> None:
    n, drawn = case
    sets = [one for one in drawn if not one & broken]
    check = failing(sets)

    def builds(units: Units) -> Verdict:
        return UNTESTABLE if units & broken else check(units)

    search = Search(n, width=width)
    told = run(search, builds)
    assert_minimal(search.found, builds, told)
    assert set(search.found) <= set(sets)
    assert {one for one in sets if len(one) == 1} <= set(search.found)
    assert search.suspects == {unit for unit in broken if unit < n}


@quick
@given(st.integers(2, 200), st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_units_that_need_each_other(n: int, chance: random.Random, width: int, guilty: bool) -> None:
    first, second, *others = chance.sample(range(n), n)
    sets = [{other} for other in others[:2]] + ([{first, second}] if guilty else [])
    inner = failing(sets)

    def check(units: Units) -> Verdict:
        return UNTESTABLE if (first in units) != (second in units) else inner(units)

    search = Search(n, width=width)
    told = run(search, check)
    assert_minimal(search.found, check, told)
    assert {frozenset(one) for one in sets} == set(search.found)


@quick
@given(st.integers(1, 120), st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([0.1, 0.4, 0.9]))
def test_any_answers_end_and_what_is_found_is_minimal(n: int, seed: int, width: int, strange: float) -> None:
    """Neither monotone nor always testable: answers without any pattern."""

    def check(units: Units) -> Verdict:
        chance = random.Random(f"{seed} {sorted(units)}")
        usual = FAILS if len(units) == n else PASSES if not units else failing([{seed % n}])(units)
        return chance.choice(list(Verdict)) if units and chance.random() < strange else usual

    search = Search(n, width=width)
    told = run(search, check, random.Random(seed))
    assert_minimal(search.found, check, told)
    assert len(told) <= 40 * n + 40


@quick
@given(st.integers(3, 150), st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_superset_of_a_failing_set_may_pass(n: int, chance: random.Random, width: int) -> None:
    culprit, healer, helper = chance.sample(range(n), 3)

    def check(units: Units) -> Verdict:
        return FAILS if culprit in units and (healer not in units or helper in units) else PASSES

    search = Search(n, width=width)
    told = run(search, check)
    assert_minimal(search.found, check, told)
    assert frozenset([culprit]) in search.found


def test_all_pass() -> None:
    search = Search(50)
    assert len(run(search, failing([]))) == 2
    assert (search.found, search.suspects) == ([], frozenset())


def test_the_reference_fails_too() -> None:
    search = Search(50)
    assert len(run(search, lambda _: FAILS)) == 2
    assert search.found == [frozenset()]


def test_the_reference_cannot_be_tested() -> None:
    search = Search(5)
    run(search, lambda _: UNTESTABLE)
    assert (search.found, search.suspects) == ([], frozenset(range(5)))


@pytest.mark.parametrize("verdict", [PASSES, FAILS])
def test_no_units(verdict: Verdict) -> None:
    search = Search(0, width=3)
    assert list(run(search, lambda _: verdict)) == [frozenset()]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3]])
def test_an_order_names_each_unit_once(order: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="order, each of"):
        Search(3, order=order)


def test_twenty_thousand_units() -> None:
    sets = [{7}, {9_000}, {19_999}, {13, 14_000}]
    search = Search(20_000, width=4)
    told = run(search, failing(sets))
    assert set(search.found) == set(map(frozenset, sets))
    assert len(told) < 160


def test_stops_at_the_number_asked_for() -> None:
    search = Search(200, most=1)
    told = run(search, failing([{20}, {150}]))
    assert search.found == [frozenset({20})]
    assert 150 in search.suspects
    assert len(told) <= math.log2(200) + 5


def test_another_order_finds_another_culprit_first() -> None:
    sets = [{unit} for unit in range(0, 160, 10)]
    firsts = set()
    for seat in range(16):
        search = Search(160, order=random.Random(seat).sample(range(160), 160), most=1)
        run(search, failing(sets))
        firsts.update(search.found)
    assert len(firsts) > 8


def test_what_is_left_shrinks_and_suspects_too() -> None:
    search, check = Search(1000), failing([{400}, {700}])
    left, suspects = [search.left], [len(search.suspects)]
    while asked := search.ask():
        for units in asked:
            search.tell(units, check(units))
        left.append(search.left)
        suspects.append(len(search.suspects))
    assert suspects[0] == 1000
    assert suspects[-1] == left[-1] == 0
    assert left[len(left) // 2] < max(left[:4])


def test_no_more_at_once_than_there_are_workers() -> None:
    search = Search(100, width=3)
    first = search.ask()
    assert len(first) == 3
    assert search.ask() == []
    search.tell(first[0], FAILS)
    assert len(search.ask()) == 1


def test_what_is_implied_is_not_asked() -> None:
    """Verdicts of another agent, whose order was another, spare most checks."""
    sets = [{3}, {77}]
    other = Search(100, order=random.Random(1).sample(range(100), 100))
    told = run(other, failing(sets))
    mine = Search(100, order=random.Random(2).sample(range(100), 100))
    for units, verdict in told.items():
        mine.tell(units, verdict)
    assert not run(mine, failing(sets))
    assert set(mine.found) == set(map(frozenset, sets))


def test_all_groups_of_some_units() -> None:
    """Every pair of three units fails: one pair is found, and no unit of another pair is left with both."""
    sets = list(combinations([10, 20, 30], 2))
    search = Search(40)
    run(search, failing(sets))
    assert {frozenset(one) for one in sets} >= set(search.found) != set()
    assert len(search.found) == 2
