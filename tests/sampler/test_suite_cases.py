"""`cases`: a glob, a command and what must come of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from team.sampler.cases import CannotRun, Case, Options, Outcome, Result
from team.sampler.settings import SuiteSettings
from team.sampler.suites.cases import Cases, difference
from team.sampler.suites.shell import Command


def run(root: Path, names: Sequence[str] | None = None, options: Options | None = None, **fields: Any) -> list[Result]:
    """The results, in the order in which they came."""
    settings = SuiteSettings(**{"kind": "cases", "files": ("t/*.in",), "run": "cat {file}", **fields})
    told: list[Result] = []

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        return [Case(name) for name in names] if names is not None else cases

    Cases(root, settings).run(choose, options or Options(), told.append)
    return told


def write(root: Path, **files: str) -> None:
    (root / "t").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "t" / name.replace("_", ".")).write_text(text)


def test_a_case_is_named_by_its_path_from_the_top(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", b_in="", a_in="", a_out="")
    suite = Cases(tmp_path, SuiteSettings(kind="cases", directory="sub", files=("t/*.in",), run="true"))
    assert suite.list(Options()) == [Case("sub/t/a.in", "sub/t/a.in"), Case("sub/t/b.in", "sub/t/b.in")]


def test_hidden_files_and_loops_of_links_are_no_cases(tmp_path: Path) -> None:
    write(tmp_path, a_in="")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "b.in").touch()
    (tmp_path / "t" / "loop").symlink_to(tmp_path)
    (tmp_path / "t" / "directory.in").mkdir()
    suite = Cases(tmp_path, SuiteSettings(kind="cases", files=("**/*.in",), run="true"))
    assert [case.name for case in suite.list(Options())] == ["t/a.in"]


def test_exit_code_and_output_are_judged(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_in="echo one",
        a_out="one\n",
        b_in="echo two",
        b_out="three\n",
        c_in="echo x.c:1: error: bad >&2; exit 2",
    )
    write(tmp_path, c_out="", d_in="exit 0")
    results = run(tmp_path, run="sh {file}", expect="{dir}/{stem}.out")
    assert [
        (result.name, result.outcome, result.reason) for result in sorted(results, key=lambda result: result.name)
    ] == [
        ("t/a.in", Outcome.PASSED, ""),
        ("t/b.in", Outcome.FAILED, "line 1: expected 'three', got 'two'"),
        ("t/c.in", Outcome.FAILED, "exit code 2: x.c:1: error: bad"),
        ("t/d.in", Outcome.FAILED, "cannot read its expected output t/d.out: No such file or directory"),
    ]
    assert [result.detail for result in results if result.name == "t/b.in"] == ["$ sh t/b.in\ntwo\n"]


def test_another_exit_code_can_be_expected(tmp_path: Path) -> None:
    write(tmp_path, a_in="exit 3", b_in="exit 0", c_in="kill -ABRT $$")
    by_code = {result.name: (result.outcome, result.reason) for result in run(tmp_path, run="sh {file}", exit=3)}
    assert by_code["t/a.in"] == (Outcome.PASSED, "")
    assert by_code["t/b.in"] == (Outcome.FAILED, "exit code 0 (expected 3)")
    assert by_code["t/c.in"] == (Outcome.CRASHED, "SIGABRT")
    assert [r.outcome for r in run(tmp_path, ["t/c.in"], run="sh {file}", exit=134)] == [Outcome.PASSED]


@pytest.mark.parametrize(
    ("expected", "got", "reason"),
    [
        (b"a\nb\n", b"a\nc\n", "line 2: expected 'b', got 'c'"),
        (b"a\nb\n", b"a\n", "line 2: expected 'b', got no more"),
        (b"a\n", b"a\nb\n", "line 2: expected no more, got 'b'"),
        (b"a\n", b"a", "line 1: expected a newline at its end"),
        (b"a", b"a\n", "line 1: expected no newline at its end"),
        (b"", b"a", "line 1: expected no more, got 'a'"),
        (b"a\r\n", b"a\n", "line 1: expected 'a\\r', got 'a'"),
        (b"a", b"\xff\0", "line 1: expected 'a', got '\ufffd\\x00'"),
    ],
)
def test_the_first_differing_line_is_the_reason(expected: bytes, got: bytes, reason: str) -> None:
    assert difference(expected, got) == reason


def test_hostile_names_are_names(tmp_path: Path) -> None:
    names = [
        "a b",
        "new\nline",
        "br[a]c{k}et",
        "x::y",
        "-n",
        "$(touch broken)",
        "it's",
        'say "hi"',
        "`id`",
        "\udcff",
        "ü*?",
    ]
    (tmp_path / "t").mkdir()
    for name in names:
        (tmp_path / "t" / f"{name}.in").write_text("")
        (tmp_path / "t" / f"{name}.out").write_bytes(f"t/{name}.in {name} t\n".encode("utf-8", "surrogateescape"))
    templates = ["printf '%s %s %s\\n' {file} {stem} {dir}", "printf '%s %s %s\\n' \"{file}\" '{stem}' \"\"{dir}"]
    for template in templates:
        results = run(tmp_path, run=template, expect="{dir}/{stem}.out")
        assert {result.name: result.reason for result in results} == {f"t/{name}.in": "" for name in names}
    assert not (tmp_path / "broken").exists()


def test_a_file_that_looks_like_an_option_is_still_a_file(tmp_path: Path) -> None:
    (tmp_path / "-x.in").write_text("echo ran")
    assert [result.outcome for result in run(tmp_path, files=("*.in",), run="grep ran {file}")] == [Outcome.PASSED]


@pytest.mark.parametrize(
    ("template", "argv"),
    [
        ("./cc {file} -o 'a b'", ["./cc", "t/x.c", "-o", "a b"]),
        ("run --in={file}", ["run", "--in=t/x.c"]),
        ("A=1 cc {file}", ["sh", "-c", "A=1 cc t/x.c"]),
        ("cc {file} && ./a.out", ["sh", "-c", "cc t/x.c && ./a.out"]),
        ("test -f {file}", ["sh", "-c", "test -f t/x.c"]),
        ("awk '{print $1}' < {file}", ["sh", "-c", "awk '{print $1}' < t/x.c"]),
        ("unclosed '{file}", ["sh", "-c", "unclosed 't/x.c"]),
    ],
)
def test_a_shell_runs_only_what_needs_one(template: str, argv: list[str]) -> None:
    assert Command(template).argv("t/x.c") == argv


def test_bad_cases_spoil_nothing_but_themselves(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_in="sleep 1000",
        b_in="kill -9 $PPID; sleep 1000",
        c_in="head -c 1000000000 /dev/zero",
        d_in=r"printf 'ok\377\n'",
        e_in="setsid -f sleep 1000; echo ok",
        f_in="python3 -c 'x = b\"x\" * (256 << 20); import time; time.sleep(1000)'",
        g_in="kill -SEGV $$",
        h_in="sh -c 'kill -SEGV $$'",
        i_in="echo ok",
        z_in="",
        a_out="", b_out="", c_out="nothing\n", d_out="", e_out="ok\n", f_out="", g_out="", h_out="", i_out="ok\n",
    )  # fmt: skip
    (tmp_path / "t" / "d.out").write_bytes(b"ok\xff\n")
    names = [f"t/{letter}.in" for letter in "abcdefghi"] + ["t/none.in"]
    # Without `exec` by the shell, so that a case kills whoever runs it.
    options = Options(jobs=2, seconds=2, memory=128 << 20)
    results = run(tmp_path, names, options, run=". ./{file}", expect="{dir}/{stem}.out")
    assert len(results) == len(names)
    by_name = {result.name.removeprefix("t/"): result for result in results}
    assert {name: result.outcome.value for name, result in by_name.items()} == {
        "a.in": "timed_out",
        "b.in": "crashed",
        "c.in": "failed",
        "d.in": "passed",
        "e.in": "passed",
        "f.in": "crashed",
        "g.in": "crashed",
        "h.in": "crashed",
        "i.in": "passed",
        "none.in": "gone",
    }
    assert by_name["a.in"].reason == "timed out after 2 s"
    assert by_name["b.in"].reason == "killed or stopped its parent process"
    assert "out of memory: more than its bound of 128 MiB" in by_name["f.in"].reason
    assert by_name["g.in"].reason == "SIGSEGV"
    assert by_name["h.in"].reason == "exit code 139 (SIGSEGV)"
    assert len(by_name["c.in"].detail) < 200_000


def test_what_is_deleted_between_listing_and_running_is_gone(tmp_path: Path) -> None:
    write(tmp_path, a_in="", b_in="rm t/c.in", **{f"{letter}_in": "" for letter in "cdefg"})
    told: list[Result] = []

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        (tmp_path / "t" / "a.in").unlink()
        return cases

    Cases(tmp_path, SuiteSettings(kind="cases", files=("t/*.in",), run="cat {file}")).run(
        choose, Options(), told.append
    )
    assert sorted(result.name for result in told) == [f"t/{letter}.in" for letter in "abcdefg"]
    assert {result.name for result in told if result.outcome is Outcome.GONE} == {"t/a.in"}


def test_the_build_comes_first_and_its_failure_is_told(tmp_path: Path) -> None:
    write(tmp_path, a_in="")
    assert [result.outcome for result in run(tmp_path, build="touch built", run="ls built")] == [Outcome.PASSED]
    with pytest.raises(CannotRun, match=r"the build failed \(exit code 2\): x.c:3: error: no such thing") as caught:
        run(tmp_path, build="echo compiling; echo x.c:3: error: no such thing >&2; exit 2")
    assert "compiling" in caught.value.output


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"run": ""}, "run is empty"),
        ({"files": ()}, "files is empty"),
        ({"files": ("x/*",)}, r"no file matches \[test\] files = x/\*"),
        ({"files": ("/etc/*",)}, "is no glob below"),
        ({"directory": "none"}, "there is no such directory"),
    ],
)
def test_what_cannot_run_says_why(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    write(tmp_path, a_in="")
    with pytest.raises(CannotRun, match=message):
        run(tmp_path, **fields)


def test_a_real_compiler_is_tested_by_its_own_cases(tmp_path: Path) -> None:
    """The torture style, with the C compiler: compile, run, compare."""
    write(
        tmp_path,
        good_c='#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
        good_out="hello\n",
        wrong_c='#include <stdio.h>\nint main(void) { puts("bye"); return 0; }\n',
        wrong_out="hello\n",
        crash_c="#include <stdlib.h>\nint main(void) { abort(); }\n",
        crash_out="",
        syntax_c="int main(void) { return x; }\n",
        syntax_out="",
    )
    subprocess.run(["cc", "--version"], check=True, capture_output=True)
    command = "cc {file} -o {stem}.exe && ./{stem}.exe"
    results = run(tmp_path, files=("t/*.c",), run=command, expect="{dir}/{stem}.out")
    told = {result.name.removeprefix("t/"): (result.outcome, result.reason) for result in results}
    assert told["good.c"] == (Outcome.PASSED, "")
    assert told["wrong.c"] == (Outcome.FAILED, "line 1: expected 'hello', got 'bye'")
    assert told["crash.c"][0] is Outcome.CRASHED and "SIGABRT" in told["crash.c"][1]
    assert told["syntax.c"][0] is Outcome.FAILED and "‘x’ undeclared" in told["syntax.c"][1].replace("'x'", "‘x’")
