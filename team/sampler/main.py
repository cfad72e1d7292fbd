"""``team test``: reads the arguments, runs the suites, remembers, and reports.

Exit codes: 0 all passed, 1 failures, 2 cannot run, 3 only failures that the last landed state has too.
"""

from __future__ import annotations

import argparse
import getpass
import hashlib
import io
import json
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from team import git, places
from team.errors import TeamError
from team.sampler import arguments, landed, questions, report
from team.sampler import settings as settings_
from team.sampler.cases import CannotRun, Case, Options, Result
from team.sampler.choice import Choice
from team.sampler.landed import Stand, stand
from team.sampler.log import Log, shown
from team.sampler.memory import Compared, Memory, Run
from team.sampler.report import SuiteRun
from team.sampler.suites import detect, suite
from team.text import one_line

if TYPE_CHECKING:
    from team.sampler.settings import SuiteSettings, TestSettings

_MOST_AGENT = 100
PROGRESS = 30.0
"""Seconds before the first line of progress; each further one takes twice as long as the one before."""


@dataclass(frozen=True)
class Place:
    """Where ``team test`` was called, and by whom."""

    root: Path
    settings: TestSettings
    agent: str
    memory: Memory
    stand: Stand
    notes: list[str]
    """What the report must say besides: the memory cannot be reached, or the like."""


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Run the command line; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may have characters that the terminal has not
            stream.reconfigure(errors="backslashreplace")
    args = arguments.parse(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)  # what a shell tool sends at its time-out: what ran is still told
    try:
        return _answer(_place(args, env), args)
    except (TeamError, CannotRun, git.GitError, OSError, sqlite3.Error) as error:
        print(f"team test: {one_line(str(error), 600)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # exit code 1 would mean that tests failed
        at = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}"
        print(f"team test: {one_line(f'a fault of its own, {said}', 600)} ({at.filename}:{at.lineno})", file=sys.stderr)
        return 2


def _answer(place: Place, args: argparse.Namespace) -> int:
    if args.pick:
        return questions.pick(place, args.fast, sys.stdin.buffer, sys.stdout)
    if args.record:
        return questions.record(place, args.fast, sys.stdin.buffer, sys.stdout)
    if args.bisect is not None:
        from team.sampler.bisect import bisect

        suite_name, case = _split(place, args.suite, args.bisect)
        return bisect(place, suite_name, case, args.good, _options, as_json=args.json)
    if args.history is None and not args.flaky and not args.coverage:
        return _list(place, args) if args.list else _test(place, args)
    if place.notes:  # about the memory, of which alone they ask
        raise TeamError(place.notes[0])
    if args.history is not None:
        suite_name, case = _split(place, args.suite, args.history)
        return questions.history(place, suite_name, case, as_json=args.json)
    return (questions.flaky if args.flaky else questions.coverage)(place, as_json=args.json)


def _split(place: Place, suite_name: str | None, case: str) -> tuple[str | None, str]:
    """The suite and the case in ``SUITE: CASE``, as the report names a case of several suites."""
    for name in place.settings.suites if suite_name is None else ():
        if case.startswith(f"{name}: "):
            return name, case.removeprefix(f"{name}: ")
    return suite_name, case


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


# -- where we are ---------------------------------------------------------------------------------------------


def _place(args: argparse.Namespace, env: Mapping[str, str]) -> Place:
    here = Path.cwd()
    root = next((path for path in (here, *here.parents) if (path / ".git").exists()), here)
    settings = settings_.load(root, env)
    agent = args.agent or env.get("TEAM_AGENT") or _user()
    if one_line(agent, _MOST_AGENT) != agent:
        raise TeamError(f"the name of an agent (--agent, TEAM_AGENT) is one line of at most {_MOST_AGENT} characters")
    notes: list[str] = []
    memory = _memory(root, env, notes)
    return Place(root, settings, agent, memory, stand(root), notes)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"user-{os.getuid()}"


def _memory(root: Path, env: Mapping[str, str], notes: list[str]) -> Memory:
    if file := env.get("TEAM_TEST_RESULTS"):
        from team.sampler.remote import Written

        return Written(Path(file))
    if env.get("TEAM_SESSION") and env.get("TEAM_DOOR"):
        from team.sampler.remote import Remote

        return Remote(env)
    from team.sampler.memory import File

    try:
        return File(_file(root), notes=notes)
    except (OSError, sqlite3.Error) as error:  # a full disk, a read-only work tree: tests can run all the same
        notes.append(f"what earlier runs left cannot be read, nor this one kept: {error}")
        return File(Path(":memory:"))


def _file(root: Path) -> Path:
    """The project's own memory, which its sessions share; else one of the clone."""
    project = places.find_project(root)
    if project is not None:
        return project.tests
    if (root / ".git").exists():
        return (
            Path(git.line("rev-parse", "--path-format=absolute", "--git-common-dir", at=root, env=landed.OWN))
            / "team"
            / "tests.db"
        )
    return places.state_home() / "tests" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.db"


def _suites(place: Place, only: str | None) -> dict[str, SuiteSettings]:
    """The suites by name, their kinds known."""
    found = place.settings.all()
    if only is not None:
        if only not in found:
            known = ", ".join(name for name in found if name) or "none has a name"
            raise TeamError(f"there is no suite {only!r} in [test.suites]; known: {known}")
        found = {only: found[only]}
    return {
        name: one if one.kind else replace(one, kind=detect(place.root / one.directory)) for name, one in found.items()
    }


def _options(one: SuiteSettings, jobs: int | None = None, seconds: float | None = None) -> Options:
    return Options(jobs or one.jobs, seconds or one.timeout, one.memory or half_of_memory())


def half_of_memory() -> int:
    """Bytes: half of what this machine or container has."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            sizes.append(int(Path(file).read_text()))
    return min(sizes) // 2


# -- running --------------------------------------------------------------------------------------------------


def _list(place: Place, args: argparse.Namespace) -> int:
    rows = []
    for name, one in _suites(place, args.suite).items():
        choice = _choice(place, name, args)
        options = _options(one, args.jobs, args.timeout)
        rows += [(name, case) for case in choice(suite(place.root, one).list(options))]
    if args.json:
        print(json.dumps([{"suite": name, "name": case.name, "file": case.file} for name, case in rows]))
    else:
        print("\n".join(f"{name}: {shown(case.name)}" if name else shown(case.name) for name, case in rows))
    return 0


def _test(place: Place, args: argparse.Namespace) -> int:
    suites = _suites(place, args.suite)
    log = Log(place.root, time.time())
    runs = []
    for name, one in suites.items():
        choice = _choice(place, name, args)
        runs.append(_run(place, name, one, choice, _options(one, args.jobs, args.timeout), log))
        if runs[-1].early:
            break
    if args.cases and not any(run.chosen or run.broken for run in runs):
        raise TeamError(f"no case is named like {args.cases[0]!r}; `team test --list` shows the names")
    inside = any(os.environ.get(name) for name in ("TEAM_SESSION", "TEAM_TEST_RESULTS"))
    if inside and any(run.broken for run in runs):
        place.notes.append("what the image lacks only the person can add: [image] dockerfile in team.toml")
    for run in runs:
        _log_comparison(log, run)
    log.close()
    place.notes.extend([log.broken] if log.broken else [])
    path = log.path.relative_to(place.root) if log.path.is_relative_to(place.root) else log.path
    if args.json:
        print(json.dumps(report.as_json(runs, place.stand.base, place.agent, path, place.notes)))
    else:
        print("\n".join(report.lines(runs, place.stand.base, path, place.notes)))
    return report.exit_code(runs)


def _choice(place: Place, name: str, args: argparse.Namespace) -> Choice:
    return Choice(
        place.root,
        place.memory,
        name,
        place.agent,
        changed=place.stand.changed,
        fast=args.fast,
        failed=args.failed,
        patterns=args.cases,
        landed=place.stand.landed,
        alone=len(place.settings.suites) < 2 or args.suite is not None,
        notes=place.notes,
    )


def _run(place: Place, name: str, one: SuiteSettings, choice: Choice, options: Options, log: Log) -> SuiteRun:
    """Run one suite, and remember what came of it."""
    run = SuiteRun(name)
    progress = _Progress(time.monotonic)

    left: set[str] = set()

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        chosen = choice(cases)
        run.total, run.chosen, run.why = len(cases), len(chosen), choice.why
        left.update(case.name for case in chosen)
        return chosen

    def sink(result: Result) -> None:
        run.results.append(result)
        left.discard(result.name)
        log.result(result)
        progress.show(run)

    try:
        suite(place.root, one).run(choose, options, sink)
        if left:  # silence is no pass
            raise CannotRun(f"{len(left)} tests were to run and gave no result, like {shown(min(left))!r}")
    except CannotRun as error:
        run.broken = error
        log.detail(f"{name or one.kind} cannot run: {error}", error.output)
    except KeyboardInterrupt:
        run.early = True
    run.seconds = progress.seconds
    if run.results:
        run.compared = remember(place, run, choice.rate)
    return run


def remember(place: Place, run: SuiteRun, rate: str) -> Compared:
    """Keep the results, and compare them with the landed state."""
    where = place.stand
    try:
        return place.memory.record(
            Run(
                agent=place.agent,
                suite=run.suite,
                commit=where.commit,
                content=where.content,
                base=where.base,
                base_content=where.base_content,
                rate=rate,
                total=run.total,
                seconds=run.seconds,
                results=run.results,
            )
        )
    except (OSError, sqlite3.Error) as error:
        place.notes.append(f"the results could not be kept: {error}")
        return Compared(unknown=len(run.failures))


def _log_comparison(log: Log, run: SuiteRun) -> None:
    for kind in ("new", "passed before", "unknown", "flaky", "known"):
        word = kind.split()[0].upper()
        log.names(word, (result.name for result in run.failures if run.kind(result) == kind))
    log.names("FIXED", run.compared.fixed_names)


class _Progress:
    """A line on standard error now and then: agents pay for each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()
        self._next = PROGRESS

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def show(self, run: SuiteRun) -> None:
        if self.seconds < self._next:
            return
        self._next = 2 * self.seconds
        bad = sum(result.outcome.bad for result in run.results)
        print(f"{len(run.results)} of {run.chosen} in {self.seconds:.0f} s, {bad} failed", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
