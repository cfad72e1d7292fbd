"""A recorded run's locks, taken and given back again in the same order, compressed in time.

``python -m benchmarks.replay TRACE [--sessions N] [--seconds S] [--json]``: TRACE holds a JSON object a line (``task``,
``held_from_s``, ``held_to_s``, ``swept``: its session died). Without ``--sessions`` there are as many sessions as the
trace has locks at once; with more, every lock is held for so much longer. ``wrong`` lists what must not happen: a task
with two holders, a claim without its lock on main, a lock that nobody holds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.arena import make_repository
from team.ledger import Kind, Ledger
from team.names import agent_email, nearest_task_name
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused
from team.upstream.upstream import Upstream


@dataclass(frozen=True)
class Held:
    """One lock of the trace; times in seconds since its first."""

    task: str
    start: float
    end: float
    swept: bool


def read(path: Path) -> list[Held]:
    """The trace, in the order in which its locks were taken."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    last = max((max(r["held_from_s"], r["held_to_s"] or 0) for r in rows), default=0)
    found = [
        Held(
            nearest_task_name(r["task"].removesuffix(".txt")),
            r["held_from_s"],
            last if r["held_to_s"] is None else r["held_to_s"],
            bool(r.get("swept")),
        )
        for r in rows
    ]
    return sorted(found, key=lambda held: held.start)


def at_once(trace: list[Held]) -> int:
    """The most locks held at one time."""
    moves = sorted([(h.start, 1) for h in trace] + [(max(h.end, h.start), -1) for h in trace])
    most = now = 0
    for _, step in moves:
        now += step
        most = max(most, now)
    return max(1, most)


@dataclass
class Replay:
    """Sessions that take the rows of the trace one after another."""

    upstream: Upstream
    rows: list[Held]
    scale: float
    stretch: float
    counts: Counter[str] = field(default_factory=Counter)
    guard: threading.Lock = field(default_factory=threading.Lock)
    began: float = field(default_factory=time.monotonic)

    def work(self, seat: int) -> None:
        """One seat: a session for as long as nothing sweeps it away."""
        n, session = 0, None
        while True:
            with self.guard:
                if not self.rows:
                    return
                row = self.rows.pop(0)
            if session is None:
                n += 1
                session = _Session(f"agent-{seat:02d}", n)
            self._until(row.start)
            if self._claim(session, row.task):
                self._until(row.start + (row.end - row.start) * self.stretch)
                session = self._end(session, row)

    def _claim(self, session: _Session, task: str) -> bool:
        for force in ({}, {"force": "1"}):
            try:
                answer = self.upstream.claim(session.pusher, {"task": task, **force})
            except Refused as error:
                self._count(f"refused_{error.rule}")
            else:
                self._count("claims")
                self._count("warned" if "warning:" in answer else "forced" if force else "plain")
                return True
        self._count("skipped")
        return False

    def _end(self, session: _Session, row: Held) -> _Session | None:
        if not row.swept:
            self.upstream.give_back(session.pusher, {"task": row.task, "done": "1"})
            return session
        session.alive = False
        self._count("swept")
        self.upstream.release(session.pusher.session or "", session.pusher.name, "swept away")
        return None

    def _until(self, at: float) -> None:
        time.sleep(max(0.0, self.began + at * self.scale - time.monotonic()))

    def _count(self, what: str) -> None:
        with self.guard:
            self.counts[what] += 1


class _Session:
    def __init__(self, agent: str, n: int) -> None:
        self.alive = True
        self.pusher = Pusher(agent, agent_email(agent), f"{agent}.{n}", "worker", alive=lambda: self.alive)


def replay(trace: list[Held], sessions: int, seconds: float) -> dict[str, Any]:
    """Replay ``trace`` in about ``seconds``."""
    base = Path(tempfile.mkdtemp(prefix="tr-"))
    project = Project(base / "source", "replay-1", base / "state")
    Upstream.create(project, project.root, make_repository(project.root, 1, 1))
    ledger = Ledger(project.ledger)
    upstream = Upstream(project, ledger)
    try:
        last = max((held.end for held in trace), default=0) or 1
        run = Replay(upstream, list(trace), seconds / last, max(1.0, sessions / at_once(trace)))
        threads = [threading.Thread(target=run.work, args=(n + 1,)) for n in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - run.began
        result = {"sessions": sessions, "rows": len(trace), "seconds": round(took, 1), **run.counts}
        return result | {"wrong": _wrong(project, ledger)}
    finally:
        upstream.close()
        ledger.close()
        shutil.rmtree(base)


def _wrong(project: Project, ledger: Ledger) -> list[str]:
    """What the ledger and main say that must not be."""
    wrong, held = [], dict[str, str]()
    for event in ledger.events(Kind.CLAIM, Kind.RELEASE):
        task, session = event.task or "", event.session or ""
        if event.kind == Kind.CLAIM:
            if task in held:
                wrong.append(f"{task} was claimed by {session} while {held[task]} held it")
            held[task] = session
        elif held.pop(task, None) != session:
            wrong.append(f"{task} was released by {session}, who did not hold it")
    from team import git

    out = git.git("ls-tree", "--name-only", "main", "current_tasks/", at=project.upstream).decode()
    wrong += [f"{name} is left on main" for name in out.split() if name.endswith(".txt")]
    wrong += [f"{task} is still held" for task in held]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description="Replay a trace of locks.")
    parser.add_argument("trace", type=Path)
    parser.add_argument("--sessions", type=int, help="default: as many as the trace has locks at once")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    trace = read(args.trace)
    result = replay(trace, args.sessions or at_once(trace), args.seconds)
    print(json.dumps(result) if args.json else "\n".join(f"{key:<18}{value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
