"""``cargo test`` as a suite, with the real cargo."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from team.sampler.cases import CannotRun, Options, Outcome
from team.sampler.settings import SuiteSettings
from team.sampler.suites import suite
from tests.sampler.toolchains import library, need, outcomes, running, write

MANIFEST = '[package]\nname = "{}"\nversion = "0.1.0"\nedition = "2021"\n'
LIB = """\
/// Adds.
/// ```
/// assert_eq!(some_maths::add(1, 2), 3);
/// ```
/// ```
/// assert_eq!(some_maths::add(1, 2), 4);
/// ```
/// ```ignore
/// nothing
/// ```
pub fn add(a: i32, b: i32) -> i32 { a + b }

mod deep;

#[cfg(test)]
mod tests {
    use super::*;
    fn told(what: &str) -> bool { std::env::var("DO").map_or(false, |list| list.split(' ').any(|word| word == what)) }
    fn forever() { loop { std::thread::sleep(std::time::Duration::from_secs(1)) } }
    #[test] fn adds() { assert_eq!(add(1, 2), 3) }
    #[test] fn wrong() { println!("some words"); assert_eq!(add(1, 2), 4, "the sum") }
    #[test] #[ignore = "too slow"] fn ignored() { }
    #[test] #[should_panic] fn panics() { panic!("as it should") }
    #[test] #[should_panic(expected = "apples")] fn panics_otherwise() { panic!("pears") }
    #[test] fn errs() -> Result<(), String> { Err("no good".into()) }
    #[test] fn hangs() { if told("hang") { forever() } }
    #[test] fn hangs_too() { if told("hang") { forever() } }
    #[test] fn aborts() { if told("abort") { std::process::abort() } }
    fn down(n: u64) -> u64 { if n == 0 { 0 } else { down(n + 1) + n } }
    #[test] fn overflows() { if told("abort") { println!("{}", down(1)) } }
    #[test] fn exits() { if told("abort") { std::process::exit(0) } }
    #[test] fn kills_parent() {
        if !told("kill") { return }
        let kill = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)";
        std::process::Command::new("sh").arg("-c").arg(kill).status().unwrap();
        forever()
    }
    #[test] fn shouts() {
        use std::io::Write;
        let event = b"{ \\"type\\": \\"test\\", \\"name\\": \\"tests::wrong\\", \\"event\\": \\"ok\\" }";
        std::io::stdout().write_all(event).unwrap();
        std::io::stdout().write_all(b" it lied\\n\\xff\\x00 half a line").unwrap();
        let mut worse = b"\\n{ \\"type\\": \\"test\\", \\"name\\": \\"tests::adds\\", \\"event\\": \\"ok\\", ".to_vec();
        worse.extend(b"\\"exec_time\\": [1] }\\n{ \\"type\\": \\"test\\", \\"x\\": ");
        worse.extend([b'['; 99_999]);
        std::io::stdout().write_all(&worse).unwrap();
        if !told("shout") { return }
        for _ in 0..400_000 { println!("{}", "much ado about nothing ".repeat(10)) }
        panic!("hoarse")
    }
}
"""
FILES = {
    "Cargo.toml": '[workspace]\nmembers = ["maths", "user"]\n',
    "maths/Cargo.toml": MANIFEST.format("some-maths") + '[[test]]\nname = "own-way"\nharness = false\n',
    "maths/src/lib.rs": LIB,
    "maths/src/deep/mod.rs": "#[cfg(test)] mod more;",
    "maths/src/deep/more.rs": "#[test] fn inside() {}",
    "maths/tests/place.rs": """\
#[test] fn at_home() {
    assert!(std::path::Path::new("src/lib.rs").exists());
    assert_eq!(std::env::var("CARGO_PKG_NAME").unwrap(), "some-maths");
    assert!(std::env::var("RUSTC_BOOTSTRAP") != Ok("1".into()));
}""",
    "maths/tests/own-way.rs": 'fn main() { println!("mine"); assert_eq!(std::env::args().count(), 1) }',
    "user/Cargo.toml": MANIFEST.format("user") + '[dependencies]\nsome-maths = { path = "../maths" }\n',
    "user/src/main.rs": 'fn main() { println!("{}", some_maths::add(1, 2)) }\n#[test] fn adds() {}',
}
OPTIONS = Options(jobs=2, seconds=20)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cargo")
    return write(tmp_path_factory.mktemp("cargo") / "work space", FILES)


def lib(*names: str) -> set[str]:
    return {f"some-maths/lib::tests::{name}" for name in names}


def test_every_kind_of_test_of_every_crate_is_listed(workspace: Path) -> None:
    cases = suite(workspace, SuiteSettings(kind="cargo")).list(OPTIONS)
    files = {case.name: case.file for case in cases}
    assert len(files) == len(cases) == 13 + 1 + 1 + 1 + 1 + 3
    assert files["some-maths/lib::tests::adds"] == "maths/src/lib.rs"
    assert files["some-maths/lib::deep::more::inside"] == "maths/src/deep/more.rs"
    assert files["some-maths/tests/place::at_home"] == "maths/tests/place.rs"
    assert files["some-maths/tests/own-way"] == "maths/tests/own-way.rs"
    assert files["user/bin/user::adds"] == "user/src/main.rs"
    assert files["some-maths/doc::src/lib.rs::add#2"] == "maths/src/lib.rs"


def test_each_case_has_its_outcome_and_reason(workspace: Path) -> None:
    results = outcomes(suite(workspace, SuiteSettings(kind="cargo")), OPTIONS)
    bad = {name: result.reason for name, result in results.items() if result.outcome.bad}
    assert bad.keys() == lib("wrong", "panics_otherwise", "errs") | {"some-maths/doc::src/lib.rs::add#2"}
    wrong = results["some-maths/lib::tests::wrong"]
    assert "the sum" in wrong.reason and "maths/src/lib.rs:" in wrong.reason and "\n" not in wrong.reason
    assert "some words" in wrong.detail
    assert bad["some-maths/lib::tests::panics_otherwise"] == "panic did not contain expected string"
    skipped = {name for name, result in results.items() if result.outcome is Outcome.SKIPPED}
    assert skipped == lib("ignored") | {"some-maths/doc::src/lib.rs::add#3"}
    assert results["some-maths/lib::tests::ignored"].reason == "too slow"
    assert "mine" in results["some-maths/tests/own-way"].detail


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_takes_the_program_down_is_told_and_the_rest_runs(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setenv("DO", "hang abort kill")
    options = Options(jobs=jobs, seconds=2)
    results = outcomes(suite(workspace, SuiteSettings(kind="cargo")), options, lambda case: "/lib::" in case.name)
    by_outcome = {outcome: {name for name in results if results[name].outcome is outcome} for outcome in Outcome}
    assert by_outcome[Outcome.TIMED_OUT] == lib("hangs", "hangs_too")
    assert by_outcome[Outcome.CRASHED] == lib("aborts", "overflows", "exits", "kills_parent")
    assert by_outcome[Outcome.FAILED] == lib("wrong", "panics_otherwise", "errs")
    assert "SIGABRT" in results["some-maths/lib::tests::aborts"].reason
    assert "stack" in results["some-maths/lib::tests::overflows"].reason
    assert "exit code 0" in results["some-maths/lib::tests::exits"].reason
    assert not running(str(workspace))


def test_much_output_is_cut_and_more_memory_than_allowed_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DO", "shout")
    shouts = suite(workspace, SuiteSettings(kind="cargo", run="cargo test -p some-maths --lib"))
    (result,) = outcomes(shouts, OPTIONS, lambda case: case.name.endswith("shouts")).values()
    assert result.outcome is Outcome.FAILED
    assert 30_000 < len(result.detail) < 100_000 and "much ado" in result.detail and "hoarse" in result.reason
    less = Options(seconds=20, memory=30 << 20)
    (result,) = outcomes(shouts, less, lambda case: case.name.endswith("shouts")).values()
    assert result.outcome is Outcome.CRASHED and "memory" in result.reason


def test_only_what_was_chosen_runs(workspace: Path) -> None:
    chosen = {"some-maths/doc::src/lib.rs::add", "user/bin/user::adds", *lib("adds")}
    results = outcomes(suite(workspace, SuiteSettings(kind="cargo")), OPTIONS, lambda case: case.name in chosen)
    assert {result.outcome for result in results.values()} == {Outcome.PASSED}
    assert not outcomes(suite(workspace, SuiteSettings(kind="cargo")), OPTIONS, lambda case: False)


def test_flags_of_the_call_hold(workspace: Path) -> None:
    run = "cargo test -p some-maths --lib -- --skip panics --include-ignored"
    names = set(outcomes(suite(workspace, SuiteSettings(kind="cargo", run=run)), OPTIONS))
    assert lib("adds", "ignored") <= names and not names & lib("panics", "panics_otherwise")
    assert all(name.startswith("some-maths/lib::") for name in names)


def test_what_does_not_compile_cannot_run(tmp_path: Path) -> None:
    need("cargo")
    write(tmp_path, {"Cargo.toml": MANIFEST.format("broken"), "src/lib.rs": "#[test] fn x() { nothing() }"})
    with pytest.raises(CannotRun, match=r"error\[E0425\]: cannot find function `nothing`") as raised:
        suite(tmp_path, SuiteSettings(kind="cargo")).list(OPTIONS)
    assert "src/lib.rs:1" in raised.value.output
    with pytest.raises(CannotRun, match="not found"):
        suite(tmp_path, SuiteSettings(kind="cargo", run="no-such-cargo test")).list(OPTIONS)


def test_a_crate_of_other_people(tmp_path: Path) -> None:
    need("cargo")
    (crate,) = library("librust-semver-dev", tmp_path).glob("usr/share/cargo/registry/semver-*")
    manifest = (crate / "Cargo.toml").read_text()
    # An optional dependency, which cargo would want to look up.
    (crate / "Cargo.toml").write_text(
        re.sub(r"\[dependencies\.serde\].*?(?=\[features\])", "", manifest, flags=re.DOTALL)
    )
    results = outcomes(suite(crate, SuiteSettings(kind="cargo")), OPTIONS)
    bare = subprocess.run(["cargo", "test", "--offline"], cwd=crate, capture_output=True, text=True, check=True)
    assert len(results) == sum(map(int, re.findall(r"(\d+) passed", bare.stdout))) >= 30
    assert {result.outcome for result in results.values()} == {Outcome.PASSED}
