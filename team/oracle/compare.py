"""Compare mode: a reference and a candidate on the same inputs; differences shrunk and grouped, each group a task."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from team.errors import TeamError
from team.oracle import compare_inputs
from team.oracle.compare_feed import run_all
from team.oracle.compare_inputs import Input
from team.oracle.compare_report import Broken, CompareReport, Group
from team.oracle.compare_runs import Place, Runner, Steps, wipe
from team.oracle.difference import Difference, Outcome, difference, task_name
from team.oracle.normalise import Normaliser, suggest
from team.oracle.shrink import Shrink
from team.sampler.process import Ended, Job
from team.text import one_line

_ENOUGH = 5  # inputs on which the reference is broken, one after another from the first on, and nothing else
_HANGS = 3  # of the candidate; from then on it gets no more time than the reference makes likely
_WAIT, _TIMES = 3.0, 20  # seconds, and times what the reference took: how much that is
_MANY = 20  # inputs, to tell of each quarter
_NAMED = 5  # inputs that a group names
_SHRUNK = 50  # groups
_LARGE = 8 << 20  # bytes of an input; a larger one is neither shrunk nor kept
_CANNOT_RUN = (126, 127)


@dataclass(frozen=True)
class CompareSettings:
    """What to compare. Commands are for a shell and run in a fresh, empty directory."""

    reference: str
    """``{input}`` is the input's path, ``{root}`` the project's; where ``stdin`` is on, it is standard input too."""
    candidate: str
    inputs: tuple[str, ...] = ()
    """Globs below the project; also of recorded requests and sessions."""
    generate: str = ""
    """Prints an input for ``{seed}``; runs in the project's directory."""
    count: int = 100
    """Inputs to generate."""
    seed: int = 1
    """The first seed: other agents, other inputs."""
    stdin: bool = False
    files: tuple[str, ...] = ()
    """Globs of what they write that counts; all of it where empty."""
    normalise: tuple[tuple[str, str], ...] = ()
    builtin: tuple[str, ...] = ()
    timeout: float = 60
    """Seconds for one run."""
    memory: int | None = None
    """Bytes for one run."""
    jobs: int = 1
    shrink_checks: int = 400
    """Smaller inputs tried for a group."""
    shrink_seconds: float = 60
    """For a group."""


def compare(
    root: Path,
    settings: CompareSettings,
    say: Callable[[str], None],
    known: Mapping[str, Group] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CompareReport:
    """Run both on every input, and say how they differ.

    ``known``: groups of earlier comparisons by their signature; where the example of one still shows it, it is kept
    and not shrunk again. Raises TeamError for settings that cannot be meant, where there is no input, and where the
    reference or the candidate cannot be run at all.
    """
    _check(settings)
    root = root.resolve()
    # Built before anything is run: they find what is wrong with the settings.
    comparison = _Comparison(root, settings, say, known or {}, clock)
    found = compare_inputs.files(root, settings.inputs)
    scratch = Path(tempfile.mkdtemp(prefix="team-compare-")).resolve()
    try:
        if settings.generate:
            seeds = range(settings.seed, settings.seed + settings.count)
            found += compare_inputs.generated(root, settings.generate, seeds, scratch / "generated", settings.jobs)
        if not found:
            raise TeamError("there is no input: set 'inputs' (globs of files) or 'generate' (a command)")
        return comparison.run(found, [Place(scratch / str(number)) for number in range(settings.jobs)])
    finally:
        wipe(scratch)


def _check(settings: CompareSettings) -> None:
    for name in ("reference", "candidate"):
        command: str = getattr(settings, name)
        if not command.strip():
            raise TeamError(f"{name}: there is no command")
        if not settings.stdin and "{input}" not in command and "TEAM_INPUT" not in command:
            raise TeamError(f"{name}: the command never sees the input: put {{input}} in it, or set 'stdin'")
    if settings.reference == settings.candidate:
        raise TeamError("reference and candidate are the same command: nothing can differ")
    for name in ("count", "jobs", "timeout"):
        if getattr(settings, name) <= 0:
            raise TeamError(f"{name}: it must be more than 0")


@dataclass
class _Found:
    """A kind of difference while it is looked at."""

    signature: str
    smallest: Input
    difference: Difference
    unstable: bool
    seconds: float
    """What the reference took on the smallest."""
    names: list[str] = field(default_factory=list)
    count: int = 0


class _Comparison:
    def __init__(
        self,
        root: Path,
        settings: CompareSettings,
        say: Callable[[str], None],
        known: Mapping[str, Group],
        clock: Callable[[], float],
    ) -> None:
        normal = Normaliser(settings.normalise, settings.builtin)
        self._reference, self._candidate = (
            Runner(
                root,
                command,
                normal,
                stdin=settings.stdin,
                files=settings.files,
                seconds=settings.timeout,
                memory=settings.memory,
            )
            for command in (settings.reference, settings.candidate)
        )
        self._settings, self._say, self._known, self._clock = settings, say, known, clock
        self._found: dict[str, _Found] = {}
        self._groups: list[Group] = []
        self._broken: list[Broken] = []
        self._flaky: list[Broken] = []
        self._same = self._looked = self._cut = self._hung = self._failed = self._not_run = 0

    def run(self, inputs: list[Input], places: list[Place]) -> CompareReport:
        self._say(f"comparing {len(inputs)} input{'s' * (len(inputs) != 1)}")
        self._total = len(inputs)
        run_all((partial(self._look, each) for each in inputs), places)
        self._judge()
        most_first = sorted(self._found.values(), key=lambda each: -each.count)
        if most_first:
            self._say(f"kinds of difference: {len(most_first)}; making their inputs smaller")
        run_all((partial(self._shrink, at, each) for at, each in enumerate(most_first)), places)
        self._groups.sort(key=lambda group: (-group.count, group.task))
        return CompareReport(
            tuple(self._groups),
            len(inputs),
            self._same,
            tuple(self._broken),
            tuple(self._flaky),
            self._cut,
            self._failed,
        )

    def _judge(self) -> None:
        """Raises TeamError where nothing can be established."""
        if self._broken and not self._same and not self._found and not self._flaky:
            first = self._broken[0]
            raise TeamError(
                f"the reference is no reference: {first.why} on every input looked at ({len(self._broken)} of"
                f" {self._total}); commands run in an empty directory: name the project's files by {{root}}/..."
            )
        if self._not_run and self._not_run == self._looked - len(self._broken) - len(self._flaky):
            (kind, *_) = self._found.values()
            said = kind.signature.partition("stderr: ")[2] or kind.signature.partition(" -> ")[2]
            raise TeamError(f"the candidate cannot be run: {said}; name the project's files by {{root}}/...")

    # --- one input

    def _look(self, each: Input, place: Place) -> Steps:
        if self._looked == len(self._broken) >= _ENOUGH:
            return
        reference = yield from self._reference.run(place, each.path)
        candidate = Outcome(0, "", {})
        if why := _no_reference(reference):
            self._broken.append(Broken(each.name, why))
        else:
            candidate = yield from self._candidate.run(place, each.path, self._patience(reference))
            yield from self._tell(each, reference, candidate, place)
        self._looked += 1
        self._cut += reference.cut or candidate.cut
        self._failed += reference.code != 0
        if (
            self._total >= _MANY
            and self._looked * 4 // self._total > (self._looked - 1) * 4 // self._total
            and self._looked < self._total
        ):
            self._say(
                f"{self._looked} of {self._total} inputs compared, kinds of difference so far: {len(self._found)}"
            )

    def _tell(self, each: Input, reference: Outcome, candidate: Outcome, place: Place) -> Steps:
        self._hung += candidate.why == "timed out"
        differs = difference(reference, candidate)
        if not differs:
            self._same += 1
            return
        self._not_run += candidate.code in _CANNOT_RUN
        again = yield from self._reference.run(place, each.path)
        if again != reference:
            self._flaky.append(Broken(each.name, self._flakiness(reference, again)))
            return
        unstable = False
        if not candidate.why:
            unstable = (yield from self._candidate.run(place, each.path)) == reference
        signature = f"now and then: {differs.signature}" if unstable else differs.signature
        kind = self._found.setdefault(signature, _Found(signature, each, differs, unstable, reference.seconds))
        kind.count += 1
        kind.names += [each.name] if len(kind.names) < _NAMED else []
        if each.size < kind.smallest.size:
            kind.smallest, kind.difference, kind.seconds = each, differs, reference.seconds

    def _flakiness(self, one: Outcome, other: Outcome) -> str:
        if one.ending != other.ending:
            return f"two runs of the reference end differently: {one.ending}, {other.ending}"
        names = one.streams.keys() | other.streams.keys()
        pairs = [(one.streams.get(name, ""), other.streams.get(name, "")) for name in sorted(names)]
        differs = difference(one, other)
        what = differs.signature.partition("; ")[2] if differs else ""
        setting = suggest(self._settings.builtin, pairs)
        return f"two runs of the reference differ ({what}): set {setting or 'a pair in normalise for it'}"

    def _patience(self, reference: Outcome) -> float:
        if self._hung < _HANGS:
            return self._settings.timeout
        return min(self._settings.timeout, _WAIT + _TIMES * reference.seconds)

    # --- one kind of difference

    def _shrink(self, number: int, kind: _Found, place: Place) -> Steps:
        keep = kind.smallest.size <= _LARGE
        data, shown = kind.smallest.path.read_bytes() if keep else b"", kind.difference
        known = self._known.get(kind.signature)
        checks, minimal = 0, False
        if known and not kind.unstable and (seen := (yield from self._shows(known.example, kind, place))):
            data, shown, minimal = known.example, seen, known.minimal
        elif keep and not kind.unstable and number < _SHRUNK and (yield from self._shows(data, kind, place)):
            shrink = Shrink(data, most=self._settings.shrink_checks)
            end = self._clock() + self._settings.shrink_seconds
            while self._clock() < end and (smaller := shrink.ask()) is not None:
                seen = yield from self._shows(smaller, kind, place)
                shrink.tell(seen is not None)
                shown = seen or shown
            checks = shrink.asked
            # That it hangs was told by less than the time limit: once more by that.
            if "timed out" not in kind.signature or (yield from self._shows(shrink.best, kind, place, whole=True)):
                data, minimal = shrink.best, shrink.minimal
        group = Group(
            signature=kind.signature,
            task=known.task if known else task_name(kind.signature),
            count=kind.count,
            inputs=tuple(kind.names),
            name=kind.smallest.name,
            size=kind.smallest.size,
            example=data,
            minimal=minimal,
            checks=checks,
            excerpt=shown.excerpt,
        )
        self._groups.append(group)
        size = f"{group.size} bytes" if len(data) in (0, group.size) else f"{group.size} bytes, made {len(data)}"
        self._say(f"{group.task}: inputs: {group.count}, the smallest of {size}")

    def _shows(
        self, data: bytes, kind: _Found, place: Place, *, whole: bool = False
    ) -> Generator[Job, Ended, Difference | None]:
        """How the two differ on ``data``, where it is this kind. ``whole``: with all of the time limit."""
        path = place.put(data, kind.smallest.name)
        # With a piece left out a loop may never end: what takes much longer than the whole is given up.
        seconds = self._settings.timeout if whole else min(self._settings.timeout, _WAIT + _TIMES * kind.seconds)
        reference = yield from self._reference.run(place, path, seconds)
        if _no_reference(reference):
            return None
        candidate = yield from self._candidate.run(place, path, seconds)
        differs = difference(reference, candidate)
        return differs if differs and differs.signature == kind.signature else None


def _no_reference(outcome: Outcome) -> str:
    """Why what the reference did says nothing; empty where it does."""
    if outcome.why or outcome.code > 128:
        return f"it ends with {outcome.ending}" if outcome.why != "timed out" else "it does not end in time"
    if outcome.code in _CANNOT_RUN:
        lines = outcome.errors.strip().splitlines()
        return f"it cannot be run ({one_line(lines[-1], 100) if lines else outcome.ending})"
    return ""
