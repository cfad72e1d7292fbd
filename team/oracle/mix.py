"""Mix mode: some units from the candidate, all others from the reference; which make the check fail?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from team.oracle.bench import Bench
from team.oracle.memory import Culprit
from team.oracle.names import task_of
from team.oracle.search import Search, Verdict

Say = Callable[[str], None]
"""Tells whoever waits."""


def search(bench: Bench, order: Sequence[str], say: Say, *, most: int | None = None) -> tuple[list[Culprit], Search]:
    """Find the smallest failing sets among ``order``, whose neighbours are tried together; at most ``most`` of them.
    The other units stay with the reference. Each is proven by builds of this call: it fails, and passes without any one
    of its units. Where what others have found out turns out wrong, all starts anew without it."""
    believes = bench.believes
    found, hunt = _search(bench, order, say, most)
    if not found and bench.verdicts([frozenset(order)])[0].verdict is Verdict.FAILS:
        bench.doubt()
    return (found, hunt) if bench.believes == believes else _search(bench, order, say, most)


def _search(bench: Bench, order: Sequence[str], say: Say, most: int | None) -> tuple[list[Culprit], Search]:
    hunt = Search(len(order), width=bench.settings.jobs, most=most)
    told = 0.0
    while not hunt.done:
        asked = hunt.ask()
        if not asked:
            break
        sets = [frozenset(order[i] for i in units) for units in asked]
        for units, known in zip(asked, bench.verdicts(sets), strict=True):
            hunt.tell(units, known.verdict)
        if bench.progress.seconds - told > 30:
            told = bench.progress.seconds
            say(
                f"{bench.progress.builds} builds in {told:.0f} s, about {hunt.left:.0f} more; "
                f"{len(hunt.found)} found, {len(hunt.suspects)} suspects"
            )
    found = [_culprit(bench, frozenset(order[i] for i in units)) for units in hunt.found]
    return [culprit for culprit in found if culprit is not None], hunt


def _culprit(bench: Bench, units: frozenset[str]) -> Culprit | None:
    """The proof, run and not looked up: ``units`` fail, and pass without any one of them."""
    less = [units - {unit} for unit in sorted(units)]
    itself, *others = bench.verdicts([units, *less], own=True)
    if itself.verdict is not Verdict.FAILS or any(other.verdict is Verdict.FAILS for other in others):
        return None
    return Culprit(tuple(sorted(units)), itself.reason, task_of(min(units)), bench.agent)
