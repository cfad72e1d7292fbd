"""What an agent reads: short, true, whatever the names and however many fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from team.sampler.cases import CannotRun, Outcome, Result
from team.sampler.memory import Compared
from team.sampler.report import SuiteRun, exit_code, lines

LOG = Path("agent_logs/tests/20260101-000000.log")
LANDED = "abcdef0123" * 4


def suite_run(*results: Result, kinds: dict[str, str] | None = None, **compared: Any) -> SuiteRun:
    run = SuiteRun("", total=len(results), chosen=len(results), why="all", seconds=1.0, results=list(results))
    run.compared = Compared(kinds=kinds or {}, **compared)
    return run


def failed(name: str, reason: str = "AssertionError: assert 1 == 2") -> Result:
    return Result(name, Outcome.FAILED, 0.1, reason)


PASSED = Result("ok", Outcome.PASSED, 0.1)


def test_all_passed_is_two_lines() -> None:
    text = lines([suite_run(PASSED)], LANDED, LOG, [])
    assert text[0] == "1 of 1 tests in 1.0 s (all): 1 passed, 0 failed"
    assert len(text) == 2 and str(LOG) in text[1]


def test_what_is_new_comes_first() -> None:
    run = suite_run(
        failed("a"), failed("b"), failed("c"), PASSED, kinds={"a": "known", "b": "unknown", "c": "new"},
        new=1, known=1, unknown=1,
    )  # fmt: skip
    text = lines([run], LANDED, LOG, [])
    assert text[1] == "against landed abcdef0123: 1 new; 1 fail there too; 1 unknown (nobody has run them there)"
    assert [line.split(":")[0] for line in text if line.startswith("ERROR")] == ["ERROR c", "ERROR b", "ERROR a"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.text(st.characters(), min_size=1, max_size=400), st.text(max_size=600)), max_size=40),
    st.integers(1, 200),
    st.lists(st.text(max_size=300), max_size=5),
)
def test_never_more_than_a_dozen_lines_nor_2_kb(cases: list[tuple[str, str]], times: int, notes: list[str]) -> None:
    results = [failed(f"{name}{n}", reason) for n in range(times) for name, reason in cases]
    text = lines([suite_run(*results, unknown=len(results))], LANDED, LOG, notes)
    whole = "".join(f"{line}\n" for line in text)
    assert len(text) <= 12 and all("\n" not in line for line in text)
    assert len(whole.encode("utf-8")) < 2000
    assert text[-1].startswith("log: ")


def test_many_suites_still_fit() -> None:
    runs = [suite_run(*(failed(f"case {n}") for n in range(9)), unknown=9) for _ in range(20)]
    text = lines(runs, LANDED, LOG, [])
    assert len(text) <= 12
    words = "\n".join("漢" * 300 for _ in range(9))
    text = lines([SuiteRun(f"s{n}", broken=CannotRun(words, words)) for n in range(20)], LANDED, LOG, [words])
    assert len(text) <= 12 and sum(len(line.encode()) + 1 for line in text) < 2000


def test_of_many_suites_the_bad_ones_are_told_first() -> None:
    runs = [suite_run(PASSED) for _ in range(20)]
    runs[17], runs[19] = suite_run(failed("a"), unknown=1), SuiteRun("", broken=CannotRun("no compiler"))
    for n, run in enumerate(runs):
        run.suite = f"s{n}"
    text = lines(runs, LANDED, LOG, [])
    assert text[0] == "s19: cannot run: no compiler" and text[1].startswith("s17: 1 of 1 tests")
    assert "and 15 more suites: 15 tests, 0 failed" in text and any(line.startswith("ERROR s17: a") for line in text)


def test_what_cannot_run_says_why_with_the_runner_s_words() -> None:
    run = SuiteRun("unit", broken=CannotRun("the build failed: `make`", "one\ntwo\nthree\nmake: *** [all] Error 2\n"))
    text = lines([run], LANDED, LOG, [])
    assert text[0] == "cannot run: the build failed: `make`"
    assert "Error 2" in text[3]


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (suite_run(PASSED), 0),
        (suite_run(failed("a"), unknown=1), 1),
        (suite_run(failed("a"), failed("b"), new=1, known=1), 1),
        (suite_run(failed("a"), known=1), 3),
        (SuiteRun("", broken=CannotRun("no")), 2),
        (SuiteRun("", results=[PASSED], early=True), 1),
        (suite_run(Result("a", Outcome.GONE, 0.0)), 2),
        (suite_run(Result("a", Outcome.GONE, 0.0), PASSED), 0),
    ],
)
def test_exit_codes(run: SuiteRun, code: int) -> None:
    assert exit_code([run]) == code
