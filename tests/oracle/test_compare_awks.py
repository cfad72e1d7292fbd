"""Compare mode on two real implementations of one language: GNU awk and mawk (1.3.4, as Debian has it)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from team.names import task_problem
from team.oracle.compare import CompareSettings, compare
from team.oracle.compare_report import CompareReport, Group
from team.oracle.compare_runs import for_hand
from tests.sampler.toolchains import library

_AGREED = """\
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }
BEGIN {
    split("one two three", words)
    for (i = 1; i <= 3; i++) print i, words[i], length(words[i])
    print fib(10), tolower("ABC"), substr("hello", 2, 3)
}
"""
_NO_INTERVALS = 'print ("aa" ~ /^a{2}$/)'
_DIFFER = {
    "interval_1.awk": _NO_INTERVALS,
    "interval_2.awk": 'if (1) { s = 1; print ("bbb" ~ /^b{3}$/), "x" }',
    "infinite.awk": "print 1e300 * 1e300",
    "gensub 1.awk": 'print gensub(/a/, "b", "g", "aa")',
    "-gensub.awk": 's = "x"; print gensub(/x/, "y", 1, s) s',
    "switch.awk": "switch (fib(3)) { case 2: print 2 }",
    "order\n.awk": 'for (i = 0; i < 5; i++) a[i * 7] = 1; for (k in a) print "k" k',
    "wide-\udcff.awk": 'printf "%c", 256',
}
_SAME = {f"same_{number}.awk": f"print {number} * 7, fib({number})" for number in range(5)}


@pytest.fixture(scope="module")
def gawk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A command; unpacked, not installed: that would change what `awk` is on the machine."""
    folder = tmp_path_factory.mktemp("gawk")
    packages = ["gawk", "libsigsegv2", "libmpfr6", "libgmp10", "libreadline8", "libtinfo6"]
    found = [library(package, folder) for package in packages]
    libraries = {str(path.parent) for each in found for path in each.rglob("*.so.*")}
    return f"LD_LIBRARY_PATH={':'.join(sorted(libraries))} LC_ALL=C.UTF-8 {found[0]}/usr/bin/gawk"


@pytest.fixture
def mawk(tmp_path: Path) -> str:
    return f"LC_ALL=C.UTF-8 {library('mawk', tmp_path)}/usr/bin/mawk"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    programs = tmp_path / "a project" / "programs"
    programs.mkdir(parents=True)
    for name, statement in (_DIFFER | _SAME).items():
        (programs / name).write_text(f'{_AGREED}BEGIN {{\n    {statement}\n    print "end"\n}}\n')
    return programs.parent


def _by_input(report: CompareReport) -> dict[str, Group]:
    return {name.removeprefix("programs/"): group for group in report.groups for name in group.inputs}


def test_real_differences_are_found_grouped_and_shrunk(project: Path, gawk: str, mawk: str) -> None:
    settings = CompareSettings(
        f"{gawk} -f {{input}}", f"{mawk} -f {{input}}", ("programs/*.awk",), builtin=("no_stderr",), jobs=2
    )
    said: list[str] = []
    report = compare(project, settings, said.append)
    assert (report.total, report.same, report.broken, report.flaky) == (13, 5, (), ())
    groups = _by_input(report)
    assert groups.keys() == _DIFFER.keys()
    assert groups["interval_1.awk"] is groups["interval_2.awk"]
    assert groups["gensub 1.awk"] is groups["-gensub.awk"]
    assert len({group.task for group in report.groups}) == len(report.groups) == 6
    assert [task_problem(group.task) for group in report.groups] == [None] * 6
    assert "never defined" in groups["-gensub.awk"].signature
    assert groups["order\n.awk"].signature == "exit 0; stdout: order of lines"
    for group in report.groups:
        assert group.minimal, group
        assert len(group.example) < 60, group.example  # of about 400: nothing that they agree on is left
        assert group.excerpt
    assert len(said) < 20


def test_an_example_shows_the_difference_by_the_command_for_hand(project: Path, gawk: str, mawk: str) -> None:
    settings = CompareSettings(f"{gawk} -f {{input}}", f"{mawk} -f {{input}}", ("programs/inter*",))
    (group,) = compare(project, settings, print).groups
    example = project / "it's one.awk"
    example.write_bytes(group.example)
    commands = (
        for_hand(command, project, example, stdin=False) for command in (settings.reference, settings.candidate)
    )
    one, other = (subprocess.run(["sh", "-c", command], capture_output=True, check=True) for command in commands)
    assert one.stdout != other.stdout


def test_generated_numbers_on_standard_input(tmp_path: Path, gawk: str, mawk: str) -> None:
    program = """ '{ printf "%d %s\\n", $1, $2 }'"""
    # mawk 1.3.4 prints integers up to 2^31 - 1.
    generate = f"{mawk} -v seed={{seed}} 'BEGIN {{ printf \"%.0f small\\n7 seven\\n\", 2 ^ seed }}'"
    settings = CompareSettings(gawk + program, mawk + program, generate=generate, seed=27, count=6, stdin=True)
    report = compare(tmp_path, settings, print)
    assert report.same == 4
    (group,) = report.groups
    assert group.inputs == ("seed-31", "seed-32")
    assert group.signature == "exit 0; stdout: whole number -> whole number"
    assert group.minimal
    assert len(group.example) == 10
