"""What a sample costs beside the bare runner, how short the report is, and whether the samples make a whole.

``python -m benchmarks.sampler [--json]``

- ``wall_ratio``: ``team test`` for a sample against the bare runner (pytest) on the same cases, medians of turns.
- ``cases_ratio``: the same for suites of single files, against a shell loop over the same commands.
- ``sample_100k_s``: choosing the sample among 100,000 cases, the worse of the first time and later ones.
- ``output_bytes``: of the report when 5,000 of 10,000 cases fail.
- ``union``: share of the cases that 10 consecutive seats at 10 % cover, the worst of all runs of seats among 16.
- ``imbalance``: the slowest of 16 samples at 10 % against their mean, in time as it was measured before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from team.sampler import sample
from team.sampler.cases import Case
from team.sampler.choice import Choice
from team.sampler.memory import File

SEATS, RATE = 16, "10%"
HERE = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampler", description="What a sample costs.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=5, help="how often each wall time is measured")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="team-sampler-") as directory:
        root = Path(directory)
        result = {
            **pytest_suite(root / "pytest", args.turns),
            "cases_ratio": cases_ratio(root / "cases", args.turns),
            "sample_100k_s": sample_100k(root),
            "output_bytes": output_bytes(root / "failing"),
        }
    print(json.dumps(result) if args.json else "\n".join(f"{key:<16}{value:g}" for key, value in result.items()))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- a suite of pytest ----------------------------------------------------------------------------------------


def pytest_suite(root: Path, turns: int) -> dict[str, float]:
    """1,200 cases in 60 files whose durations spread over three orders of magnitude."""
    (root / "tests").mkdir(parents=True)
    dice = random.Random(1)
    for n in range(60):
        lines = ["import time, pytest"]
        for m in range(20):
            took = min(dice.lognormvariate(-6, 1.5), 0.4)
            lines.append(f"def test_{m}():\n    time.sleep({took:.5f})\n    assert {m} + 1 == {m + 1}")
        (root / "tests" / f"test_file_{n:02}.py").write_text("\n".join(lines) + "\n")
    (root / "team.toml").write_text(f'[test]\nkind = "pytest"\nrun = "{shlex.quote(sys.executable)} -m pytest"\n')
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    repository(root)
    everything = test(root)["suites"][0]["results"]
    seconds = {result["name"]: result["seconds"] for result in everything}
    # As a project that has run its tests before it has agents: places are given by what is known by then.
    samples = [names(root, seat) for seat in range(1, SEATS + 1)]
    times = [sum(seconds[name] for name in taken) for taken in samples]
    window = 10
    covered = min(len(set().union(*samples[at : at + window])) for at in range(SEATS - window + 1))
    say(f"pytest: {len(seconds)} cases, {sum(seconds.values()):.1f} s; samples of {min(map(len, samples))} to "
        f"{max(map(len, samples))} cases")  # fmt: skip
    taken = sorted(samples[2])
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(turns):  # in turn, so that what else the machine does falls on both
        ours.append(wall([*COMMAND, f"--fast={RATE}", "--agent", "agent-03"], root))
        bare.append(wall([sys.executable, "-m", "pytest", "-q", *taken], root))
    say(f"pytest: {len(taken)} cases in {statistics.median(ours):.2f} s, bare {statistics.median(bare):.2f} s")
    return {
        "wall_ratio": round(statistics.median(ours) / statistics.median(bare), 3),
        "union": covered / len(seconds),
        "imbalance": round(max(times) / statistics.mean(times), 3),
    }


def names(root: Path, seat: int) -> set[str]:
    """The stable part of a seat's sample."""
    out = run([*COMMAND, f"--fast={RATE}", "--agent", f"agent-{seat:02}", "--list", "--json"], root).stdout
    return {row["name"] for row in json.loads(out)}


# -- suites of single files -----------------------------------------------------------------------------------


def cases_ratio(root: Path, turns: int) -> float:
    """300 small programs, as a compiler's torture tests."""
    scripts(root, 3000, failing=0)
    taken = sorted(names(root, 3))
    loop = "".join(f"sh {shlex.quote(name)} >/dev/null 2>&1 || exit 1\n" for name in taken)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(turns):
        ours.append(wall([*COMMAND, f"--fast={RATE}", "--agent", "agent-03"], root))
        bare.append(wall(["sh", "-c", loop], root))
    say(f"cases: {len(taken)} in {statistics.median(ours):.2f} s, shell loop {statistics.median(bare):.2f} s")
    return round(statistics.median(ours) / statistics.median(bare), 3)


def output_bytes(root: Path) -> int:
    """Every second of 10,000 fails, with a name and a message of some length."""
    scripts(root, 10_000, failing=2)
    done = run([*COMMAND, "-j", "2"], root, codes=(1,))
    say(done.stdout)
    return len(done.stdout.encode())


def scripts(root: Path, count: int, *, failing: int) -> None:
    for n in range(count):
        directory = root / "t" / f"group_{n % 50:02}"
        directory.mkdir(parents=True, exist_ok=True)
        fails = failing and n % failing == 0
        text = (
            "echo 'expected the stack to be aligned, it is not' >&2; exit 1\n" if fails else "test -n x; sleep 0.01\n"
        )
        (directory / f"a_case_with_a_name_{n:05}.sh").write_text(text if failing else "test -n x; sleep 0.01\n")
    (root / "team.toml").write_text('[test]\nkind = "cases"\nfiles = "t/*/*.sh"\nrun = "sh {file}"\n')
    repository(root)


# -- choosing -------------------------------------------------------------------------------------------------


def sample_100k(root: Path) -> float:
    """Seconds to choose, the first time (when every case gets its place) or later."""
    cases = [Case(f"tests/module_{n % 700}/test_{n % 9000}.py::test_case[{n}]", "x.py") for n in range(100_000)]
    took = []
    with closing(File(root / "tests.db")) as memory:
        for _ in range(3):
            began = time.perf_counter()
            chosen = Choice(root, memory, "", "agent-03", fast=RATE)(cases)
            took.append(time.perf_counter() - began)
            assert abs(len(chosen) - 10_000) < 100, len(chosen)
    say(f"100,000 cases: first {took[0]:.2f} s, later {took[1]:.2f} s")
    return round(max(took), 3)


# -- the command ----------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "team.sampler.main"]


def environment() -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TEAM_")}
    return kept | {"PYTHONPATH": str(HERE)}


def run(argv: Sequence[str], root: Path, codes: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, cwd=root, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(argv)[:200]}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def test(root: Path) -> Any:
    return json.loads(run([*COMMAND, "--json"], root).stdout)


def wall(argv: Sequence[str], root: Path) -> float:
    began = time.perf_counter()
    run(argv, root)
    return time.perf_counter() - began


def repository(root: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "A project"]):
        subprocess.run([*git, *argv], cwd=root, check=True, stdout=subprocess.DEVNULL)


assert sample.rate(RATE) * 10 == 1

if __name__ == "__main__":
    main()
