"""``team test``: reads the arguments, runs the suites, remembers, and reports.

Exit codes: 0 all passed, 1 failures, 2 cannot run, 3 only failures that the last landed state has too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from team import git
from team.errors import TeamError
from team.sampler import arguments, questions, report
from team.sampler.cases import CannotRun, Case, Options, Result
from team.sampler.choice import Choice
from team.sampler.log import Log, shown
from team.sampler.place import Place, find, options_of, remember, suites_of
from team.sampler.report import SuiteRun
from team.sampler.suites import suite
from team.text import one_line

if TYPE_CHECKING:
    from team.sampler.settings import SuiteSettings

_MOST_AGENT = 100
PROGRESS = 30.0
"""Seconds before the first line of progress; each further one takes twice as long as the one before."""


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Run the command line; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may have characters that the terminal has not
            stream.reconfigure(errors="backslashreplace")
    args = arguments.parse(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)  # what a shell tool sends at its time-out: what ran is still told
    try:
        return _answer(find(args.agent, env), args)
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
        return bisect(place, suite_name, case, args.good, options_of, as_json=args.json)
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


# -- running --------------------------------------------------------------------------------------------------


def _list(place: Place, args: argparse.Namespace) -> int:
    rows = []
    for name, one in suites_of(place, args.suite).items():
        choice = _choice(place, name, args)
        options = options_of(one, args.jobs, args.timeout)
        rows += [(name, case) for case in choice(suite(place.root, one).list(options))]
    if args.json:
        print(json.dumps([{"suite": name, "name": case.name, "file": case.file} for name, case in rows]))
    else:
        print("\n".join(f"{name}: {shown(case.name)}" if name else shown(case.name) for name, case in rows))
    return 0


def _test(place: Place, args: argparse.Namespace) -> int:
    suites = suites_of(place, args.suite)
    log = Log(place.root, time.time())
    runs = []
    for name, one in suites.items():
        choice = _choice(place, name, args)
        runs.append(_run(place, name, one, choice, options_of(one, args.jobs, args.timeout), log))
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
