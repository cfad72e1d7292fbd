"""``go test`` as a suite, with the real go."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from team.sampler.cases import CannotRun, Options, Outcome
from team.sampler.settings import SuiteSettings
from team.sampler.suites import suite
from tests.sampler.toolchains import library, need, outcomes, running, write

TESTS = """\
package calc

import ("fmt"; "os"; "strings"; "syscall"; "testing"; "time")

func told(what string) bool { return strings.Contains(os.Getenv("DO"), what) }

func TestAdds(t *testing.T) { t.Log("fine") }
func TestWrong(t *testing.T) { fmt.Println("some words"); t.Errorf("got %d, want %d", Add(1, 2), 4); t.Error("more") }
func TestSub(t *testing.T) {
	t.Run("a b", func(t *testing.T) { t.Fatal("in the sub") })
	t.Run("ok", func(t *testing.T) { })
}
func TestSkips(t *testing.T) { t.Skip("not here") }
func TestTogether1(t *testing.T) { t.Parallel(); time.Sleep(time.Second / 20); t.Error("the first") }
func TestTogether2(t *testing.T) { t.Parallel(); time.Sleep(time.Second / 10); t.Log("the second") }
func TestPanics(t *testing.T) { if told("crash") { panic("boom") } }
func TestPanicsElsewhere(t *testing.T) { if told("crash") { go panic("bang"); time.Sleep(time.Minute) } }
func TestPanicsTogether(t *testing.T) { t.Parallel(); if told("crash") { panic("all of us") } }
func TestExits(t *testing.T) { if told("crash") { os.Exit(3) } }
func TestExitsWell(t *testing.T) { if told("crash") { os.Exit(0) } }
func TestKillsParent(t *testing.T) { if told("kill") { syscall.Kill(os.Getppid(), 9); time.Sleep(time.Minute) } }
func TestHangs(t *testing.T) { fmt.Println("before"); if told("hang") { time.Sleep(time.Hour) } }
func TestHangsToo(t *testing.T) { t.Parallel(); if told("hang") { time.Sleep(time.Hour) } }
func TestGrows(t *testing.T) {
	var all [][]byte
	for told("grow") {
		more := make([]byte, 1<<24)
		for i := range more { more[i] = 1 }
		all = append(all, more)
	}
}
func TestShouts(t *testing.T) {
	os.Stdout.Write([]byte("--- PASS: TestWrong (0.00s)\\n--- FAIL: TestShouts (1..2s)\\n\\xff\\x00 half a line"))
	for i := 0; told("shout") && i < 400000; i++ { fmt.Println(strings.Repeat("much ado about nothing ", 10)) }
	if told("shout") { t.Fatal("hoarse") }
}
func ExampleAdd() {
	fmt.Println(Add(1, 2))
	// Output: 3
}
func ExampleAdd_wrong() {
	fmt.Println(Add(1, 2))
	// Output: 4
}
func FuzzAdd(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if n == 1 { t.Error("a bad seed") } }) }
func BenchmarkAdd(b *testing.B) {}
"""
FILES = {
    "go.mod": "module example.com/calc\n\ngo 1.18\n",
    "calc.go": "package calc\n\nfunc Add(a, b int) int { return a + b }\n",
    "calc_test.go": TESTS,
    "inner/deep/deep_test.go": """\
package deep_test

import ("os"; "strings"; "testing")

func TestAdds(t *testing.T) { if dir, _ := os.Getwd(); !strings.HasSuffix(dir, "inner/deep") { t.Fatal(dir) } }
func TestFlag(t *testing.T) { if len(os.Args) < 2 || os.Args[len(os.Args)-1] != "extra" { t.Skip("no flag") } }
func TestAsserts(t *testing.T) {
	t.Error("\\n\\tError Trace:\\tx.go:1\\n\\tError:  \\tNot equal: \\n\\t        \\texpected: 1\\n\\tTest:   \\tTestX")
}
""",
    "none/none.go": "package none\n",
    "broken/broken_test.go": 'package broken\n\nimport "testing"\n\nfunc TestX(t *testing.T) { nothing() }\n',
    "stubborn/stubborn_test.go": """\
package stubborn

import ("os"; "testing")

func TestX(t *testing.T) {}
func TestMain(m *testing.M) { println("no database"); os.Exit(1) }
""",
}
OPTIONS = Options(jobs=2, seconds=20)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("go")
    return write(tmp_path_factory.mktemp("go") / "mod ule", FILES)


def test_every_case_of_every_package_is_listed(module: Path) -> None:
    cases = {case.name: case.file for case in suite(module, SuiteSettings(kind="go")).list(OPTIONS)}
    functions = re.findall(r"^func ((?:Test|Example|Fuzz)\w+)", TESTS, re.MULTILINE)
    assert cases == {
        **dict.fromkeys(functions, "calc_test.go"),
        **dict.fromkeys([f"inner/deep.Test{each}" for each in ("Adds", "Flag", "Asserts")], "inner/deep/deep_test.go"),
        "broken": "",
        "stubborn": "",
    }


def test_each_case_has_its_outcome_and_reason(module: Path) -> None:
    results = outcomes(suite(module, SuiteSettings(kind="go")), OPTIONS)
    assert {name: result.reason for name, result in results.items() if result.outcome.bad} == {
        "TestWrong": "calc_test.go:8: got 3, want 4",
        "TestSub": "calc_test.go:10: in the sub",
        "TestTogether1": "calc_test.go:14: the first",
        "ExampleAdd_wrong": "got: 3 want: 4",
        "FuzzAdd": "calc_test.go:45: a bad seed",
        "inner/deep.TestAsserts": "deep_test.go:8: Not equal: expected: 1",
        "broken": "broken/broken_test.go:5:28: undefined: nothing",
        "stubborn": "its test program cannot list its tests: exit code 1",
    }
    assert "some words" in results["TestWrong"].detail and "more" in results["TestWrong"].detail
    assert "no database" in results["stubborn"].detail
    assert {name: result.reason for name, result in results.items() if result.outcome is Outcome.SKIPPED} == {
        "TestSkips": "calc_test.go:13: not here",
        "inner/deep.TestFlag": "deep_test.go:6: no flag",
    }
    assert results["TestTogether2"].seconds >= 0.1


def test_what_takes_the_program_down_is_told_and_the_rest_runs(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO", "crash kill hang grow")
    options = Options(jobs=2, seconds=4, memory=150 << 20)
    results = outcomes(suite(module, SuiteSettings(kind="go")), options)
    crashed = {name: result.reason for name, result in results.items() if result.outcome is Outcome.CRASHED}
    assert crashed.keys() == {
        *("TestPanics", "TestPanicsElsewhere", "TestPanicsTogether", "TestExits", "TestExitsWell"),
        *("TestKillsParent", "TestGrows"),
    }
    assert crashed["TestPanics"].startswith("panic: boom") and crashed["TestPanicsElsewhere"] == "panic: bang"
    assert "exit code 3" in crashed["TestExits"] and "memory" in crashed["TestGrows"]
    hung = {name for name, result in results.items() if result.outcome is Outcome.TIMED_OUT}
    assert hung == {"TestHangs", "TestHangsToo"}
    assert "before" in results["TestHangs"].detail
    assert {results[name].outcome for name in ("TestAdds", "TestTogether2", "ExampleAdd")} == {Outcome.PASSED}
    assert not running("/team-go-")


def test_much_output_is_cut(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DO", "shout")
    chosen = {"TestShouts", "TestWrong"}
    results = outcomes(suite(module, SuiteSettings(kind="go")), OPTIONS, lambda case: case.name in chosen)
    assert results["TestWrong"].outcome is results["TestShouts"].outcome is Outcome.FAILED
    assert 30_000 < len(results["TestShouts"].detail) < 100_000
    assert "half a line" in results["TestShouts"].detail and "hoarse" in results["TestShouts"].detail


def test_flags_of_the_call_hold(module: Path) -> None:
    flags = suite(module, SuiteSettings(kind="go", run="go test -short ./inner/... -args extra"))
    results = outcomes(flags, OPTIONS)
    assert len(results) == 3
    assert results["inner/deep.TestFlag"].outcome is Outcome.PASSED
    assert not outcomes(flags, OPTIONS, lambda case: False)


def test_no_module_cannot_run(tmp_path: Path) -> None:
    need("go")
    with pytest.raises(CannotRun, match="go test cannot list the tests: pattern"):
        suite(tmp_path, SuiteSettings(kind="go")).list(OPTIONS)


def test_a_module_of_other_people(tmp_path: Path) -> None:
    need("go")
    module = library("golang-github-gorilla-mux-dev", tmp_path) / "usr/share/gocode/src/github.com/gorilla/mux"
    results = outcomes(suite(module, SuiteSettings(kind="go")), OPTIONS)
    bare = subprocess.run(["go", "test", "-v", "./..."], cwd=module, capture_output=True, text=True, check=True)
    assert len(results) == len(re.findall(r"^--- PASS", bare.stdout, re.MULTILINE)) >= 60
    assert {result.outcome for result in results.values()} == {Outcome.PASSED}
