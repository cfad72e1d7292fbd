"""What an agent reads of a run: a dozen lines at most, however many cases fail. And the same as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team.sampler.cases import CannotRun, Outcome, Result
from team.sampler.log import shown
from team.sampler.memory import Compared
from team.text import one_line

MOST_BYTES = 1900
MOST_ERRORS = 6
_WIDTH = 220
_MOST_HEADS = 7
_BAD_FIRST = (0, 3, 1, 2)
"""Exit codes, the better first."""
_PLACE = re.compile(r" \([^()\s]+:\d+\)$")
_RANK = {"new": 0, "passed before": 1, "unknown": 2, "flaky": 3, "known": 4}
_WORDS = {
    "new": "new",
    "passed before": "passed on an earlier landing",
    "unknown": "",
    "flaky": "flaky",
    "known": "known",
}


@dataclass
class SuiteRun:
    """What came of one suite."""

    suite: str
    """Its name; empty for the only one."""
    total: int = 0
    chosen: int = 0
    why: str = ""
    """How the cases were chosen, in words."""
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    compared: Compared = field(default_factory=Compared)
    broken: CannotRun | None = None
    early: bool = False
    """Whether it was stopped before all that was chosen had run."""

    @property
    def vain(self) -> bool:
        """Whether nothing was tested: whatever was to run could not be found any more."""
        return bool(self.results) and all(result.outcome is Outcome.GONE for result in self.results)

    @property
    def counts(self) -> Counter[Outcome]:
        return Counter(result.outcome for result in self.results)

    @property
    def failures(self) -> list[Result]:
        """The bad ones, what matters most first."""
        bad = [result for result in self.results if result.outcome.bad]
        return sorted(bad, key=lambda r: (_RANK[self.kind(r)], r.outcome is Outcome.FAILED, r.name))

    def kind(self, result: Result) -> str:
        return self.compared.kinds.get(result.name, "unknown")


def exit_code(runs: Sequence[SuiteRun]) -> int:
    """0 all passed, 1 failures, 2 cannot run, 3 only failures that the last landed state has too."""
    if any(run.broken or run.vain for run in runs):
        return 2
    if any(run.early for run in runs):
        return 1
    if not any(run.failures for run in runs):
        return 0
    return 1 if any(run.compared.new or run.compared.unknown or run.compared.flaky for run in runs) else 3


def lines(runs: Sequence[SuiteRun], base: str, log: Path, notes: Sequence[str]) -> list[str]:
    """The report. ``base`` is the landed commit that was compared with, ``notes`` what else must be said."""
    told = _heads(runs, base) + [one_line(note, _WIDTH) for note in dict.fromkeys(notes)][:2]
    failures = any(run.failures for run in runs)
    last = f"log: {log} (grep ERROR; what they printed is in {log.stem}.out)" if failures else f"log: {log}"
    errors = [_error(run, result, several=len(runs) > 1) for run in runs for result in run.failures[: MOST_ERRORS + 1]]
    for most in range(min(MOST_ERRORS, 11 - len(told) - 1), -1, -1):
        rest = sum(len(run.failures) for run in runs) - most
        more = [f"and {rest} more" if most else f"{rest} failures"] if rest > 0 and errors else []
        text = [*told, *errors[:most], *more]
        if _bytes([*text, last]) <= MOST_BYTES:
            break
    return [*fit(text, MOST_BYTES - _bytes([last])), last]


def fit(lines: Sequence[str], most: int = MOST_BYTES) -> list[str]:
    """``lines`` in ``most`` bytes: the longest are cut."""
    found = list(lines)
    for width in range(400, 0, -10):
        if _bytes(found) <= most:
            break
        found = [_cut(line, width) for line in lines]
    return found


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _cut(line: str, most: int) -> str:
    data = line.encode("utf-8", "replace")
    return line if len(data) <= most else data[: most - 3].decode("utf-8", "ignore") + "…"


def _heads(runs: Sequence[SuiteRun], base: str) -> list[str]:
    """What came of each suite; where they are too many, of the worst, and what the others come to."""
    heads = [_head(run, base, several=len(runs) > 1) for run in runs]
    if sum(map(len, heads)) <= _MOST_HEADS:
        return [line for head in heads for line in head]
    worst = sorted(range(len(runs)), key=lambda i: -_BAD_FIRST.index(exit_code([runs[i]])))
    told: list[str] = []
    while len(told) + len(heads[worst[0]]) < _MOST_HEADS:
        told += heads[worst.pop(0)]
    rest = [runs[i] for i in worst]
    failed = sum(len(run.failures) for run in rest)
    broken = sum(run.broken is not None for run in rest)
    cannot = f", {broken} of them cannot run" if broken else ""
    return [
        *told,
        f"and {len(rest)} more suites{cannot}: {sum(len(run.results) for run in rest)} tests, {failed} failed",
    ]


def _head(run: SuiteRun, base: str, *, several: bool) -> list[str]:
    name = f"{run.suite}: " if several else ""
    if run.broken is not None:
        printed = [one_line(line, 160) for line in run.broken.output.splitlines() if line.strip()]
        return [f"{name}cannot run: {one_line(str(run.broken), 400)}", *(f"  {line}" for line in printed[-3:])]
    counts = run.counts
    bad = sum(counts[outcome] for outcome in Outcome if outcome.bad)
    parts = [f"{counts[Outcome.PASSED]} passed", f"{bad} failed"]
    for outcome in (Outcome.TIMED_OUT, Outcome.CRASHED):
        if counts[outcome]:
            parts[-1] += f" ({counts[outcome]} {outcome.value.replace('_', ' ')})"
    parts += [f"{counts[outcome]} {outcome.value}" for outcome in (Outcome.SKIPPED, Outcome.GONE) if counts[outcome]]
    early = f", stopped early: {run.chosen - len(run.results)} did not run" if run.early else ""
    ran = f"{len(run.results)} of {run.total} tests"
    head = f"{name}{ran} in {run.seconds:.1f} s ({run.why or 'none chosen yet'}): {', '.join(parts)}{early}"
    vain = ["nothing was tested: what was listed could not be found when it was to run"] if run.vain else []
    return [one_line(head, _WIDTH), *vain, *_comparison(run, base)]


def _comparison(run: SuiteRun, base: str) -> list[str]:
    found = run.compared
    if not run.failures and not found.fixed:
        return []
    if not base:
        return ["nothing has landed to compare with: whether the failures are new is unknown"] if run.failures else []
    parts = []
    if found.new:
        parts.append(f"{found.new} new")
    if found.known:
        parts.append(f"{found.known} fail there too")
    if found.unknown:
        before = sum(kind == "passed before" for kind in found.kinds.values())
        also = f", {before} of them passed on an earlier landing" if before else ""
        parts.append(f"{found.unknown} unknown (nobody has run them there{also})")
    if found.flaky:
        parts.append(f"{found.flaky} flaky there")
    if found.fixed:
        parts.append(f"{found.fixed} fixed ({', '.join(one_line(shown(name), 60) for name in found.fixed_names[:2])})")
    return [one_line(f"against landed {base[:10]}: {'; '.join(parts)}", _WIDTH)]


def _error(run: SuiteRun, result: Result, *, several: bool) -> str:
    words = [
        _WORDS[run.kind(result)],
        "" if result.outcome is Outcome.FAILED else result.outcome.value.replace("_", " "),
    ]
    note = ", ".join(word for word in words if word)
    name = one_line(f"{run.suite}: {shown(result.name)}" if several else shown(result.name), 150)
    start = f"ERROR {name}: {f'[{note}] ' if note else ''}"
    return (start + _shortened(result.reason, max(40, min(160, _WIDTH - len(start))))).rstrip(": ")


def _shortened(reason: str, width: int) -> str:
    """``reason`` on one line; where it is cut, the place at its end stays."""
    text = one_line(reason, 2000)
    match = _PLACE.search(text)
    if len(text) <= width or match is None or len(match[0]) > width // 2:
        return one_line(text, width)
    return one_line(text[: match.start()], width - len(match[0])) + match[0]


def as_json(runs: Sequence[SuiteRun], base: str, agent: str, log: Path, notes: Sequence[str]) -> dict[str, Any]:
    """One document with everything."""
    return {
        "exit": exit_code(runs),
        "agent": agent,
        "base": base,
        "log": str(log),
        "notes": list(notes),
        "suites": [_suite(run) for run in runs],
    }


def _suite(run: SuiteRun) -> Mapping[str, Any]:
    counts = run.counts
    return {
        "suite": run.suite,
        "total": run.total,
        "chosen": run.chosen,
        "ran": len(run.results),
        "why": run.why,
        "seconds": round(run.seconds, 3),
        "early": run.early,
        "broken": str(run.broken) if run.broken is not None else None,
        "failed": sum(counts[outcome] for outcome in Outcome if outcome.bad),
        **{outcome.value: counts[outcome] for outcome in Outcome if outcome is not Outcome.FAILED},
        "new": run.compared.new,
        "known": run.compared.known,
        "unknown": run.compared.unknown,
        "flaky": run.compared.flaky,
        "fixed": run.compared.fixed,
        "results": [
            {
                "name": result.name,
                "outcome": result.outcome.value,
                "seconds": round(result.seconds, 4),
                **({"reason": result.reason, "kind": run.kind(result)} if result.outcome.bad else {}),
            }
            for result in run.results
        ],
    }
