"""How long a team takes to start, against a bare ``docker run`` of the same image doing the same clone.

``python -m benchmarks.startup --agents 16 [--json]``

- ``bare_s``: from starting N ``docker run`` at once to the last one's ``exec`` after its clone.
- ``team_s``: from starting the process ``team up --agents N`` to the last client's exec after its clone.
- ``turnaround_ratio``: from one session's end (its client's last moment) to the next client's exec, against one such
  ``docker run`` alone.

All in one run on one engine, the rounds in turn; medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from team.config import Image
from team.images import ensure
from team.places import find_project

STAMP = "date +CLIENT_%s.%N"
LAND = (
    "git commit --quiet --allow-empty -m 'Nothing new' && touch \"$TEAM_SESSION\" && git add -A && "
    "git commit --quiet -m 'One more file' && git push --quiet"
)


def make_repository(path: Path, commits: int, files: int) -> None:
    """A repository of ``commits`` commits and ``files`` files, by one ``git fast-import``."""
    lines = []
    for n in range(commits):
        text = f"line {n}\n" * 20
        lines.append(
            f"commit refs/heads/main\ncommitter A <a@b.invalid> {1_700_000_000 + n} +0000\n"
            f"data 5\nstep\n\nM 100644 inline src/file_{n % files}.py\ndata {len(text)}\n{text}\n"
        )
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], input="".join(lines).encode(), cwd=path, check=True)
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=path, check=True)


def bare_run(image: str, upstream: Path, agents: int) -> float:
    """Seconds until the last of ``agents`` plain ``docker run`` execs its client after its clone."""
    began = time.time()
    names = [f"team-bench-{uuid.uuid4().hex[:8]}" for _ in range(agents)]
    shell = f"git clone --quiet --shared -b main /upstream /workspace && exec sh -c '{STAMP}'"
    runs = [
        subprocess.Popen(
            ["docker", "run", "--rm", "--name", name, "--network", "none", "--init", "--user", "1000:1000"]
            + ["--volume", f"{upstream}:/upstream:ro", "--volume", "/workspace"]
            + ["--entrypoint", "sh", image, "-c", shell],
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    stamps = [_stamps(run.communicate()[0]) for run in runs]
    if not all(stamps):
        raise SystemExit("a bare docker run failed")
    return max(s[-1] for s in stamps) - began


def team_run(tree: Path, env: dict[str, str], agents: int) -> float:
    """Seconds from starting ``team up`` to the last client's exec."""
    began = time.time()
    _up(tree, env, agents, sessions=1, script=STAMP)
    return max(stamp for stamp in _logged(tree) if stamp > began) - began


def turnarounds(tree: Path, env: dict[str, str], sessions: int) -> list[float]:
    """Seconds from each session's last moment to the next client's exec, for one seat that lands work."""
    began = time.time()
    _up(tree, env, 1, sessions=sessions, script=f"{STAMP}; {LAND}; {STAMP}")
    stamps = sorted(stamp for stamp in _logged(tree) if stamp > began)
    if len(stamps) != 2 * sessions:
        raise SystemExit(f"{len(stamps)} stamps from {sessions} sessions")
    return [stamps[i + 1] - stamps[i] for i in range(1, len(stamps) - 1, 2)]


def _up(tree: Path, env: dict[str, str], agents: int, sessions: int, script: str) -> None:
    argv = [sys.executable, "-m", "team.cli", "up", "--agents", str(agents), "--client", "command"]
    argv += ["--sessions", str(sessions), "--", "sh", "-c", script]
    subprocess.run(argv, cwd=tree, env=env, check=True, stdout=subprocess.DEVNULL)


def _logged(tree: Path) -> list[float]:
    stamps: list[float] = []
    for log in (tree / "agent_logs").glob("*/*.log"):
        stamps += _stamps(log.read_bytes())
    return stamps


def _stamps(text: bytes) -> list[float]:
    return [float(s) for s in re.findall(rb"^(?:\| )?CLIENT_(\d+\.\d+)", text, re.M)]


def measure(agents: int, rounds: int) -> dict[str, float]:
    """Run everything in a directory of its own and clean up."""
    image = ensure("command", Image(), Path.cwd(), say=lambda line: print(line, file=sys.stderr))
    with tempfile.TemporaryDirectory(prefix="team-bench-") as directory:
        home = Path(directory)
        env = os.environ | {"XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
        tree = home / "project"
        make_repository(tree, commits=400, files=200)
        _up(tree, env, 1, sessions=1, script="true")  # makes upstream, as any first `up` does
        os.environ.update(env)
        project = find_project(tree)
        assert project is not None
        bare, team, one, turns = [], [], [], []  # type: tuple[list[float], list[float], list[float], list[float]]
        for _ in range(rounds):
            bare.append(bare_run(image, project.upstream, agents))
            team.append(team_run(tree, env, agents))
        for _ in range(rounds):
            one += [bare_run(image, project.upstream, 1) for _ in range(3)]
            turns += turnarounds(tree, env, sessions=4)
        shutil.rmtree(project.state, ignore_errors=True)
    bare_s, team_s, one_s, turn_s = map(statistics.median, (bare, team, one, turns))
    return {
        "agents": agents,
        "bare_s": round(bare_s, 3),
        "team_s": round(team_s, 3),
        "ratio": round(statistics.median(t / b for t, b in zip(team, bare, strict=True)), 3),
        "bare_one_s": round(one_s, 3),
        "turnaround_s": round(turn_s, 3),
        "turnaround_ratio": round(turn_s / one_s, 3),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.agents, options.rounds)
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:18} {value}")


if __name__ == "__main__":
    main()
