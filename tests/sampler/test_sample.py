"""The arcs: exact union at any rate, the same every time, balanced."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.sampler import sample

rates = st.fractions(min_value=Fraction(1, 500), max_value=1, max_denominator=1000)


@given(rates, st.integers(0, 10_000), st.lists(st.integers(0, sample.ROUND - 1), max_size=50))
def test_any_run_of_seats_covers_the_whole_circle(share: Fraction, first: int, places: list[int]) -> None:
    arcs = [sample.arc(first + n, share) for n in range(math.ceil(1 / share))]
    edges = [edge for arc in arcs for edge in (arc.start, (arc.start - 1) % sample.ROUND)]
    assert all(any(place in arc for arc in arcs) for place in [*places, *edges])


@given(rates, st.integers(0, 10_000))
def test_one_seat_fewer_does_not_cover_it(share: Fraction, first: int) -> None:
    seats = math.ceil(1 / share) - 1
    covered = sum(sample.arc(first + n, share).length for n in range(seats))
    assert covered < sample.ROUND or seats == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10%", Fraction(1, 10)),
        ("7%", Fraction(7, 100)),
        ("0.5 %", Fraction(1, 200)),
        (".25", Fraction(1, 4)),
        ("100%", 1),
    ],
)
def test_rates_are_exact(text: str, value: Fraction) -> None:
    assert sample.rate(text) == value


@pytest.mark.parametrize("text", ["0", "0%", "1", "101%", "2", "-1%", "ten", "", "1e-3", "nan", "٣%x"])
def test_what_is_no_rate_is_refused_with_the_mend(text: str) -> None:
    with pytest.raises(ValueError, match="write "):
        sample.rate(text)


@given(st.integers(1, 3000), rates, st.integers(0, 100))
def test_cases_of_like_duration_are_spread_evenly(count: int, share: Fraction, seat: int) -> None:
    """To within a few in each tenth that the arc begins or ends in."""
    spread = sample.Spread([0] * 10, [0.0] * 10)
    arc = sample.arc(seat, share)
    there = sum(spread.place(1.0) in arc for _ in range(count))
    assert abs(there - count * share) <= 10 + 2 * math.log2(count + 1)


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=300), st.integers(0, 100))
def test_at_the_default_rate_samples_differ_by_one_case_at_most(seconds: list[float], first: int) -> None:
    spread = sample.Spread([0] * 10, [0.0] * 10)
    places = [(spread.place(took), took) for took in sorted(seconds, reverse=True)]
    arcs = [sample.arc(first + n, sample.rate("10%")) for n in range(10)]
    times = [sum(took for place, took in places if place in arc) for arc in arcs]
    assert max(times) - min(times) <= max(seconds) + 1e-6


def test_seats_are_numbered_by_their_names() -> None:
    assert [sample.seat(name) for name in ("agent-01", "agent-16", "docs-2")] == [1, 16, 2]
    assert sample.seat("ada") == sample.seat("ada") != sample.seat("grace")
