"""``agent_logs/tests/``: everything about a run, greppable, one line a case."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from team.places import LOG_LINK
from team.sampler.cases import Outcome, Result
from team.text import clean, one_line

KEPT = 50
"""Runs whose logs are kept."""
_MOST_DETAIL = 50 << 20
"""Bytes of what failing cases printed, of one run."""
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def shown(name: str) -> str:
    """``name`` on one line: its control characters, and bytes that are no UTF-8, are spelt out."""
    return clean(_CONTROL.sub(lambda match: repr(match[0])[1:-1], name))


class Log:
    """The two files of one run: ``.log`` has a line for each case, ``.out`` what the failing ones printed.

    A full disk, or a case that deletes the files, stops no run: ``broken`` then says what is missing."""

    def __init__(self, root: Path, now: float) -> None:
        self.broken = ""
        self._directory, self.path = _create(root, now)
        self._lines = _append(self.path)
        self._details: int | None = None
        self._size = 0

    def result(self, result: Result) -> None:
        """Note one case."""
        sign = {Outcome.PASSED: "ok", Outcome.SKIPPED: "skipped", Outcome.GONE: "gone"}.get(result.outcome, "ERROR")
        what = one_line(result.reason, 300) if result.outcome is not Outcome.PASSED else ""
        if result.outcome.bad and result.outcome is not Outcome.FAILED:
            what = f"{result.outcome.value.replace('_', ' ')}{': ' if what else ''}{what}"
        self.line(f"{sign} {shown(result.name)}{': ' if what else ''}{what} ({result.seconds:.3f} s)")
        if result.outcome.bad and result.detail:
            self.detail(shown(result.name), result.detail)

    def line(self, text: str) -> None:
        """One more line, whole even if this process is killed."""
        self._write(self._lines, f"{text}\n")

    def detail(self, title: str, text: str) -> None:
        """What belongs to ``title``, into the other file."""
        if self._size > _MOST_DETAIL:
            return
        if self._details is None:
            try:
                self._details = _append(self.path.with_suffix(".out"))
            except OSError as error:
                self._lose(error)
                return
        self._size += self._write(self._details, f"=== {title}\n{clean(text).rstrip()}\n\n")

    def _write(self, file: int, text: str) -> int:
        """How many bytes were written, at once: two runs and a full disk tear no line."""
        data = text.encode("utf-8", "replace")
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._lose(error)
        return len(data)

    def _lose(self, error: OSError) -> None:
        self.broken = self.broken or f"the log is not whole: {error.strerror}"

    def names(self, word: str, names: Iterable[str]) -> None:
        """A line ``word name`` for each of ``names``."""
        for name in names:
            self.line(f"{word} {shown(name)}")

    def close(self) -> None:
        """Make this the last run."""
        for file in (self._lines, self._details):
            if file is not None:
                os.close(file)
        new = self._directory / f".last-{os.getpid()}"
        try:
            new.unlink(missing_ok=True)
            new.symlink_to(self.path.name)
            new.replace(self._directory / "last.log")
            self.path.stat()
        except OSError as error:
            self._lose(error)


def _append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


def _create(root: Path, now: float) -> tuple[Path, Path]:
    """The directory and a new file in it that nobody else writes; in the temporary directory where the project's
    cannot be written."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    directory = root / LOG_LINK / "tests"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        ignore = directory / ".gitignore"
        if not ignore.is_file() or not ignore.stat().st_size:  # an agent's `git add -A` must not take the logs along
            ignore.write_text("*\n")
        _thin(directory)
        return directory, _new(directory, stamp)
    except OSError:
        directory = Path(tempfile.mkdtemp(prefix="team-tests-"))
        return directory, _new(directory, stamp)


def _new(directory: Path, stamp: str) -> Path:
    for n in range(1000):
        path = directory / (f"{stamp}.log" if n == 0 else f"{stamp}-{n}.log")
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            continue
    raise OSError(f"no free name in {directory}")


def _thin(directory: Path) -> None:
    old = sorted(path for path in directory.glob("2*.log") if not path.is_symlink())
    for path in old[: -KEPT + 1]:
        path.unlink(missing_ok=True)
        path.with_suffix(".out").unlink(missing_ok=True)
