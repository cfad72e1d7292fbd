"""What ``team test`` answers without running anything: history, flaky cases, coverage; and the two halves of a run
that pytest itself makes (``pytest --team-fast``)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import IO, Any

from team.errors import TeamError
from team.sampler import report
from team.sampler.cases import Case, Outcome, Result
from team.sampler.choice import Choice
from team.sampler.log import Log, shown
from team.sampler.memory import Covered, File, Seen
from team.sampler.place import Place, remember
from team.sampler.report import SuiteRun
from team.text import one_line

_SHOWN = 10


def history(place: Place, suite: str | None, name: str, *, as_json: bool) -> int:
    """What came of a case, newest first."""
    seen = place.memory.history(_suite(place, suite), name)
    if as_json:
        print(json.dumps([asdict(one) for one in seen]))
    elif not seen:
        print(f"nobody has run a test of just this name, {one_line(shown(name))}; `team test --list` shows the names")
    else:
        more = [f"and {len(seen) - _SHOWN} older; --json shows them"] if len(seen) > _SHOWN else []
        print("\n".join(report.fit([*map(_seen, seen[:_SHOWN]), *more])))
    return 0


def _seen(one: Seen) -> str:
    where = "landed" if one.landed else "committed" if one.clean else "with changes on top"
    times = f" ({one.count} times)" if one.count > 1 else ""
    text = f"{_ago(one.at)} {one.outcome}{times} at {one.commit[:10] or 'no commit'} ({where}), {one.agent}"
    return one_line(f"{text}: {one.reason}" if one.reason else text, 220)


def flaky(place: Place, *, as_json: bool) -> int:
    """Cases with both outcomes on one tree."""
    found = {name: list(place.memory.flaky(name)) for name in place.settings.all()}
    if as_json:
        print(json.dumps(found))
        return 0
    names = [f"{suite}: {shown(name)}" if suite else shown(name) for suite, all_ in found.items() for name in all_]
    more = [f"and {len(names) - _SHOWN} more; --json shows them"] if len(names) > _SHOWN else []
    print("\n".join(report.fit([*names[:_SHOWN], *more])) or "no case has both passed and failed on one commit")
    return 0


def coverage(place: Place, *, as_json: bool) -> int:
    """Which cases nobody has run on a landed state since when."""
    if not isinstance(place.memory, File):
        raise TeamError("--coverage looks at the whole team: run it on the host")
    cases = place.memory.coverage()
    if as_json:
        print(json.dumps([asdict(case) for case in cases]))
    elif not cases:
        print("no suite has been listed yet; `team test --list` or any run does it")
    else:
        print("\n".join(report.fit(list(_covered(cases)))))
    return 0


def _covered(cases: Sequence[Covered]) -> Iterator[str]:
    never = [case for case in cases if case.at is None]
    yield f"{len(cases) - len(never)} of {len(cases)} tests have run on a landed state, {len(never)} never"
    groups: dict[str, list[Covered]] = {}
    for case in cases:
        groups.setdefault(case.commit, []).append(case)
    for commit, group in list(groups.items())[: _SHOWN - 1]:
        names = ", ".join(one_line(shown(case.name), 80) for case in group[:3])
        more = f" and {len(group) - 3} more" if len(group) > 3 else ""
        at = group[0].at
        when = "never" if at is None else f"not since {commit[:10]}, {_ago(at)}"
        yield one_line(f"{when}: {len(group)} ({names}{more})", 300)


def _ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word} ago"
    return f"{seconds:.0f} s ago"


# -- for pytest's own command line ----------------------------------------------------------------------------


def pick(place: Place, rate: str | None, source: IO[bytes], out: IO[str]) -> int:
    """Read all cases as JSON lines, print those of the sample."""
    cases = [Case(str(row["name"]), str(row.get("file", ""))) for row in _rows(source)]
    choice = Choice(
        place.root,
        place.memory,
        _suite(place, None),
        place.agent,
        changed=place.stand.changed,
        fast=rate,
        landed=place.stand.landed,
    )
    for case in choice(cases):
        out.write(json.dumps({"name": case.name}) + "\n")
    return 0


def record(place: Place, rate: str | None, source: IO[bytes], out: IO[str]) -> int:
    """Read results as JSON lines, keep them, and print the report."""
    run = SuiteRun(_suite(place, None), why=rate or "named")
    log = Log(place.root, time.time())
    for row in _rows(source):
        run.results.append(_result(row))
        log.result(run.results[-1])
    run.total = run.chosen = len(run.results)
    run.seconds = sum(result.seconds for result in run.results)
    run.compared = remember(place, run, rate or "named")
    log.close()
    path = log.path.relative_to(place.root) if log.path.is_relative_to(place.root) else log.path
    notes = [*place.notes, *([log.broken] if log.broken else [])]
    out.write("\n".join(report.lines([run], place.stand.base, path, notes)) + "\n")
    return report.exit_code([run])


def _result(row: Mapping[str, Any]) -> Result:
    try:
        seconds = float(row["seconds"])
        if not 0 <= seconds < 1e7:
            raise ValueError
        return Result(str(row["name"]), Outcome(row["outcome"]), seconds, str(row.get("reason", "")))
    except (ValueError, KeyError, TypeError):
        raise TeamError("expected a name, an outcome and seconds on each line of standard input") from None


def _rows(source: IO[bytes]) -> Iterator[dict[str, Any]]:
    for line in source:
        try:
            row = json.loads(line)
            row["name"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise TeamError("expected one JSON object with a name on each line of standard input") from None
        yield row


def _suite(place: Place, name: str | None) -> str:
    """The suite that is meant: the only one, or the one of pytest."""
    suites = place.settings.all()
    if name is not None:
        if name not in suites:
            raise TeamError(f"there is no suite {name!r}; known: {', '.join(suites)}")
        return name
    return next((name for name, one in suites.items() if one.kind in ("", "pytest")), next(iter(suites)))
