"""How well the same task is told under another name.

``python -m benchmarks.similar PAIRS --tree PATHS [--json]``: PAIRS holds a JSON object a line (``first``, ``second``,
``label``: ``same``, ``different`` or ``unsure``, which is not counted), PATHS the paths of the project's tree.
``precision``, ``recall`` and ``f1`` are those of warnings; ``refused_rightly`` and ``refused_wrongly`` count refusals
of pairs that are the same, and that are not. Rarity is taken from the names in PAIRS, as a product knows its own.
``f1_left_out`` warns of each pair from the likeness on that suits all other pairs best: how much the threshold owes to
having been chosen with such pairs in sight.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from team.upstream.similar import REFUSE, WARN, Named, Vocabulary, likeness


@dataclass(frozen=True)
class Judged:
    """A pair that is ``same`` or not, and how alike we find it."""

    likeness: float
    same: bool


def measure(judged: list[Judged]) -> dict[str, float]:
    """All numbers."""
    hit, false, missed = _counts(judged, WARN)
    refused = [pair for pair in judged if pair.likeness >= REFUSE]
    return {
        "precision": round(hit / max(1, hit + false), 3),
        "recall": round(hit / max(1, hit + missed), 3),
        "f1": round(_f1([(hit, false, missed)]), 3),
        "f1_left_out": round(_left_out(judged), 3),
        "refused_rightly": sum(pair.same for pair in refused),
        "refused_wrongly": sum(not pair.same for pair in refused),
    }


def judge(pairs: list[dict[str, str]], paths: list[str]) -> list[Judged]:
    """The likeness of every pair that has a clear label."""
    names = [_name(pair[key]) for pair in pairs for key in ("first", "second")]
    vocabulary = Vocabulary.of(names, paths)
    return [
        Judged(likeness(Named(_name(p["first"])), Named(_name(p["second"])), vocabulary), p["label"] == "same")
        for p in pairs
        if p["label"] in ("same", "different")
    ]


def _counts(judged: list[Judged], warn: float) -> tuple[int, int, int]:
    """Pairs warned of rightly, wrongly, and missed."""
    warned = [pair.same for pair in judged if pair.likeness >= warn]
    hit = sum(warned)
    return hit, len(warned) - hit, sum(pair.same for pair in judged) - hit


def _f1(counts: Iterable[tuple[int, int, int]]) -> float:
    hit, false, missed = map(sum, zip(*counts, strict=True))
    return 2 * hit / max(1, 2 * hit + false + missed)


def _left_out(judged: list[Judged]) -> float:
    """F1 where each pair is judged by the threshold that is best for the others."""
    return _f1(_counts([pair], _best(judged[:at] + judged[at + 1 :])) for at, pair in enumerate(judged))


def _best(judged: list[Judged]) -> float:
    """The threshold between two likenesses that has the highest F1; of equals the middle one."""
    scores = sorted({pair.likeness for pair in judged})
    between = [(low + high) / 2 for low, high in pairwise(scores)] or scores
    found = [(_f1([_counts(judged, warn)]), warn) for warn in between]
    good = [warn for f1, warn in found if f1 == max(found)[0]]
    return good[len(good) // 2]


def _name(file: str) -> str:
    return file.removesuffix(".txt")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.similar", description="The same task, another name.")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = [json.loads(line) for line in args.pairs.read_text("utf-8").splitlines() if line.strip()]
    result = measure(judge(pairs, args.tree.read_text("utf-8").split("\n")))
    print(json.dumps(result) if args.json else "\n".join(f"{key:<17}{value:g}" for key, value in result.items()))


if __name__ == "__main__":
    main()
