"""Compare mode with small shell programs: each kind of difference, and everything that can be wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from team.errors import TeamError
from team.oracle.compare import CompareSettings, compare
from team.oracle.compare_report import CompareReport, Group


def _compare(
    root: Path, reference: str, candidate: str, known: Mapping[str, Group] | None = None, **more: Any
) -> CompareReport:
    return compare(root, CompareSettings(reference, candidate, **{"inputs": ("in/*",)} | more), print, known)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three inputs, of which two have a line with BAD."""
    folder = tmp_path / "project" / "in"
    folder.mkdir(parents=True)
    for number in range(3):
        lines = [f"line {at}" for at in range(20)]
        lines[7] = f"some BAD {number}" if number else "good"
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return folder.parent


def _only(report: CompareReport) -> Group:
    (group,) = report.groups
    return group


def test_equal_programs_have_no_difference(project: Path) -> None:
    report = _compare(project, "cat {input}", "cat <{input}")
    assert (report.same, report.groups, report.broken, report.flaky) == (3, (), (), ())
    assert list(report.lines()) == ["no difference on 3 of 3 inputs"]


def test_an_exit_code(project: Path) -> None:
    group = _only(_compare(project, "cat {input}", "cat {input}; ! grep -q BAD {input} || exit 3"))
    assert (group.signature, group.example, group.minimal) == ("exit 0 -> exit 3", b"BAD", True)
    assert (group.count, group.inputs) == (2, ("in/1.txt", "in/2.txt"))
    assert group.excerpt == "- exit 0\n+ exit 3"


def test_a_crash_is_told_by_what_it_said(project: Path) -> None:
    crash = (
        'if grep -q BAD {input}; then echo "x.c:$(wc -l <{input}): bad thing: assertion failed" >&2; kill -SEGV $$; fi'
    )
    group = _only(_compare(project, "cat {input}", f"{crash}; cat {{input}}"))
    assert group.signature == "exit 0 -> signal SEGV; stderr: x.c:N: bad thing: assertion failed"
    assert group.example == b"BAD"
    assert group.task.startswith("compare_exit_0_to_signal_segv_stderr_x_c_n_bad_thing")


def test_a_failure_may_be_told_on_standard_output(project: Path) -> None:
    candidate = "cat {input}; echo ok; ! grep -q BAD {input} || { echo 'FAILED test 12'; exit 1; }"
    group = _only(_compare(project, "cat {input}; echo ok", candidate))
    assert group.signature == "exit 0 -> exit 1; stdout: FAILED test N"


def test_standard_error_alone(project: Path) -> None:
    candidate = "cat {input}; ! grep -q BAD {input} || echo oops >&2"
    assert _only(_compare(project, "cat {input}", candidate)).signature == "exit 0; stderr: empty -> text"
    assert not _compare(project, "cat {input}", candidate, builtin=("no_stderr",)).groups


def test_files_that_are_written(project: Path) -> None:
    reference = "mkdir d && cp {input} d/out1.txt"
    candidate = "mkdir d && sed 's/BAD 1/7/' {input} >d/out1.txt; ! grep -q 'BAD 2' {input} || ln -s / more"
    report = _compare(project, reference, candidate)
    found = {group.signature: group.inputs for group in report.groups}
    assert found == {
        "exit 0; file d/outN.txt: word -> whole number": ("in/1.txt",),
        "exit 0; file more: only the candidate wrote it": ("in/2.txt",),
    }
    assert not _compare(project, reference, candidate, files=("*.o",)).groups


def test_each_run_starts_in_an_empty_directory(project: Path) -> None:
    leave = 'test -z "$(ls -A . "$TMPDIR" | grep -v :)" || exit 9; touch left "$TMPDIR/left"; mkdir -m 0 shut'
    assert _compare(project, f"{leave}; cat {{input}}", f"{leave}; cat <{{input}}").same == 3


def test_directory_and_temporary_names_never_differ(project: Path) -> None:
    assert (
        _compare(project, "pwd; dirname $(mktemp); cat {input}", "pwd; dirname $(mktemp); cat <{input}", jobs=2).same
        == 3
    )


@pytest.mark.parametrize("stop", ["sleep 1000", "while :; do :; done"])
def test_a_candidate_that_never_ends(project: Path, stop: str) -> None:
    group = _only(
        _compare(
            project, "cat {input}", f"! grep -q BAD {{input}} || {stop}; cat {{input}}", timeout=0.5, shrink_checks=6
        )
    )
    assert group.signature == "exit 0 -> timed out"
    assert b"BAD" in group.example
    assert len(group.example) < 170


def test_a_reference_that_breaks_on_some_inputs(project: Path) -> None:
    report = _compare(project, "! grep -q 'BAD 2' {input} || kill -ABRT $$; cat {input}", "cat <{input}")
    assert (report.same, [(each.name, each.why) for each in report.broken]) == (
        2,
        [("in/2.txt", "it ends with signal ABRT")],
    )
    assert not report.groups
    assert "the reference says nothing on 1 input," in "\n".join(report.lines())


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("sleep 1000 # {input}", "does not end in time"),
        ("kill -SEGV $$ # {input}", "signal SEGV"),
        ("./no {input}", "cannot be run"),
    ],
)
def test_a_reference_that_breaks_always(project: Path, reference: str, why: str) -> None:
    with pytest.raises(TeamError, match=f"no reference: it .*{why}"):
        _compare(project, reference, "cat {input}", timeout=0.5)


def test_a_reference_that_always_fails_is_told(project: Path) -> None:
    report = _compare(project, "cat {input} /nowhere 2>&1", "cat <{input}; cat /nowhere 2>&1; exit 1")
    assert report.same == 3
    assert "exits with an error on every input" in list(report.lines())[-1]


def test_a_candidate_that_cannot_be_run(project: Path) -> None:
    with pytest.raises(TeamError, match=r"candidate cannot be run: .*no-such: not found"):
        _compare(project, "cat {input}", "no-such {input}")


def test_a_flaky_reference_is_no_difference(project: Path) -> None:
    report = _compare(project, "cat {input}; date +%s.%N", "cat <{input}; date +%s.%N")
    assert not report.groups
    assert len(report.flaky) == 3
    assert report.flaky[0].why.endswith('set builtin = ["times"]')
    assert _compare(project, "cat {input}; date +%s.%N", "cat <{input}; date +%s.%N", builtin=("times",)).same == 3


def test_a_candidate_that_differs_now_and_then(project: Path) -> None:
    count = project / "count"
    once = f"! grep -q 'BAD 2' {{input}} || test -e '{count}' || {{ touch '{count}'; echo once; }}"
    group = _only(_compare(project, "cat {input}", f"cat {{input}}; {once}"))
    assert group.signature == "now and then: exit 0; stdout: lines too many"
    assert (group.inputs, group.checks) == (("in/2.txt",), 0)


def test_endless_output_is_bounded(project: Path) -> None:
    report = _compare(
        project, "yes abc | head -c 3000000 # {input}", "yes abc | head -c 3000004 # {input}", shrink_checks=1
    )
    assert (_only(report).count, report.cut) == (3, 3)
    assert any("1 MiB" in line for line in report.lines())
    assert len(json.dumps(report.to_json())) < 5000


def test_binary_output_and_input(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a\xff\n'$(id) {input}").write_bytes(bytes(range(256)) * 2)
    (folder / os.fsdecode(b"-\xff\xfe")).write_bytes(b"\xff\x00\x9b31m")
    report = _compare(tmp_path, 'cat "{input}"', "tr '\\377' '\\376' <{input}")
    group = _only(report)
    assert (group.signature, group.example, group.count) == ("exit 0; stdout: binary, other bytes", b"\xff\x00", 2)
    assert all(line.isprintable() for line in report.lines())


def test_a_known_group_is_kept_and_not_shrunk_again(project: Path) -> None:
    commands = ("cat {input}", "sed 's/BAD/7/' {input}")
    first = _only(_compare(project, *commands))
    assert first.checks
    stored = Group.from_json(json.loads(json.dumps(first.to_json())))
    assert stored == first
    again = _only(_compare(project, *commands, {first.signature: stored}))
    assert (again.example, again.task, again.minimal, again.checks) == (first.example, first.task, True, 0)


def test_the_same_difference_has_the_same_task_with_other_inputs(project: Path) -> None:
    commands = ("cat {input}", "sed 's/BAD/7/' {input}")
    one = _only(_compare(project, *commands, inputs=("in/1*",)))
    other = _only(_compare(project, *commands, inputs=(f"{project}/in/2*",)))
    assert one.task == other.task


def test_an_input_too_large_to_keep_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "large").write_bytes(b"BAD\n" * (3 << 20))
    group = _only(_compare(tmp_path, "wc -c {input}", "wc -l {input}"))
    assert (group.name, group.size, group.example, group.checks) == ("in/large", 12 << 20, b"", 0)


def test_root_names_the_project(project: Path) -> None:
    (project / "tool").write_text('#!/bin/sh\ncat "$1"\n')
    (project / "tool").chmod(0o755)
    assert _compare(project, "{root}/tool {input}", 'sh -c "{root}/tool {input}"').same == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CompareSettings("cat {input}", "cat {input}", ("in/*",)), "the same command"),
        (CompareSettings("cat {input}", "cat", ("in/*",)), "candidate: the command never sees the input"),
        (CompareSettings(" ", "cat {input}", ("in/*",)), "reference: there is no command"),
        (CompareSettings("cat {input}", "cat <{input}"), "there is no input"),
        (CompareSettings("cat {input}", "cat <{input}", ("in/*", "out/*")), "'out/\\*' matches no file"),
        (CompareSettings("cat {input}", "cat <{input}", ("in",)), "'in' matches no file"),
        (CompareSettings("cat {input}", "cat <{input}", ("in/*",), timeout=0), "timeout"),
        (CompareSettings("cat {input}", "cat <{input}", generate="echo oh; exit 4"), "generate: with seed 1 it fails"),
        (CompareSettings("cat {input}", "cat <{input}", generate="no-such"), "generate: .*no-such: not found"),
        (CompareSettings("cat {input}", "cat <{input}", generate="echo 1"), "the same for every seed"),
        (CompareSettings("cat {input}", "cat <{input}", ("in/*",), builtin=("tims",)), "'tims' is no normaliser"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant(project: Path, settings: CompareSettings, message: str) -> None:
    with pytest.raises(TeamError, match=message):
        compare(project, settings, print)
