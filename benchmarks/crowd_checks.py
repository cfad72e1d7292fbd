"""What must hold after a crowd has worked, each as a figure: from its logs, the ledger, git, and the engine."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import docker

from benchmarks.crowd_project import MARKER, Ticket
from team import git
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.rehearsal.report import count

_PUSHED = re.compile(rb"PUSHED ([0-9a-f]{40}) (\d+)")
_LANDED = re.compile(rb"remote: landed on main as ([0-9a-f]{10}) \(landing (\d+)\)")
_TICKET = re.compile(r"tasks/(note_\d+)\.md\Z")
_TRAILERS = "%(trailers:key=Team-Agent,key=Team-Session,key=Team-Task,key=Team-Landing,separator=%x1f)"
Figures = dict[str, float]


@dataclass(frozen=True)
class Landing:
    """One commit of main's first-parent line."""

    commit: str
    parents: tuple[str, ...]
    trailers: Mapping[str, tuple[str, ...]]
    removed: tuple[str, ...]
    """Tasks whose tickets it took away."""
    added: tuple[str, ...]
    """Tasks whose tickets it put there."""

    def trailer(self, name: str) -> str:
        return ", ".join(self.trailers.get(f"Team-{name}", ()))


class Evidence:
    """Everything that a run left behind. Figures whose names begin with ``bad_`` must be zero."""

    def __init__(self, project: Project, ledger: Ledger, base: str, made: Mapping[str, Ticket]) -> None:
        self.project, self.ledger, self.base, self.made = project, ledger, base, made
        self.details: list[str] = []
        """What is wrong, one line each."""

    def bad(self, what: str, found: object) -> int:
        """Note each of ``found`` as something that is wrong; returns how many there are."""
        items = list(found) if isinstance(found, (list, set, tuple)) else [found] if found else []
        self.details += [f"{what}: {item}" for item in items[:20]]
        return len(items)

    # -- what was said ----------------------------------------------------------------------------------------

    @cached_property
    def said(self) -> bytes:
        """All that the clients printed."""
        return b"\n".join(path.read_bytes() for path in sorted(self.project.logs.glob("*/*.jsonl*")))

    @cached_property
    def pushed(self) -> dict[str, int]:
        """Commits whose push git called a success, with the milliseconds it took."""
        return {oid.decode(): int(ms) for oid, ms in _PUSHED.findall(self.said)}

    @cached_property
    def told(self) -> dict[int, str]:
        """Landings that agents were told of, with the beginning of the commit."""
        return {int(number): oid.decode() for oid, number in _LANDED.findall(self.said)}

    # -- what is there ----------------------------------------------------------------------------------------

    def git(self, *args: str) -> str:
        out = git.git(*args, at=self.project.upstream, output=1 << 30, seconds=600)
        return out.decode("utf-8", "surrogateescape")

    @cached_property
    def line(self) -> list[Landing]:
        """Main's first-parent line since the beginning, oldest first."""
        out = self.git(
            "log", "--first-parent", "--reverse", "--diff-merges=first-parent", "--no-renames", "--name-status",
            f"--format=%x1e%H%x1d%P%x1d{_TRAILERS}%x1d", f"{self.base}..main", "--",
        )  # fmt: skip
        return [_landing(record) for record in out.split("\x1e")[1:]]

    def landed(self, kind: str = "") -> list[Event]:
        """The ledger's landings."""
        return [e for e in self.ledger.events(Kind.LANDING_DONE) if not kind or e.data.get("kind") == kind]

    # -- figures ----------------------------------------------------------------------------------------------

    def all(self) -> Figures:
        """Every figure."""
        figures: Figures = {}
        checks: list[Callable[[], Figures]] = [
            self.pushes, self.tasks, self.claims, self.story, self.repository, self.leftovers, self.work, self.times,
        ]  # fmt: skip
        for part in checks:
            figures |= part()
        return figures

    def pushes(self) -> Figures:
        """What agents were told has landed is in main."""
        main = set(self.git("rev-list", "main", "--").split())
        line = {landing.trailer("Landing"): landing.commit for landing in self.line}
        lost = [n for n, oid in self.told.items() if not line.get(str(n), "").startswith(oid)]
        agents = [e.data["landing"] for e in self.landed() if e.data.get("by") == e.agent and e.session]
        mute = [number for number in agents if number not in self.told]
        return {
            "pushed_ok": len(self.pushed),
            "bad_pushed_not_in_main": self.bad("pushed, not in main", [c for c in self.pushed if c not in main]),
            "landings_told": len(self.told),
            "bad_told_not_in_main": self.bad("told, not in main", lost),
            "landings_not_told": len(mute),
        }

    def tasks(self) -> Figures:
        """Each ticket went once, with the work of one session, which held it."""
        gone: dict[str, list[Landing]] = defaultdict(list)
        for landing in self.line:
            for task in landing.removed:
                gone[task].append(landing)
        lines = self._lines()
        twice = [t for t in self.made if len(gone[t]) > 1 or len(lines[t]) > 1]
        halves = [t for t in self.made if bool(gone[t]) != bool(lines[t])]
        one = [t for t in self.made if len(gone[t]) == len(lines[t]) == 1]
        others = [t for t in one if gone[t][0].trailer("Session") != lines[t][0]]
        holders = {(e.session, e.task) for e in self.ledger.events(Kind.CLAIM)}
        unheld = [t for t in one if (gone[t][0].trailer("Session"), t) not in holders]
        return {
            "tasks": len(self.made),
            "tasks_landed": len(one),
            "bad_open": self.bad("not landed", [t for t in self.made if not gone[t]]),
            "bad_landed_twice": self.bad("landed twice", twice),
            "bad_ticket_without_work": self.bad("ticket and work do not agree", halves),
            "bad_work_of_another": self.bad("ticket removed by one session, work of another", others),
            "bad_landed_without_claim": self.bad("landed without a claim", unheld),
            "bad_ticket_put_back": self.bad("ticket put back", [x.commit for x in self.line if x.added]),
        }

    def _lines(self) -> dict[str, list[str]]:
        """Task -> the sessions whose line stands in main."""
        found: dict[str, list[str]] = defaultdict(list)
        _, out = git.git_status("grep", "-h", f"^{MARKER}", "main", "--", "*.py", at=self.project.upstream)
        for text in out.decode("utf-8", "replace").splitlines():
            task, _, session = text.removeprefix(MARKER).partition(" by ")
            found[task].append(session)
        return found

    def claims(self) -> Figures:
        """Nobody got what another held; nothing is held in the end."""
        held: dict[str, str] = {}
        double, stray = [], []
        for event in self.ledger.events(Kind.CLAIM, Kind.RELEASE):
            task = event.task or ""
            if event.kind == Kind.CLAIM:
                if task in held:
                    double.append(f"{task}: {held[task]} and {event.session}")
                held[task] = event.session or ""
            elif held.pop(task, None) is None:
                stray.append(task)
        locks = [p for p in self.git("ls-tree", "--name-only", "main", "--", "current_tasks/").split() if ".txt" in p]
        return {
            "bad_claimed_twice": self.bad("held twice", double),
            "bad_released_unheld": self.bad("released, but not held", stray),
            "bad_locks_left": self.bad("lock left", locks),
            "bad_held_left": self.bad("held in the end", list(held)),
        }

    def story(self) -> Figures:
        """``git log --first-parent`` is one line that tells who did what, and the ledger tells the same."""
        before = [self.base, *(x.commit for x in self.line)]
        torn = [x.commit for x, old in zip(self.line, before, strict=False) if x.parents[:1] != (old,)]
        names = ("Agent", "Session", "Landing")
        nameless = [x.commit for x in self.line if not all(x.trailer(n) for n in names) or not x.trailer("Task")]
        ours = [e.data["new"] for e in self.landed()]
        numbers = [int(x.trailer("Landing") or 0) for x in self.line]
        return {
            "first_parent_commits": len(self.line),
            "bad_line_torn": self.bad("not on the commit before", torn),
            "bad_without_names": self.bad("agent, session, task or landing not named", nameless),
            "bad_ledger_disagrees": self.bad("ledger and git do not agree", ours != before[1:]),
            "bad_landing_order": self.bad("landing numbers do not rise", numbers != sorted(set(numbers))),
        }

    def repository(self) -> Figures:
        """Upstream is whole."""
        code, out = git.git_status(
            "fsck", "--full", "--strict", "--no-dangling", at=self.project.upstream, seconds=900, ok=range(256)
        )
        incoming = [p.name for p in self.project.incoming.glob("*")]
        return {
            "bad_fsck": self.bad("fsck", f"exit {code}: {out[:300]!r}" if code else ""),
            "bad_incoming_left": self.bad("quarantine left", incoming),
        }

    def leftovers(self) -> Figures:
        """Nothing of the project is left on the engine or in the process table."""
        engine = docker.from_env()
        named = {"label": f"team.project={self.project.id}"}
        containers = [c.name for c in engine.containers.list(all=True, filters={**named})]
        volumes = [v.name for v in engine.volumes.list() if v.name.startswith(f"team-{self.project.id}-")]
        sockets = [str(p) for p in self.project.doors.rglob("*") if p.is_socket() or p.is_file()]
        return {
            "bad_containers_left": self.bad("container left", containers),
            "bad_volumes_left": self.bad("volume left", volumes),
            "bad_sockets_left": self.bad("left at the doors", sockets),
            "bad_processes_left": self.bad("process left", _processes(self.project)),
        }

    def work(self) -> Figures:
        """How much was done, and what went wrong on the way."""
        counts = count(self.project, self.ledger, self.base)
        ended = list(self.ledger.events(Kind.SESSION_ENDED))
        rules = Counter(str(e.data.get("rule")) for e in self.ledger.events(Kind.PUSH_REFUSED))
        errors = [e.data.get("reason") for e in self.ledger.events(Kind.ERROR, Kind.RESCUE_FAILED)]
        empty = [e for e in ended if e.data.get("outcome") == "done" and not e.data.get("landings")]
        strange = [f"{n} times {rule}" for rule, n in rules.items() if rule not in ("held", "stale", "conflict")]
        return {
            "sessions": counts.sessions,
            "sessions_without_landing": len(empty),
            "bad_sessions_failed": self.bad("session failed", counts.failed),
            "claims": counts.claims,
            "claims_refused": counts.claims_refused,
            "landings": counts.landings,
            "merges": counts.merges,
            "conflicts": counts.conflicts,
            "conflicts_resolved": counts.resolved,
            "bad_refusals": self.bad("refused for another reason", strange),
            "rescues": sum(e.data.get("rescue") not in ("clean", "empty") for e in ended),
            "bad_errors": self.bad("error", errors),
        }

    def times(self) -> Figures:
        """How long things took, in seconds."""
        starts = [float(e.data["seconds"]) for e in self.ledger.events(Kind.SESSION_RUNNING)]
        sessions = [float(e.data["seconds"]) for e in self.ledger.events(Kind.SESSION_ENDED)]
        return {
            "push_s": _middle([ms / 1000 for ms in self.pushed.values()]),
            "push_p95_s": _high([ms / 1000 for ms in self.pushed.values()]),
            "landing_s": _middle(self._landing_times()),
            "start_s": _middle(starts),
            "session_s": _middle(sessions),
            "turnaround_s": _middle(self._turnarounds()),
        }

    def _landing_times(self) -> list[float]:
        begun: dict[int, float] = {}
        took = []
        for event in self.ledger.events(Kind.LANDING_INTENT, Kind.LANDING_DONE):
            number = int(event.data["landing"])
            if event.kind == Kind.LANDING_INTENT:
                begun[number] = event.at
            else:
                took.append(event.at - begun[number])
        return took

    def _turnarounds(self) -> list[float]:
        """From each session's end to the exec of the next client of its seat."""
        ended: dict[str, float] = {}
        took = []
        for event in self.ledger.events(Kind.SESSION_ENDING, Kind.SESSION_RUNNING, Kind.SEAT_WAITING):
            agent = event.agent or ""
            if event.kind == Kind.SESSION_ENDING:
                ended[agent] = event.at
            elif (at := ended.pop(agent, None)) is not None and event.kind == Kind.SESSION_RUNNING:
                took.append(event.at - at)
        return took


def _landing(record: str) -> Landing:
    commit, parents, trailers, names = record.split("\x1d")
    told: dict[str, tuple[str, ...]] = {}
    for trailer in trailers.split("\x1f"):
        key, _, value = trailer.partition(": ")
        told[key] = (*told.get(key, ()), value.strip())
    changed = [line.split("\t", 1) for line in names.splitlines() if "\t" in line]
    tickets = [(status, match[1]) for status, path in changed if (match := _TICKET.match(path))]
    return Landing(
        commit,
        tuple(parents.split()),
        told,
        tuple(task for status, task in tickets if status == "D"),
        tuple(task for status, task in tickets if status == "A"),
    )


def _processes(project: Project) -> list[str]:
    """Processes that name the project, its state or its doors on their command line."""
    marks = [str(mark).encode() for mark in (project.id, project.state, project.root, project.doors)]
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if any(mark in words for mark in marks):
            found.append(f"{path.parent.name} {words[:200].decode('utf-8', 'replace')}")
    return found


def _middle(values: list[float]) -> float:
    return round(statistics.median(values), 3) if values else 0.0


def _high(values: list[float]) -> float:
    return round(sorted(values)[int(len(values) * 0.95)], 3) if values else 0.0
