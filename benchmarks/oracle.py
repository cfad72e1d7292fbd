"""How many checks it takes to find the culprits among 1,000 units, beside the bound and beside plain ddmin.

``python -m benchmarks.oracle [--json] [--instances N]``

- ``single``: checks for k culprits that each fail alone, by k: the mean of the instances. All count: that everything
  fails, that the reference passes, the proof of each culprit, and that the rest passes at the end.
- ``bound_ratio``: the same against k log2(n/k) + k, the worst k.
- ``group_vs_ddmin``: checks to find and prove a pair, or a triple, that fails only together, against those of plain
  ddmin (picire) for the same group; means, the worse of the two. As ddmin takes for granted that the reference
  passes, and does not look whether the rest does, both are left out here (``groups`` has them: ``whole``). Of ddmin,
  a set that it tests again counts once.
- ``round_speedup_4``: rounds with one check at a time against rounds of up to 4 at once, by k.
- ``worst``, ``groups``, ``rounds_4``: the worst instances and what else stands behind these.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from team.oracle.search import Search, Units, Verdict

UNITS, SINGLE, GROUPS, WIDTH = 1000, (1, 4, 16), (2, 3), 4


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle", description="What finding a culprit costs.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--instances", type=int, default=100, help="how many random cases of each kind")
    args = parser.parse_args()
    result = {**singles(args.instances), **groups(args.instances)}
    print(json.dumps(result) if args.json else "\n".join(f"{key:<18}{value}" for key, value in result.items()))


# -- culprits that fail alone ---------------------------------------------------------------------------------


def singles(instances: int) -> dict[str, Any]:
    """The part for culprits that fail alone, with one worker and with several."""
    checks: dict[int, list[int]] = {}
    rounds: dict[int, list[int]] = {}
    for k in SINGLE:
        cases = [[frozenset({unit}) for unit in drawn(k, seed)] for seed in range(instances)]
        checks[k] = [searched(case, Search(UNITS))[0] for case in cases]
        rounds[k] = [searched(case, Search(UNITS, width=WIDTH))[1] for case in cases]
    means = {k: statistics.mean(counts) for k, counts in checks.items()}
    at_once = {k: statistics.mean(counts) for k, counts in rounds.items()}
    return {
        "single": {k: round(mean, 1) for k, mean in means.items()},
        "worst": {k: max(counts) for k, counts in checks.items()},
        "bound_ratio": round(max(mean / (k * math.log2(UNITS / k) + k) for k, mean in means.items()), 3),
        "round_speedup_4": {k: round(means[k] / at_once[k], 2) for k in SINGLE},
        "rounds_4": {k: {"mean": round(at_once[k], 1), "worst": max(rounds[k])} for k in SINGLE},
    }


def searched(culprits: Collection[Units], search: Search) -> tuple[int, int]:
    """Searches until done; the checks and the rounds that it took. Raises ``AssertionError`` for a wrong find."""
    checks = rounds = 0
    while asked := search.ask():
        rounds += 1
        checks += len(asked)
        for units in asked:
            fails = any(culprit <= units for culprit in culprits)
            search.tell(units, Verdict.FAILS if fails else Verdict.PASSES)
    if not search.done or set(search.found) != set(culprits):
        raise AssertionError(f"found {search.found}, not {culprits}")
    return checks, rounds


def drawn(k: int, seed: int) -> Units:
    return frozenset(random.Random(f"{k} {seed}").sample(range(UNITS), k))


# -- groups that fail only together, and ddmin ----------------------------------------------------------------


def groups(instances: int) -> dict[str, Any]:
    """The part for groups, with ddmin on the same ones."""
    with tempfile.TemporaryDirectory(prefix="team-oracle-") as directory:
        picire = imported("picire", Path(directory))
        table = {size: group(picire, [drawn(size, seed) for seed in range(instances)]) for size in GROUPS}
    ratio = max(row["checks"] / row["ddmin"] for row in table.values())
    return {
        "group_vs_ddmin": round(ratio, 3),
        "groups": {size: {key: round(count, 1) for key, count in row.items()} for size, row in table.items()},
    }


def group(picire: Any, cases: Sequence[Units]) -> dict[str, float]:
    found, whole = [], []
    for case in cases:
        search = Search(UNITS, most=1)
        search.tell(frozenset(), Verdict.PASSES)
        found.append(searched([case], search)[0])
        whole.append(searched([case], Search(UNITS))[0])
    tested = [ddmin(picire, case) for case in cases]
    distinct, calls = [one for one, _ in tested], [all_ for _, all_ in tested]
    return {
        "checks": statistics.mean(found),
        "checks_worst": max(found),
        "whole": statistics.mean(whole),
        "whole_worst": max(whole),
        "ddmin": statistics.mean(distinct),
        "ddmin_worst": max(distinct),
        "ddmin_calls": statistics.mean(calls),
    }


def ddmin(picire: Any, culprit: Units) -> tuple[int, int]:
    """How many distinct sets ddmin tests until it has the culprit, and how many tests it runs."""
    sets: set[Units] = set()
    calls = 0

    def test(units: list[int], _: object) -> object:
        nonlocal calls
        calls += 1
        sets.add(frozenset(units))
        return picire.Outcome.FAIL if culprit <= set(units) else picire.Outcome.PASS

    if set(picire.DD(test)(list(range(UNITS)))) != culprit:
        raise AssertionError(f"ddmin did not find {culprit}")
    return len(sets), calls


def imported(name: str, directory: Path) -> Any:
    """A package that only this benchmark needs; installed in ``directory`` where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(directory), name], check=True, stdout=sys.stderr)
        sys.path.insert(0, str(directory))
        return importlib.import_module(name)


if __name__ == "__main__":
    main()
