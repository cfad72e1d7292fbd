"""Builds and checks sets of units, some from the candidate and all others from the reference."""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from team.errors import TeamError
from team.oracle import cc, trees
from team.oracle.cc_objects import identity
from team.oracle.confidence import Repeated
from team.oracle.memory import Culprit, Known, Memory, key_of
from team.oracle.names import task_of
from team.oracle.search import Verdict
from team.oracle.settings import OracleSettings
from team.sampler.process import Ended, Job, Pool
from team.sampler.suites.shell import telling
from team.text import one_line

CANNOT_TELL = 125
"""Exit code of a check that cannot tell, as of ``git bisect run``."""
_BUILD_FAILED = 201
_SCRIPT = f"""
echo build >"$TEAM_ORACLE_PHASE"
(eval "$TEAM_ORACLE_BUILD") </dev/null
[ "$?" = 0 ] || exit {_BUILD_FAILED}
echo check >"$TEAM_ORACLE_PHASE"
(eval "$TEAM_ORACLE_CHECK") </dev/null
code=$?
[ "$code" != {_BUILD_FAILED} ] || code=1
exit "$code"
"""
_MOST_UNITS = 200_000
_MOST_PRINTED = 64 << 20
_NOT_STARTED = "cannot be started"  # as team-cc says it
_ROOM = 1 << 20  # bytes of a disk; with less, what fails fails for lack of it


class Stopped(TeamError):
    """The search cannot go on; the message says what was established."""


@dataclass
class Progress:
    """How far a search is, for whoever waits."""

    builds: int = 0
    """Builds and checks that were run."""
    spared: int = 0
    """Verdicts that an earlier call, or another agent, had found."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class Bench:
    """Builds and checks sets of units, each in a copy of the work tree, and remembers what came of them."""

    def __init__(
        self, root: Path, settings: OracleSettings, memory: Memory, agent: str, *, memory_limit: int, notes: list[str]
    ) -> None:
        """``memory_limit``: bytes of one build or check, where the settings name none. Raises :class:`TeamError` for
        settings that lack something."""
        if not settings.build and not settings.check:
            raise TeamError('team.toml has no [oracle] build and check; set them, like check = "sh check.sh"')
        if not settings.check:
            raise TeamError("[oracle] check is empty: name the command that says whether the result is right")
        if bool(settings.reference) != bool(settings.candidate):
            raise TeamError("[oracle] reference and candidate belong together: set both, for team-cc, or neither")
        for name, command in (("reference", settings.reference), ("candidate", settings.candidate)):
            try:
                shlex.split(command)
            except ValueError as error:
                raise TeamError(f"[oracle] {name} is no command: {str(error).lower()}") from None
        self.root, self.settings, self.agent = root, settings, agent
        self._memory, self._notes = memory, notes
        self._limit = settings.memory or memory_limit
        self._home = trees.home(root)
        self.progress = Progress()
        self.units = _units(root, settings)
        self._version = _output(settings.version, root / settings.directory, settings) if settings.version else ""
        commands = (settings.reference, settings.candidate)
        self._compilers = [self._identity(word) for command in commands for word in shlex.split(command)]
        self.setting = self._setting()
        self.believes = True
        """Whether verdicts of earlier calls and of others count; not any more once one of them was wrong."""
        self._known: dict[str, Known] = {}
        self._own: set[str] = set()
        self._outcomes: dict[str, Repeated] = {}
        self._cache = self._home / "objects"
        self._copies: list[_Copy] = []
        self._since = time.time()

    def _setting(self) -> str:
        """What the verdicts belong to."""
        one = self.settings
        self._state = trees.state_of(self.root)
        parts = [self._state, one.build, one.check, one.reference, one.candidate, one.directory, self._version]
        return _digest([*parts, *self._compilers])

    def _identity(self, word: str) -> str:
        """A word of a compiler's command; changes when the program does. In the work tree by what is in it: clones of
        different agents differ in times only."""
        path = self.root / self.settings.directory / word
        if path.is_file():
            return f"{word} {hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()}"
        return identity(word)

    # -- verdicts ---------------------------------------------------------------------------------------------

    def verdicts(self, sets: Sequence[frozenset[str]], *, own: bool = False, anew: bool = False) -> list[Known]:
        """What comes of each set, as candidate, with all other units from the reference; known ones are not run
        again, unless ``anew``, or ``own`` and it was not this call that ran them."""
        keys = [key_of(units) for units in sets]
        if not anew and not own and self.believes:
            self._recall(keys)
        known = () if anew else self._own if own else self._known
        missing = {key: units for key, units in zip(keys, sets, strict=True) if key not in known}
        fresh = self._run(missing)
        wrong = [key for key in fresh if key in self._known and self._known[key].verdict is not fresh[key].verdict]
        self._known |= fresh
        self._own |= fresh.keys()
        if wrong and not anew:
            self.doubt()
        if fresh:
            try:
                self._memory.record(self.setting, fresh, self.agent)
            except (OSError, sqlite3.Error) as error:
                self._note(f"the verdicts could not be kept: {error}")
        return [self._known[key] for key in keys]

    def proven(self, units: Iterable[str]) -> Known:
        """The verdict of a set. That it does not fail ends a search, so this is not taken from others' word."""
        everything = frozenset(units)
        (known,) = self.verdicts([everything])
        if known.verdict is not Verdict.FAILS:
            (known,) = self.verdicts([everything], own=True)
        return known

    def doubt(self) -> None:
        """Forget what this call has not run itself."""
        if self.believes and self.progress.spared:
            self._note("what was known before contradicts the builds of this call, which made all that counts itself")
            self.believes = False
            self._known = {key: known for key, known in self._known.items() if key in self._own}

    def _recall(self, keys: Iterable[str]) -> None:
        unknown = [key for key in keys if key not in self._known]
        try:
            earlier = self._memory.look(self.setting, unknown)
            self._known |= earlier
            self.progress.spared += len(earlier)
        except (OSError, sqlite3.Error) as error:
            self._note(f"nothing is known of earlier builds: {error}")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _run(self, sets: Mapping[str, frozenset[str]]) -> dict[str, Known]:
        """Build and check every set, those whose check is flaky until it is sure."""
        found: dict[str, Known] = {}
        # Of one verdict, so that all that a search asks for are right with the confidence of the settings.
        confidence = 1 - (1 - self.settings.confidence) / (4 * math.log2(len(self.units) + 2))
        waiting = dict(sets)
        while waiting:
            for key, once in self._once(waiting):
                outcomes = self._outcomes.setdefault(key, Repeated(self.settings.flaky, confidence))
                verdict = outcomes.tell(once.verdict)
                if verdict is not None:
                    reason = once.reason if verdict is not Verdict.PASSES else ""
                    found[key] = Known(verdict, reason, once.seconds, outcomes.count)
            waiting = {key: units for key, units in waiting.items() if key not in found}
        return found

    def _once(self, sets: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, Known]]:
        while len(self._copies) < self.settings.jobs:
            self._copies.append(self._copy())
        free = list(self._copies)
        used: dict[str, _Copy] = {}

        def jobs() -> Iterator[Job]:
            for key, units in sets.items():
                used[key] = copy = free.pop()
                yield self._job(key, units, copy)

        for ended in Pool(len(self._copies)).run(jobs()):
            copy = used[ended.key]
            self.progress.builds += 1
            yield ended.key, self._judge(ended, copy)
            copy.clean()
            free.append(copy)

    def _copy(self) -> _Copy:
        """A copy of the work tree as it was when this call began. Raises :class:`Stopped` where it has changed."""
        copy = _Copy(*trees.take(self._home))
        if self.settings.candidate and not cc.compiled(self._cache):  # with the cache went what was made of what
            copy.half_made.touch()
        copy.clean()
        trees.bring_up_to_date(self.root, copy.path)
        if trees.state_of(self.root) != self._state:
            raise Stopped("files of the work tree changed while they were copied; run it again")
        return copy

    def _job(self, key: str, units: frozenset[str], copy: _Copy) -> Job:
        one = self.settings
        place = copy.path / one.directory
        copy.phase.unlink(missing_ok=True)
        copy.half_made.touch()
        cc.assign(place, self._cache, copy.assignment, units)
        env = cc.environment(
            place, reference=one.reference, candidate=one.candidate, assignment=copy.assignment, cache=self._cache,
            version=_digest([self._version, *self._compilers]),
        )  # fmt: skip
        env |= {
            "TEAM_ORACLE_BUILD": one.build or ":",
            "TEAM_ORACLE_CHECK": one.check,
            "TEAM_ORACLE_PHASE": str(copy.phase),
        }
        return Job(key, ["sh", "-c", _SCRIPT], place, env, seconds=2 * one.timeout, memory=self._limit)

    def _judge(self, ended: Ended, copy: _Copy) -> Known:
        checked = copy.phase.read_text().strip() == "check" if copy.phase.exists() else False
        if checked or not (ended.why or ended.code < 0):
            copy.half_made.unlink(missing_ok=True)
        if ended.code != 0 and shutil.disk_usage(self._home).free < _ROOM:
            raise Stopped(
                f"no room is left in {self._home}: remove something, or set TMPDIR; what was found out is kept"
            )
        seconds = round(ended.seconds, 3)
        said = self._place(_telling(ended.output))
        if not checked:
            why = {"timed out": f"the build did not end in {2 * self.settings.timeout:g} s"}.get(ended.why, "")
            failed = f"the build failed: {said}" if said else "the build failed"
            return Known(Verdict.UNTESTABLE, why or failed, seconds)
        if ended.why == "timed out":
            return Known(Verdict.FAILS, f"the check did not end in {2 * self.settings.timeout:g} s", seconds)
        if ended.why == "memory":
            return Known(Verdict.FAILS, "the check ran out of memory", seconds)
        if ended.code == 0:
            return Known(Verdict.PASSES, "", seconds)
        if ended.code == CANNOT_TELL:
            return Known(Verdict.UNTESTABLE, f"the check cannot tell: {said}", seconds)
        how = f"signal {-ended.code}" if ended.code < 0 else f"exit {ended.code}"
        return Known(Verdict.FAILS, f"{how}: {said}" if said else how, seconds)

    # -- the ends of the scale --------------------------------------------------------------------------------

    def look_at_both_ends(self) -> Known:
        """The verdict of all units from the candidate. Raises :class:`Stopped` where the reference itself is wrong."""
        self.verdicts([frozenset(), frozenset(self.units)])  # both at once
        nothing, everything = self.proven(()), self.proven(self.units)
        if nothing.verdict is not Verdict.PASSES:
            (nothing,) = self.verdicts([frozenset()], own=True)
        if nothing.verdict is Verdict.FAILS:
            raise Stopped(
                f"the reference alone fails the check too, so there is nothing to compare with: {nothing.reason}"
            )
        if nothing.verdict is Verdict.UNTESTABLE:
            raise Stopped(f"the reference alone cannot be built or checked: {nothing.reason}")
        if self.settings.candidate and "the candidate" in everything.reason and _NOT_STARTED in everything.reason:
            raise Stopped(
                f"the candidate {self.settings.candidate!r} cannot be started in a copy of the work tree, which has no"
                " files that git ignores: name it by its absolute path, or let [oracle] build make it"
            )
        if self.settings.candidate:
            self._look_at_compiled()
        return everything

    def _look_at_compiled(self) -> None:
        """Raises :class:`Stopped` where ``team-cc`` was never asked for a unit: all would be the reference's."""
        known = cc.compiled(self._cache) | {failure.unit for failure in cc.failures(self._cache)}
        strange = [unit for unit in self.units if unit not in known]
        if len(strange) == len(self.units):
            raise Stopped(
                "the build passes, but compiles no unit with team-cc: does it say CC=team-cc, and is each unit a source"
                f" file's path from {self.settings.directory or 'the top of the work tree'}, unlike {strange[0]!r}?"
            )
        if strange:
            self._note(f"units that team-cc does not compile, so that they pass: {len(strange)}, like {strange[0]!r}")

    def uncompilable(self, units: Iterable[str]) -> list[Culprit]:
        """Those of ``units`` that the candidate could not compile when this call last tried."""
        among, failures = set(units), cc.failures(self._cache, self._since)
        failed = [one for one in failures if one.compiler == "candidate" and one.unit in among]
        return [
            Culprit(
                (one.unit,),
                f"the candidate cannot compile it: {self._place(one.message)}",
                task_of(one.unit),
                self.agent,
            )
            for one in failed
        ]

    def _place(self, text: str) -> str:
        """``text`` with names of files as they are in the work tree."""
        return re.sub(rf"{re.escape(str(self._home))}/tree-\d+/", "", text)

    def add(self, culprit: Culprit) -> None:
        """Keep a culprit for the others."""
        try:
            self._memory.add(self.setting, culprit)
        except (OSError, sqlite3.Error) as error:
            self._note(f"the culprit could not be kept: {error}")

    def culprits(self) -> list[Culprit]:
        """What has been found in this setting, by anybody."""
        with suppress(OSError, sqlite3.Error):
            return self._memory.culprits(self.setting)
        return []


@dataclass
class _Copy:
    """One copy of the work tree, and what it was built of last."""

    path: Path
    lock: BinaryIO
    """Held while it is ours."""

    def __post_init__(self) -> None:
        beside = self.path.parent
        self.half_made = beside / f"{self.path.name}.half-made"
        self.phase = beside / f"{self.path.name}.phase"
        self.assignment = beside / f"{self.path.name}.units"

    def clean(self) -> None:
        """Remove what a build that was killed has left."""
        if self.half_made.exists():
            trees.strip(self.path)
            self.assignment.unlink(missing_ok=True)
            self.half_made.unlink()


def _telling(output: bytes) -> str:
    """The line of a build's or check's output that tells most."""
    return one_line(telling(output.decode("utf-8", "replace")), 240)


def _units(root: Path, settings: OracleSettings) -> list[str]:
    """The units, sorted. Raises :class:`TeamError` for none."""
    place = root / settings.directory
    if not place.is_dir():
        raise TeamError(f"[oracle] directory: there is no {settings.directory!r} in the work tree")
    if settings.list:
        lines = _output(settings.list, place, settings).split("\n")
        found = {line.removeprefix("./") if settings.candidate else line for line in lines} - {""}
    else:
        found = {unit for glob in settings.units for unit in _matches(place, glob)}
    if strange := next((unit for unit in found if "\n" in unit or "\0" in unit), None):
        raise TeamError(f"{strange!r} is no unit: a name is one line; rename it, or leave it out")
    if not found:
        raise TeamError('no units: set [oracle] units, like ["src/*.c"], or list, a command that prints them')
    if len(found) > _MOST_UNITS:
        raise TeamError(f"{len(found)} units, at most {_MOST_UNITS} are allowed; make them larger parts")
    return sorted(found)


def _matches(place: Path, glob: str) -> list[str]:
    try:
        return [str(path.relative_to(place)) for path in place.glob(glob) if path.is_file()]
    except (ValueError, NotImplementedError):
        mend = "a pattern of paths inside the project, like src/*.c, is needed"
        raise TeamError(f"[oracle] units: {glob!r} does not do: {mend}") from None


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _output(command: str, place: Path, settings: OracleSettings) -> str:
    """What ``command`` prints. Raises :class:`TeamError` where it fails."""
    job = Job("command", ["sh", "-c", command], place, seconds=settings.timeout, output=_MOST_PRINTED, merge=False)
    (ended,) = Pool().run([job])
    if ended.printed > _MOST_PRINTED:
        raise TeamError(f"[oracle] `{one_line(command, 60)}` prints more than {_MOST_PRINTED >> 20} MiB")
    if ended.why:
        raise TeamError(f"[oracle] `{one_line(command, 60)}` was ended: {ended.why}")
    if ended.code != 0:
        what = _telling(ended.errors or ended.output)
        raise TeamError(f"[oracle] `{one_line(command, 60)}` failed with exit {ended.code}: {what}")
    return ended.output.decode("utf-8", "surrogateescape")
