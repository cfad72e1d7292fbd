"""``ctest`` as a suite, with the real cmake."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from team.sampler.cases import CannotRun, Case, Options, Outcome, Result
from team.sampler.settings import SuiteSettings
from team.sampler.suites import suite
from tests.sampler.toolchains import need, outcomes, running, source, write

TESTS = """\
cmake_minimum_required(VERSION 3.19)
project(sums NONE)
enable_testing()
function(test name command)
    add_test(NAME "${name}" COMMAND sh -c "${command}")
    if(ARGN)
        set_tests_properties("${name}" PROPERTIES ${ARGN})
    endif()
endfunction()
test(good "echo fine")
test(bad "echo some words; echo 'sum.c:3: assertion failed: 3 == 4' >&2; echo bye; exit 3")
test("with space [a] (b) \\\\c" "true")
test("semi,colon" "true")
add_test(NAME "semi;colon" COMMAND true)
add_test(NAME "new\\nline" COMMAND false)
test(lies "echo ' 1/9 Test #1: bad ....   Passed    0.00 sec'; printf '\\\\377\\\\000half a line'")
test(segv "echo before; kill -SEGV $$")
test(hangs "[ -z \\"$DO\\" ] || sleep 987654")
test(hangs_longer "[ -z \\"$DO\\" ] || sleep 987654" TIMEOUT 900)
test(own_timeout "[ -z \\"$DO\\" ] || sleep 987654" TIMEOUT 1)
test(kills_parent "[ -z \\"$DO\\" ] || kill -9 $PPID")
test(forks "[ -z \\"$DO\\" ] || (setsid sleep 987654 >/dev/null 2>&1 &)")
test(shouts "[ -z \\"$DO\\" ] || yes much ado about nothing | head -c 5000000; exit 1")
test(disabled "false" DISABLED TRUE)
test(skips "echo no network; exit 77" SKIP_RETURN_CODE 77)
test(fails_as_it_should "false" WILL_FAIL TRUE)
test(set_up "echo ready > data" FIXTURES_SETUP data)
test(clean_up "rm data" FIXTURES_CLEANUP data)
test(uses "cat data" FIXTURES_REQUIRED data)
test(broken_set_up "exit 1" FIXTURES_SETUP broken)
test(uses_broken "true" FIXTURES_REQUIRED broken)
test(must_print "echo apples" PASS_REGULAR_EXPRESSION pears)
test(locks_1 "mkdir lock && sleep 0.1 && rmdir lock" RESOURCE_LOCK it)
test(locks_2 "mkdir lock && sleep 0.1 && rmdir lock" RESOURCE_LOCK it)
add_test(NAME missing COMMAND /nowhere/program)
add_subdirectory(inner)
"""
FILES = {"CMakeLists.txt": TESTS, "inner/CMakeLists.txt": "add_test(NAME good COMMAND pwd)\n"}
OPTIONS = Options(jobs=2, seconds=20)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cmake")
    root = write(tmp_path_factory.mktemp("ctest") / "pro ject", FILES)
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=root, check=True, capture_output=True)
    return root


def test_every_test_is_listed(project: Path) -> None:
    cases = suite(project, SuiteSettings(kind="ctest")).list(OPTIONS)
    assert len(cases) == len({case.name for case in cases}) == 27
    names = {"good", "inner/good", "with space [a] (b) \\c", "semi;colon", "new\nline"}
    assert names <= {case.name for case in cases}
    assert {case.file for case in cases} == {"CMakeLists.txt", "inner/CMakeLists.txt"}


def test_each_case_has_its_outcome_and_reason(project: Path) -> None:
    results = outcomes(suite(project, SuiteSettings(kind="ctest")), OPTIONS)
    assert {name: result.reason for name, result in results.items() if result.outcome.bad} == {
        "bad": "sum.c:3: assertion failed: 3 == 4",
        "new\nline": "Failed",
        "segv": "SegFault",
        "shouts": "Failed",
        "broken_set_up": "Failed",
        "uses_broken": "Failed test dependencies: broken_set_up",
        "must_print": "Required regular expression not found. Regex=[pears ]",
        "missing": "Unable to find executable: /nowhere/program",
    }
    assert results["segv"].outcome is Outcome.CRASHED and results["segv"].detail == "before\n"
    assert results["bad"].detail == "some words\nsum.c:3: assertion failed: 3 == 4\nbye\n"
    assert {name: result.reason for name, result in results.items() if result.outcome is Outcome.SKIPPED} == {
        "disabled": "Not Run (Disabled)",
        "skips": "no network",
    }
    assert results["inner/good"].detail.endswith("/build/inner\n")


def test_what_hangs_or_kills_is_told_and_the_rest_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO", "it")
    results = outcomes(suite(project, SuiteSettings(kind="ctest")), Options(jobs=2, seconds=2))
    by_outcome = {outcome: {name for name in results if results[name].outcome is outcome} for outcome in Outcome}
    assert by_outcome[Outcome.TIMED_OUT] == {"hangs", "hangs_longer", "own_timeout"}
    assert by_outcome[Outcome.CRASHED] == {"segv", "kills_parent"}
    assert {"good", "inner/good", "uses", "locks_1", "locks_2", "forks"} <= by_outcome[Outcome.PASSED]
    assert "SIGKILL" in results["kills_parent"].reason
    assert 30_000 < len(results["shouts"].detail) < 100_000
    assert not running("987654")


def test_only_what_was_chosen_has_a_result(project: Path) -> None:
    chosen = {"uses", "uses_broken", "semi;colon"}  # ctest adds three that set up and clean
    results = outcomes(suite(project, SuiteSettings(kind="ctest")), OPTIONS, lambda case: case.name in chosen)
    assert results["uses"].detail == "ready\n"
    assert not outcomes(suite(project, SuiteSettings(kind="ctest")), OPTIONS, lambda case: False)


def test_a_test_that_went_away_meanwhile_is_gone(tmp_path: Path) -> None:
    need("cmake")
    head = "cmake_minimum_required(VERSION 3.19)\nproject(x NONE)\nenable_testing()\n"
    write(tmp_path, {"CMakeLists.txt": head + "add_test(NAME a COMMAND true)\nadd_test(NAME b COMMAND true)\n"})
    configure = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    subprocess.run(configure, check=True, capture_output=True)
    results: list[Result] = []

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        write(tmp_path, {"CMakeLists.txt": head + "add_test(NAME b COMMAND true)\n"})
        subprocess.run(configure, check=True, capture_output=True)
        return cases

    suite(tmp_path, SuiteSettings(kind="ctest")).run(choose, OPTIONS, results.append)
    assert {result.name: result.outcome for result in results} == {"a": Outcome.GONE, "b": Outcome.GONE}


def test_the_build_comes_first_and_its_lack_is_told(tmp_path: Path) -> None:
    need("cmake")
    write(tmp_path, FILES)
    with pytest.raises(CannotRun, match=r"no build directory .* set \[test\] build in team.toml, like 'cmake -S"):
        suite(tmp_path, SuiteSettings(kind="ctest")).list(OPTIONS)
    built = SuiteSettings(kind="ctest", build="cmake -S . -B elsewhere", run="ctest --test-dir elsewhere -LE nothing")
    assert len(suite(tmp_path, built).list(OPTIONS)) == 27
    with pytest.raises(CannotRun, match="the build failed"):
        suite(tmp_path, SuiteSettings(kind="ctest", build="echo 'error: no cmake'; exit 1")).list(OPTIONS)
    for name in ("build", "cmake-build-debug"):
        subprocess.run(["cmake", "-S", ".", "-B", name], cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(CannotRun, match=r"several build directories found \(build, cmake-build-debug\)"):
        suite(tmp_path, SuiteSettings(kind="ctest")).list(OPTIONS)


def test_a_project_of_other_people(tmp_path: Path) -> None:
    need("cmake")
    project = source("jansson", tmp_path)
    build = "cmake -S . -B build -DJANSSON_BUILD_DOCS=OFF && cmake --build build -j2"
    results = outcomes(suite(project, SuiteSettings(kind="ctest", build=build)), OPTIONS)
    listing = subprocess.run(["ctest", "--show-only=json-v1"], cwd=project / "build", capture_output=True, check=True)
    assert len(results) == len(json.loads(listing.stdout)["tests"]) >= 200
    assert {result.outcome for result in results.values()} == {Outcome.PASSED}
    # A seeded regression: no value may be deeper than three lists.
    header = project / "cmake/jansson_config.h.cmake"
    header.write_text(re.sub(r"(#define JSON_PARSER_MAX_DEPTH) \d+", r"\1 3", header.read_text()))
    results = outcomes(suite(project, SuiteSettings(kind="ctest", build=build)), OPTIONS)
    failed = {name for name, result in results.items() if result.outcome.bad}
    assert failed and all(results[name].reason for name in failed)
