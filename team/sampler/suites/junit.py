"""Any command that writes JUnit XML: Maven, Gradle, gtest, Jest, node and whatever else can."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Result, Sink
from team.sampler.settings import SuiteSettings
from team.sampler.suites import junit_names, shell
from team.sampler.suites.junit_names import Listed
from team.sampler.suites.junit_run import Produced, Producer
from team.sampler.suites.junit_xml import TestCase

_SPLIT = 8
"""Into so many parts a run is divided that did not tell of some cases, until the guilty one is alone."""
_PATIENCE = 3
"""So many runs in a row may fail without a result before nothing at all can be run."""


class JUnit:
    """A producer, run for all cases or for some.

    With a ``list`` command its lines are the cases: tests, or classes or files of tests; without one the cases are
    what the result files tell, by ``classname::name``. ``{cases}`` in ``run`` stands for the names that are to run.
    """

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        for key, value in (("run", settings.run), ("results", settings.results)):
            if not value:
                raise CannotRun(f"[test] {key} is empty: kind = 'junit' needs the command and a glob of what it writes")
        self._choosy = bool(junit_names.PLACEHOLDER.search(settings.run))
        if self._choosy and not settings.list:
            raise CannotRun("[test] run has {cases}, but list is empty: name the command that prints the names")
        self._root = root
        self._settings = settings
        self._producer = Producer(root, settings)

    def list(self, options: Options) -> Sequence[Case]:
        if self._settings.list:
            shell.build(self._root, self._settings)
            return self._listed(self._producer.names())
        # Only a run can tell; the last one did.
        found = junit_names.identities(self._producer.last())
        if not found:
            raise CannotRun("[test] list is empty, and no run has left results: run the tests once")
        return self._found(found)

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        shell.build(self._root, self._settings)
        if not self._settings.list:
            self._run_then_choose(choose, options, sink)
            return
        names = self._producer.names()
        chosen = dict.fromkeys(case.name for case in choose(self._listed(names)))
        told = _Told(Listed(self._base(), names), chosen, options, sink)
        if self._choosy:
            self._run_chosen(told, options)
        elif chosen:
            produced = self._producer.run((), options, len(names))
            if not told.add(produced.found) and not produced.found:
                raise produced.nothing(self._settings.results)
            told.give_up(told.left(chosen), produced)
            if not any(case.outcome.bad for case in produced.found) and not told.bad and produced.ended.code:
                raise produced.blameless()

    def _run_then_choose(self, choose: Choose, options: Options, sink: Sink) -> None:
        produced = self._producer.run((), options, 0)
        if not produced.found:
            raise produced.nothing(self._settings.results)
        found = junit_names.identities(produced.found)
        for name in dict.fromkeys(case.name for case in choose(self._found(found))):
            sink(_result(name, [found[name]]) if name in found else Result(name, Outcome.GONE, 0.0))
        if produced.died or (produced.ended.code and not any(case.outcome.bad for case in produced.found)):
            raise produced.blameless()

    def _run_chosen(self, told: _Told, options: Options) -> None:
        """One run, where no case hangs or kills the producer; else as few more as it takes to find which."""
        waiting = deque(junit_names.batches(told.chosen))
        blameless: CannotRun | None = None
        in_vain = 0
        while waiting:
            batch = told.left(waiting.popleft())
            if not batch:
                continue
            produced = self._producer.run(batch, options, len(batch))
            in_vain = 0 if told.add(produced.found) else in_vain + 1
            if not told.any and in_vain > (_SPLIT if produced.died else _PATIENCE if produced.ended.code else 0):
                raise produced.nothing(self._settings.results)
            rest = told.left(batch)
            # Also where it told of others: a file of tests that does not even load is told of by its exit code alone.
            if rest and len(batch) > 1 and (produced.ended.code or not produced.found):
                size = max(1, len(rest) // _SPLIT)
                waiting.extend(rest[n : n + size] for n in range(0, len(rest), size))
                continue
            told.give_up(rest, produced)
            blameless = produced.blameless() if produced.ended.code else blameless
        if blameless and not told.bad:
            raise blameless

    def _listed(self, names: Sequence[str]) -> Sequence[Case]:
        # A listed name may be a file, a class, or a test of one.
        named = ((name, name.split("::")[0], name) for name in names)
        return junit_names.cases(self._base(), self._settings.directory, named)

    def _found(self, found: dict[str, TestCase]) -> Sequence[Case]:
        named = ((name, case.classname, case.file) for name, case in found.items())
        return junit_names.cases(self._base(), self._settings.directory, named)

    def _base(self) -> Path:
        return shell.place(self._root, self._settings)


class _Told:
    """Which of the chosen cases have their result."""

    def __init__(self, listed: Listed, chosen: Iterable[str], options: Options, sink: Sink) -> None:
        self.chosen = list(chosen)
        self.any = False
        """Whether any run has told of any of them."""
        self.bad = False
        self._listed = listed
        self._left = set(self.chosen)
        self._options = options
        self._sink = sink

    def left(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that have none yet."""
        return [name for name in names if name in self._left]

    def add(self, found: Iterable[TestCase]) -> bool:
        """Tell what was found of them; whether any was."""
        groups: dict[str, list[TestCase]] = {}
        for case in found:
            name = self._listed.of(case)
            if name in self._left:
                groups.setdefault(name, []).append(case)
        for name, group in groups.items():
            self._tell(_result(name, group))
        self.any = self.any or bool(groups)
        return bool(groups)

    def give_up(self, names: Iterable[str], produced: Produced) -> None:
        """Tell of ``names`` that ``produced`` told nothing of them."""
        ended = produced.ended
        said = shell.text(ended.output)
        outcome = shell.outcome(ended)
        if produced.died:
            reason = shell.ending(ended, self._options)
        elif produced.broken:
            outcome, reason = Outcome.FAILED, f"no result: {produced.broken}"
        elif produced.found or not ended.code:
            outcome, reason = Outcome.GONE, "it was listed, but the run told nothing of it"
        else:
            reason = f"no result ({shell.ending(ended)}): {shell.telling(said)}"
        for name in names:
            self._tell(Result(name, outcome, ended.seconds, reason, said if outcome.bad else ""))

    def _tell(self, result: Result) -> None:
        self._left.discard(result.name)
        self.bad = self.bad or result.outcome.bad
        self._sink(result)


def _result(name: str, group: Sequence[TestCase]) -> Result:
    """One result for all test cases that belong to ``name``."""
    seconds = sum(case.seconds for case in group)
    bad = [case for case in group if case.outcome.bad]
    if bad:
        where = "" if len(group) == 1 else f"{len(bad)} of {len(group)} failed, {bad[0].name}: "
        text = "\n".join("".join((f"{case.full}\n", *case.texts)) for case in bad)[: shell.MOST_DETAIL]
        return Result(name, Outcome.FAILED, seconds, where + bad[0].reason, text)
    if all(case.outcome is Outcome.SKIPPED for case in group):
        return Result(name, Outcome.SKIPPED, seconds, group[0].reason)
    return Result(name, Outcome.PASSED, seconds)
