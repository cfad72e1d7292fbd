"""The command as agents call it: a project whose cases are small scripts, with a bare repository that it lands in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from team.sampler.cases import Outcome, Result
from team.sampler.log import Log

TOML = '[test]\nkind = "cases"\nfiles = "t/*.sh"\nrun = "sh {file}"\n'


@dataclass
class Clone:
    """A clone and the command in it."""

    root: Path
    env: Mapping[str, str]

    def git(self, *args: str) -> str:
        argv = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", *args]
        return subprocess.run(argv, cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, **cases: str) -> None:
        for name, script in cases.items():
            (self.root / "t" / f"{name}.sh").write_text(script)

    def land(self, message: str = "Work") -> str:
        self.git("add", "-A")
        self.git("commit", "-qm", message)
        self.git("push", "-q", "origin", "HEAD:main")
        self.git("fetch", "-q")
        return self.git("rev-parse", "HEAD")

    def start(self, *args: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "team.sampler.main", *args]
        return subprocess.Popen(
            argv, cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def test(self, *args: str, code: int = 0) -> str:
        process = self.start(*args)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out + err

    def json(self, *args: str, code: int = 0) -> Any:
        process = self.start(*args, "--json")
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return json.loads(out)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", tmp_path / "origin.git"], check=True)
    subprocess.run(["git", "clone", "-q", tmp_path / "origin.git", tmp_path / "clone"], check=True, capture_output=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TEAM_", "GIT_"))}
    here = str(Path(__file__).resolve().parents[2])
    found = Clone(
        tmp_path / "clone",
        kept | {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path), "PYTHONPATH": here},
    )
    (found.root / "t").mkdir()
    (found.root / "team.toml").write_text(TOML)
    return found


def test_new_known_and_fixed_against_the_landed_state(clone: Clone) -> None:
    clone.write(good="exit 0", bad="exit 1", mended="exit 1", other="exit 0")
    clone.land()
    first = clone.test(code=3)  # it is the landed state itself that fails
    assert "4 of 4 tests" in first and "2 fail there too" in first
    clone.write(good="exit 1", mended="exit 0")
    text = clone.test(code=1)
    assert "1 new; 1 fail there too; 1 fixed (t/mended.sh)" in text
    assert text.index("ERROR t/good.sh: [new]") < text.index("ERROR t/bad.sh: [known]")
    clone.write(good="exit 0")
    assert "1 fail there too" in clone.test(code=3)
    clone.write(bad="exit 0")
    assert "0 failed" in clone.test()


def test_what_nobody_has_run_there_is_unknown(clone: Clone) -> None:
    clone.write(good="exit 0")
    clone.land()
    clone.test()
    clone.write(good="exit 0\n#")
    clone.land()
    clone.write(good="exit 1")
    assert "1 unknown (nobody has run them there, 1 of them passed on an earlier landing)" in clone.test(code=1)


def test_a_claim_of_somebody_else_makes_nothing_unknown(clone: Clone) -> None:
    clone.write(good="exit 0")
    clone.land()
    clone.test()
    (clone.root / "current_tasks").mkdir()
    (clone.root / "current_tasks" / "x.txt").write_text("agent-02: x\n")
    clone.land("Claim x")
    clone.write(good="exit 1")
    assert "1 new" in clone.test(code=1)


def test_without_anything_landed_failures_are_just_failures(clone: Clone) -> None:
    clone.write(bad="exit 1")
    assert "nothing has landed to compare with" in clone.test(code=1)


def test_the_sample_is_the_same_and_its_union_is_everything(clone: Clone) -> None:
    clone.write(**{f"c{n}": "exit 0" for n in range(60)})

    def sample(seat: int) -> set[str]:
        rows = clone.json("--fast=7%", "--list", "--agent", f"agent-{seat:02}")
        return {row["name"] for row in rows}

    samples = [sample(seat) for seat in range(3, 18)]
    assert sample(3) == samples[0] != samples[1]
    assert set().union(*samples) == {f"t/c{n}.sh" for n in range(60)}


def test_on_top_come_what_failed_and_what_is_near_the_changes(clone: Clone) -> None:
    clone.write(**{f"c{n}": "exit 0" for n in range(100)})
    clone.land()
    picked = {row["name"] for row in clone.json("--fast", "--list", "--agent", "agent-01")}
    outside = [n for n in range(100) if f"t/c{n}.sh" not in picked]
    broken, edited = outside[0], outside[1]
    clone.write(**{f"c{broken}": "exit 1"})
    clone.land()
    clone.test(f"t/c{broken}.sh", "--agent", "agent-01", code=3)
    clone.write(**{f"c{edited}": "exit 0 # changed"})
    report = clone.json("--fast", "--agent", "agent-01", code=3)["suites"][0]
    assert {result["name"] for result in report["results"]} == picked | {f"t/c{broken}.sh", f"t/c{edited}.sh"}
    assert report["why"] == "10% as agent-01, and 1 that failed last time, and 1 near your changes"


def test_a_small_suite_never_gives_an_empty_sample(clone: Clone) -> None:
    clone.write(a="exit 0", b="exit 0")
    assert all(clone.json("--fast=1%", "--list", "--agent", f"agent-{n}") for n in range(4))


def test_failed_named_and_flaky(clone: Clone) -> None:
    clone.write(one="exit 1", two="exit 0", flips="test -e .git/flip")
    clone.land()
    assert "0 of 3 tests" in clone.test("--failed")
    clone.test(code=3)
    assert "2 of 3 tests" in clone.test("--failed", code=3)
    (clone.root / ".git" / "flip").touch()
    assert "1 of 3 tests" in clone.test("t/flips.sh")
    assert "2 of 3 tests" in clone.test("t/*o*.sh", code=3)
    assert "1 of 3 tests" in clone.test("tw")
    assert "did you mean 't/flips.sh'?" in clone.test("t/flip.sh", code=2)
    assert clone.test("--flaky") == "t/flips.sh\n"
    history = clone.test("--history", "t/flips.sh").splitlines()
    assert [line.split(" ago ")[1].split()[0] for line in history] == ["passed", "failed"]
    assert "nobody has run" in clone.test("--history", "t/nine.sh")
    assert [line.split(" ago ")[1] for line in clone.test("--history", "flips").splitlines()] == [
        line.split(" ago ")[1] for line in history
    ]


def test_bisect_finds_the_landing(clone: Clone) -> None:
    clone.write(case="exit 0")
    landed = [clone.land("First")]
    for n in range(12):
        (clone.root / "file").write_text(str(n))
        if n == 7:
            clone.write(case="echo broken >&2; exit 1")
        landed.append(clone.land(f"Landing {n}"))
    before = clone.git("status", "--porcelain")
    found = clone.json("--bisect", "t/case.sh")
    assert found["first_bad"] == landed[8] and "Landing 7" in found["subject"]
    assert found["runs"] <= 9
    assert f"fails since {landed[8][:10]}" in clone.test("--bisect", "t/case.sh", "--good", landed[3])
    assert clone.git("worktree", "list").count("\n") == 0 and clone.git("status", "--porcelain") == before
    assert "does not pass" in clone.test("--bisect", "t/case.sh", "--good", landed[9], code=2)
    assert "no case is named 't/none.sh'" in clone.test("--bisect", "t/none.sh", code=2)
    clone.write(case="exit 0")
    clone.land()
    assert "passes at" in clone.test("--bisect", "t/case.sh", code=2)


def test_bisect_passes_over_commits_that_tell_nothing(clone: Clone) -> None:
    (clone.root / "team.toml").write_text(TOML + 'build = "sh build.sh"\n')
    (clone.root / "build.sh").write_text("exit 0")
    clone.write(case="exit 0")
    landed = [clone.land("First")]
    for n in range(6):
        (clone.root / "build.sh").write_text("exit 1" if n == 2 else f"exit 0 # {n}")
        clone.write(case=f"exit {int(n >= 4)}")
        landed.append(clone.land(f"Landing {n}"))
    assert clone.json("--bisect", "t/case.sh", "--good", landed[0])["first_bad"] == landed[5]


def test_coverage_of_the_team(clone: Clone) -> None:
    clone.write(a="exit 0", b="exit 0", c="exit 0")
    landed = clone.land()
    clone.test("t/a.sh", "t/b.sh")
    assert "no suite has been listed yet" in clone.test("--coverage")
    clone.test("--list")
    lines = clone.test("--coverage").splitlines()
    assert lines[0] == "2 of 3 tests have run on a landed state, 1 never"
    assert lines[1] == "never: 1 (t/c.sh)"
    assert lines[2].startswith(f"not since {landed[:10]}") and "t/a.sh, t/b.sh" in lines[2]


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[test]\nkind = 'nose'\n", "test.kind: 'nose' is not known; known: pytest"),
        ("[test]\nknd = 'pytest'\n", "test.knd: unknown key; did you mean 'kind'?"),
        ("[test]\ntimeout = 'soon'\n", "timeout: a time is a number with s, m, h or d"),
        ("[test]\ndirectory = '../x'\n", "directory: expected a path inside the project"),
        ("[test\n", "team.toml: "),
        ("[test]\na = " + "[" * 5000, "team.toml: nested too deeply"),
        (TOML + "jobs = 0.5\n", "test.jobs: expected a whole number from 1 to 256"),
        (TOML + "exit = 300\n", "test.exit: expected an exit code"),
        (TOML + '"k\\u001b[31m" = 1\n', "test.k: unknown key"),
        ("", "no tests found: name them in team.toml"),
        (TOML.replace("t/*.sh", "nowhere/*"), "nowhere/*"),
        (TOML + "build = 'echo compiling; exit 3'\n", "exit"),
    ],
)
def test_what_cannot_run_is_2_with_one_line_that_names_the_mend(clone: Clone, toml: str, says: str) -> None:
    clone.write(a="exit 0")
    (clone.root / "team.toml").write_text(toml)
    text = clone.test(code=2)
    assert says in text and "Traceback" not in text


def test_suites_by_name(clone: Clone) -> None:
    clone.write(a="exit 1", b="exit 0")
    (clone.root / "team.toml").write_text(
        '[test]\nkind = "cases"\nrun = "sh {file}"\n'
        '[test.suites.one]\nfiles = "t/a.sh"\n[test.suites.two]\nfiles = "t/b.sh"\n'
    )
    text = clone.test(code=1)
    assert "one: 1 of 1 tests" in text and "two: 1 of 1 tests" in text and "ERROR one: t/a.sh" in text
    assert "1 of 1 tests" in clone.test("--suite", "two")
    assert "known: one, two" in clone.test("--suite", "three", code=2)
    assert "two: 1 of 1" in clone.test("t/b.sh")
    assert clone.test("--list") == "one: t/a.sh\ntwo: t/b.sh\n"


def test_names_of_any_characters_stay_on_one_line(clone: Clone) -> None:
    clone.write(**{"a b::[c]\nd\x1b[31m\u202e": "exit 1"})
    text = clone.test(code=1)
    assert "ERROR t/a b::[c]\\nd\\x1b[31m.sh: exit code 1\n" in text
    assert "\x1b" not in text and "\u202e" not in text
    log = (clone.root / "agent_logs" / "tests" / "last.log").read_text()
    assert log.count("ERROR ") == 1 and "\x1b" not in log
    assert clone.git("status", "--porcelain", "--", "agent_logs") == ""


def test_two_runs_at_once_tear_nothing(clone: Clone) -> None:
    clone.write(**{f"c{n}": f"exit {n % 2}" for n in range(60)})
    clone.land()
    running = [clone.start("--json") for _ in range(3)]
    reports = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert len({report["log"] for report in reports}) == 3
    for report in reports:
        lines = (clone.root / report["log"]).read_text().splitlines()
        assert sum(line.startswith(("ok t/c", "ERROR t/c")) for line in lines) == 60
    assert len(clone.json("--history", "t/c1.sh")) == 1
    assert clone.json("--history", "t/c1.sh")[0]["count"] == 3


def test_a_run_that_is_ended_tells_what_it_knows_and_leaves_nothing(clone: Clone) -> None:
    clone.write(a="exit 1", b="sleep 600 & echo $! >pid; wait")
    process = clone.start()
    while not (clone.root / "pid").exists() or not (clone.root / "pid").read_text().strip():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "stopped early: 1 did not run" in out and "ERROR t/a.sh" in out, out + err
    child = Path("/proc") / (clone.root / "pid").read_text().strip()
    assert not child.exists() or "State:\tZ" in (child / "status").read_text()


def test_long_runs_show_progress_on_standard_error_only(clone: Clone) -> None:
    clone.write(**{f"c{n}": "sleep 0.2" for n in range(6)})
    script = "import sys, team.sampler.main as m; m.PROGRESS = 0.25; sys.exit(m.main(['--json']))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=clone.root, env=clone.env, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["suites"][0]["passed"] == 6
    lines = done.stderr.splitlines()
    assert lines and len(lines) <= 3 and all(" of 6 in " in line for line in lines)


def test_the_halves_that_pytest_calls(clone: Clone) -> None:
    cases = "".join(json.dumps({"name": f"t.py::test_{n}", "file": "t.py"}) + "\n" for n in range(50))
    argv = [sys.executable, "-m", "team.sampler.main", "--fast", "--agent", "agent-02"]
    picked = subprocess.run(
        [*argv, "--pick"], input=cases, cwd=clone.root, env=clone.env, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert 3 <= len(picked) <= 7
    rows = [{**json.loads(line), "outcome": "failed", "seconds": 0.1, "reason": "no"} for line in picked]
    done = subprocess.run(
        [*argv, "--record"], input="".join(json.dumps(row) + "\n" for row in rows), cwd=clone.root, env=clone.env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and f"{len(rows)} failed" in done.stdout
    assert clone.json("--history", rows[0]["name"])[0]["outcome"] == "failed"
    good = {"name": "a", "outcome": "passed", "seconds": 1}
    for nonsense in ("}{", "[" * 9999, *(json.dumps(good | bad) for bad in ({"outcome": "x"}, {"seconds": "nan"}))):
        done = subprocess.run(
            [*argv, "--record"], input=nonsense, cwd=clone.root, env=clone.env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 2 and "team test: expected " in done.stderr


def test_a_file_that_cannot_be_read_is_in_every_sample(clone: Clone) -> None:
    (clone.root / "team.toml").write_text(f'[test]\nkind = "pytest"\nrun = "{sys.executable} -m pytest"\n')
    (clone.root / "test_good.py").write_text("".join(f"def test_{n}():\n    pass\n" for n in range(40)))
    (clone.root / "test_broken.py").write_text("import no_such_module\n")
    for seat in range(3):
        report = clone.json("--fast", "--agent", f"agent-{seat}", code=1)["suites"][0]
        bad = [result["name"] for result in report["results"] if result["outcome"] != "passed"]
        assert bad == ["test_broken.py"] and 3 <= len(report["results"]) <= 6


def test_answers_are_short_whatever_is_asked_for(clone: Clone) -> None:
    clone.write(a="exit 1")
    clone.land()
    name = "\x1b[31m\u202e漢" * 1000
    for code, *args in (
        (2, name),
        (0, "--history", name),
        (2, "--bisect", name),
        (2, "--suite", name),
        (2, "-j", name),
    ):
        text = clone.test(*args, code=code)
        assert len(text.encode()) < 2048 and "\x1b" not in text and "\u202e" not in text


def test_a_case_may_be_named_as_the_report_spells_it(clone: Clone) -> None:
    clone.write(**{"a\nb": "exit 0", "\udcff": "exit 0"})
    assert "1 of 2 tests" in clone.test("t/a\\nb.sh")
    assert "1 of 2 tests" in clone.test(*clone.test("--list").splitlines()[1:])


@pytest.mark.parametrize("agent", ["\udcff", "a\nb", "\x1b[31m", "x" * 5000])
def test_an_agent_has_a_sensible_name(clone: Clone, agent: str) -> None:
    clone.write(a="exit 0")
    assert "the name of an agent" in clone.test("--fast", "--agent", agent, code=2)


def test_a_terminal_that_knows_ascii_only(clone: Clone) -> None:
    clone.write(漢="exit 1")
    ascii_only = Clone(clone.root, {**clone.env, "PYTHONIOENCODING": "ascii"})
    assert "ERROR t/\\u6f22.sh" in ascii_only.test(code=1)
    assert ascii_only.test("--list") == "t/\\u6f22.sh\n"


def test_a_broken_memory_is_set_aside_and_said_once(clone: Clone) -> None:
    clone.write(a="exit 1")
    clone.test(code=1)
    memory = clone.root / ".git" / "team" / "tests.db"
    for rest in memory.parent.glob("tests.db-*"):
        rest.unlink()
    memory.write_bytes(b"garbage" * 999)
    assert "what earlier runs left was broken (file is not a database) and begins anew" in clone.test(code=1)
    assert memory.with_suffix(".broken").read_bytes() == b"garbage" * 999
    assert "broken" not in clone.test("--failed", code=1)


def test_without_a_memory_the_tests_run_all_the_same(clone: Clone) -> None:
    clone.write(a="exit 1", b="exit 0")
    (clone.root / ".git" / "team").write_text("in its place")
    text = clone.test(code=1)
    assert "2 of 2 tests" in text and "ERROR t/a.sh: exit code 1" in text
    assert "what earlier runs left cannot be read, nor this one kept: " in text
    assert "cannot be read" in clone.test("--flaky", code=2)


def test_a_full_disk_stops_no_run(tmp_path: Path) -> None:
    log = Log(tmp_path, 0.0)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._lines)
    log.result(Result("a", Outcome.FAILED, 0.1, "no", "detail"))
    log.close()
    os.close(full)
    assert log.broken == "the log is not whole: No space left on device"


@pytest.mark.parametrize("what", ["agent_logs", ".git", ".git/team", "agent_logs .git team.toml"])
def test_a_case_that_deletes_what_the_run_needs_does_not_stop_it(clone: Clone, what: str) -> None:
    clone.write(a=f"rm -rf {what}", b="echo no; exit 1")
    clone.land()
    text = clone.test(code=3)
    assert "2 of 2 tests" in text and "ERROR t/b.sh: [known] exit code 1: no" in text
    assert ("the log is not whole" in text) == ("agent_logs" in what)


def test_a_command_that_is_not_there_is_no_failure_of_the_cases(clone: Clone) -> None:
    clone.write(**{f"c{n}": "exit 0" for n in range(9)})
    (clone.root / "team.toml").write_text(TOML.replace("sh {file}", "./no-such-runner {file}"))
    assert "[test] run cannot be started (exit code 127)" in clone.test(code=2)
    (clone.root / "team.toml").write_text(TOML)
    clone.write(c0="exit 127", c1="exit 127")  # of some cases it is their own
    assert "2 failed" in clone.test(code=1)


def test_a_regression_is_found_by_the_team_in_one_round_and_by_one_agent_at_its_rate(clone: Clone) -> None:
    """Any ten seats in a row: each case is in exactly one of their samples, so that one of them meets the fault."""
    clone.write(**{f"c{n}": "exit 0" for n in range(50)})
    clone.land()
    for broken in (7, 31):
        clone.write(**{f"c{broken}": "exit 1"})
        clone.land()  # by somebody else: it is not near anybody's changes
        found = [clone.start("--fast", "--agent", f"agent-{seat}").wait(60) for seat in range(4 + broken, 14 + broken)]
        assert sorted(found) == [0] * 9 + [3], found
        clone.write(**{f"c{broken}": "exit 0"})
        clone.land()
