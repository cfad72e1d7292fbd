"""``team test --bisect``: which landing broke a case, by git's own bisect, in a work tree of its own."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from team import git
from team.errors import TeamError
from team.sampler import landed
from team.sampler.cases import CannotRun, Case, Options, Outcome, Result
from team.sampler.choice import named
from team.sampler.log import shown
from team.sampler.suites import detect, suite
from team.text import one_line

if TYPE_CHECKING:
    from team.sampler.place import Place
    from team.sampler.settings import SuiteSettings

_MOST_RUNS = 60
_PROGRESS = 30.0  # seconds between two lines of it


@dataclass
class _Trial:
    """Runs the one case at any commit, never twice on the same tree."""

    tree: Path
    settings: SuiteSettings
    options: Options
    name: str
    runs: int = 0

    def __post_init__(self) -> None:
        self._known: dict[str, Outcome] = {}
        self._next = time.monotonic() + _PROGRESS
        self.reason = ""

    def __call__(self, commit: str) -> Outcome:
        content = landed.content(self.tree, commit)
        if content not in self._known:
            git.git("checkout", "--quiet", "--force", "--detach", commit, at=self.tree, env=landed.OWN, seconds=600)
            self._known[content] = self._run()
            if time.monotonic() > self._next:
                self._next = time.monotonic() + _PROGRESS
                print(f"{self.runs} runs, {commit[:10]} {self._known[content].value}", file=sys.stderr, flush=True)
        return self._known[content]

    def _run(self) -> Outcome:
        self.runs += 1
        results: list[Result] = []
        with suppress(CannotRun):  # it does not build, or has no such case yet: that says nothing
            suite(self.tree, self.settings).run(self._choose, self.options, results.append)
        if results and results[0].outcome.bad:
            self.reason = results[0].reason
        return results[0].outcome if results else Outcome.GONE

    def _choose(self, cases: Sequence[Case]) -> list[Case]:
        found = [case for case in cases if case.name == self.name]
        if not found and not self._known:  # at the first commit a part of the name is enough, as elsewhere
            found = named(cases, [self.name], must=True)
            if len(found) > 1:
                raise TeamError(f"{len(found)} cases have {self.name!r} in their names; name one")
            self.name = found[0].name
        return found


def bisect(
    place: Place,
    only: str | None,
    name: str,
    good: str,
    options: Callable[[SuiteSettings], Options],
    *,
    as_json: bool,
) -> int:
    """Print the first commit of main (first parents only) at which the case ``name`` fails. ``good``: a revision at
    which it passed; by default the newest one that is known, or found by going back in growing steps."""
    if not place.stand.commit:
        raise TeamError("there are no commits to bisect")
    suite_name, settings = _suite_of(place, only)
    tree = Path(tempfile.mkdtemp(prefix="team-bisect-"))
    at, add = place.stand.commit, ("worktree", "add", "--quiet", "--detach")
    try:
        git.git(*add, str(tree / "tree"), at, at=place.root, env=landed.OWN, seconds=600)
        trial = _Trial(tree / "tree", settings, options(settings), name)
        first = _search(place, suite_name, trial, good)
    finally:
        with suppress(git.GitError):
            git.git("worktree", "remove", "--force", "--force", str(tree / "tree"), at=place.root, env=landed.OWN)
        shutil.rmtree(tree, ignore_errors=True)
    subject = git.line("log", "-1", "--format=%s (%an, %as)", first, "--", at=place.root, env=landed.OWN)
    if as_json:
        found = {"case": name, "first_bad": first, "subject": subject, "runs": trial.runs, "reason": trial.reason}
        print(json.dumps(found))
    else:
        print(one_line(f"{shown(name)} fails since {first[:10]}: {subject}", 300))
        print(one_line(f"found in {trial.runs} runs; it fails with: {trial.reason or 'no reason'}", 300))
        print(f"see `git show {first[:10]}`, for a merge `git diff {first[:10]}^1 {first[:10]}`")
    return 0


def _suite_of(place: Place, only: str | None) -> tuple[str, SuiteSettings]:
    suites = place.settings.all()
    if only is None and len(suites) > 1:
        raise TeamError(f"name the suite of the case: --suite {' or '.join(suites)}")
    name = next(iter(suites)) if only is None else only
    if name not in suites:
        raise TeamError(f"there is no suite {name!r}; known: {', '.join(suites)}")
    one = suites[name]
    return name, one if one.kind else replace(one, kind=detect(place.root / one.directory))


def _search(place: Place, suite_name: str, trial: _Trial, good: str) -> str:
    bad = place.stand.commit
    outcome = trial(bad)
    if outcome is Outcome.GONE:
        raise TeamError(
            f"{one_line(shown(trial.name))} cannot be run at {bad[:10]}; `team test --list` shows the names"
        )
    if not outcome.bad:
        raise TeamError(f"{shown(trial.name)} passes at {bad[:10]}: commit what breaks it, or check out where it fails")
    start = _good(place, suite_name, trial, good, bad)
    git.git("bisect", "start", "--first-parent", "--no-checkout", bad, start, "--", at=trial.tree, env=landed.OWN)
    for _ in range(_MOST_RUNS):
        here = git.resolve(trial.tree, "BISECT_HEAD", landed.OWN)
        if here is None:
            break
        outcome = trial(here)
        word = "bad" if outcome.bad else "skip" if outcome in (Outcome.GONE, Outcome.SKIPPED) else "good"
        code, out = git.git_status("bisect", word, here, at=trial.tree, env=landed.OWN, ok=(0, 1, 2))
        text = out.decode("utf-8", "replace")
        if "is the first bad commit" in text:
            return text.split(" ", 1)[0].split("\n")[-1]
        if code == 2:
            raise TeamError("only commits at which the case cannot be run are left; try --good with a newer commit")
    raise TeamError("git bisect did not come to an end; try --good with a newer commit")


def _good(place: Place, suite_name: str, trial: _Trial, good: str, bad: str) -> str:
    """A commit at which the case passes, below ``bad`` on main's own line."""
    if good:
        found = git.resolve(place.root, f"{good}^{{commit}}", landed.OWN)
        if found is None:
            raise TeamError(f"--good {good!r} is no commit")
        if trial(found) is not Outcome.PASSED:
            raise TeamError(f"{shown(trial.name)} does not pass at {good} either; name an older commit")
        return found
    for seen in place.memory.history(suite_name, trial.name):
        if (
            seen.clean
            and seen.outcome == Outcome.PASSED
            and git.resolve(place.root, f"{seen.commit}^{{commit}}", landed.OWN)
        ):
            if git.is_ancestor(place.root, seen.commit, bad, landed.OWN) and trial(seen.commit) is Outcome.PASSED:
                return seen.commit
            break
    line = (
        git.git("rev-list", "--first-parent", "-n", "100000", bad, "--", at=place.root, env=landed.OWN).decode().split()
    )
    step = 1
    while True:
        at = min(step, len(line) - 1)
        if trial(line[at]) is Outcome.PASSED:
            return line[at]
        if at == len(line) - 1:
            raise TeamError(f"{shown(trial.name)} passes at none of the {trial.runs} commits that were tried")
        step *= 2
