"""The compiler that is two: what a build notices of it, and what a search does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from team.errors import TeamError
from team.oracle import cc
from tests.sampler import toolchains

WHO = """
#include "who.h"
#ifdef CANDIDATE
const char *NAME(void) { return "candidate"; }
#else
const char *NAME(void) { return "reference"; }
#endif
"""
MAIN = """
#include <stdio.h>
const char *a(void), *b(void);
int main(void) { printf("%s %s\\n", a(), b()); return 0; }
"""


class Tree:
    """A small project in a folder with a space in its name; the candidate defines a macro, so that it can be told."""

    def __init__(self, folder: Path, *, candidate: str = "gcc -DCANDIDATE", cache: Path | None = None) -> None:
        self.root = folder / "a project"
        self.cache = cache or folder / "cache"
        self.assignment = folder / "assignment"
        self.listing = folder / "listing"
        (self.root / "sub").mkdir(parents=True)
        (self.root / "who.h").write_text("")
        (self.root / "a.c").write_text(WHO.replace("NAME", "a"))
        (self.root / "sub" / "b.c").write_text(WHO.replace("NAME", "b").replace("who.h", "../who.h"))
        (self.root / "main.c").write_text(MAIN)
        self.env = cc.environment(
            self.root,
            reference="gcc",
            candidate=candidate,
            assignment=self.assignment,
            cache=self.cache,
            listing=self.listing,
        )
        self.assign()

    def assign(self, *units: str) -> None:
        cc.assign(self.root, self.cache, self.assignment, units)

    def run(self, *argv: str, cwd: str = "", given: str = "") -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **self.env}
        return subprocess.run(argv, cwd=self.root / cwd, env=env, input=given, capture_output=True, text=True)

    def cc(self, *argv: str, cwd: str = "", given: str = "") -> subprocess.CompletedProcess[str]:
        return self.run("team-cc", *argv, cwd=cwd, given=given)

    def make(self, *argv: str, cwd: str = "") -> None:
        """A call that must succeed and say nothing."""
        done = self.cc(*argv, cwd=cwd)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def answer(self, program: str = "prog") -> str:
        return self.run(f"./{program}").stdout.strip()

    def listed(self) -> list[str]:
        """Units compiled since the last look, by the listing."""
        names = cc.read(self.listing)
        self.listing.unlink(missing_ok=True)
        return names


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        ["-dumpmachine"],
        ["-print-search-dirs"],
        ["-E", "a.c"],
        ["-MM", "sub/b.c"],
        ["-fsyntax-only", "a.c"],
        ["-c", "nothing.c"],
        ["-c", "bad.c"],
        ["-Wall", "-c", "warns.c"],
        ["-nonsense", "-c", "a.c"],
        ["-c", "a.c", "main.c", "-o", "x.o"],
        ["main.o", "-o", "prog"],
        [],
    ],
)
def test_it_says_what_the_reference_says(tree: Tree, argv: list[str]) -> None:
    (tree.root / "bad.c").write_text("int f(void) { return x; }\n")
    (tree.root / "warns.c").write_text("static int f(void) { return 1; }\n")
    tree.assign("a.c") if "-c" not in argv else None
    wanted = tree.run("gcc", *argv)
    for _again in range(2):
        done = tree.cc(*argv)
        assert (done.returncode, done.stdout, done.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_standard_input_is_the_references(tree: Tree) -> None:
    tree.assign("-")
    code = "#ifdef CANDIDATE\n#error no\n#endif\nint f(void);\n"
    assert tree.cc("-x", "c", "-c", "-", "-o", "x.o", given=code).returncode == 0
    assert (tree.root / "x.o").exists()


def build(tree: Tree, how: str) -> None:
    match how:
        case "objects":
            tree.make("-c", "a.c")
            tree.make("-c", "-o", "sub/b.o", "sub/b.c")
            tree.make("-c", "main.c")
            tree.make("main.o", "a.o", "sub/b.o", "-o", "prog")
        case "several at once":
            tree.make("-c", "a.c", "sub/b.c", "main.c")
            tree.make("main.o", "a.o", "b.o", "-o", "prog")
        case "one call":
            tree.make("a.c", "-O1", "main.c", "sub/b.c", "-o", "prog", "-lm")
        case "response files":
            (tree.root / "words").write_text("a.c main.c\n'sub/b.c'")
            tree.make("@words", "-o", "prog")
        case "out of tree":
            (tree.root / "out").mkdir(exist_ok=True)
            tree.make(f"{tree.root}/a.c", "../sub/b.c", "../main.c", "-o", "../prog", cwd="out")
        case "assembly":
            tree.make("-S", "a.c")
            tree.make("-S", "sub/b.c", "-o", "sub/b.s")
            tree.make("a.s", "sub/b.s", "main.c", "-o", "prog")
        case "by language":
            tree.make("-x", "c", "a.c", "sub/b.c", "main.c", "-x", "none", "-o", "prog", "-lm")


@pytest.mark.parametrize(
    "how", ["objects", "several at once", "one call", "response files", "out of tree", "assembly", "by language"]
)
def test_each_file_is_compiled_by_whose_turn_it_is(tree: Tree, how: str) -> None:
    build(tree, how)
    assert tree.answer() == "reference reference"
    tree.assign("sub/b.c")
    build(tree, how)
    assert tree.answer() == "reference candidate"
    tree.assign("a.c", "sub/b.c")
    build(tree, how)
    assert tree.answer() == "candidate candidate"
    tree.assign("a.c")
    build(tree, how)
    assert tree.answer() == "candidate reference"


def test_units_are_listed_in_order_and_once(tree: Tree) -> None:
    build(tree, "one call")
    build(tree, "objects")
    (tree.root / "conftest.c").write_text("int x;\n")
    tree.make("-c", "conftest.c")
    (tree.root / "gone.c").write_text("int x;\n")
    tree.make("-c", "gone.c")
    (tree.root / "gone.c").unlink()
    assert cc.units(tree.root, tree.listing) == ["a.c", "main.c", "sub/b.c"]


MAKEFILE = """
prog: main.o a.o sub/b.o ; $(CC) $^ -o $@
%.o: %.c ; $(CC) -MD -MP -c $< -o $@
-include main.d a.d sub/b.d
"""


def test_make_redoes_only_what_changes(tree: Tree) -> None:
    (tree.root / "Makefile").write_text(MAKEFILE)
    make = ("make", "-s", "-j4", "CC=team-cc")
    assert tree.run(*make).returncode == 0
    assert (tree.answer(), sorted(tree.listed())) == ("reference reference", ["a.c", "main.c", "sub/b.c"])
    tree.assign("a.c")
    assert tree.run(*make).returncode == 0
    assert (tree.answer(), tree.listed()) == ("candidate reference", ["a.c"])
    tree.assign("sub/b.c")
    assert tree.run(*make).returncode == 0
    assert (tree.answer(), sorted(tree.listed())) == ("reference candidate", ["a.c", "sub/b.c"])
    tree.assign("sub/b.c")
    assert tree.run(*make).returncode == 0
    assert tree.listed() == []


@pytest.mark.parametrize("flags", [[], ["-MD"], ["-MMD", "-MF", "x.dep", "-MP"], ["-Wp,-MMD,x.dep"]])
@pytest.mark.parametrize("unit", ["", "a.c"])
def test_a_changed_header_counts(tree: Tree, unit: str, flags: list[str]) -> None:
    tree.assign(unit) if unit else None
    for text in ("\n", "#error no\n", "\n", "/* */\n"):
        (tree.root / "who.h").write_text(text)
        done = tree.cc(*flags, "-c", "a.c")
        assert done.returncode == ("error" in text)


def test_dependency_files_are_the_compilers(tree: Tree) -> None:
    def files() -> dict[str, str]:
        found = {path.name: path.read_text() for path in tree.root.glob("*.d")}
        for path in tree.root.glob("*.[do]"):
            path.unlink()
        return found

    for argv in (["-MD", "-c", "a.c"], ["-MMD", "-MP", "-c", "a.c", "-o", "x.o"], ["-MD", "-MT", "y z", "-c", "a.c"]):
        assert tree.run("gcc", *argv).returncode == 0
        wanted = files()
        assert wanted
        for _again in range(2):
            tree.make(*argv)
            assert files() == wanted


def slow_compiler(folder: Path, text: str = 'exec gcc "$@"') -> str:
    """A compiler that writes down each call that compiles one of the project's files."""
    path = folder / "counted cc"
    path.write_text(f'#!/bin/sh\ncase "$*" in *a.c*\\ -c*) echo "$*" >>"{folder}/calls" ;; esac\n{text}\n')
    path.chmod(0o755)
    return f"'{path}'"


def calls(folder: Path) -> int:
    return len(cc.read(folder / "calls"))


def test_nothing_is_compiled_twice(tmp_path: Path) -> None:
    tree = Tree(tmp_path, candidate=slow_compiler(tmp_path))
    for unit in ("a.c", "main.c", "a.c"):
        tree.assign(unit)
        tree.make("-c", "a.c")
    assert calls(tmp_path) == 1
    tree.make("-O1", "-c", "a.c")
    assert calls(tmp_path) == 2
    tree.env["TEAM_ORACLE_VERSION"] = "2"
    tree.make("-c", "a.c")
    assert calls(tmp_path) == 3
    slow_compiler(tmp_path, 'gcc "$@"')  # another program now
    tree.make("-c", "a.c")
    assert calls(tmp_path) == 4


def test_copies_of_a_project_share_what_holds_no_path(tmp_path: Path) -> None:
    compiler = slow_compiler(tmp_path)
    trees = [Tree(tmp_path / name, candidate=compiler, cache=tmp_path / "cache") for name in ("one", "two")]
    for tree in trees:
        tree.assign("a.c")
        tree.make("-MD", "-c", f"{tree.root}/a.c")
        rule = (tree.root / "a.d").read_text().replace("\\ ", " ")
        assert f"{tree.root}/a.c" in rule and f"{tree.root}/who.h" in rule
    assert calls(tmp_path) == 1
    for tree in trees:
        tree.make("-g", "-c", f"{tree.root}/a.c")
        assert bytes(tree.root) in (tree.root / "a.o").read_bytes()
    assert calls(tmp_path) == 3


def test_a_damaged_cache_is_not_believed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, candidate=slow_compiler(tmp_path))
    tree.assign("a.c")
    tree.make("-c", "a.c")
    wanted = (tree.root / "a.o").read_bytes()
    (entry,) = (tree.cache / "objects").iterdir()
    data = entry.read_bytes()
    for bad in (b"", data[:40], data[:-1], data[:-100] + b"x" + data[-99:]):
        entry.write_bytes(bad)
        tree.make("-c", "a.c")
        assert (tree.root / "a.o").read_bytes() == wanted
    assert calls(tmp_path) == 5
    assert not list((tree.cache / "tmp").iterdir())


def test_a_compiler_that_cannot_name_what_it_reads(tmp_path: Path) -> None:
    tree = Tree(tmp_path, candidate=slow_compiler(tmp_path, 'case "$*" in *-MD*) exit 1 ;; esac\nexec gcc "$@"'))
    tree.assign("a.c")
    for text, times in (("", 1), ("", 1), ("int x;", 2)):
        (tree.root / "who.h").write_text(text)
        tree.make("-c", "a.c")
        assert calls(tmp_path) == times


def test_a_source_that_includes_bytes_is_compiled_each_time(tmp_path: Path) -> None:
    tree = Tree(tmp_path, candidate=slow_compiler(tmp_path))
    tree.assign("a.c")
    (tree.root / "a.c").write_text('__asm__(".incbin \\"bytes\\"");\n')
    for data in ("one", "two"):
        (tree.root / "bytes").write_text(data)
        tree.make("-c", "a.c")
        assert data.encode() in (tree.root / "a.o").read_bytes()


def test_a_crash_is_the_units(tmp_path: Path) -> None:
    tree = Tree(tmp_path, candidate=slow_compiler(tmp_path, "echo 'a.c: error: \x1b[31mno' >&2; kill -SEGV $$"))
    tree.make("-c", "a.c")
    (tree.root / "a.o").rename(tree.root / "kept.o")
    tree.assign("a.c")
    (tree.root / "kept.o").rename(tree.root / "a.o")
    done = tree.cc("-c", "a.c")
    assert done.returncode == 139
    assert done.stderr.splitlines()[-1] == "team-cc: the candidate cannot compile a.c: exit code 139"
    assert not (tree.root / "a.o").exists()  # the reference's would have been linked
    assert cc.failures(tree.cache) == [cc.Failure("a.c", "candidate", 139, "a.c: error: no")]
    tree.env["TEAM_ORACLE_CANDIDATE"] = "gcc"
    tree.make("-c", "a.c")
    assert cc.failures(tree.cache) == []


def test_a_unit_that_builds_with_neither(tree: Tree) -> None:
    (tree.root / "a.c").write_text("int f(void) { return x; }\n")
    tree.cc("-c", "a.c")
    tree.assign("a.c")
    tree.cc("-c", "a.c")
    assert [(failure.unit, failure.compiler) for failure in cc.failures(tree.cache)] == [
        ("a.c", "candidate"),
        ("a.c", "reference"),
    ]


def test_devices_are_not_replaced(tree: Tree) -> None:
    tree.assign("a.c")
    for _again in range(2):
        tree.make("-c", "a.c", "-o", "/dev/null")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("front", [["ccache", "team-cc"], ["team-cc"]])
def test_ccache_in_front(tree: Tree, tmp_path: Path, front: list[str]) -> None:
    toolchains.need("ccache")
    del tree.env["CCACHE_DISABLE"]  # as where somebody calls team-cc in a way of his own
    tree.env |= {"CCACHE_DIR": str(tmp_path / "ccache")}
    if front == ["team-cc"]:
        tree.env |= {"TEAM_ORACLE_REFERENCE": "ccache gcc", "TEAM_ORACLE_CANDIDATE": "ccache gcc -DCANDIDATE"}
    for unit, wanted in (("main.c", "reference"), ("a.c", "candidate"), ("main.c", "reference")):
        tree.assign(unit)
        assert tree.run(*front, "-c", "a.c").returncode == 0
        tree.make("main.c", "sub/b.c", "a.o", "-o", "prog")
        assert tree.answer() == f"{wanted} reference"


def test_many_at_once(tree: Tree) -> None:
    tree.assign("a.c")
    env = {**os.environ, **tree.env}
    argv = ("team-cc", "-MD", "-c", "a.c", "-o")
    for _again in range(2):
        running = [subprocess.Popen([*argv, f"{number}.o"], cwd=tree.root, env=env) for number in range(8)]
        running += [subprocess.Popen([*argv, "same.o"], cwd=tree.root, env=env) for _each in range(4)]
        assert [each.wait() for each in running] == [0] * 12
    assert sorted(path.name for path in tree.root.glob("*.team-cc*")) == []
    assert len(set(cc.read(tree.cache / "made"))) == 9


def test_a_project_reached_by_a_link(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tree.root)
    tree.env["TEAM_ORACLE_ROOT"] = str(tmp_path / "link")
    tree.assign("a.c", "sub/b.c")
    tree.make(f"{tmp_path}/link/a.c", f"{tree.root}/sub/b.c", "main.c", "-o", "prog")
    assert tree.answer() == "candidate candidate"


def test_files_outside_the_project_are_the_references(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("#ifdef CANDIDATE\n#error no\n#endif\n")
    tree.assignment.write_text(f"a.c\n../a.c\n{tmp_path}/a.c\n")
    tree.make("-c", "../a.c", "-o", "x.o")
    assert tree.listed() == []


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"TEAM_ORACLE_ROOT": "/nowhere"}, "team-cc: TEAM_ORACLE_ROOT is '/nowhere': set it to the project's folder"),
        (
            {"TEAM_ORACLE_REFERENCE": ""},
            "team-cc: TEAM_ORACLE_REFERENCE is not set: set it to the reference compiler, like 'gcc'",
        ),
        (
            {"TEAM_ORACLE_CANDIDATE": " "},
            "team-cc: TEAM_ORACLE_CANDIDATE is not set: set it to the candidate compiler, like 'gcc'",
        ),
        (
            {"TEAM_ORACLE_CANDIDATE": "ccache team-cc"},
            "team-cc: TEAM_ORACLE_CANDIDATE is team-cc itself: set it to the candidate compiler, like 'gcc'",
        ),
        (
            {"TEAM_ORACLE_CANDIDATE": "nosuchcc -O2"},
            "team-cc: the candidate 'nosuchcc' cannot be started: No such file or directory; "
            "set TEAM_ORACLE_CANDIDATE to a compiler",
        ),
        (
            {"TEAM_ORACLE_ASSIGNMENT": "/nowhere/list"},
            "team-cc: TEAM_ORACLE_ASSIGNMENT is '/nowhere/list': No such file or directory; name the units' file",
        ),
        (
            {"TEAM_ORACLE_CACHE": "/dev/null/cache"},
            "team-cc: TEAM_ORACLE_CACHE is '/dev/null/cache': Not a directory; name a folder to write to",
        ),
    ],
)
def test_bad_settings_are_one_line(tree: Tree, env: Mapping[str, str], wanted: str) -> None:
    tree.assign("a.c")
    tree.env |= env
    done = tree.cc("a.c", "main.c", "-c")
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [wanted])
    assert not (tree.root / "a.o").exists()


def test_without_a_cache(tree: Tree) -> None:
    tree.assign("a.c")
    tree.env["TEAM_ORACLE_CACHE"] = ""
    build(tree, "objects")
    assert tree.answer() == "candidate reference"


@pytest.mark.parametrize("flags", ["-MD -MT a.o -MP -MF a.d", "-MD -MQ a.o -MFa.d", "-MMD", "-Wp,-MMD,a.d"])
def test_a_candidate_that_cannot_write_dependencies(tmp_path: Path, flags: str) -> None:
    """Many a small compiler cannot, and builds ask for them: that is no fault of the file."""
    compiler = tmp_path / "small"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-M*) exit 1;; esac\nexec gcc -DCANDIDATE "$@"\n')
    compiler.chmod(0o755)
    tree = Tree(tmp_path, candidate=str(compiler))
    for unit in ("-", "a.c"):
        tree.assign(unit)
        tree.make("-c", "a.c", "-o", "a.o", *flags.split())
        read = (tree.root / "a.d").read_text()
        assert read.startswith("a.o: a.c") and "who.h" in read
        (tree.root / "a.d").unlink()
    tree.make("main.c", "a.o", "sub/b.c", "-o", "prog")
    assert tree.answer() == "candidate reference"
    (tree.root / "who.h").write_text("#error changed")
    assert tree.cc("-c", "a.c", "-o", "a.o", *flags.split()).returncode != 0


def test_it_starts_by_the_path_of_its_file(tree: Tree) -> None:
    wrapper = (tree.cache / "bin" / "team-cc").resolve()
    tree.env["TEAM_PYTHON"] = sys.executable
    assert tree.run(str(wrapper), "-c", "a.c").returncode == 0


@pytest.mark.parametrize("unit", ["", "a\nb.c", "a\0b.c"])
def test_what_cannot_be_a_unit(tree: Tree, unit: str) -> None:
    tree.assign("a.c")
    with pytest.raises(TeamError, match="is no unit: a name is one line"):
        tree.assign("sub/b.c", unit)
    assert cc.read(tree.assignment) == ["a.c"]


def test_a_call_imports_nothing_slow(tree: Tree) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from team.oracle.cc_call import main; "
    code += "main(['-c', 'a.c']); print(*sys.modules)"
    done = tree.run(sys.executable, "-I", "-S", "-c", code, str(Path(cc.__file__).parents[2]))
    assert (tree.root / "a.o").exists()
    slow = "collections contextlib dataclasses enum hashlib json pathlib re shlex signal subprocess tempfile typing"
    assert set(done.stdout.split()) & set(slow.split()) == set()
