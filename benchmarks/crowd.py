"""A crowd of agents on a large repository with hundreds of tasks, and whether everything that was promised holds.

``python -m benchmarks.crowd --agents 16 --commits 4000 --tasks 300 [--client claude-code|stand-in] [--json]``

The source tree of a package from PyPI becomes a repository of so many commits; a scripted model leads every session
of the real client, in its container, through one task: look, pick, claim, edit, check, push, release. Figures whose
names begin with ``bad_`` must be 0: exit 1, and the directory is kept, where one is not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crowd_checks import Evidence, Figures
from benchmarks.crowd_project import CrowdScript, Ticket, download, make, tickets
from team.git import line
from team.ledger import Kind, Ledger
from team.places import find_project
from team.rehearsal.model import ScriptedModel

TELL_SECONDS = 20.0
LONGEST = "2h"
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Crowd:
    """One run."""

    tree: Path
    env: dict[str, str]
    agents: int
    client: str
    made: dict[str, Ticket]
    """The tickets."""


@dataclass
class Cost:
    """What the supervisor used: CPU seconds of its own and of its git processes, and bytes."""

    own: float = 0.0
    children: float = 0.0
    peak: int = 0

    def look(self, pid: int) -> None:
        """Read the figures of ``pid`` while it lives."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        self.own, self.children = (sum(map(int, fields[i : i + 2])) / _TICK for i in (11, 13))
        self.peak = next((int(w.split()[1]) << 10 for w in status.splitlines() if w.startswith("VmHWM")), self.peak)


def measure(agents: int, commits: int, tasks: int, client: str, package: str) -> tuple[Figures, list[str], Path]:
    """Run everything in a directory of its own; what is wrong is told in the second value."""
    home = Path(tempfile.mkdtemp(prefix="team-crowd-"))
    env = os.environ | {
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "ANTHROPIC_API_KEY": "no-key-is-needed-for-a-scripted-model",
        "PYTHONPATH": str(Path(__file__).resolve().parent.parent),
    }
    os.environ.update(env)
    (home / "wheel").mkdir()
    files = download(package, home / "wheel")
    made = tickets(files, tasks)
    make(home / "project", files, made, commits)
    _say(f"{home / 'project'}: {len(files)} files of {package}, {commits} commits, {tasks} tickets")
    crowd = Crowd(home / "project", env, agents, client, made)
    base = line("rev-parse", "main", at=crowd.tree)
    began = time.monotonic()
    cost, up = asyncio.run(_run(crowd, home))
    wall = time.monotonic() - began
    down = subprocess.run([sys.executable, "-m", "team.cli", "down"], cwd=crowd.tree, env=env, capture_output=True)
    figures, wrong = _figures(crowd, base, cost, wall)
    figures |= {"bad_up": up, "bad_down": down.returncode}
    return figures, wrong + ([down.stderr.decode()] if down.returncode else []), home


def _figures(crowd: Crowd, base: str, cost: Cost, wall: float) -> tuple[Figures, list[str]]:
    project = find_project(crowd.tree)
    if project is None:
        raise SystemExit("the team did not start; see up.log")
    with closing(Ledger(project.ledger)) as ledger:
        evidence = Evidence(project, ledger, base, crowd.made)
        figures = evidence.all()
    sessions = max(1, figures["sessions"])
    figures |= {
        "agents": crowd.agents,
        "seconds": round(wall, 1),
        "landings_per_minute": round(60 * figures["landings"] / wall, 1),
        "supervisor_cpu_s": round(cost.own, 1),
        "supervisor_git_cpu_s": round(cost.children, 1),
        "supervisor_cpu_per_session_s": round((cost.own + cost.children) / sessions, 3),
        "supervisor_peak_mb": cost.peak >> 20,
    }
    return figures, evidence.details


async def _run(crowd: Crowd, home: Path) -> tuple[Cost, int]:
    """Let the crowd work until it is idle, with a scripted model beside it; also gives the exit code of ``up``."""
    cost = Cost()
    model = ScriptedModel(CrowdScript(crowd.made, crowd.agents), gather=crowd.agents, gather_seconds=60)
    async with model.running() as url:
        (home / "config" / "team").mkdir(parents=True)
        (home / "config" / "team" / "config.toml").write_text(f'[gateway]\nbase_url = "{url}"\n')
        with (home / "up.log").open("wb") as log:
            up = await asyncio.create_subprocess_exec(
                sys.executable, *_argv(crowd), cwd=crowd.tree, env=crowd.env, stdout=log, stderr=log
            )
            watching = asyncio.create_task(_watch(crowd, up.pid, cost))
            try:
                await up.wait()
            finally:
                watching.cancel()
    code = await up.wait()
    if code:
        _say((home / "up.log").read_text()[-2000:])
    return cost, code


def _argv(crowd: Crowd) -> list[str]:
    """``team up``, which does not offer the stand-in: only rehearsals may use it."""
    if crowd.client == "stand-in":
        return ["-m", "benchmarks.crowd", "--supervise", "--agents", str(crowd.agents)]
    up = ["-m", "team.cli", "up", "--agents", str(crowd.agents), "--client", crowd.client]
    return [*up, "--until-idle", "--for", LONGEST]


async def _watch(crowd: Crowd, pid: int, cost: Cost) -> None:
    """Measure the supervisor once a second, and say now and then how far it is."""
    began = told = time.monotonic()
    while True:
        await asyncio.sleep(1)
        cost.look(pid)
        if time.monotonic() - told > TELL_SECONDS and (project := find_project(crowd.tree)) is not None:
            told = time.monotonic()
            with closing(Ledger(project.ledger)) as ledger:
                landed = sum(e.data.get("kind") == "work" for e in ledger.events(Kind.LANDING_DONE))
                ended = len(list(ledger.events(Kind.SESSION_ENDED)))
            _say(f"{told - began:4.0f} s: {ended} sessions, {landed} landings of {len(crowd.made)} tasks")


def supervise(agents: int) -> None:
    """What ``team up`` does, with the stand-in client."""
    from team import config_file, launch, supervisor, worktree

    root = worktree.find_root(Path.cwd())
    settings, user = config_file.load(root), config_file.load_user()
    wishes = launch.Wishes(agents=agents, client="stand-in", until_idle=True, seconds=7200)
    plan = launch.with_image(launch.make_plan(root, settings, user, wishes, os.environ), _say)
    project = worktree.open_project(root)
    asyncio.run(supervisor.supervise(project, plan))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--commits", type=int, default=4000)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--client", choices=["claude-code", "stand-in"], default="claude-code")
    parser.add_argument("--package", default="networkx", help="a package of pure Python on PyPI")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--supervise", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.supervise:
        supervise(options.agents)
        return
    figures, wrong, home = measure(options.agents, options.commits, options.tasks, options.client, options.package)
    ok = not wrong and not any(v for k, v in figures.items() if k.startswith("bad_"))
    if options.json:
        print(json.dumps({"ok": ok, "client": options.client, **figures, "wrong": wrong}))
    else:
        for key, value in figures.items():
            print(f"{key:30} {value:g}")
    for text in wrong:
        _say(text)
    if not ok:
        _say(f"kept for a look: {home}")
        sys.exit(1)
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
