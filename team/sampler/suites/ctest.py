"""``ctest``: the tests that a CMake project declares.

ctest itself runs them: fixtures, dependencies, locks, expected failures and the project's own time-outs hold as always,
and what it adds to the chosen cases (the set-up of a fixture) gives no result of its own. Without a call in the
settings, it is run in the build directory that is found. A name that several directories use is prefixed with its own.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Sink
from team.sampler.process import Ended, Job
from team.sampler.settings import SuiteSettings
from team.sampler.suites import batch, shell

_BUILDS = ("build", "_build", "cmake-build-*", "build-*", "out/build/*")
_START = re.compile(r"\s*Start +(\d{1,9}): ")
_END = re.compile(r"\s*\d+/\d+ Test +#(\d{1,9}): ")
_OUTPUT = re.compile(r"(\d{1,9}): ?(.*)", re.DOTALL)
_STATUS = re.compile(r" \.+(?:   |\*\*\*)(\S.*?) *(\d+\.?\d*) sec$", re.DOTALL)
_HEADERS = ("Test command:", "Working Directory:", "Test timeout computed", "Environment variables:")
_TELLING = re.compile(r"assert|error|fail|expected|fatal|panic|exception|mismatch|not ok", re.IGNORECASE)


class CTest:
    """The tests of a CMake project, as a suite."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root = root
        self._settings = settings

    def list(self, options: Options) -> Sequence[Case]:
        return self._project().cases

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        project = self._project()
        names = [case.name for case in choose(project.cases)]
        with tempfile.TemporaryDirectory(prefix="team-ctest-") as folder:
            batch.run([_Tests(project, Path(folder), names, options)] if names else [], sink)

    def _project(self) -> _Project:
        """Build, and ask ctest for its cases."""
        place = batch.build(self._root, self._settings)
        call = self._settings.run or "ctest"
        cwd = place if self._settings.run else _build_directory(place)
        end = batch.call(batch.shell(call, ["--show-only=json-v1"]), cwd, merge=False)
        text = end.output.decode("utf-8", "replace")
        try:
            listing = json.loads(text[text.index("{") :])
        except ValueError:
            text = f"{text}\n{end.errors.decode('utf-8', 'replace')}".strip()
            raise CannotRun(f"ctest cannot list its tests: {shell.telling(text)}", text) from None
        return _project(call, cwd, self._root, listing)


@dataclass
class _Project:
    call: str
    cwd: Path
    cases: list[Case]
    numbers: dict[str, int]
    """Of each case, as ctest counts."""
    shown: dict[str, str]
    """What ctest calls each case."""


def _build_directory(place: Path) -> Path:
    found = sorted(path.parent for glob in _BUILDS for path in place.glob(f"{glob}/CTestTestfile.cmake"))
    if not found:
        raise CannotRun(
            "no build directory with tests found: set [test] build in team.toml, like 'cmake -S . -B build && cmake "
            "--build build'"
        )
    if len(found) > 1:
        names = ", ".join(batch.inside(path, place) for path in found)
        raise CannotRun(f"several build directories found ({names}): set [test] run, like 'ctest --test-dir build'")
    return found[0]


def _project(call: str, cwd: Path, root: Path, listing: Mapping[str, Any]) -> _Project:
    project = _Project(call, cwd, [], {}, {})
    count = Counter(str(test["name"]) for test in listing["tests"])
    for number, test in enumerate(listing["tests"], 1):
        own = name = str(test["name"])
        if count[own] > 1:
            directories = [Path(each["value"]) for each in test["properties"] if each["name"] == "WORKING_DIRECTORY"]
            within = [batch.inside(path, cwd) or batch.inside(path, root) for path in directories]
            name = f"{within[0]}/{own}" if within and within[0] != "." else own
        while name in project.numbers:
            name += "'"
        project.cases.append(Case(name, batch.inside(_declared(test, listing["backtraceGraph"]), root)))
        project.numbers[name] = number
        project.shown[name] = own
    return project


def _declared(test: Mapping[str, Any], graph: Mapping[str, Any]) -> Path:
    """The file that declares a test."""
    return Path(graph["files"][graph["nodes"][test["backtrace"]]["file"]]) if "backtrace" in test else Path("/")


class _Tests(batch.Batch):
    """Cases of one call of ctest."""

    slack = 2.0

    def __init__(self, project: _Project, folder: Path, names: Sequence[str], options: Options) -> None:
        super().__init__(names, options)
        self.width = options.jobs
        self._project = project
        self._folder = folder
        self._outer = {project.numbers[name]: name for name in names}
        self._text = {name: batch.Kept() for name in names}
        self._between = batch.Kept()  # what ctest says of a test that it cannot start
        self._last: tuple[str, str] | None = None  # the case that ends, and its line so far

    def again(self, names: Sequence[str]) -> batch.Batch:
        return type(self)(self._project, self._folder, names, self.options)

    def job(self, key: str) -> Job:
        # By number: names can hold what no pattern or list of ctest's can express.
        chosen = self._folder / key
        chosen.write_text(f"0,0,0,{','.join(map(str, self._outer))}\n")
        flags = ["-V", "-j", str(self.options.jobs), "--timeout", f"{max(1, round(self.options.seconds))}"]
        argv = batch.shell(self._project.call, [*flags, "-I", str(chosen)])
        return Job(key, argv, self._project.cwd, memory=self.bound())

    def read(self, line: str) -> None:
        if self._last:  # a line of ctest's that has a newline in its name or status
            self._finish(self._last[0], f"{self._last[1]}\n{line}")
        elif output := _OUTPUT.match(line):
            name = self._outer.get(int(output[1]))
            if name and not output[2].startswith(_HEADERS):
                self._text[name].add(output[2] + "\n")
        elif start := _START.match(line):
            self._start(int(start[1]), line[start.end() :])
        elif end := _END.match(line):
            if name := self._outer.get(int(end[1])):
                self._finish(name, line[end.end() :])
        elif line.startswith("Total Test time"):
            self.complete = True
        else:
            self._between.add(line + "\n")

    def _start(self, number: int, shown: str) -> None:
        name = self._outer.get(number, "")
        if name and self._project.shown[name].split("\n")[0] != shown:
            del self._outer[number]  # the build directory has changed since: another test has its number
        else:
            self.begun(name)

    def _finish(self, name: str, said: str) -> None:
        """A case ends: ``said`` is its name, dots, its status and its time."""
        status = _STATUS.match(said.removeprefix(self._project.shown[name]))
        if not status and said.count("\n") < 20:
            self._last = (name, said)
            return
        self._last = None
        verdict, seconds = (" ".join(status[1].split()), float(status[2])) if status else ("Failed", 0.0)
        if verdict == "Not Run":
            self._text[name].add(str(self._between).strip())
        self._between = batch.Kept()
        outcome = _outcome(verdict)
        text = self.printed(name)
        reason = ""
        if outcome is Outcome.TIMED_OUT:
            reason = f"took longer than it may: {seconds:.3g} s"
        elif outcome is not Outcome.PASSED:
            known, _, why = verdict.partition(" ")
            reason = why if known in ("Failed", "Exception:") and why else _telling(text) or verdict
        self.ended(name, outcome, seconds, reason, text)

    def close(self, ended: Ended) -> None:
        if self._last:
            self._finish(self._last[0], self._last[1] + "\n" * 20)

    def printed(self, name: str) -> str:
        return str(self._text[name])


def _outcome(verdict: str) -> Outcome:
    if verdict == "Passed":
        return Outcome.PASSED
    if verdict.startswith("Skipped") or verdict == "Not Run (Disabled)":
        return Outcome.SKIPPED
    if verdict.startswith("Timeout"):
        return Outcome.TIMED_OUT
    return Outcome.CRASHED if verdict.startswith("Exception") else Outcome.FAILED


def _telling(text: str) -> str:
    """The line of a test's output that looks most like a reason: the last that speaks of a failure."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[-1]
