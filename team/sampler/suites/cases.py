"""A glob and a command per case, with the output or exit code that it must have: how compilers are tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings
from team.sampler.suites import shell

_NO_COMMAND, _ENOUGH = (126, 127), 3  # exit codes of a shell; so many at the start, and it is no fault of theirs
_WIDTH = 80  # characters of a differing line


class Cases:
    """Each file is a case; its name is its path from the top of the work tree."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        if not settings.run:
            raise CannotRun('[test] run is empty: name the command of one case, like "sh {file}"')
        self._root = root
        self._settings = settings
        self._command = shell.Command(settings.run)

    def list(self, options: Options) -> Sequence[Case]:
        return shell.cases(shell.listed(self._root, self._settings))

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        shell.build(self._root, self._settings)
        files = shell.listed(self._root, self._settings)
        chosen = choose(shell.cases(files))
        base = shell.place(self._root, self._settings)
        expected: dict[str, bytes] = {}  # of those that run now

        def jobs() -> Iterator[Job]:
            for name in dict.fromkeys(case.name for case in chosen):
                path = files.get(name, "")
                if not path or not shell.there(base, path):
                    sink(Result(name, Outcome.GONE, 0.0, "the file is gone"))
                    continue
                if self._settings.expect:
                    wanted = base / shell.fill(self._settings.expect, path)
                    try:
                        expected[name] = wanted.read_bytes()
                    except (OSError, ValueError) as error:  # a NUL in the setting
                        why = error.strerror if isinstance(error, OSError) else error
                        reason = f"cannot read its expected output {shell.fill(self._settings.expect, path)}: {why}"
                        sink(Result(name, Outcome.FAILED, 0.0, reason))
                        continue
                yield self._job(name, self._command.argv(path), base, options, expected.get(name))

        lost = 0  # how many of the first ones found no command
        # Jobs ahead of each worker, so that none waits for us: the commands do not depend on each other.
        for ran, ended in enumerate(Pool(options.jobs, ahead=16).run(jobs()), 1):
            sink(self._result(ended, self._command.argv(files[ended.key]), expected.pop(ended.key, None), options))
            lost += ran == lost + 1 and ended.code in _NO_COMMAND and not ended.why
            if lost == ran == min(_ENOUGH, len(chosen)):
                said = shell.telling(shell.text(ended.errors or ended.output))
                raise CannotRun(f"[test] run cannot be started (exit code {ended.code}): {said}")

    def _job(self, name: str, argv: Sequence[str], base: Path, options: Options, expected: bytes | None) -> Job:
        # The first half must hold all that is expected, and a line more.
        most = max(shell.MOST_DETAIL, 2 * len(expected or b"") + 4096)
        return Job(
            name, argv, base, seconds=options.seconds, memory=options.memory, output=most, merge=expected is None
        )

    def _result(self, ended: Ended, argv: Sequence[str], expected: bytes | None, options: Options) -> Result:
        outcome = shell.outcome(ended, self._settings.exit)
        if outcome is not Outcome.PASSED:
            reason = shell.ending(ended, options)
            if outcome is Outcome.FAILED:
                wanted = f" (expected {self._settings.exit})" if self._settings.exit else ""
                said = shell.telling(shell.text(ended.errors or ended.output))
                reason = f"{reason}{wanted}{': ' if said else ''}{said}"
        elif expected is None or ended.output == expected:
            return Result(ended.key, outcome, ended.seconds)
        else:
            outcome, reason = Outcome.FAILED, difference(expected, ended.output)
        return Result(ended.key, outcome, ended.seconds, reason, shell.detail(argv, ended.output, ended.errors))


def difference(expected: bytes, got: bytes) -> str:
    """The first line that differs."""
    wanted, found = expected.split(b"\n"), got.split(b"\n")
    for number, (left, right) in enumerate(zip(wanted, found, strict=False), 1):
        if left != right:
            # The last piece is what follows the last newline: nothing, where the output ends as it should.
            if number == len(wanted) and not left:
                return f"line {number}: expected no more, got {_line(right)}"
            if number == len(found) and not right:
                return f"line {number}: expected {_line(left)}, got no more"
            return f"line {number}: expected {_line(left)}, got {_line(right)}"
    if len(found) < len(wanted):
        return f"line {len(found)}: expected a newline at its end"
    return f"line {len(wanted)}: expected no newline at its end"


def _line(data: bytes) -> str:
    shown = repr(shell.text(data[: 4 * _WIDTH]))
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…"
