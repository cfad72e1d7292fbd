"""`junit`: any command that writes JUnit XML."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from team.sampler.cases import CannotRun, Case, Options, Outcome, Result
from team.sampler.settings import SuiteSettings
from team.sampler.suites import junit_names, junit_xml
from team.sampler.suites.junit import JUnit
from team.sampler.suites.junit_names import Listed
from team.sampler.suites.junit_xml import BadXml, TestCase

FILES = Path(__file__).with_name("junit_files")
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider --junitxml=out/results.xml"


def run(
    root: Path, names: Sequence[str] | None = None, options: Options | None = None, **fields: Any
) -> dict[str, Result]:
    """What was told, by name; ``names`` are chosen, or all."""
    settings = SuiteSettings(**{"kind": "junit", "results": "out/*.xml", **fields})
    told: list[Result] = []

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        return [case for case in cases if case.name in names] if names is not None else cases

    (root / "out").mkdir(exist_ok=True)
    JUnit(root, settings).run(choose, options or Options(), told.append)
    assert len({result.name for result in told}) == len(told)
    return {result.name: result for result in told}


def project(root: Path) -> Path:
    """Tests for pytest, some of them bad when EVIL is set."""
    (root / "tests").mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "tests" / "test_it.py").write_text(
        """
import os, pytest, time
evil = os.environ.get("EVIL", "")
class TestThings:
    @pytest.mark.parametrize("what", ["a b", "x::y", "br[a]ck", "it's"])
    def test_names(self, what): pass
    def test_fails(self): assert 1 + 1 == 3
def test_hangs(): time.sleep(1000 if "hang" in evil else 0)
def test_dies(): "die" in evil and os._exit(9)
def test_kills(): "kill" in evil and (os.kill(os.getppid(), 9), time.sleep(1000))
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
"""
    )
    (root / "tests" / "test_more.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_n(n): pass\n"
    )
    return root


LIST = f"{sys.executable} -m pytest -p no:cacheprovider --collect-only -q | grep ::"


# --- what other tools write


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (
            "surefire",
            {
                "com.example.MathTest::throwsNull": "NullPointerException: "
                'Cannot invoke "Object.toString()" because "o" is null',
                "com.example.MathTest::adds": "passed",
                "com.example.MathTest::fails": "AssertionFailedError: sums ==> expected: <5> but was: <4>",
                "com.example.MathTest::hangs": "passed",
                "com.example.MathTest::ignored": "skipped",
            },
        ),
        (
            "gtest",
            {
                "Math::Adds": "passed",
                "Math::Fails": "t.cc:5 Expected equality of these values: 5 2 + 2 Which is: 4",
                "Math::Skips": "skipped",
                "Math::DISABLED_Never": "skipped",
                "Bad::Aborts": "passed",
                "Bad::Hangs": "passed",
                "Last::Passes": "passed",
                "All/P::Odd/0": "passed",
                "All/P::Odd/1": "t.cc:12 Expected equality of these values: 1 GetParam() % 2 Which is: 0",
                "All/P::Odd/2": "passed",
            },
        ),
        (
            "jest",
            {
                "math adds::math adds": "passed",
                "math fails::math fails": "Error: expect(received).toBe(expected) // Object.is equality; "
                "Expected: 3; Received: 2",
                "math skips::math skips": "skipped",
                "math todo::math todo": "passed",
                "math throws::math throws": 'TypeError: no "x" & y',
            },
        ),
        (
            "node",
            {
                "test::adds": "passed",
                "test::fails": "Expected values to be strictly equal:1 !== 2",
                "test::skips": "skipped",
                "test::todo": "skipped",
                "test::adds #2": "passed",
                "test::throws": "bad <thing>",
            },
        ),
    ],
)
def test_results_of_other_tools(tmp_path: Path, tool: str, told: dict[str, str]) -> None:
    results = run(tmp_path, run=f"cp {FILES / tool}.xml out/; exit 1")
    assert {name: r.reason if r.outcome.bad else r.outcome.value for name, r in results.items()} == told


def test_what_a_failing_case_said_is_kept(tmp_path: Path) -> None:
    results = run(tmp_path, run=f"cp {FILES}/surefire.xml out/; exit 1")
    detail = results["com.example.MathTest::fails"].detail
    assert "AssertionFailureBuilder.java:151" in detail and "said <this>" in detail
    assert results["com.example.MathTest::throwsNull"].seconds == 0.034


def test_a_producer_that_cannot_choose_is_run_whole(tmp_path: Path) -> None:
    results = run(project(tmp_path), ["tests.test_it::test_hangs", "tests.test_it.TestThings::test_fails"], run=PYTEST)
    assert {name: (r.outcome.value, r.reason) for name, r in results.items()} == {
        "tests.test_it::test_hangs": ("passed", ""),
        "tests.test_it.TestThings::test_fails": ("failed", "assert (1 + 1) == 3"),
    }


def test_cases_know_their_file(tmp_path: Path) -> None:
    project(tmp_path)
    java = tmp_path / "src" / "test" / "java" / "com" / "example"
    java.mkdir(parents=True)
    (java / "MathTest.java").touch()
    run(tmp_path, run=f"cp {FILES}/surefire.xml out/; {PYTEST}")
    suite = JUnit(tmp_path, SuiteSettings(kind="junit", run="true", results="out/*.xml"))
    files = {case.name: case.file for case in suite.list(Options())}
    assert files["tests.test_it.TestThings::test_names[x::y]"] == "tests/test_it.py"
    assert files["com.example.MathTest::adds"] == "src/test/java/com/example/MathTest.java"
    listing = JUnit(tmp_path, SuiteSettings(kind="junit", run="true", results="out/*.xml", list=LIST)).list(Options())
    assert {case.file for case in listing} == {"tests/test_it.py", "tests/test_more.py"}


# --- choosing


def test_only_the_chosen_run_where_the_producer_can_choose(tmp_path: Path) -> None:
    project(tmp_path)
    chosen = [f"tests/test_it.py::TestThings::test_names[{what}]" for what in ("a b", "x::y", "br[a]ck", "it's")]
    results = run(tmp_path, [*chosen, "tests/test_it.py::test_skipped"], run=f"{PYTEST} {{cases}}", list=LIST)
    assert [results[name].outcome for name in chosen] == [Outcome.PASSED] * 4
    assert results["tests/test_it.py::test_skipped"].reason == "not today"
    assert {case.name for case in junit_xml.read(tmp_path / "out" / "results.xml")} == {
        *(f"test_names[{what}]" for what in ("a b", "x::y", "br[a]ck", "it's")),
        "test_skipped",
    }


def test_bad_cases_spoil_nothing_but_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVIL", "hang die kill")
    project(tmp_path)
    # The shell between the pool and pytest is what `test_kills` kills.
    results = run(tmp_path, options=Options(seconds=3), run=f"{PYTEST} {{cases}}; exit $?", list=LIST)
    bad = {name.rpartition("::")[2]: (r.outcome.value, r.reason) for name, r in results.items() if r.outcome.bad}
    assert len(results) == 17
    assert bad.pop("test_dies")[0] in ("failed", "crashed")
    assert bad == {
        "test_fails": ("failed", "assert (1 + 1) == 3"),
        "test_hangs": ("timed_out", "timed out after 3 s"),
        "test_kills": ("crashed", "SIGKILL"),
    }


def test_listed_names_may_be_files_or_classes(tmp_path: Path) -> None:
    project(tmp_path)
    results = run(tmp_path, run=f"{PYTEST} {{cases}}", list="ls tests/*.py")
    assert results["tests/test_more.py"].outcome is Outcome.PASSED
    failed = results["tests/test_it.py"]
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, "1 of 9 failed, test_fails: assert (1 + 1) == 3")


def test_what_does_not_load_is_not_overlooked(tmp_path: Path) -> None:
    """jest-junit tells nothing of a file that does not load; neither does this."""
    (tmp_path / "runner.py").write_text(
        "import sys\nnames = sys.argv[1:]\n"
        "print('<x>', *(f'<testcase name=\"{name}\"/>' for name in names if name != '3'), '</x>')\n"
        "sys.exit('3' in names and 'SyntaxError: in 3')\n"
    )
    results = run(tmp_path, run="python3 runner.py {cases} > out/x.xml", list="seq 5")
    assert {name: r.reason for name, r in results.items()} == {
        **dict.fromkeys("1245", ""),
        "3": "no result (exit code 1): SyntaxError: in 3",
    }


def test_a_case_that_was_listed_but_is_not_run_is_gone(tmp_path: Path) -> None:
    listing = f"{LIST}; echo tests/test_it.py::test_none"
    results = run(project(tmp_path), run=PYTEST, list=listing)
    assert results["tests/test_it.py::test_none"].outcome is Outcome.GONE
    assert len(results) == 18


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("run {cases}", "run 'a b' c"),
        ("run --filter={cases::}", "run --filter='a b:c'"),
        ("run -t {cases:|}", "run -t 'a b|c'"),
        ("run --tests {cases: --tests }", "run --tests 'a b' --tests c"),
        ("run -Dtest={cases:,}", "run -Dtest='a b,c'"),
    ],
)
def test_names_go_on_the_command_line_as_the_producer_wants_them(template: str, command: str) -> None:
    assert junit_names.command(template, ["a b", "c"]) == command


def test_a_command_line_is_never_too_long() -> None:
    names = [f"{'n' * 100}{n}" for n in range(5000)]
    batches = junit_names.batches(names)
    assert [name for batch in batches for name in batch] == names
    assert max(len(shlex.join(batch)) for batch in batches) < 128 << 10
    assert len(batches) <= 7


@pytest.mark.parametrize(
    ("listed", "classname", "name"),
    [
        ("Math.Adds", "Math", "Adds"),
        ("com.example.MathTest#adds", "com.example.MathTest", "adds"),
        ("com.example.MathTest#adds", "com.example.MathTest", "adds(int)[2]"),
        ("com.example.MathTest", "com.example.MathTest", "adds"),
        ("math adds", "math adds", "math adds"),
        ("tests/test_it.py::TestIt::test_a[x.y/z]", "tests.test_it.TestIt", "test_a[x.y/z]"),
        ("tests::it::works", "tests", "it::works"),
    ],
)
def test_listed_names_are_found_however_they_are_spelt(listed: str, classname: str, name: str) -> None:
    case = TestCase(classname, name, "", 0.0)
    assert Listed(Path("/project"), ["other", listed]).of(case) == listed


# --- bad results


def test_results_of_an_earlier_run_are_not_taken(tmp_path: Path) -> None:
    run(tmp_path, run=f"cp {FILES}/gtest.xml {FILES}/jest.xml out/; exit 1")
    results = run(tmp_path, run=f"cp {FILES}/jest.xml out/; exit 1")
    assert all(name.startswith("math") for name in results)
    with pytest.raises(CannotRun, match="there are only old ones"):
        run(tmp_path, run="true")


def test_a_producer_that_fails_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"no results \(exit code 2\): x.c:1: error: no") as caught:
        run(tmp_path, run="echo x.c:1: error: no; exit 2")
    assert "error: no" in caught.value.output
    with pytest.raises(CannotRun, match="it wrote no results"):
        run(tmp_path, run="true")
    passing = "<testsuite><testcase classname='a' name='b'/></testsuite>"
    with pytest.raises(CannotRun, match=r"failed, though no case did \(exit code 3\): too little covered"):
        run(tmp_path, run=f'echo "{passing}" > out/a.xml; echo too little covered; exit 3')
    with pytest.raises(CannotRun, match=r"died before its end \(SIGSEGV\)"):
        run(tmp_path, run=f'echo "{passing}" > out/b.xml; kill -SEGV $$')


def test_a_broken_build_is_noticed_soon(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"no results \(exit code 1\): error: it does not compile"):
        run(tmp_path, run="echo x >> runs; echo error: it does not compile; exit 1 # {cases}", list="seq 100")
    assert (tmp_path / "runs").read_text().count("x") <= 5


def read(tmp_path: Path, data: bytes) -> list[TestCase]:
    (tmp_path / "x.xml").write_bytes(data)
    return list(junit_xml.read(tmp_path / "x.xml"))


def test_bytes_that_are_no_xml_are_mended(tmp_path: Path) -> None:
    cases = read(
        tmp_path,
        b"<?xml version='1.0' encoding='UTF-8'?><testsuite name='s'><testcase name='a'/><testcase name='b'>"
        b"<failure message='\x1b[31m \xff &#27; &#x0;'/><system-out>\x00</system-out></testcase></testsuite>",
    )
    assert [(case.full, case.outcome) for case in cases] == [("s::a", Outcome.PASSED), ("s::b", Outcome.FAILED)]
    assert cases[1].reason == "\ufffd[31m \ufffd \ufffd \ufffd"
    (case,) = read(tmp_path, b"<?xml version='1.0' encoding='klingon'?><testsuite><testcase name='a'/></testsuite>")
    assert case.full == "a"


def test_a_file_that_breaks_off_gives_what_is_whole(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text("<testsuite><testcase name='a'/><testcase name='b'><fail")
    found = []
    with pytest.raises(BadXml, match="line 1"):
        for case in junit_xml.read(tmp_path / "x.xml"):
            found.append(case.name)
    assert found == ["a"]
    with pytest.raises(CannotRun, match=r"out/x.xml is broken: .*line 1"):
        run(tmp_path, run="printf '<testsuite><test' > out/x.xml")


@pytest.mark.parametrize(
    "declared",
    [
        b"<!ENTITY a 'x'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>",
        b"<!ENTITY a SYSTEM 'file:///etc/passwd'>",
        b"<!ENTITY % a SYSTEM 'file:///etc/passwd'> %a;",
    ],
)
def test_entities_are_never_unfolded(tmp_path: Path, declared: bytes) -> None:
    with pytest.raises(BadXml, match="it declares entities"):
        read(tmp_path, b"<!DOCTYPE x [" + declared + b"]><testsuite><testcase name='&b;'/></testsuite>")


def test_huge_results_stay_small(tmp_path: Path) -> None:
    cases = read(
        tmp_path,
        b"<testsuite>" + b"<x>" * 100_000 + b"</x>" * 100_000 + b"<testcase name='a'><failure>because\n"
        b"" + b"spam " * (8 << 20) + b"</failure></testcase><testcase name='b' time='1,234.5'/></testsuite>",
    )
    assert [(case.name, case.reason, case.seconds) for case in cases] == [("a", "because", 0.0), ("b", "", 1234.5)]
    assert sum(map(len, cases[0].texts)) <= junit_xml.MOST_TEXT + 1
    with pytest.raises(BadXml, match="more than 16 MiB"):
        read(tmp_path, b"<testsuite><testcase name='" + b"a" * (80 << 20) + b"'/></testsuite>")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"run": ""}, "run is empty"),
        ({"run": "true", "results": ""}, "results is empty"),
        ({"run": "true {cases}"}, "list is empty: name the command"),
        ({"run": "true", "results": "/etc/*"}, "is no glob in the project"),
        (
            {"run": "true", "list": "echo no such target >&2; exit 2"},
            r"list command failed \(exit code 2\): no such target",
        ),
        ({"run": "true", "list": "true"}, "the list command printed no names"),
    ],
)
def test_what_cannot_run_says_why(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CannotRun, match=message):
        run(tmp_path, **fields)


def test_without_list_and_results_there_is_nothing_to_list(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="run the tests once"):
        JUnit(tmp_path, SuiteSettings(kind="junit", run="true", results="*.xml")).list(Options())
    assert not list(tmp_path.iterdir())
