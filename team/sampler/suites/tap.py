"""Files that print TAP (the Test Anything Protocol, 12 to 14): each file is a case."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from team.sampler.cases import Case, Choose, Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings
from team.sampler.suites import shell

_DEFAULT = ("t/**/*.t",)
_NAMED = 3
"""Failing points that a reason names."""
_MOST_LINE = 16 << 10
# Only these lines matter, and only where they begin a line: what is indented belongs to a subtest, whose outcome the
# line after it repeats.
_LINE = re.compile(
    rb"^(?:(?P<point>(?:not )?ok)\b[ \t]*(?P<number>\d{1,18})?(?P<rest>[^\n]*)"
    rb"|1\.\.(?P<plan>\d{1,18})(?P<why>[^\n]*)"
    rb"|Bail out!(?P<bail>[^\n]*))",
    re.M,
)
_WORDS = (b"ok", b"1..", b"Bail out!")
_DIRECTIVE = re.compile(r"(?<!\\)#\s*(todo|skip)\S*\s*(.*)", re.I)
_INTERPRETERS = {".py": "python3", ".sh": "sh", ".js": "node", ".mjs": "node", ".rb": "ruby", ".php": "php"}


class Tap:
    """Each file is a case; its name is its path from the top of the work tree."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root = root
        self._settings = settings
        self._command = shell.Command(settings.run) if settings.run else None

    def list(self, options: Options) -> Sequence[Case]:
        return shell.cases(shell.listed(self._root, self._settings, _DEFAULT))

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        shell.build(self._root, self._settings)
        files = shell.listed(self._root, self._settings, _DEFAULT)
        chosen = choose(shell.cases(files))
        base = shell.place(self._root, self._settings)
        streams: dict[str, Stream] = {}

        def jobs() -> Iterator[Job]:
            for name in dict.fromkeys(case.name for case in chosen):
                path = files.get(name, "")
                if not path or not shell.there(base, path):
                    sink(Result(name, Outcome.GONE, 0.0, "the file is gone"))
                    continue
                streams[name] = Stream()
                # Standard error apart: a word of it in the middle of a line of TAP would spoil that.
                yield Job(
                    name, self._argv(base, path), base, seconds=options.seconds, memory=options.memory, merge=False
                )

        pool = Pool(options.jobs, on_output=lambda name, data: streams[name].add(data), ahead=1)
        for ended in pool.run(jobs()):
            argv = self._argv(base, files[ended.key])
            sink(_result(ended, streams.pop(ended.key), argv, options))

    def _argv(self, base: Path, path: str) -> Sequence[str]:
        """How ``prove`` would run it, where the settings do not say: by itself, by its first line, by its suffix."""
        if self._command:
            return self._command.argv(path)
        return shell.Command(f"{_interpreter(base, path)}{{file}}").argv(path)


def _interpreter(base: Path, path: str) -> str:
    """What to put before the name of a file to run it, with a blank after it."""
    file = base / path
    try:
        with file.open("rb") as opened:
            first = opened.readline(256)
    except OSError:
        first = b""
    if first.startswith(b"#!"):
        words = first[2:].decode("utf-8", "replace").split()
        if words and not words[0].endswith("perl"):
            return shlex.join(words) + " "
    known = _INTERPRETERS.get(file.suffix)
    # Perl heeds the switches of a first line by itself, but its path is seldom where the author had it.
    return f"{known} " if known else f"perl {'-Ilib ' if (base / 'lib').is_dir() else ''}"


class Stream:
    """Reads TAP as it comes, in memory that does not grow with it."""

    def __init__(self) -> None:
        self.points = self.failed = self.skipped = 0
        self.plan: int | None = None
        self.named: list[str] = []
        self.wrong = ""
        """The first thing that is no TAP: two plans, a number out of turn."""
        self.bail: str | None = None
        self.skip_all: str | None = None
        self._rest = b""

    def add(self, data: bytes) -> None:
        """The next piece of output."""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if end and any(word in data for word in _WORDS):  # a flood of anything else goes by at full speed
            for match in _LINE.finditer(data, 0, end):
                self._line(match)
        self._rest = data[end : end + _MOST_LINE]

    def close(self) -> None:
        """No more comes."""
        if match := _LINE.match(self._rest):
            self._line(match)
        self._rest = b""

    def _line(self, match: re.Match[bytes]) -> None:
        if self.bail is not None:
            return
        if match["point"]:
            number = int(match["number"] or 0)
            self._point(match["point"] == b"ok", number, match["rest"][:_MOST_LINE].decode("utf-8", "replace"))
        elif match["plan"]:
            if self.plan is not None:
                self.wrong = self.wrong or "it has two plans"
            self.plan = int(match["plan"])
            if self.plan == 0:
                why = match["why"][:_MOST_LINE].decode("utf-8", "replace")
                self.skip_all = re.sub(r"^\s*#\s*(?:skip\S*)?\s*", "", why, flags=re.I).strip()
        else:
            self.bail = match["bail"][:_MOST_LINE].decode("utf-8", "replace").strip()

    def _point(self, ok: bool, number: int, rest: str) -> None:
        self.points += 1
        if number and number != self.points and not self.wrong:
            self.wrong = f"point {number} where {self.points} was due"
        directive = _DIRECTIVE.search(rest)
        kind = directive[1].lower() if directive else ""
        if kind == "skip":
            self.skipped += 1
        elif not ok and kind != "todo":
            self.failed += 1
            if len(self.named) < _NAMED:
                text = rest.strip().removeprefix("-").strip()
                self.named.append(f"{number or self.points}{' ' if text else ''}{text}")

    def verdict(self) -> tuple[Outcome, str]:
        """What the points say, whatever became of the process."""
        if self.bail is not None:
            return Outcome.FAILED, f"Bail out!{' ' if self.bail else ''}{self.bail}"
        if self.failed:
            more = f", and {self.failed - len(self.named)} more" if self.failed > len(self.named) else ""
            return Outcome.FAILED, f"{self.failed} of {self.points} not ok: {'; '.join(self.named)}{more}"
        if self.wrong:
            return Outcome.FAILED, f"bad TAP: {self.wrong}"
        if self.plan is None:
            return Outcome.FAILED, f"no plan after {self.points} points" if self.points else "it printed no TAP"
        if self.plan != self.points:
            return Outcome.FAILED, f"planned {self.plan} points, ran {self.points}"
        if self.skip_all is not None or (self.points and self.skipped == self.points):
            return Outcome.SKIPPED, self.skip_all or "all of its points were skipped"
        return Outcome.PASSED, ""


def _result(ended: Ended, stream: Stream, argv: Sequence[str], options: Options) -> Result:
    stream.close()
    outcome, reason = stream.verdict()
    process = shell.outcome(ended)
    if process in (Outcome.TIMED_OUT, Outcome.CRASHED):
        outcome = process
        said = f"; not ok: {'; '.join(stream.named)}" if stream.named else f" after {stream.points} points"
        reason = f"{shell.ending(ended, options)}{said}"
    elif process is Outcome.FAILED and not stream.failed and stream.bail is None:
        said = shell.telling(re.sub(r"(?m)^\s*#.*$", "", shell.text(ended.errors)))
        complaint = f" ({reason})" if outcome is Outcome.FAILED else ""
        outcome, reason = Outcome.FAILED, f"{shell.ending(ended)}{complaint}{': ' if said else ''}{said}"
    elif outcome is Outcome.FAILED and (why := _difference(ended.errors + b"\n" + ended.output)):
        reason = f"{reason} ({why})"
    told = shell.detail(argv, ended.output, ended.errors) if outcome.bad else ""
    return Result(ended.key, outcome, ended.seconds, reason, told)


def _difference(said: bytes) -> str:
    """What the first failing point got and expected, as Test::More and its kin comment it."""
    got = re.search(rb"^#\s+got:\s*(.+)$", said, re.M)
    expected = re.search(rb"^#\s+expected:\s*(.+)$", said, re.M)
    if not got or not expected:
        return ""
    return f"got {shell.text(got[1][:200]).strip()}, expected {shell.text(expected[1][:200]).strip()}"
