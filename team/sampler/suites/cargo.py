"""``cargo test``: the unit, integration and doc tests of all crates of a workspace.

A case is called ``package/lib::path::test``, ``package/bin/NAME::...``, ``package/tests/NAME::...`` or
``package/doc::FILE::ITEM``. The call in the settings may have cargo's flags, and after ``--`` the test programs' own.
cargo builds, and shows how it would start each program (recorder.py); each then runs once, with all its chosen cases.
A target with a harness of its own (``harness = false``) is one case: nobody can ask it what it has.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job
from team.sampler.settings import SuiteSettings
from team.sampler.suites import batch, recorder, shell

# Any value makes a test program take unstable options; this one means nothing to a compiler that a test starts.
_UNSTABLE = "RUSTC_BOOTSTRAP=_"
_JSON = ("-Z", "unstable-options", "--format", "json", "--report-time")
_LISTED = re.compile(r"(.+): (?:test|benchmark)")
_DOC_TEST = re.compile(r"(.+) - (?:(.+) )?\(line (\d+)\)")
_DOC_CRATE = re.compile(r"\s*Doc-tests (\S+)")
_EVENTS = ('{ "type": "test", ', '{ "type": "suite", ')
_TOO_LONG = re.compile(
    r'.*?"name": "((?:[^"\\]|\\.)*)", "event": "(\w+)"(?:, "exec_time": (\d+\.?\d*))?(.*)', re.DOTALL
)
_PANIC = re.compile(r"panicked at (\S+:\d+:\d+):\n(.*?)(?=\nnote: |\nstack backtrace:|\n\n|\Z)", re.DOTALL)
_OLD_PANIC = re.compile(r"panicked at '(.*?)', (\S+:\d+:\d+)", re.DOTALL)
_DOC = "doc"
_DIRECTORIES = {"bin": "bin", "test": "tests", "example": "examples", "bench": "benches"}
_OUTCOMES = {"ok": Outcome.PASSED, "failed": Outcome.FAILED, "ignored": Outcome.SKIPPED}


@dataclass
class _Target:
    """What runs in one process: a test program, or the doc tests of all crates."""

    label: str
    argv: Sequence[str]
    """Of the doc tests: cargo's call as a shell command, then arguments for the harness."""
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    """What it calls its cases; of a doc test, after the name of the crate."""
    files: dict[str, str] = field(default_factory=dict)
    broken: str = ""
    """Why its cases could not be listed. Then it has one, which fails."""


class Cargo:
    """The tests of a cargo workspace, as a suite."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root = root
        self._settings = settings
        call = re.split(r"\s--(?=\s|$)", settings.run or "cargo test --workspace", maxsplit=1)
        self._cargo = call[0]
        self._arguments = shlex.split("".join(call[1:]))

    def list(self, options: Options) -> Sequence[Case]:
        with tempfile.TemporaryDirectory(prefix="team-cargo-") as folder:
            return _cases(self._targets(Path(folder)))

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        with tempfile.TemporaryDirectory(prefix="team-cargo-") as folder:
            targets = self._targets(Path(folder))
            chosen = [case.name for case in choose(_cases(targets))]
            batches: list[batch.Batch] = []
            for target in targets:
                names = [name for name in chosen if name in target.inner]
                if target.broken:
                    for name in names:
                        reason = f"cannot list its tests: {shell.telling(target.broken)}"
                        sink(Result(name, Outcome.FAILED, 0.0, reason, target.broken))
                else:
                    batches += [_batch(target, part, options) for part in batch.portions(names)]
            batch.run(batches, sink)

    def _targets(self, folder: Path) -> Sequence[_Target]:
        """Build, and ask each test program for its cases."""
        place = batch.build(self._root, self._settings)
        runner = [sys.executable, "-I", "-S", recorder.__file__, str(folder), "cargo"]
        listing = ["--no-fail-fast", "--message-format=json-render-diagnostics"]
        listing += ["--config", f"target.'cfg(all())'.runner={json.dumps(runner)}"]
        listing += ["--", *self._arguments, "--list", "--format", "terse"]
        end = batch.call(batch.shell(self._cargo, listing), place)
        lines = end.output.decode("utf-8", "replace").splitlines()
        artifacts = [json.loads(line) for line in lines if line.startswith('{"reason":"compiler-artifact"')]
        said = [line for line in lines if not line.startswith('{"reason":')]
        if end.code or end.why:
            text = "\n".join(said)
            raise CannotRun(f"cargo test cannot build the tests: {shell.telling(text)}", text)
        programs = {each["executable"]: each for each in artifacts if each["executable"] and each["profile"]["test"]}
        records = recorder.records(str(folder)).values()
        if programs and not records:
            raise CannotRun("cargo's configuration sets a runner for this target; team test cannot run with one")
        targets = [self._program(record, programs[record["program"]]["target"]) for record in records]
        return [*targets, *self._doc_tests(said, artifacts, place, folder)]

    def _program(self, record: dict[str, Any], about: dict[str, Any]) -> _Target:
        kind = next((each for each in about["kind"] if each in _DIRECTORIES), "")
        label = f"{record['env']['CARGO_PKG_NAME']}/" + (f"{_DIRECTORIES[kind]}/{about['name']}" if kind else "lib")
        # Its own arguments stand before those that ask it to list.
        argv = [record["program"], *self._arguments]
        target = _Target(label, argv, Path(record["cwd"]), record["env"])
        source = Path(about["src_path"])
        if record["code"] is None:
            target.inner[label] = ""
            target.files[label] = batch.inside(source, self._root)
        elif record["code"]:
            target.broken = f"exit code {record['code']}\n{record['listing']}"
            target.inner[label] = ""
        else:
            for found in filter(None, map(_LISTED.fullmatch, record["listing"].splitlines())):
                name = f"{label}::{found[1]}"
                target.inner[name] = found[1]
                target.files[name] = batch.inside(_module(source, found[1]), self._root)
        return target

    def _doc_tests(
        self, said: Sequence[str], artifacts: Sequence[dict[str, Any]], place: Path, folder: Path
    ) -> Sequence[_Target]:
        packages = {_crate(each["target"]["name"]): each for each in artifacts if each["target"]["doctest"]}
        found = []
        crate = ""
        for line in said:
            if header := _DOC_CRATE.match(line):
                crate = _crate(header[1])
            elif (listed := _LISTED.fullmatch(line)) and (parts := _DOC_TEST.fullmatch(listed[1])):
                found.append((crate, parts[1], int(parts[3]), parts[2] or "", listed[1]))
        target = _Target(_DOC, [self._cargo, *self._arguments], place, {"RUSTDOC": _rustdoc(folder)})
        seen: Counter[str] = Counter()
        for crate, file, _, item, inner in sorted(found):
            top = Path(packages[crate]["manifest_path"]).parent if crate in packages else place
            path = next((path for path in (top / file, place / file) if path.is_file()), Path(file))
            # By item, not by line: lines move.
            name = f"{_package(packages.get(crate))}doc::{batch.inside(path, top) or file}"
            name += f"::{item}" if item else ""
            seen[name] += 1
            name += f"#{seen[name]}" if seen[name] > 1 else ""
            target.inner[name] = f"{crate} {inner}"
            target.files[name] = batch.inside(path, self._root)
        return [target] if found else []


def _cases(targets: Sequence[_Target]) -> list[Case]:
    return [Case(name, target.files.get(name, "")) for target in targets for name in target.inner]


def _crate(name: str) -> str:
    """A crate's name as rustc has it; cargo changed its mind."""
    return name.replace("-", "_")


def _package(artifact: dict[str, Any] | None) -> str:
    """The package of an artifact, as the first part of a name; empty where ``--quiet`` hides it."""
    if artifact is None:
        return ""
    known = re.search(r"#(?:(.+)@)?[^@]*$", artifact["package_id"])  # path+file:///x/dir#name@0.1.0, or dir#0.1.0
    if known:
        return f"{known[1] or Path(artifact['manifest_path']).parent.name}/"
    return f"{artifact['package_id'].split(' ')[0]}/"  # before 1.77: name 0.1.0 (path+file:///x/dir)


def _module(source: Path, path: str) -> Path:
    """The file that most likely defines a test: that of its innermost module that has one."""
    parts = path.split("::")[:-1]
    for count in range(len(parts), 0, -1):
        inner = source.parent.joinpath(*parts[:count])
        for file in (inner.with_name(inner.name + ".rs"), inner / "mod.rs"):
            if file.is_file():
                return file
    return source


def _rustdoc(folder: Path) -> str:
    """A program that calls rustdoc and lets it take unstable options. cargo itself must not see that variable: build
    scripts look at it, and would build half of the dependencies anew."""
    program = folder / "rustdoc"
    program.write_text(f'#!/bin/sh\n{_UNSTABLE} exec {shlex.quote(os.environ.get("RUSTDOC", "rustdoc"))} "$@"\n')
    program.chmod(0o700)
    return str(program)


class _Tests(batch.Batch):
    """Cases of one program made with Rust's own test harness."""

    def __init__(self, target: _Target, names: Sequence[str], options: Options) -> None:
        super().__init__(names, options)
        self.width = options.jobs
        self._target = target
        self._outer = {target.inner[name]: name for name in names}
        self._noise = batch.Kept()

    def again(self, names: Sequence[str]) -> batch.Batch:
        return type(self)(self._target, names, self.options)

    def job(self, key: str) -> Job:
        variable, value = _UNSTABLE.split("=")
        argv = [*self._target.argv, *self.flags(), "--exact", *self._outer]
        return Job(key, argv, self._target.cwd, {**self._target.env, variable: value}, memory=self.bound())

    def flags(self) -> Iterator[str]:
        yield from _JSON
        if not any(word.startswith("--test-threads") for word in self._target.argv):
            yield f"--test-threads={self.options.jobs}"

    def read(self, line: str) -> None:
        # What a test prints past the harness stands between the events, also before one in its line, also if it looks
        # like one.
        start = max(map(line.rfind, _EVENTS))
        noise = line[:start] if start >= 0 else line + "\n"
        if noise:
            self._noise.add(noise)
        if start >= 0:
            self._event(line[start:])

    def _event(self, text: str) -> None:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = _shortened(text) if len(text) > batch.LINE // 2 else None
        if not isinstance(event, dict):
            return
        if event.get("type") == "suite":
            self.complete = event.get("event") in ("ok", "failed")
            return
        name = self.case(str(event.get("name")))
        said = str(event.get("event"))
        if name and said == "started":
            if not self.running:
                self._noise = batch.Kept()
            self.begun(name)
        elif name and said in _OUTCOMES:
            text, message = str(event.get("stdout", "")), str(event.get("message") or event.get("reason") or "")
            reason = (message.partition("\n")[0] or _telling(text)) if said != "ok" else ""
            detail = batch.Kept()
            detail.add(f"{text}\n{message}".strip("\n"))
            self.ended(name, _OUTCOMES[said], _seconds(event.get("exec_time")), reason, str(detail))

    def case(self, inner: str) -> str | None:
        """The case that the harness calls ``inner``."""
        return self._outer.get(inner)

    def printed(self, name: str) -> str:
        return str(self._noise)

    def reason(self, text: str) -> str:
        return _telling(text)


class _DocTests(_Tests):
    """Doc tests of all crates: cargo starts rustdoc for each."""

    _crate = ""

    def job(self, key: str) -> Job:
        # rustdoc cuts what it hands on at spaces, and all its names have some: ask for the last word of each, and
        # take no notice of other doc tests on a line with such a number.
        words = dict.fromkeys(inner.rpartition(" ")[2] for inner in self._outer)
        cargo, *arguments = self._target.argv
        doc = [] if "--doc" in cargo.split() else ["--doc"]
        argv = batch.shell(cargo, [*doc, "--no-fail-fast", "--", *arguments, *self.flags(), *words])
        return Job(key, argv, self._target.cwd, self._target.env, memory=self.bound())

    def read(self, line: str) -> None:
        if header := _DOC_CRATE.match(line):
            self._crate = _crate(header[1])
        super().read(line)

    def case(self, inner: str) -> str | None:
        return self._outer.get(f"{self._crate} {inner}")

    def close(self, ended: Ended) -> None:
        self.complete = not ended.why and ended.code in (0, 101)


class _Whole(batch.Batch):
    """A program with a harness of its own: one case."""

    def __init__(self, target: _Target, names: Sequence[str], options: Options) -> None:
        super().__init__(names, options)
        self._target = target
        self._text = batch.Kept()

    def again(self, names: Sequence[str]) -> batch.Batch:
        return type(self)(self._target, names, self.options)

    def job(self, key: str) -> Job:
        self.begun(self.names[0])
        return Job(key, self._target.argv, self._target.cwd, self._target.env, memory=self.bound())

    def read(self, line: str) -> None:
        self._text.add(line + "\n")

    def close(self, ended: Ended) -> None:
        if ended.why or ended.code < 0:
            return
        outcome = Outcome.FAILED if ended.code else Outcome.PASSED
        text = str(self._text)
        reason = (_telling(text) or batch.how_it_ended(ended, self.options)) if ended.code else ""
        self.ended(self.names[0], outcome, ended.seconds, reason, text)

    def printed(self, name: str) -> str:
        return str(self._text)


def _batch(target: _Target, names: Sequence[str], options: Options) -> batch.Batch:
    if target.label == _DOC:
        return _DocTests(target, names, options)
    return (_Tests if any(target.inner.values()) else _Whole)(target, names, options)


def _telling(text: str) -> str:
    """The panic in what a test printed, or else the line that tells most."""
    if panic := _PANIC.search(text):
        return f"{_joined(panic[2])} ({panic[1]})"
    if panic := _OLD_PANIC.search(text):
        return f"{_joined(panic[1])} ({panic[2]})"
    return shell.telling(text)


def _joined(message: str) -> str:
    return ", ".join(line.strip().rstrip(",") for line in message.splitlines())


def _seconds(told: object) -> float | None:
    """The time of an event, which a test may have printed itself."""
    return told if isinstance(told, int | float) and 0 <= told < 1e7 else None


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _shortened(line: str) -> object:
    """An event whose text was too long, from what was kept of its line."""
    if not (found := _TOO_LONG.match(line)):
        return None
    rest = found[4].partition('"stdout": "')[2].replace("\\n", "\n").replace('\\"', '"')
    seconds = float(found[3]) if found[3] else None
    return {
        "type": "test",
        "name": _unquoted(found[1]),
        "event": found[2],
        "exec_time": seconds,
        "stdout": rest,
    }
