"""How many disjoint commits a second land, against the loop that agents write by themselves.

``python -m benchmarks.landings --agents 16 [--json]``: each clone commits to files of its own and pushes; ``ratio`` is
the rate of plain ``git push`` through the doors against pull, rebase, push to a bare repository, in one run.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.arena import doors, naive
from team.ledger import Kind


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.landings", description="Landings a second.")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=12, help="how long each rate is counted")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds = args.seconds * (2 if args.agents > 32 else 1)
    by_loop = naive("naive_work.sh", args.agents, seconds)
    print(f"naive: {by_loop.rate:.2f}/s", file=sys.stderr, flush=True)
    landed = doors("push_work.sh", args.agents, args.seconds, Kind.LANDING_DONE)
    result = {
        "agents": args.agents,
        "naive_per_s": round(by_loop.rate, 2),
        "landed_per_s": round(landed.rate, 2),
        "ratio": round(landed.rate / max(by_loop.rate, 0.5 / seconds), 2),
        "refused": landed.refused,
    }
    print(json.dumps(result) if args.json else "\n".join(f"{key:<14}{value:g}" for key, value in result.items()))


if __name__ == "__main__":
    main()
