"""What is read of a search: a dozen lines for agents, and the same as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from team.oracle.flow import Report
from team.oracle.memory import Culprit
from team.oracle.search import Verdict
from team.text import one_line

_SHOWN = 6
_WIDTH = 220


def lines(report: Report, notes: Sequence[str]) -> list[str]:
    """The report, a dozen lines at most."""
    known = f", {report.spared} known before" if report.spared else ""
    work = f"{report.builds} builds in {report.seconds:.0f} s{known}"
    held = f"; {report.held} units left to those who work on them" if report.held else ""
    if not report.culprits:
        text = [f"{_nothing(report)} ({report.units} units, {work}{held})"]
    else:
        count = len(report.culprits)
        text = [f"{count} culprit{'s' if count > 1 else ''} among {report.units} units, {work}{held}"]
        text += [_culprit(culprit) for culprit in report.culprits[:_SHOWN]]
        if count > _SHOWN:
            text.append(f"and {count - _SHOWN} more: `team oracle status --json`")
        text.append("proof: each fails by itself, and passes without any one of its units")
        units = report.culprits[0].units
        dashes = "-- " if any(unit.startswith("-") for unit in units) else ""
        text.append(f"reproduce: team oracle check {dashes}{shlex.join(units)}")
    if report.claimed:
        text.append(f"{report.claimed} is yours; `git pull` brings its lock. Give it back with `team release`")
    elif report.culprits and report.rest is not None:
        text.append(_rest(report))
    if report.undecided:
        names = ", ".join(one_line(unit, 60) for unit in report.undecided[:3])
        more = f" and {len(report.undecided) - 3} more" if len(report.undecided) > 3 else ""
        text.append(f"could not be judged, since what has them cannot be built or checked: {names}{more}")
    return [one_line(line, _WIDTH) for line in [*text, *notes[:2]]]


def _nothing(report: Report) -> str:
    if report.rest is Verdict.PASSES:
        return "nothing to find: the candidate passes with all units" if not report.held else "no culprit is left"
    return f"no set of units was proven guilty, though all together it is: {report.rest_reason}"


def _rest(report: Report) -> str:
    if report.rest is Verdict.PASSES:
        return "with one unit of each from the reference, everything else from the candidate passes"
    return f"what is left does not pass either: {report.rest_reason}"


def _culprit(culprit: Culprit) -> str:
    units = " + ".join(one_line(unit, 80) for unit in culprit.units[:4])
    more = f" + {len(culprit.units) - 4} more" if len(culprit.units) > 4 else ""
    how = "only together" if len(culprit.units) > 1 else "alone"
    return one_line(f"{culprit.task}: {units}{more} {how}: {culprit.reason}", _WIDTH)


def as_json(report: Report, notes: Sequence[str]) -> dict[str, Any]:
    """One document with everything."""
    rest = report.rest.value if report.rest is not None else None
    return {**asdict(report), "rest": rest, "undecided": list(report.undecided), "notes": list(notes)}
