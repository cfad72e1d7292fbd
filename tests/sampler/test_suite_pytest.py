"""pytest as a suite: what it finds, what it runs, and what it says came of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from team.sampler.cases import CannotRun, Case, Options, Outcome, Result
from team.sampler.settings import SuiteSettings
from team.sampler.suites import pytest as suite_module
from team.sampler.suites.pytest import Pytest
from tests.sampler import real_suites

ALL = list
_TOP = Path(suite_module.__file__).parents[3]
PYTHONS = {"old": (real_suites.OLD_PYTEST,), "plain": (real_suites.PYTEST,), "plugins": real_suites.PLUGINS}


@pytest.fixture(scope="session")
def pythons() -> dict[str, str]:
    """Commands that call pytest: an old one, a plain one, one with many plugins, and that of our own tests."""
    made = {name: f"{real_suites.interpreter(*packages)} -m pytest" for name, packages in PYTHONS.items()}
    return {**made, "ours": f"{sys.executable} -m pytest"}


class Project:
    """A small project, and its suite."""

    def __init__(self, root: Path, run: str) -> None:
        self.root, self.runs = root, run
        self.listed: list[Case] = []
        subprocess.run(["git", "init", "-q", root], check=True)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        old = time.time() - 1000 + random.random()  # nobody edits a file while it is collected
        os.utime(path, (old, old))

    def suite(self) -> Pytest:
        return Pytest(self.root, SuiteSettings(run=self.runs))

    def list(self) -> list[str]:
        return [case.name for case in self.suite().list(Options())]

    def run(
        self,
        choose: Callable[[Sequence[Case]], Sequence[Case]] = ALL,
        *,
        jobs: int = 1,
        seconds: float = 60.0,
        memory: int | None = None,
    ) -> dict[str, Result]:
        """Results by name, of which there is exactly one for each chosen case."""
        results: list[Result] = []
        chosen: list[str] = []

        def note(cases: Sequence[Case]) -> Sequence[Case]:
            self.listed = list(cases)
            picked = choose(cases)
            chosen.extend(case.name for case in picked)
            return picked

        self.suite().run(note, Options(jobs, seconds, memory), results.append)
        assert sorted(result.name for result in results) == sorted(chosen)
        return {result.name: result for result in results}

    def outcomes(self, *, jobs: int = 1, seconds: float = 60.0) -> dict[str, str]:
        """What came of all cases, by name without its file."""
        results = self.run(jobs=jobs, seconds=seconds)
        return {name.partition("::")[2] or name: result.outcome.value for name, result in results.items()}


def only(*names: str) -> Callable[[Sequence[Case]], Sequence[Case]]:
    """Chooses the cases whose names end so."""
    return lambda cases: [case for case in cases if case.name.endswith(names)]


@pytest.fixture
def project(tmp_path: Path, pythons: dict[str, str]) -> Project:
    return Project(tmp_path / "project", pythons["plain"])


# -- what comes of a case --------------------------------------------------------------------------------------

KINDS = """
    import unittest, pytest

    def test_passes(): pass
    def test_fails():
        print("printed before")
        assert 1 == 2
    def test_raises(): {}["missing"]
    def test_fails_by_word(): pytest.fail("no luck")
    def test_skips(): pytest.skip("not today")
    @pytest.mark.xfail(reason="known")
    def test_xfails(): assert False
    @pytest.mark.xfail(strict=True)
    def test_xpasses_strictly(): pass
    @pytest.mark.xfail
    def test_xpasses(): pass

    @pytest.fixture(scope="session")
    def database(): raise RuntimeError("no database")
    def test_without_database(database): pass
    def test_without_database_too(database): pass
    @pytest.fixture
    def leaves():
        yield
        raise OSError("cannot clean")
    def test_tears_down_badly(leaves): pass

    class TestOld(unittest.TestCase):
        def test_method(self): self.assertEqual(1, 1)
        def test_bad(self): self.assertEqual(1, 2)
        @unittest.skip("later")
        def test_skipped(self): pass
        def test_parts(self):
            for n in range(3):
                with self.subTest(n=n): self.assertNotEqual(n, 1)
"""
CAME = {
    "test_passes": ("passed", ""),
    "test_fails": ("failed", "AssertionError: assert 1 == 2 (tests/test_kinds.py:7)"),
    "test_raises": ("failed", "KeyError: 'missing' (tests/test_kinds.py:8)"),
    "test_fails_by_word": ("failed", "Failed: no luck (tests/test_kinds.py:9)"),
    "test_skips": ("skipped", "Skipped: not today"),
    "test_xfails": ("skipped", "expected to fail: known"),
    "test_xpasses_strictly": ("failed", "[XPASS(strict)]"),
    "test_xpasses": ("passed", ""),
    "test_without_database": ("failed", "setup: RuntimeError: no database (tests/test_kinds.py:19)"),
    "test_without_database_too": ("failed", "setup: RuntimeError: no database (tests/test_kinds.py:19)"),
    "test_tears_down_badly": ("failed", "teardown: OSError: cannot clean (tests/test_kinds.py:25)"),
    "TestOld::test_method": ("passed", ""),
    "TestOld::test_bad": ("failed", "AssertionError: 1 != 2 (tests/test_kinds.py:30)"),
    "TestOld::test_skipped": ("skipped", "Skipped: later"),
    "TestOld::test_parts": ("failed", "AssertionError: 1 == 1 (tests/test_kinds.py:35)"),
}


@pytest.mark.parametrize("python", ["old", "plain", "plugins", "ours"])
def test_each_kind_of_case_has_its_outcome_and_its_reason(
    project: Project, pythons: dict[str, str], python: str
) -> None:
    project.runs = pythons[python] if python == "ours" else f"{pythons[python]} -W error"
    project.write("tests/test_kinds.py", KINDS)
    results = project.run()
    came = {name.partition("::")[2]: (result.outcome.value, result.reason) for name, result in results.items()}
    assert came == CAME
    detail = results["tests/test_kinds.py::test_fails"].detail
    assert "assert 1 == 2" in detail and "printed before" in detail
    assert {case.file for case in project.listed} == {"tests/test_kinds.py"}


def test_doctests_and_async_tests_are_cases(project: Project, pythons: dict[str, str]) -> None:
    project.runs = f"{pythons['plugins']} --doctest-modules -p no:randomly"
    project.write("pytest.ini", "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    project.write("code.py", 'def double(n):\n    """\n    >>> double(2)\n    5\n    """\n    return 2 * n\n')
    project.write(
        "test_async.py",
        """
        import asyncio
        async def test_waits(): await asyncio.sleep(0)
        async def test_hangs(): await asyncio.sleep(60)
        async def test_after(): pass
        """,
    )
    results = project.run(seconds=1)
    assert {name: result.outcome.value for name, result in results.items()} == {
        "code.py::code.double": "failed",
        "test_async.py::test_waits": "passed",
        "test_async.py::test_hangs": "timed_out",
        "test_async.py::test_after": "passed",
    }
    assert results["code.py::code.double"].reason.startswith("expected 5, got 4 (")


def test_names_may_hold_anything_and_are_unique(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        import pytest
        NAMES = ["two words", "two\\nlines", "a::b", "[x]", "same", "same", "same#2", "\\udcff", "\\u202e", "é", " "]
        class Item(pytest.Item):
            def runtest(self): assert self.name != "[x]"
        class Yaml(pytest.File):
            def collect(self): return [Item.from_parent(self, name=name) for name in NAMES]
        def pytest_collect_file(file_path, parent):
            if file_path.suffix == ".cases": return Yaml.from_parent(parent, path=file_path)
        """,
    )
    project.write("odd name.cases", "")
    results = project.run(jobs=2)
    names = ["two words", "two\nlines", "a::b", "[x]", "same", "same#2", "same#2#2", "\udcff", "\u202e", "é", " "]
    assert [case.name for case in project.listed] == [f"odd name.cases::{name}" for name in names]
    assert [name for name, result in results.items() if result.outcome.bad] == ["odd name.cases::[x]"]
    assert list(project.run(only("#2#2"))) == ["odd name.cases::same#2#2"]


def test_output_is_bounded_and_may_be_any_bytes(project: Project) -> None:
    project.write(
        "test_loud.py",
        r"""
        import os, sys
        def test_loud():
            for _ in range(100): print("x" * 1_000_000)
            assert 0
        def test_bytes():
            os.write(1, b"\0\xff\xfe\n")
            print("\udc80 \x1b[31m")
            raise ValueError("\udc80\0")
        def test_says_much(): assert 0, "y" * 10_000_000
        """,
    )
    results = project.run()
    assert {result.outcome for result in results.values()} == {Outcome.FAILED}
    assert all(len(result.detail) < 64 << 10 and len(result.reason) < 1000 for result in results.values())
    assert "characters left out" in results["test_loud.py::test_loud"].detail


# -- what a case does to its process ---------------------------------------------------------------------------

WRECKERS = """
    import os, signal, sys, time, threading, pytest
    def test_before(): pass
    def test_leaves(): os._exit(0)
    def test_segfaults(): os.kill(os.getpid(), signal.SIGSEGV)
    def test_stops_all(): pytest.exit("enough")
    def test_interrupts(): raise KeyboardInterrupt
    def test_sleeps(): time.sleep(60)
    def test_sleeps_on():
        while True:
            try: time.sleep(60)
            except BaseException: pass
    def test_kills_its_parents():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1)
    def test_forks():
        if os.fork() == 0: sys.exit(0)
    def test_daemon():
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    def test_goes_elsewhere():
        os.environ.clear()
        os.chdir("/")
    def test_after(): pass
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_case_that_takes_its_process_down_is_blamed_and_the_rest_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(suite_module, "_GRACE", 2.0)
    project.write("test_wreck.py", WRECKERS)
    results = project.run(jobs=jobs, seconds=2)
    bad = {name.partition("::")[2]: result for name, result in results.items() if result.outcome.bad}
    assert {name: (result.outcome.value, result.reason.partition(" (")[0]) for name, result in bad.items()} == {
        "test_leaves": ("crashed", "its process ended: exit code 0"),
        "test_segfaults": ("crashed", "its process ended: SIGSEGV"),
        "test_stops_all": ("crashed", "Exit: enough"),
        "test_interrupts": ("crashed", "KeyboardInterrupt: "),
        "test_sleeps": ("timed_out", "no end after 2 s"),
        "test_sleeps_on": ("timed_out", "no end after 2 s, and it could not be interrupted"),
        "test_kills_its_parents": ("crashed", bad["test_kills_its_parents"].reason),
    }
    assert "time.sleep(60)" in bad["test_sleeps"].detail and bad["test_sleeps"].reason.endswith("(test_wreck.py:8)")


def test_a_case_may_close_all_files(project: Project) -> None:
    project.runs += " -s"  # else it takes those of pytest's own capture, and fails without us too
    project.write(
        "test_files.py",
        """
        import os
        def test_closes(): os.closerange(3, 1000)
        def test_opens_others():
            os.closerange(3, 1000)
            for n in range(400): open(f"open{n}", "w").detach()
        def test_after(): pass
        """,
    )
    assert set(project.outcomes().values()) == {"passed"}
    assert not any(path.stat().st_size for path in project.root.glob("open*"))


def test_a_case_that_holds_too_much_memory_is_blamed(project: Project) -> None:
    project.write(
        "test_memory.py",
        """
        import time
        def test_before(): pass
        def test_greedy():
            held = bytearray(400 << 20)
            time.sleep(30)
        def test_after(): pass
        """,
    )
    results = project.run(memory=200 << 20)
    assert [result.outcome.value for result in results.values()] == ["passed", "crashed", "passed"]
    assert "memory" in results["test_memory.py::test_greedy"].reason


def test_a_case_sees_the_environment_that_it_would_see_without_us(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    project.write(
        "test_env.py",
        """
        import os, sys
        def test_env():
            assert os.environ["PYTHONPATH"] == "/somewhere"
            assert not [name for name in os.environ if name.startswith("TEAM_PY")]
            assert not [path for path in sys.path if path.endswith("plugin")]
        """,
    )
    assert project.outcomes() == {"test_env": "passed"}


# -- what is chosen --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
def test_only_the_chosen_cases_run(project: Project, jobs: int) -> None:
    text = """
        import pathlib, pytest
        @pytest.fixture(autouse=True)
        def ran(request, pytestconfig):
            with open(pytestconfig.rootpath / "ran", "a") as file: file.write(request.node.nodeid + "\\n")
        @pytest.mark.parametrize("n", range(10))
        def test_it(n): pass
        """
    for name in "abc":
        project.write(f"test_{name}.py", text)
    chosen = {"test_a.py::test_it[1]", "test_a.py::test_it[7]", "test_c.py::test_it[0]"}
    results = project.run(lambda cases: [case for case in cases if case.name in chosen], jobs=jobs)
    assert set(results) == chosen
    assert sorted((project.root / "ran").read_text().split()) == sorted(chosen)
    assert len(project.listed) == 30
    (project.root / "ran").unlink()
    assert len(project.run(jobs=jobs)) == 30
    assert len((project.root / "ran").read_text().split()) == 30
    (project.root / "ran").unlink()
    assert len(project.list()) == 30 and project.run(lambda cases: [], jobs=jobs) == {}
    assert not (project.root / "ran").exists()


@pytest.mark.parametrize("jobs", [1, 2])
def test_options_of_the_project_do_not_hide_cases(project: Project, pythons: dict[str, str], jobs: int) -> None:
    project.runs = pythons["plugins"]
    project.write(
        "pytest.ini",
        "[pytest]\naddopts = -x --maxfail=2 -n auto --lf --sw --cov=. --cov-fail-under=100 --reruns 1 --timeout 20 "
        "-m 'not slow' --strict-markers -p randomly\nmarkers = slow\n",
    )
    project.write(
        "test_a.py",
        """
        import pytest
        tries = []
        def test_flaky():
            tries.append(1)
            assert len(tries) > 1
        @pytest.mark.slow
        def test_slow(): pass
        def test_bad(): assert 0
        def test_worse(): assert 0
        @pytest.mark.flaky(reruns=0)
        @pytest.mark.timeout(0.5)
        def test_own_timeout():
            while True: pass
        def test_sub(subtests):
            with subtests.test("skips"): pytest.skip("part")
        def test_sub_bad(subtests):
            for n in range(3):
                with subtests.test(n=n): assert n != 1
        """,
    )
    project.write("test_b.py", "def test_c(): pass\ndef test_d(): pass\n")
    project.write("test_broken.py", "import missing\n")
    expected = {
        "test_flaky": "passed",
        "test_bad": "failed",
        "test_worse": "failed",
        "test_own_timeout": "failed",
        "test_sub": "passed",
        "test_sub_bad": "failed",
        "test_c": "passed",
        "test_d": "passed",
        "test_broken.py": "failed",
    }
    assert project.outcomes(jobs=jobs) == expected
    assert project.outcomes(jobs=jobs) == expected
    names = [case.name.partition("::")[2] or case.name for case in project.listed]
    assert names == list(expected)  # in the order in which they stand, whatever order they run in


# -- what cannot be collected ----------------------------------------------------------------------------------


def test_a_session_has_the_option_without_any_installation(project: Project, pythons: dict[str, str]) -> None:
    """As `team/inside/entry` sets PYTHONPATH."""
    project.write("test_one.py", "def test_one():\n    pass\n")
    plugin = _TOP / "team" / "sampler" / "plugin"
    env = os.environ | {"PYTHONPATH": str(plugin), "TEAM_TEST_COMMAND": f"{sys.executable} -m team.cli"}
    for name in ("old", "plain", "plugins"):
        argv = [*pythons[name].split(), "--team-fast=100%", "-q"]
        done = subprocess.run(argv, cwd=project.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "1 of 1 tests" in done.stdout, done.stdout + done.stderr


def test_a_broken_file_is_one_failed_case(project: Project) -> None:
    project.write("tests/test_good.py", "def test_good(): pass\n")
    project.write("tests/test_broken.py", "import missing\n")
    project.write("tests/test_syntax.py", "def test_(:\n")
    project.write("tests/test_absent.py", "import pytest\npytest.importorskip('missing')\ndef test_no(): pass\n")
    results = project.run()
    assert {name: result.outcome.value for name, result in results.items()} == {
        "tests/test_good.py::test_good": "passed",
        "tests/test_broken.py": "failed",
        "tests/test_syntax.py": "failed",
    }
    reason = "it cannot be collected: ModuleNotFoundError: No module named 'missing'"
    assert results["tests/test_broken.py"].reason == reason
    assert "import missing" in results["tests/test_broken.py"].detail
    assert "SyntaxError" in results["tests/test_syntax.py"].reason
    assert {case.name: case.file for case in project.listed}["tests/test_broken.py"] == "tests/test_broken.py"
    assert list(project.run(only("test_good"))) == ["tests/test_good.py::test_good"]


def test_a_file_that_takes_pytest_down_while_it_is_imported_is_one_bad_case(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_module, "_QUIET", 6.0)
    project.write("test_good.py", "def test_good(): pass\n")
    project.write("test_leaves.py", "import os\nos._exit(1)\n")
    project.write("test_hangs.py", "import time\ntime.sleep(60)\n")
    results = project.run(jobs=2, seconds=1)
    assert {name: result.outcome.value for name, result in results.items()} == {
        "test_good.py::test_good": "passed",
        "test_leaves.py": "crashed",
        "test_hangs.py": "timed_out",
    }
    assert results["test_leaves.py"].reason == "it cannot be collected: its process ended: exit code 1"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "found no tests: name files test_*.py"),
        ({"test_a.py": "import pytest\npytest.skip('no', allow_module_level=True)\n"}, "found no tests"),
        ({"test_a.py": "import missing\n"}, "the only test file cannot be collected; test_a.py: "),
        ({"test_a.py": "0/0\n", "test_b.py": "0/0\n"}, "none of the 2 test files can be collected; test_a.py: "),
        ({"conftest.py": "import missing\n"}, "ImportError while loading conftest"),
        ({"conftest.py": "def pytest_collection(): 0/0\n"}, "ZeroDivisionError: division by zero"),
        ({"conftest.py": "import os\nos._exit(7)\n"}, "exit code 7"),
        ({"pytest.ini": "[pytest]\naddopts = --nonsense\n"}, "unrecognized arguments: --nonsense"),
        ({"pytest.ini": "[pytest]\nrequired_plugins = pytest-absent\n"}, "Missing required plugins: pytest-absent"),
        ({"test_a.py": "import os\nos._exit(7)\n"}, "the only test file cannot be collected; test_a.py: "),
    ],
)
def test_a_suite_that_cannot_run_says_why_in_one_line(project: Project, files: dict[str, str], says: str) -> None:
    for name, text in files.items():
        project.write(name, text)
    with pytest.raises(CannotRun) as caught:
        project.run()
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("absent-command", "not found"),
        ("true", "[test] run must call pytest"),
        (f"{sys.executable} -I -S -m pytest", "pytest is not installed: `"),
        (f"{sys.executable} -I -m pytest", "must let PYTHONPATH through"),
    ],
)
def test_a_command_that_is_no_pytest_is_named(project: Project, run: str, says: str) -> None:
    project.runs = run
    project.write("test_a.py", "def test_a(): pass\n")
    with pytest.raises(CannotRun) as caught:
        project.run()
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_pytest_is_found_in_the_projects_virtual_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.runs = ""
    project.write("test_a.py", "import sys\ndef test_a(): assert '/.venv' in sys.prefix\n")
    (project.root / ".venv").symlink_to(real_suites.interpreter(real_suites.PYTEST).parent.parent)
    assert project.outcomes() == {"test_a": "passed"}
    (project.root / ".venv").unlink()
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("git", "sh"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(bare))
    with pytest.raises(CannotRun, match="pytest is not installed: `python3 -m pip install pytest`, or say"):
        project.run()


# -- what is remembered ----------------------------------------------------------------------------------------


@pytest.fixture
def watched(project: Project) -> Project:
    """Three files that write down when they are imported; cases come from a module and from a directory."""
    project.write("lib/__init__.py", "NUMBERS = [1, 2]\n")
    project.write("data/one.txt", "1\n")
    project.write(
        "conftest.py",
        """
        import pathlib
        def imported(name):
            with open(pathlib.Path(__file__).parents[1] / "imports", "a") as file: file.write(name + "\\n")
        """,
    )
    project.write("tests/test_a.py", "import conftest\nconftest.imported('a')\ndef test_a(): pass\n")
    project.write(
        "tests/test_b.py",
        "import conftest, lib, pytest\nconftest.imported('b')\n"
        "@pytest.mark.parametrize('n', lib.NUMBERS)\ndef test_b(n): pass\n",
    )
    project.write(
        "tests/test_c.py",
        "import conftest, pathlib, pytest\nconftest.imported('c')\n"
        "@pytest.mark.parametrize('name', [path.name for path in pathlib.Path('data').iterdir()])\n"
        "def test_c(name): pass\n",
    )
    return project


def imports(project: Project) -> str:
    """Which files were imported since the last call."""
    path = project.root.parent / "imports"
    text = "".join(sorted(path.read_text().split())) if path.exists() else ""
    path.unlink(missing_ok=True)
    return text


def test_once_listed_only_the_files_of_chosen_cases_are_collected(watched: Project) -> None:
    all_ = watched.run()
    assert imports(watched) == "abc"
    assert watched.run(only("test_b[1]")).keys() == {"tests/test_b.py::test_b[1]"}
    assert [case.name for case in watched.listed] == list(all_)
    assert imports(watched) == "b"
    assert watched.run(only("test_a", "test_c[one.txt]"), jobs=2).keys() == all_.keys() - {
        "tests/test_b.py::test_b[1]",
        "tests/test_b.py::test_b[2]",
    }
    assert imports(watched) == "ac"
    assert watched.list() == list(all_)
    assert imports(watched) == ""


def _edit_test(project: Project) -> str:
    project.write("tests/test_a.py", "def test_a(): pass\ndef test_more(): pass\n")
    return "tests/test_a.py::test_more"


def _edit_source(project: Project) -> str:
    project.write("lib/__init__.py", "NUMBERS = [1, 2, 3]\n")
    return "tests/test_b.py::test_b[3]"


def _add_data(project: Project) -> str:
    project.write("data/two.txt", "2\n")
    return "tests/test_c.py::test_c[two.txt]"


def _add_file(project: Project) -> str:
    project.write("tests/test_d.py", "def test_d(): pass\n")
    return "tests/test_d.py::test_d"


def _add_directory(project: Project) -> str:
    project.write("more/deep/test_e.py", "def test_e(): pass\n")
    return "more/deep/test_e.py::test_e"


def _configure(project: Project) -> str:
    project.write("check_f.py", "def test_f(): pass\n")
    project.write("pytest.ini", "[pytest]\npython_files = check_*.py test_*.py\n")
    return "check_f.py::test_f"


@pytest.mark.parametrize("change", [_edit_test, _edit_source, _add_data, _add_file, _add_directory, _configure])
def test_what_changes_the_listing_is_noticed(watched: Project, change: Callable[[Project], str]) -> None:
    watched.run()
    assert watched.run(only("test_a")).keys() == {"tests/test_a.py::test_a"}
    name = change(watched)
    assert watched.run(lambda cases: [case for case in cases if case.name == name]).keys() == {name}


def test_a_listing_that_depends_on_more_than_files_is_not_remembered(watched: Project) -> None:
    watched.write("tests/test_d.py", "import os\nif os.system('test -e flag') == 0:\n    def test_d(): pass\n")
    assert "tests/test_d.py::test_d" not in watched.list()
    watched.write("flag", "")
    assert "tests/test_d.py::test_d" in watched.list()


def test_names_that_are_others_each_time_run_all_the_same(watched: Project) -> None:
    watched.write(
        "tests/test_d.py",
        "import time, pytest\n@pytest.mark.parametrize('at', [time.time_ns()])\ndef test_d(at): pass\n",
    )
    came = [[result.outcome.value for result in watched.run().values()] for _ in range(4)]
    assert came[0] == came[3] == ["passed"] * 5
    assert {*came[1], *came[2]} <= {"passed", "gone"}


@pytest.mark.parametrize("remembered", [False, True])
def test_a_case_that_goes_away_before_it_runs_is_gone(watched: Project, remembered: bool) -> None:
    if remembered:
        watched.list()

    def edit(cases: Sequence[Case]) -> Sequence[Case]:
        watched.write("tests/test_a.py", "def test_other(): pass\n")
        watched.write("tests/test_b.py", "import missing\n")
        watched.write("tests/test_c.py", "def test_other(): pass\n")
        return cases

    results = watched.run(edit, jobs=3)
    came = {result.outcome.value for result in results.values()}
    # The process that made the listing has imported them before; the others have not.
    assert came == ({"gone", "failed"} if remembered else came | {"passed"})
    assert came <= {"gone", "failed", "passed"}
    if remembered:
        assert results["tests/test_a.py::test_a"].outcome is Outcome.GONE
        assert "No module named 'missing'" in results["tests/test_b.py::test_b[1]"].reason


def test_two_runs_at_once_do_not_meet(watched: Project) -> None:
    code = (
        "import sys; from pathlib import Path; from team.sampler.suites.pytest import Pytest\n"
        "from team.sampler.cases import Options; from team.sampler.settings import SuiteSettings\n"
        "suite = Pytest(Path(sys.argv[1]), SuiteSettings(run=sys.argv[2]))\n"
        "suite.run(list, Options(2), lambda result: print(result.outcome.value, result.name))\n"
    )
    command = [sys.executable, "-c", code, str(watched.root), watched.runs]
    runs = [subprocess.Popen(command, cwd=_TOP, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [sorted(run.communicate()[0].splitlines()) for run in runs]
    assert outputs[0] == outputs[1] == outputs[2]
    assert [line.split()[0] for line in outputs[0]] == ["passed"] * 4
    assert len(watched.list()) == 4


# -- pytest --team-fast ----------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """What PYTHONPATH must be for pytest to find our plugin as it does where ``team`` is installed."""
    entries = tomllib.loads((_TOP / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = tmp_path / "installed" / "team-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: team\nVersion: 0.1.0\n")
    lines = [f"{name} = {module}\n" for name, module in entries.items()]
    (metadata / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    return f"{metadata.parent}:{_TOP}"


@pytest.fixture
def direct(project: Project, tmp_path: Path, installed: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Calls pytest as a person does; ``team`` is the real one."""
    team = tmp_path / "team"
    team.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m team.sampler.main "$@"\n')
    team.chmod(0o755)
    project.write(
        "test_many.py", "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_it(n): assert n\n"
    )

    def call(*arguments: str, command: str = str(team), run: str = project.runs) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": installed, "TEAM_TEST_COMMAND": command, "TEAM_AGENT": "agent-01"}
        return subprocess.run([*run.split(), *arguments], cwd=project.root, env=env, capture_output=True, text=True)

    return call


def test_pytest_itself_runs_a_sample_and_shows_what_team_says(
    direct: Callable[..., subprocess.CompletedProcess[str]], pythons: dict[str, str]
) -> None:
    done = direct("--team-fast", "-q", "--collect-only")
    names = {line for line in done.stdout.splitlines() if line.startswith("test_many.py::")}
    assert 10 <= len(names) <= 30, done.stdout + done.stderr
    again = direct("--team-fast=10%", "-v", "-n2", "-p", "no:randomly", run=pythons["plugins"])
    ran = {word for line in again.stdout.splitlines() for word in line.split() if word.startswith("test_many.py::")}
    assert ran == names, again.stdout + again.stderr
    all_ = direct("--team-fast=100%")
    summary = all_.stdout.partition(" team ===")[2]
    assert all_.returncode == 1 and "200" in summary and "test_it[0]" in summary, all_.stdout + all_.stderr


def test_the_suite_runs_where_the_plugin_is_installed_too(
    project: Project, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", installed)
    project.write("pytest.ini", "[pytest]\naddopts = --team-fast=1%\n")
    project.write("test_a.py", "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_it(n): pass\n")
    assert project.outcomes() == {f"test_it[{n}]": "passed" for n in range(20)}


def test_what_team_fast_cannot_do_is_one_clear_error(
    direct: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    for arguments, command, says in [
        (["--team-fast"], "no-such-team", "there is no such command: install team, or name it in TEAM_TEST_COMMAND"),
        (["--team-fast=0%"], None, "--team-fast: "),
        (["--team-fast", "test_many.py"], None, "write --team-fast=10%, or put it behind the paths"),
    ]:
        done = direct(*arguments, **({"command": command} if command else {}))
        assert done.returncode == 4 and says in done.stderr and "Traceback" not in done.stderr, (
            done.stdout + done.stderr
        )


# -- other people's suites -------------------------------------------------------------------------------------

_DUMP = """
import json
def pytest_runtest_logreport(report):
    with open(DUMP, "a") as file: file.write(json.dumps([report.nodeid, report.outcome]) + "\\n")
"""


@pytest.mark.parametrize("requirement", real_suites.SUITES)
def test_a_real_suite_is_listed_and_run_as_pytest_itself_does(requirement: str, tmp_path: Path) -> None:
    root = real_suites.project(requirement, tmp_path / "source")
    python = real_suites.interpreter(*real_suites.SUITES[requirement])
    dump = tmp_path / "dump"
    plugin = tmp_path / "plugins" / "dump_reports.py"
    plugin.parent.mkdir()
    plugin.write_text(_DUMP.replace("DUMP", repr(str(dump))))
    env = {**os.environ, "PYTHONPATH": str(plugin.parent)}
    subprocess.run([python, "-m", "pytest", "-q", "-p", "dump_reports"], cwd=root, env=env, stdout=subprocess.PIPE)
    bare: dict[str, set[str]] = {}
    for line in dump.read_text().splitlines():
        name, outcome = json.loads(line)
        bare.setdefault(name, set()).add(outcome)
    expected = {
        name: next((kind for kind in ("failed", "skipped") if kind in kinds), "passed") for name, kinds in bare.items()
    }

    project = Project(root, f"{python} -m pytest")
    results = project.run(jobs=2)
    assert len(project.listed) > 500
    assert {name: result.outcome.value for name, result in results.items()} == expected

    names = [case.name for case in project.listed]
    sample = set(random.Random(requirement).sample(names, len(names) // 10))
    some = project.run(lambda cases: [case for case in cases if case.name in sample])
    assert {name: result.outcome.value for name, result in some.items()} == {name: expected[name] for name in sample}
    assert [case.name for case in project.listed] == names
