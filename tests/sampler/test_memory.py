"""Places that stay, and what is known against the landed state."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from team.sampler import memory, sample
from team.sampler.cases import Outcome, Result
from team.sampler.memory import File, Run

PASSED, FAILED = Outcome.PASSED, Outcome.FAILED
names = st.text(st.characters(), min_size=1, max_size=20)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[File]:
    with closing(File(tmp_path / "tests.db")) as file:
        yield file


def ran(
    outcomes: dict[str, Outcome],
    *,
    agent: str = "agent-01",
    content: str = "",
    base: str = "b" * 40,
    base_content: str = "landed",
    seconds: float = 0.1,
) -> Run:
    results = [Result(name, outcome, seconds, "why" if outcome.bad else "") for name, outcome in outcomes.items()]
    return Run(agent, "", "c" * 40, content, base, base_content, "all", len(results), 1.0, results)


def samples(kept: File, cases: Sequence[str], share: Fraction, seats: int, first: int = 1) -> list[set[str]]:
    positions = kept.look("", cases, "agent-01").positions
    arcs = [sample.arc(first + n, share) for n in range(seats)]
    return [{case for case, place in zip(cases, positions, strict=True) if place in arc} for arc in arcs]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(names, min_size=1, max_size=200, unique=True),
    st.fractions(Fraction(1, 60), 1, max_denominator=200),
    st.integers(0, 100),
    st.booleans(),
)
def test_the_union_of_consecutive_seats_is_every_case(
    tmp_path_factory: pytest.TempPathFactory, cases: list[str], share: Fraction, first: int, timed: bool
) -> None:
    with closing(File(tmp_path_factory.mktemp("m") / "tests.db")) as kept:
        if timed:
            kept.record(ran(dict.fromkeys(cases[::2], PASSED)))
        assert set().union(*samples(kept, cases, share, math.ceil(1 / share), first)) == set(cases)


@settings(max_examples=30, deadline=None)
@given(st.lists(names, min_size=2, max_size=100, unique=True), st.data())
def test_other_cases_and_other_durations_move_nobody(
    tmp_path_factory: pytest.TempPathFactory, cases: list[str], data: st.DataObject
) -> None:
    half = len(cases) // 2
    with closing(File(tmp_path_factory.mktemp("m") / "tests.db")) as kept:
        before = dict(zip(cases[:half], kept.look("", cases[:half], "a").positions, strict=True))
        kept.record(ran(dict.fromkeys(cases, PASSED), seconds=data.draw(st.floats(0, 100))))
        left = [case for case in cases if data.draw(st.booleans())]
        data.draw(st.randoms()).shuffle(left)
        after = dict(zip(left, kept.look("", left, "a").positions, strict=True))
    assert all(after[case] == place for case, place in before.items() if case in after)


def test_places_do_not_depend_on_the_order_of_the_listing(tmp_path: Path) -> None:
    cases = [f"test_{n}" for n in range(500)]
    shuffled = random.Random(7).sample(cases, len(cases))
    with closing(File(tmp_path / "a.db")) as one, closing(File(tmp_path / "b.db")) as other:
        first = dict(zip(cases, one.look("", cases, "a").positions, strict=True))
        assert first == dict(zip(shuffled, other.look("", shuffled, "b").positions, strict=True))


def test_samples_take_like_time(kept: File) -> None:
    """Durations over four orders of magnitude; the longest case is a fiftieth of a sample."""
    dice = random.Random(3)
    seconds = {f"test_{n}": min(dice.lognormvariate(-3, 2), 20.0) for n in range(5000)}
    results = [Result(name, PASSED, took) for name, took in seconds.items()]
    kept.record(Run("a", "", "c", "", "", "", "all", len(results), 1.0, results))
    times = [sum(seconds[name] for name in taken) for taken in samples(kept, list(seconds), Fraction(1, 10), 16)]
    assert max(times) < 1.1 * sum(times) / len(times)


def test_without_durations_samples_have_like_counts(kept: File) -> None:
    counts = [len(taken) for taken in samples(kept, [f"t{n}" for n in range(300)], Fraction(7, 100), 15)]
    assert max(counts) - min(counts) <= 4


def test_more_cases_than_are_kept_are_placed_by_name(kept: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_CASES", 10)
    cases = [f"t{n}" for n in range(30)]
    positions = kept.look("", cases, "a").positions
    assert positions == kept.look("", cases, "a").positions
    assert sum(place == sample.stray(case) for case, place in zip(cases, positions, strict=True)) == 20
    compared = kept.record(ran(dict.fromkeys(cases, FAILED)))
    assert compared.unknown == 10


@pytest.mark.parametrize("name", ["a\nb", "x" * 5000, "\udce4", "\ud800", "tab\t", "π [a::b]", "%s' --"])
def test_any_name_is_a_name(kept: File, name: str) -> None:
    kept.record(ran({name: FAILED, name + "2": PASSED}))
    assert kept.look("", [name, name + "2"], "agent-01").failing == [name]
    assert [seen.outcome for seen in kept.history("", name)] == ["failed"]


def test_failures_against_the_landed_state(kept: File) -> None:
    kept.record(ran({"broke": PASSED, "was": FAILED, "mended": FAILED}, content="landed"))
    kept.record(ran({"older": PASSED}, content="landed before", base_content="landed before"))
    bad = {"broke": FAILED, "was": Outcome.TIMED_OUT, "mended": PASSED, "older": FAILED, "never": Outcome.CRASHED}
    compared = kept.record(ran(bad))
    assert (compared.new, compared.known, compared.unknown, compared.fixed) == (1, 1, 2, 1)
    assert compared.kinds == {"broke": "new", "was": "known", "older": "passed before", "never": "unknown"}
    assert compared.fixed_names == ["mended"]


def test_what_fails_on_the_landed_state_itself_is_known(kept: File) -> None:
    assert kept.record(ran({"was": FAILED}, content="landed")).known == 1


def test_what_others_have_not_landed_is_no_landed_state(kept: File) -> None:
    kept.record(ran({"x": FAILED}, content="mine", agent="agent-02"))
    assert kept.record(ran({"x": FAILED}, base_content="mine")).unknown == 1


def test_both_outcomes_on_one_tree_are_flaky(kept: File) -> None:
    kept.record(ran({"flips": PASSED, "stays": FAILED}, content="landed"))
    kept.record(ran({"flips": FAILED, "stays": FAILED}, content="landed", agent="agent-02"))
    kept.record(ran({"stays": PASSED}))  # with changes on top: another tree each time
    assert kept.flaky("") == ["flips"]
    assert kept.record(ran({"flips": FAILED})).kinds == {"flips": "flaky"}


def test_each_agent_has_its_own_failures(kept: File) -> None:
    cases = ["a", "b"]
    kept.record(ran({"a": FAILED, "b": PASSED}))
    kept.record(ran({"a": PASSED, "b": FAILED}, agent="agent-02"))
    assert [kept.look("", cases, agent).failing for agent in ("agent-01", "agent-02")] == [["a"], ["b"]]
    kept.record(ran({"a": PASSED}))
    assert kept.look("", cases, "agent-01").failing == []


def test_coverage_knows_what_nobody_has_run(kept: File) -> None:
    kept.look("", ["old", "run", "never"], "agent-01")
    kept.record(ran({"run": FAILED, "old": PASSED}, content="landed"))
    kept.look("", ["run", "never"], "agent-01")
    kept.record(ran({"never": PASSED}))  # not on a landed state
    assert [(case.name, case.at is None) for case in kept.coverage()] == [("never", True), ("run", False)]


def test_the_oldest_is_forgotten_in_the_end(kept: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_STATES", 30)
    for n in range(100):
        kept.record(ran({"x": PASSED}, content=f"tree {n}"))
    assert 0 < len(kept.history("", "x")) < 95


def test_a_file_that_breaks_while_it_is_open_is_set_aside(tmp_path: Path) -> None:
    notes: list[str] = []
    with closing(File(tmp_path / "tests.db", notes=notes)) as kept:
        kept.record(ran(dict.fromkeys([f"t{n}" for n in range(500)], FAILED)))
        kept._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        kept._db.execute("PRAGMA cache_size=0")
        size = (tmp_path / "tests.db").stat().st_size
        (tmp_path / "tests.db").write_bytes(b"SQLite format 3\0" + b"\xff" * (size - 16))
        assert kept.record(ran({"x": FAILED})).unknown == 1
        assert kept.look("", ["x", "t1"], "agent-01").failing == ["x"]
    assert len(notes) == 1 and str(tmp_path / "tests.broken") in notes[0]


def test_inventions_make_room_for_real_cases(kept: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_CASES", 100)
    cases = [f"t{n}" for n in range(20)]
    before = kept.look("", cases, "agent-01").positions
    kept.record(ran(dict.fromkeys(cases, PASSED), content="landed"))
    kept.look("", [f"junk{n}" for n in range(500)], "agent-66")
    kept.record(ran({f"more{n}": FAILED for n in range(500)}, agent="agent-66"))
    for _ in range(2):  # the first finds no room, and makes it
        kept.look("", [*cases, "new"], "agent-01")
        kept.record(ran({"new": FAILED}))
    assert kept.look("", cases, "agent-01").positions == before
    assert [seen.outcome for seen in kept.history("", "new")] == ["failed"]


def test_a_name_that_looks_like_a_shortened_one_is_another(kept: File) -> None:
    cases = ["\ud800", memory._key("\ud800")]
    kept.record(ran(dict.fromkeys(cases, FAILED)))
    assert kept.look("", cases, "agent-01").failing == cases


def test_reasons_of_any_characters_are_kept(kept: File) -> None:
    kept.record(Run("a", "", "c", "", "", "", "all", 1, 1.0, [Result("x", FAILED, 0.1, "no \udcff\x1b[31m\0file")]))
    assert kept.history("", "x")[0].reason == "no file"


def test_what_no_landed_state_has_is_new(kept: File) -> None:
    kept.look("", ["old", "never run"], "agent-01")
    kept.look("", ["old", "never run", "mine"], "agent-01", landed=False)
    compared = kept.record(ran({"mine": FAILED, "never run": FAILED}))
    assert compared.kinds == {"mine": "new", "never run": "unknown"}
    assert [case.name for case in kept.coverage()] == ["never run", "old"], "the landed state has no such case"


def test_a_tree_that_lands_later_counts_as_landed_from_then_on(kept: File) -> None:
    kept.record(ran({"x": PASSED, "skips": Outcome.SKIPPED}, content="mine", base=""))
    assert kept.record(ran({"x": FAILED}, base_content="mine")).kinds == {"x": "unknown"}
    kept.landed("mine", "e" * 40)
    assert kept.record(ran({"x": FAILED}, base_content="mine")).kinds == {"x": "new"}
    assert [seen.commit for seen in kept.history("", "x") if seen.landed] == ["e" * 40]


def test_a_time_out_makes_no_case_flaky(kept: File) -> None:
    kept.record(ran({"slow": PASSED}, content="landed"))
    kept.record(ran({"slow": Outcome.TIMED_OUT}, content="landed"))
    assert kept.flaky("") == []
