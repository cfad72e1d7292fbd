"""How many claims a second a team makes, against the loop that agents write by themselves.

``python -m benchmarks.claims --agents 16 [--json]``

- ``naive_per_s``: N clones of one bare repository, each pulls, rebases and pushes until it gets through.
- ``free_per_s``: the same clones, each with a repository of its own: git without any contention.
- ``git_per_s``: plain git (add, commit, push) through each session's door. ``helper_per_s``: ``team claim``.
- ``git_ratio``, ``helper_ratio``: these against naive, at N; with ``_64`` at 64 agents.
- ``refused``: claims refused although nobody else wanted the task; must be 0.
- ``flat_64``: the rate at 64 agents against that at N, the worse of git and helper.
- ``large_repo_ratio``: the rate on 4,000 commits and 1,000 files against an empty repository, the worse of the two.

One run on one machine, all rules, ledger and syncs to disk on.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.arena import Count, doors, free, naive

MANY = 64
LARGE_COMMITS, LARGE_FILES = 4000, 1000


def measure(agents: int, seconds: float) -> dict[str, float]:
    """All numbers, in turn."""
    git, helper = "push_claims.sh", "helper_claims.sh"
    runs: dict[str, Count] = {}

    def note(name: str, count: Count) -> None:
        runs[name] = count
        print(f"{name}: {count.rate:.1f}/s, {count.refused} refused", file=sys.stderr, flush=True)

    note("naive", naive("naive_claims.sh", agents, seconds))
    note("free", free("push_claims.sh", agents, seconds))
    note("git_64", doors(git, MANY, seconds))
    note("git", doors(git, agents, seconds))
    note("git_large", doors(git, agents, seconds, commits=LARGE_COMMITS, files=LARGE_FILES))
    note("helper_64", doors(helper, MANY, seconds))
    note("helper", doors(helper, agents, seconds))
    note("helper_large", doors(helper, agents, seconds, commits=LARGE_COMMITS, files=LARGE_FILES))
    note("naive_64", naive("naive_claims.sh", MANY, 2 * seconds))
    rate = {name: count.rate for name, count in runs.items()}
    naive_64 = max(rate["naive_64"], 0.5 / (2 * seconds))
    return {
        "agents": agents,
        "naive_per_s": rate["naive"],
        "free_per_s": rate["free"],
        "git_per_s": rate["git"],
        "helper_per_s": rate["helper"],
        "git_ratio": rate["git"] / rate["naive"],
        "helper_ratio": rate["helper"] / rate["naive"],
        "naive_64_per_s": rate["naive_64"],
        "git_64_per_s": rate["git_64"],
        "helper_64_per_s": rate["helper_64"],
        "git_ratio_64": rate["git_64"] / naive_64,
        "helper_ratio_64": rate["helper_64"] / naive_64,
        "refused": sum(count.refused for name, count in runs.items() if not name.startswith(("naive", "free"))),
        "flat_64": min(rate["git_64"] / rate["git"], rate["helper_64"] / rate["helper"]),
        "large_repo_ratio": min(rate["git_large"] / rate["git"], rate["helper_large"] / rate["helper"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description="Claims a second.")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=12, help="how long each rate is counted")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = {key: round(value, 2) for key, value in measure(args.agents, args.seconds).items()}
    print(json.dumps(result) if args.json else "\n".join(f"{key:<18}{value:g}" for key, value in result.items()))


if __name__ == "__main__":
    main()
