"""Mix mode as a command, on projects whose build and check are small scripts."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from team.oracle.memory import key_of

# Each unit is a file; the check reads which are the candidate's, and fails where one of the guilty sets is whole.
CHECK = """\
import os, sys
units = set(open(os.environ["TEAM_ORACLE_ASSIGNMENT"]).read().split())
open("ran", "a").write("x\\n")
for guilty in (line.split() for line in open("guilty")):
    if guilty and units >= set(guilty):
        sys.exit("assertion failed: " + guilty[0])
"""


@dataclass
class Project:
    """A project with an ``[oracle]``."""

    root: Path
    env: Mapping[str, str]

    def settings(self, **settings: object) -> None:
        table = {"units": ["src/*.c"], "check": f"{sys.executable} check.py", **settings}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        (self.root / "team.toml").write_text("[oracle]\n" + "\n".join(lines) + "\n")

    def guilty(self, *sets: Sequence[int]) -> list[list[str]]:
        found = [sorted(f"src/unit_{n:03}.c" for n in numbers) for numbers in sets]
        (self.root / "guilty").write_text("".join(" ".join(names) + "\n" for names in found))
        return found

    def __call__(self, *args: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "team.oracle.main", *args]
        done = subprocess.run(argv, cwd=self.root, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if "--json" in args else done.stdout + done.stderr

    def json(self, *args: str, code: int = 0) -> Any:
        return json.loads(self(*args, "--json", code=code))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TEAM_", "GIT_"))}
    (tmp_path / "tmp").mkdir()
    env = kept | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    made = Project(tmp_path / "project", env | {"XDG_STATE_HOME": str(tmp_path / "state")})
    (made.root / "src").mkdir(parents=True)
    for n in range(200):
        (made.root / "src" / f"unit_{n:03}.c").write_text(f"int unit_{n};\n")
    (made.root / "check.py").write_text(CHECK)
    (made.root / ".gitignore").write_text("ran\n")
    made.guilty()
    made.settings()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "A project"]):
        subprocess.run([*git, *argv], cwd=made.root, check=True)
    return made


def units(report: Any) -> list[list[str]]:
    return sorted(culprit["units"] for culprit in report["culprits"])


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_culprits_alone_and_together(project: Project, jobs: str) -> None:
    guilty = project.guilty([17], [60, 140], [199])
    found = project.json("run", "-j", jobs, code=1)
    assert units(found) == guilty
    assert found["rest"] == "passes" and found["undecided"] == []
    assert {culprit["reason"] for culprit in found["culprits"]} == {f"exit 1: assertion failed: {g[0]}" for g in guilty}
    again = project.json("run", "-j", jobs, code=1)
    assert units(again) == guilty
    assert again["spared"] > 0 and again["builds"] < found["builds"] / 2  # what is proven is run, what is known is not
    text = project("run", code=1)
    assert "src/unit_060.c + src/unit_140.c only together" in text and len(text.splitlines()) <= 12
    assert project("check", "src/unit_017.c", code=1).startswith("fails with 1 of 200 units")
    assert "passes" in project("check", "--all", *(g[0] for g in guilty))
    assert [line.split(":")[0] for line in project("status").splitlines()].count("fix_src--unit_017.c") == 1
    assert not (project.root / "ran").exists(), "the work tree itself was built in"


def test_a_right_candidate_is_nothing_to_find(project: Project) -> None:
    assert "nothing to find" in project("run")
    assert "nothing to find" in project("next", code=3)


def test_a_wrong_reference_is_said_so(project: Project) -> None:
    project.settings(check="echo no good >&2; false")
    assert "the reference alone fails the check too" in project("run", code=2)
    project.settings(build="echo 'error: no compiler' >&2; exit 3")
    assert "cannot be built or checked: the build failed: error: no compiler" in project("run", code=2)


def test_a_check_that_never_ends_is_a_failure_of_its_units(project: Project) -> None:
    (project.root / "check.py").write_text(CHECK.replace("sys.exit(", "import time; time.sleep(600); ("))
    guilty = project.guilty([7])
    project.settings(timeout="0.4s")
    found = project.json("run", code=1)
    assert units(found) == guilty and "did not end" in found["culprits"][0]["reason"]


def test_what_cannot_be_told_is_gone_round(project: Project) -> None:
    """A set with just one of two units cannot be linked."""
    guilty = project.guilty([33])
    project.settings(build=f'{sys.executable} -c "{"; ".join(LINK)}"')
    found = project.json("run", code=1)
    assert units(found) == guilty and found["rest"] == "passes"


LINK = (
    "import os, sys",
    "u = open(os.environ['TEAM_ORACLE_ASSIGNMENT']).read()",
    "sys.exit(('unit_050' in u) != ('unit_051' in u))",
)


def test_a_flaky_check(project: Project) -> None:
    guilty = project.guilty([5], [150])
    flips = "import os, sys; sys.exit(os.urandom(1)[0] < 51)"
    wrong = f'{sys.executable} -c "{flips}"'
    project.settings(
        check=f"{sys.executable} check.py; code=$?; {wrong} || code=$((code == 0)); exit $code", flaky=0.2, jobs=2
    )
    assert units(project.json("run", code=1)) == guilty


def test_each_agent_finds_another_one(project: Project) -> None:
    project.guilty(*([n] for n in range(0, 200, 10)))
    found = [units(project.json("next", "--agent", f"agent-{n:02}"))[0][0] for n in range(8)]
    assert len(set(found)) >= 5
    assert all(name.endswith("0.c") for name in found)
    assert units(project.json("next", "--agent", "agent-03"))[0][0] == found[3]


def test_other_files_are_another_setting(project: Project) -> None:
    project.guilty([4])
    assert project.json("run", code=1)["spared"] == 0
    project.guilty([9])
    changed = project.json("run", code=1)
    assert units(changed) == [["src/unit_009.c"]] and changed["spared"] == 0
    (project.root / "src" / "unit_009.c").unlink()
    project.guilty()
    assert project.json("run")["units"] == 199


@pytest.mark.parametrize(
    ("toml", "args", "says"),
    [
        ("", ["run"], "has no [oracle] build and check"),
        ("[oracle]\nbuild = 'make'\n", ["run"], "[oracle] check is empty"),
        ("[oracle]\nchek = 'x'\n", ["run"], "oracle.chek: unknown key; did you mean 'check'?"),
        ("[oracle]\ncheck = 'x'\nunits = ['nowhere/*']\n", ["run"], "no units: set [oracle] units"),
        (
            "[oracle]\ncheck = 'x'\nlist = 'echo no >&2; exit 4'\n",
            ["run"],
            "`echo no >&2; exit 4` failed with exit 4: no",
        ),
        ("[oracle]\ncheck = 'x'\nreference = 'gcc'\nunits='src/*'\n", ["run"], "belong together"),
        ("[oracle]\ncheck = 'x'\nflaky = 0.7\n", ["run"], "expected a number from 0 to 0.45"),
        ("[oracle]\ncheck = 'true'\nunits='src/*'\n", ["check", "nine.c"], "'nine.c' is no unit"),
        ("[oracle]\ncheck = 'true'\nunits='src/*'\n", ["run", "-j", "0"], "--jobs 0 is no number"),
        ("[oracle]\ncheck = 'x'\nunits = ['/etc/*']\n", ["run"], "'/etc/*' does not do: a pattern of paths inside"),
        ("[oracle]\ncheck = 'x'\nunits = ['']\n", ["run"], "'' does not do: a pattern of paths inside"),
        ("[oracle]\ncheck = 'x'\nlist = 'printf \"a\\\\0b\"'\n", ["run"], "is no unit: a name is one line"),
        ("[oracle]\ncheck = 'x'\nlist = 'sleep 60'\ntimeout = 0.1\n", ["run"], "`sleep 60` was ended: timed out"),
        ("[oracle]\ncheck = 'x'\nlist = 'echo a'\ndirectory = 'no'\n", ["run"], "there is no 'no' in the work tree"),
        ("[oracle]\ncheck = 'x'\njobs = 0.5\n", ["run"], "oracle.jobs: expected a number from 1 to 256"),
        (
            "[oracle]\ncheck = 'x'\nreference = 'gcc'\ncandidate = \"cc '\"\nunits='src/*'\n",
            ["run"],
            "candidate is no command: no closing quotation",
        ),
        (
            "[oracle]\ncheck = 'true'\nreference = 'gcc'\ncandidate = 'cc'\nunits='src/*'\n",
            ["run"],
            "the build passes, but compiles no unit with team-cc",
        ),
        ("[oracle]\n", ["compare"], "[oracle.compare] reference and candidate are not set"),
    ],
)
def test_what_cannot_run_says_the_mend(project: Project, toml: str, args: list[str], says: str) -> None:
    (project.root / "team.toml").write_text(toml)
    assert says in project(*args, code=2)


def test_twenty_thousand_units(project: Project) -> None:
    project.settings(units=[], list=f'{sys.executable} -c "print(*range(20000), sep=chr(10))"')
    (project.root / "guilty").write_text("777\n12345 19999\n")
    found = project.json("run", code=1)
    assert units(found) == [["12345", "19999"], ["777"]] and found["builds"] < 120


def test_units_need_not_be_files(project: Project) -> None:
    project.settings(units=[], list="printf '/v1/users\\n/etc/hostname\\n../x y\\n-O2\\n'")
    (project.root / "guilty").write_text("/v1/users\n")
    assert units(project.json("run", code=1)) == [["/v1/users"]]
    (project.root / "guilty").write_text("-O2\n")
    assert "reproduce: team oracle check -- -O2" in project("run", code=1)
    assert project("check", "--", "-O2", code=1).startswith("fails with 1 of 4")


def test_several_at_once_in_one_work_tree(project: Project) -> None:
    """None builds in a copy while another one does."""
    guilty = project.guilty([17], [60, 140])
    build = 'cp "$TEAM_ORACLE_ASSIGNMENT" built; sleep 0.02'
    project.settings(build=build, check=f"cmp -s $TEAM_ORACLE_ASSIGNMENT built && {sys.executable} check.py")
    argv = [sys.executable, "-m", "team.oracle.main", "run", "--json"]
    running = [subprocess.Popen(argv, cwd=project.root, env=project.env, stdout=subprocess.PIPE) for _ in range(3)]
    assert [units(json.loads(each.communicate()[0])) for each in running] == [guilty] * 3


@pytest.mark.parametrize("verdict", ["passes", "fails", "untestable"])
def test_what_others_say_hides_nothing_and_blames_nobody(project: Project, verdict: str) -> None:
    guilty = project.guilty([17], [60, 140])
    project.json("run", code=1)
    with sqlite3.connect(project.root / ".git" / "team" / "oracle.db") as memory:
        memory.execute("UPDATE verdicts SET verdict = ?", (verdict,))
    assert units(project.json("next", code=0))[0] in guilty
    with sqlite3.connect(project.root / ".git" / "team" / "oracle.db") as memory:
        memory.execute("UPDATE verdicts SET verdict = ?", (verdict,))
    assert units(project.json("run", code=1)) == guilty


def test_one_lie_hides_nothing(project: Project) -> None:
    guilty = project.guilty([17], [60])
    project.json("run", code=1)
    path = project.root / ".git" / "team" / "oracle.db"
    for innocent in ([guilty[0][0]], [f"src/unit_{n:03}.c" for n in range(200) if n != 17]):
        with sqlite3.connect(path) as memory:
            lie = (key_of(innocent),)
            memory.execute("REPLACE INTO verdicts SELECT setting, ?, 'passes', '', 0, 1, '', 0 FROM verdicts", lie)
        assert units(project.json("run", code=1)) == guilty


def test_a_mended_machine_is_looked_at_again(project: Project, tmp_path: Path) -> None:
    project.settings(build=f"test -e {tmp_path}/tool")
    assert "cannot be built" in project("run", code=2)
    (tmp_path / "tool").touch()
    assert "nothing to find" in project("run")


def test_what_a_killed_build_left_half_made_is_not_used(project: Project, tmp_path: Path) -> None:
    build = "[ -e made ] || { printf x >made; [ -e %s ] || sleep 60; printf yz >>made; }" % (tmp_path / "quick")
    project.settings(build=build, check='[ "$(cat made)" = xyz ]')
    argv = [sys.executable, "-m", "team.oracle.main", "run"]
    with subprocess.Popen(argv, cwd=project.root, env=project.env) as running:
        while not list((tmp_path / "tmp").glob("*/tree-0/made")):
            time.sleep(0.02)
        running.kill()
    (tmp_path / "quick").touch()
    assert "nothing to find" in project("run")


def test_a_change_older_than_what_was_built_counts(project: Project) -> None:
    data = project.root / "data"
    data.write_text("good")
    project.settings(build="[ out -nt data ] || cp data out", check='[ "$(cat out)" = good ]')
    assert "nothing to find" in project("run")
    data.write_text("bad")
    os.utime(data, (1e9, 1e9))
    assert "the reference alone fails the check too" in project("run", code=2)


def test_a_candidate_with_the_same_name_and_new_content(project: Project) -> None:
    compiler = project.root / "badcc"
    compiler.write_text('case "$*" in *unit_00[12].c*) echo "error: no" >&2; exit 1;; esac; exec gcc "$@"\n')
    build = "set -e; cd src; for n in 0 1 2 3; do team-cc -c unit_00$n.c -o $n.o; done"
    project.settings(units=["src/unit_00[0-3].c"], build=build, reference="gcc", candidate="sh badcc")
    assert units(project.json("run", code=1)) == [["src/unit_001.c"], ["src/unit_002.c"]]
    compiler.write_text(compiler.read_text().replace("[12]", "1"))
    assert units(project.json("run", code=1)) == [["src/unit_001.c"]]
    compiler.write_text(compiler.read_text().replace("unit_001", "unit_003"))
    assert units(project.json("run", code=1)) == [["src/unit_003.c"]]


def test_a_compiler_that_git_ignores_is_said_so(project: Project) -> None:
    (project.root / ".gitignore").write_text("ran\nmycc\n")
    (project.root / "mycc").write_text("#!/bin/sh\n")
    project.settings(build="team-cc -c src/unit_000.c", reference="gcc", candidate="./mycc")
    assert "cannot be started in a copy of the work tree" in project("run", code=2)


def test_a_memory_that_is_none_says_the_mend(project: Project) -> None:
    path = project.root / ".git" / "team" / "oracle.db"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    assert "file is not a database; remove it" in project("run", code=2)
