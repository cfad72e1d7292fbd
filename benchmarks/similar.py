"""How well the same task is told under another name.

``python -m benchmarks.similar PAIRS --tree PATHS [--json]``: PAIRS holds a JSON object a line (``first``, ``second``,
``label``: ``same``, ``different`` or ``unsure``, which is not counted), PATHS the paths of the project's tree.
``precision``, ``recall`` and ``f1`` are those of warnings; ``refused_rightly`` and ``refused_wrongly`` count refusals
of pairs that are the same, and that are not. Rarity is taken from the names in PAIRS, as a product knows its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from team.upstream.similar import REFUSE, WARN, Named, Vocabulary, likeness


def measure(pairs: list[dict[str, str]], paths: list[str], warn: float = WARN) -> dict[str, float]:
    """All numbers for ``pairs``."""
    names = [_name(pair[key]) for pair in pairs for key in ("first", "second")]
    vocabulary = Vocabulary.of(names, paths)
    counts = {"hit": 0, "false": 0, "missed": 0, "refused_rightly": 0, "refused_wrongly": 0}
    for pair in pairs:
        if pair["label"] not in ("same", "different"):
            continue
        score = likeness(Named(_name(pair["first"])), Named(_name(pair["second"])), vocabulary)
        same = pair["label"] == "same"
        counts["hit"] += same and score >= warn
        counts["missed"] += same and score < warn
        counts["false"] += not same and score >= warn
        counts["refused_rightly"] += same and score >= REFUSE
        counts["refused_wrongly"] += not same and score >= REFUSE
    precision = counts["hit"] / max(1, counts["hit"] + counts["false"])
    recall = counts["hit"] / max(1, counts["hit"] + counts["missed"])
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {
        "precision": round(precision, 3),
        "recall": round(recall, 3),
        "f1": round(f1, 3),
        "refused_rightly": counts["refused_rightly"],
        "refused_wrongly": counts["refused_wrongly"],
    }


def _name(file: str) -> str:
    return file.removesuffix(".txt")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.similar", description="The same task, another name.")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = [json.loads(line) for line in args.pairs.read_text("utf-8").splitlines() if line.strip()]
    result = measure(pairs, args.tree.read_text("utf-8").split("\n"))
    print(json.dumps(result) if args.json else "\n".join(f"{key:<17}{value:g}" for key, value in result.items()))


if __name__ == "__main__":
    main()
