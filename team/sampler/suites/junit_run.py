"""One run of a producer of JUnit XML, and what it has written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from team.sampler.cases import CannotRun, Options
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings
from team.sampler.suites import junit_names, junit_xml, shell
from team.sampler.suites.junit_xml import TestCase

_LIST_SECONDS = 600.0
_MOST_LISTED = 128 << 20
_MOST_DETAILS = 64 << 20  # characters of what all cases of a run say
_FEWEST = 20


@dataclass(frozen=True)
class Produced:
    """What came of a run."""

    ended: Ended
    found: list[TestCase]
    broken: str
    """Which result file could not be read to its end, and why."""
    stale: bool
    """Whether there are result files, but all from before."""

    @property
    def died(self) -> bool:
        """Whether it was killed, or crashed."""
        return bool(self.ended.why) or self.ended.code < 0 or bool(shell.crash(self.ended.code))

    def nothing(self, pattern: str) -> CannotRun:
        """The error that it told of no case at all."""
        output = shell.text(self.ended.output)
        how = shell.ending(self.ended)
        if self.broken:
            return CannotRun(f"no results ({how}): {self.broken}", output)
        if self.ended.code or self.ended.why:
            return CannotRun(f"no results ({how}): {shell.telling(output) or 'it printed nothing'}", output)
        if self.stale:
            why = "only old ones; if it skips what it has run before, make it run again (gradle --rerun-tasks)"
            return CannotRun(f"it wrote no results to {pattern}, there are {why}", output)
        return CannotRun(f"it wrote no results to [test] results = {pattern!r}", output)

    def blameless(self) -> CannotRun:
        """The error that the run went wrong, and no case is to blame: or it would look as if all had passed."""
        output = shell.text(self.ended.output)
        said = shell.telling(output)
        what = "died before its end" if self.died else "failed, though no case did"
        return CannotRun(f"the run {what} ({shell.ending(self.ended)}){': ' if said else ''}{said}", output)


class Producer:
    """The commands of the suite."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root = root
        self._settings = settings

    def names(self) -> list[str]:
        """What the list command prints, a name a line. Raises :class:`CannotRun`."""
        argv = ["sh", "-c", self._settings.list]
        base = shell.place(self._root, self._settings)
        job = Job("list", argv, base, seconds=_LIST_SECONDS, output=_MOST_LISTED, merge=False)
        (ended,) = Pool().run([job])
        if ended.code or ended.why:
            said = shell.text(ended.errors or ended.output[-shell.MOST_DETAIL :])
            raise CannotRun(f"the list command failed ({shell.ending(ended)}): {shell.telling(said)}", said)
        lines = ended.output.decode("utf-8", "surrogateescape").split("\n")
        # Absolute names (of jest --listTests) would differ from clone to clone.
        names = list(dict.fromkeys(line.strip().removeprefix(f"{base}/") for line in lines if line.strip()))
        if not names or ended.printed > _MOST_LISTED:
            raise CannotRun(f"the list command printed {'too much' if names else 'no names'}: {self._settings.list}")
        return names

    def last(self) -> list[TestCase]:
        """The cases of whatever result files are there."""
        return self._read(self._files())[0]

    def run(self, names: Sequence[str], options: Options, count: int) -> Produced:
        """Run it for ``names``, and read what it has written.

        It is killed when it has been silent for as long as one case may take, at the latest when all ``count`` cases
        would have taken as long."""
        before = self._files()
        heard = time.monotonic()

        def hear(key: str, data: bytes) -> None:
            nonlocal heard
            heard = time.monotonic()

        def tick(pool: Pool) -> None:
            if time.monotonic() - heard > options.seconds:
                pool.kill("run", "timed out")

        argv = ["sh", "-c", junit_names.command(self._settings.run, names)]
        base = shell.place(self._root, self._settings)
        most = options.seconds * max(count, _FEWEST)
        (ended,) = Pool(on_output=hear, on_tick=tick).run([Job("run", argv, base, seconds=most, memory=options.memory)])
        # What an earlier run left is no result of this one.
        new = [file for file, stamp in self._files().items() if before.get(file) != stamp]
        found, broken = self._read(new)
        return Produced(ended, found, broken, stale=bool(before) and not new)

    def _files(self) -> dict[Path, tuple[int, int, int]]:
        """The result files, each with what changes when it is written anew."""
        base = shell.place(self._root, self._settings)
        found = {}
        try:
            for file in sorted(base.glob(self._settings.results)):
                if file.is_file():
                    stat = file.stat()
                    found[file] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except (OSError, ValueError, NotImplementedError, IndexError) as error:
            raise CannotRun(f"[test] results = {self._settings.results!r} is no glob in the project: {error}") from None
        return found

    def _read(self, files: Iterable[Path]) -> tuple[list[TestCase], str]:
        found: list[TestCase] = []
        broken = ""
        room = _MOST_DETAILS
        for file in files:
            try:
                for case in junit_xml.read(file):
                    room -= sum(map(len, case.texts))
                    if room < 0:
                        case.texts.clear()
                    found.append(case)
            except junit_xml.BadXml as error:
                broken = broken or f"{file.relative_to(self._root)} is broken: {error}"
        return found, broken
