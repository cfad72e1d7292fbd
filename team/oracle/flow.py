"""What ``team oracle`` does with mix mode: find all culprits, or one for an agent, who claims it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from team import git
from team.door_client import DoorClient
from team.errors import TeamError
from team.names import LOCK_DIR
from team.oracle.bench import Bench
from team.oracle.memory import Culprit, Known
from team.oracle.mix import Say, search
from team.oracle.names import task_of
from team.oracle.search import Search, Verdict
from team.sampler.landed import OWN

_MOST_TURNS = 1000


@dataclass
class Report:
    """What was established."""

    units: int
    culprits: list[Culprit] = field(default_factory=list)
    rest: Verdict | None = None
    """Of all units that are in no culprit, together; None where that was not looked at."""
    rest_reason: str = ""
    undecided: Sequence[str] = ()
    """Units that could not be judged."""
    held: int = 0
    """Units that stayed with the reference because somebody works on them."""
    claimed: str = ""
    """The task that is the caller's now."""
    builds: int = 0
    spared: int = 0
    seconds: float = 0.0


Claim = Callable[[Culprit], bool | None]
"""Claims the task of a culprit; False where somebody else holds it, None where there is nobody to claim it from."""


def run(bench: Bench, say: Say) -> Report:
    """Find all smallest failing sets."""
    report = Report(len(bench.units))
    everything = bench.look_at_both_ends()
    free = list(bench.units)
    while everything.verdict is Verdict.UNTESTABLE and (broken := _uncompilable(bench, free)):
        report.culprits += broken
        gone = {unit for culprit in broken for unit in culprit.units}
        free = [unit for unit in free if unit not in gone]
        everything = bench.proven(free)
        say(f"units that the candidate cannot compile so far: {len(report.culprits)}")
    report.rest, report.rest_reason = everything.verdict, everything.reason
    if everything.verdict is not Verdict.PASSES:
        found, hunt, rest = _all(bench, free, say)
        report.culprits += found
        report.undecided = [free[i] for i in sorted(hunt.suspects)]
        report.rest, report.rest_reason = rest.verdict, rest.reason
    for culprit in report.culprits:
        bench.add(culprit)
    return _counted(report, bench)


def _all(bench: Bench, free: Sequence[str], say: Say) -> tuple[list[Culprit], Search, Known]:
    """The sets that fail, and the verdict of what is left; once more where others' verdicts have hidden some."""
    believes = bench.believes
    found, hunt = search(bench, free, say)
    rest = bench.proven(frozenset(free) - {min(culprit.units) for culprit in found})
    if rest.verdict is Verdict.FAILS:
        bench.doubt()
    return (found, hunt, rest) if bench.believes == believes else _all(bench, free, say)


def next_one(bench: Bench, seed: str, held: Callable[[], set[str]], claim: Claim, say: Say) -> Report:
    """Find one culprit that nobody works on, and claim it. ``seed``: each agent tries the units in another order, so
    that all find different ones. ``held``: units that somebody works on; they stay with the reference."""
    report = Report(len(bench.units))
    bench.look_at_both_ends()
    order = list(bench.units)
    random.Random(seed).shuffle(order)
    taken: set[str] = set()
    for _ in range(_MOST_TURNS):
        aside = held() | taken
        free = [unit for unit in order if unit not in aside]
        report.held = len(order) - len(free)
        everything = bench.proven(free)
        report.rest, report.rest_reason = everything.verdict, everything.reason
        if everything.verdict is Verdict.PASSES:
            return _counted(report, bench)
        broken = _uncompilable(bench, free) if everything.verdict is Verdict.UNTESTABLE else []
        found = broken[:1]
        if not found:
            found, hunt = search(bench, free, say, most=1)
            if not found:
                report.undecided = [free[i] for i in sorted(hunt.suspects)]
                return _counted(report, bench)
        (culprit,) = found
        bench.add(culprit)
        claimed = claim(culprit)
        if claimed is not False:
            report.culprits, report.claimed = [culprit], culprit.task if claimed else ""
            report.rest = None  # with this one in it
            return _counted(report, bench)
        say(f"{culprit.task} is somebody else's; looking for another")
        taken.add(min(culprit.units))
    raise TeamError("somebody else held whatever was found; try again later")


def _uncompilable(bench: Bench, free: Sequence[str]) -> list[Culprit]:
    """Those that the candidate cannot compile, in the order of ``free``; each alone cannot be built either."""
    place = {unit: n for n, unit in enumerate(free)}
    found = sorted(bench.uncompilable(free), key=lambda culprit: place[culprit.units[0]])
    alone = bench.verdicts([frozenset(culprit.units) for culprit in found], own=True)
    return [culprit for culprit, known in zip(found, alone, strict=True) if known.verdict is Verdict.UNTESTABLE]


def _counted(report: Report, bench: Bench) -> Report:
    progress = bench.progress
    report.builds, report.spared, report.seconds = progress.builds, progress.spared, progress.seconds
    return report


# -- the team -------------------------------------------------------------------------------------------------


def claimer(env: Mapping[str, str]) -> Claim:
    """Claims at the session's door. Outside a session nothing is claimed: what was found is just told."""
    if not (env.get("TEAM_SESSION") and env.get("TEAM_DOOR")):
        return lambda culprit: None
    door = DoorClient(env)

    def claim(culprit: Culprit) -> bool:
        units = " ".join(culprit.units)
        # The name is the unit's: no other name says the same, and an earlier end of this task is no reason against it.
        fields = {"task": culprit.task, "note": f"oracle: {units}: {culprit.reason}"[:290], "force": "1"}
        body = "".join(f"{key}={' '.join(value.split())}\n" for key, value in fields.items())
        status, answer = door.post("/team/claim", body.encode("utf-8", "replace"))
        text = answer.decode("utf-8", "replace").strip()
        if 200 <= status < 300:
            return True
        if status == 409 and " is held by " in text:
            return False
        raise TeamError(f"{culprit.task} could not be claimed: {text}")

    return claim


def held_units(env: Mapping[str, str], units: Sequence[str], upstream: Path | None) -> Callable[[], set[str]]:
    """Units whose task is held now, by the locks on upstream's main (``/upstream`` in a session)."""
    repository = Path(env.get("TEAM_UPSTREAM") or "/upstream") if env.get("TEAM_SESSION") else upstream
    names = {f"{task_of(unit)}.txt": unit for unit in units}

    def held() -> set[str]:
        if repository is None or not repository.is_dir():
            return set()
        out = git.git("ls-tree", "--name-only", "-z", "main", f"{LOCK_DIR}/", at=repository, env=OWN)
        locks = {os.path.basename(name) for name in out.decode("utf-8", "replace").split("\0")}  # noqa: PTH119
        return {names[lock] for lock in locks if lock in names}

    return held
