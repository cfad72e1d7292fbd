"""``go test``: tests, examples and fuzz seeds of all packages of a module.

A case is called ``DIRECTORY.TestName``, in the module's top package ``TestName``. Subtests are part of their test.
``go test`` compiles and links each package once and shows how it would start the program (recorder.py, by ``-exec``);
each program then runs once, with all its chosen cases. A package that does not compile is one case, which fails. The
call in the settings may have go's flags, and after ``-args`` the test programs' own.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job
from team.sampler.settings import SuiteSettings
from team.sampler.suites import batch, recorder, shell

_RECORDED = re.compile(r"recorded (\d+-\d+)\n?")
_FAILED = re.compile(r"FAIL\t(\S+) \[(?:build|setup) failed\]")
_CASE = re.compile(r"(?:Test|Example|Fuzz)\w*")
_FUNCTION = re.compile(r"^func ((?:Test|Example|Fuzz)\w*)\(", re.MULTILINE)
_OURS = re.compile(r"-test\.(list|run|count|timeout)\b|-test\.v(=true)?$")
_NEWS = re.compile(r"=== (RUN|PAUSE|CONT|NAME|ATTR) +(\S*)")
_END = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \((\d+\.?\d*)s\)$")
_OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}
_PANIC = re.compile(r"^(?:panic|fatal error): .*", re.MULTILINE)
_SAID = re.compile(r"^ +(\S+\.go:\d+:)(.*)", re.MULTILINE)
_ASSERTION = re.compile(r"^[ \t]+Error:\s+(.*?)(?=^[ \t]+(?:Test|Messages):|\Z)", re.MULTILINE | re.DOTALL)


@dataclass
class _Package:
    """One package with tests."""

    label: str
    """Its directory in the module; of the top package ``.``."""
    argv: Sequence[str] = ()
    cwd: Path = Path()
    env: Mapping[str, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    """Name of a case: its function."""
    files: dict[str, str] = field(default_factory=dict)
    broken: str = ""
    """Why it has no cases but one, which fails: what the compiler said."""


class Go:
    """The tests of a go module, as a suite."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root = root
        self._settings = settings
        call = re.split(r"\s-args(?=\s|$)", settings.run or "go test ./...", maxsplit=1)
        self._go = call[0]
        self._arguments = shlex.split("".join(call[1:]))

    def list(self, options: Options) -> Sequence[Case]:
        with tempfile.TemporaryDirectory(prefix="team-go-") as folder:
            return _cases(self._packages(Path(folder)))

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        with tempfile.TemporaryDirectory(prefix="team-go-") as folder:
            packages = self._packages(Path(folder))
            chosen = [case.name for case in choose(_cases(packages))]
            batches: list[batch.Batch] = []
            for package in packages:
                names = [name for name in chosen if name in package.inner]
                if package.broken:
                    for name in names:
                        sink(Result(name, Outcome.FAILED, 0.0, _compiler(package.broken), package.broken))
                else:
                    batches += [_Tests(package, part, options) for part in batch.portions(names)]
            batch.run(batches, sink, options.jobs)

    def _packages(self, folder: Path) -> Sequence[_Package]:
        """Compile, and ask each test program for its cases."""
        place = batch.build(self._root, self._settings)
        command = shlex.join([sys.executable, "-I", "-S", recorder.__file__, str(folder), "go"])
        listing = ["-json", "-count=1", "-list=.", "-exec", command]
        arguments = ["-args", *self._arguments] if self._arguments else []
        end = batch.call(batch.shell(self._go, [*listing, *arguments]), place, merge=False)
        errors = end.errors.decode("utf-8", "replace")
        said, built = _listing(end.output.decode("utf-8", "replace"))
        module = _module(place)
        records = recorder.records(str(folder))
        packages = [_recorded(records[name], _label(path, module), self._root) for path, name in said]
        text = errors + built
        for path in sorted(set(_FAILED.findall(text))):
            label = _label(path, module)
            packages.append(_Package(label, inner={label: ""}, broken=_section(text, path)))
        if not packages and (end.code or end.why):
            raise CannotRun(f"go test cannot list the tests: {shell.telling(text)}", text)
        return [package for package in packages if package.inner]


def _listing(output: str) -> tuple[list[tuple[str, str]], str]:
    """Import path and record of each package with a test program, and what else go said on the way."""
    records, text = [], []
    for line in output.splitlines(keepends=True):
        event: dict[str, str] = {}
        if line.startswith("{"):
            try:
                event = json.loads(line)
            except ValueError:
                event = {}
        words = event.get("Output", "") if event else line
        if found := _RECORDED.fullmatch(words):
            records.append((event.get("Package", ""), found[1]))
        elif not event or event.get("Action") == "build-output" or _FAILED.match(words):
            text.append(words)
    return sorted(records), "".join(text)


def _recorded(record: Mapping[str, Any], label: str, root: Path) -> _Package:
    kept = [argument for argument in record["arguments"] if not _OURS.match(argument)]
    package = _Package(label, [record["program"], *kept], Path(record["cwd"]), record["env"])
    if record["code"]:
        package.inner[label] = ""
        package.broken = f"its test program cannot list its tests: exit code {record['code']}\n{record['listing']}"
        return package
    files = _functions(package.cwd)
    for function in filter(_CASE.fullmatch, record["listing"].splitlines()):
        name = function if label == "." else f"{label}.{function}"
        package.inner[name] = function
        package.files[name] = batch.inside(files[function], root) if function in files else ""
    return package


def _functions(directory: Path) -> dict[str, Path]:
    """Which file defines each test function of a package."""
    return {
        function: file
        for file in sorted(directory.glob("*_test.go"))
        for function in _FUNCTION.findall(file.read_text("utf-8", "replace"))
    }


def _cases(packages: Sequence[_Package]) -> list[Case]:
    return [Case(name, package.files.get(name, "")) for package in packages for name in package.inner]


def _module(place: Path) -> str:
    """The module's own import path; empty where there is none, as in a workspace."""
    file = place / "go.mod"
    found = re.search(
        r'^module\s+"?([^\s"]+)', file.read_text("utf-8", "replace") if file.is_file() else "", re.MULTILINE
    )
    return found[1] if found else ""


def _label(path: str, module: str) -> str:
    return "." if path == module else path.removeprefix(f"{module}/")


def _section(text: str, path: str) -> str:
    """What the compiler said of one package; all, where the fault is in another."""
    own = re.findall(rf"^# {re.escape(path)}(?:_test)?(?: .*)?\n((?:(?!# |FAIL\t).*\n?)*)", text, re.MULTILINE)
    return "".join(own) or text


def _compiler(text: str) -> str:
    """The first line of a compiler's message."""
    return next((line for line in text.splitlines() if line.strip() and not line.startswith("# ")), "cannot be built")


class _Tests(batch.Batch):
    """Cases of one package."""

    def __init__(self, package: _Package, names: Sequence[str], options: Options) -> None:
        super().__init__(names, options)
        self._package = package
        self._outer = {package.inner[name]: name for name in names}
        self._text = {name: batch.Kept() for name in names}
        self._other = batch.Kept()
        self._current = ""  # whose lines come now
        self._over: tuple[str, Outcome, float] | None = None  # the last to end; more lines of it may follow

    def again(self, names: Sequence[str]) -> batch.Batch:
        return type(self)(self._package, names, self.options)

    def job(self, key: str) -> Job:
        everything = len(self._outer) == len(self._package.inner)
        program, *arguments = self._package.argv
        ours = ["-test.count=1", "-test.timeout=0", "-test.run=" + ("." if everything else _pattern(self._outer))]
        ours += [] if any(argument.startswith("-test.v") for argument in arguments) else ["-test.v=true"]
        return Job(key, [program, *ours, *arguments], self._package.cwd, self._package.env, memory=self.bound())

    def read(self, line: str) -> None:
        line = line.lstrip("\x16")
        if news := _NEWS.match(line):
            self._settle_last()
            self._news(news[1], news[2].partition("/")[0])
        elif (end := _END.search(line)) and self._is_own(end, line):
            self._settle_last()
            self._add(line[: end.start()].rstrip("\x16"))
            self._over = (self._outer[end[2]], _OUTCOMES[end[1]], float(end[3]))
            self._current = self._over[0]
        elif line in ("PASS", "FAIL"):
            self.complete = True
        else:
            self._add(line + "\n")

    def _is_own(self, end: re.Match[str], line: str) -> bool:
        """Whether the end is that of a case that runs, also behind what it printed without a newline."""
        name = self._outer.get(end[2])
        return name in self.running and not line.startswith(" ")

    def _news(self, what: str, function: str) -> None:
        name = self._outer.get(function, "")
        self._current = name
        if what == "PAUSE":
            self.paused(name)
        elif what in ("RUN", "CONT"):
            self.begun(name)

    def _add(self, text: str) -> None:
        (self._text[self._current] if self._current else self._other).add(text)

    def _settle_last(self) -> None:
        """The last to end has said all it had to say."""
        if self._over:
            name, outcome, seconds = self._over
            text = self.printed(name)
            reason = "" if outcome is Outcome.PASSED else _telling(text)
            self.ended(name, outcome, seconds, reason, text)
            self._over = None
            self._current = ""

    def close(self, ended: Ended) -> None:
        # A test that panics is said to fail before the panic shows, and its process ends.
        if self._over and self._over[1] is Outcome.FAILED and not self.complete:
            return
        self._settle_last()

    def printed(self, name: str) -> str:
        return str(self._text[name]) or str(self._other)

    def reason(self, text: str) -> str:
        return found[0] if (found := _PANIC.search(text)) else ""


def _pattern(functions: Mapping[str, str]) -> str:
    return f"^({'|'.join(functions)})$"


def _telling(text: str) -> str:
    """The line of a failure that tells most: the first that the test itself logged."""
    if found := _PANIC.search(text):
        return found[0]
    if not (found := _SAID.search(text)):
        return " ".join(line.strip() for line in text.splitlines() if line and not line.lstrip().startswith("---"))
    said = found[2]
    if not said.strip():
        # Assertion libraries begin a new line, and say first where, then what.
        more = text[found.end() :].partition("\n    ---")[0]
        what = _ASSERTION.search(more)
        said = what[1] if what else more
    return f"{found[1]} {' '.join(said.split())}".strip()
