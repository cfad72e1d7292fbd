"""What a rehearsal came to, from the ledger and from git."""

from __future__ import annotations

import io
import re
import shlex
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from team.git import git, git_status
from team.ledger import Event, Kind, Ledger
from team.names import LOCK_DIR, TASK_DIR
from team.places import Project
from team.rehearsal.own_script import scratch_path
from team.rehearsal.project import Tests, run_tests
from team.text import clean, one_line
from team.view import CLAIM_RULES, plural, worth_a_landing

_CANNOT_RUN = re.compile(r"exit 12[67]\b|exit 2: .*cannot run|No module named|not found$")
"""What the shell and python say of a test command that cannot run at all."""

LATE_RULES = CLAIM_RULES | {"stale"}
"""Rules of ``push.refused`` that say: somebody else was first."""
CONFLICT_RULE = "conflict"
"""Rule of ``push.refused`` that says: this does not merge with main."""


@dataclass(frozen=True)
class Counts:
    """What happened, counted."""

    sessions: int
    failed: tuple[str, ...]
    """Reasons of sessions that did not end well, cleaned."""
    claims: int
    claims_refused: int
    landings: int
    """Landings that changed more than locks."""
    merges: int
    """Those that upstream had to merge with what others had landed meanwhile."""
    conflicts: int
    """Pushes refused because they did not merge."""
    refused: int
    """Pushes refused for any other reason, by a rule or by the gate."""
    resolved: int
    """Merges that agents made themselves."""
    locks_left: tuple[str, ...]


def count(project: Project, ledger: Ledger, base: str) -> Counts:
    """Count what happened since ``base``, the commit that upstream began with."""
    refused = list(ledger.events(Kind.PUSH_REFUSED))
    landed = [e for e in ledger.events(Kind.LANDING_DONE) if worth_a_landing(e)]
    ended = list(ledger.events(Kind.SESSION_ENDED))
    return Counts(
        sessions=len(ended),
        failed=tuple(_why(e) for e in ended if e.data.get("outcome") != "done"),
        claims=len(list(ledger.events(Kind.CLAIM))),
        claims_refused=sum(e.data.get("rule") in LATE_RULES for e in refused),
        landings=len(landed),
        merges=sum(bool(e.data.get("merge")) for e in landed),
        conflicts=sum(e.data.get("rule") == CONFLICT_RULE for e in refused),
        refused=sum(e.data.get("rule") not in {*LATE_RULES, CONFLICT_RULE} for e in refused)
        + sum(not e.data.get("landed") for e in ledger.events(Kind.PUSH_VERDICT)),
        resolved=_inner_merges(project.upstream, base),
        locks_left=tuple(one_line(p, 120) for p in names(project.upstream, "main", LOCK_DIR) if p.endswith(".txt")),
    )


def _why(event: Event) -> str:
    return one_line(f"{event.session}: {event.data.get('outcome')}: {event.data.get('reason')}")


def _inner_merges(upstream: Path, base: str) -> int:
    """Merge commits since ``base`` that upstream did not make: those off the first-parent line."""
    made = [
        int(git("rev-list", "--count", "--merges", *how, f"{base}..main", "--", at=upstream))
        for how in ((), ("--first-parent",))
    ]
    return made[0] - made[1]


def names(repository: Path, revision: str, directory: str) -> list[str]:
    """Paths of the files right in ``directory`` at ``revision``."""
    out = git("ls-tree", "-z", "--name-only", revision, "--", f"{directory}/", at=repository)
    return [p for p in out.decode("utf-8", "replace").split("\0") if p]


def trail(project: Project) -> str:
    """The command that shows who landed what, ready to paste."""
    return f"git --git-dir={shlex.quote(str(project.upstream))} log --first-parent --oneline main"


@dataclass(frozen=True)
class DemoReport:
    """What the demo came to."""

    counts: Counts
    tasks: int
    """Tickets at the beginning."""
    done: int
    """Those that are gone from main."""
    before: Tests
    after: Tests
    seconds: float
    agents: int
    client: str
    runtime: str
    root: str
    logs: str
    trail: str

    @property
    def ok(self) -> bool:
        """Every ticket landed, no lock is left, all tests pass."""
        return self.done == self.tasks and not self.counts.locks_left and self.after.failed == 0 and self.after.ran > 0

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"ok": self.ok, **asdict(self)}

    def lines(self) -> list[str]:
        """For people."""
        c = self.counts
        who = f"{plural(self.agents, 'agent')} ({self.client}, {self.runtime})"
        return [
            f"{who}, {plural(c.sessions, 'session')}, {self.seconds:.0f} s",
            f"  tasks landed     {self.done} of {self.tasks}",
            f"  claims           {c.claims} granted, {c.claims_refused} refused because somebody else was first",
            f"  merges           {c.merges} by upstream",
            f"  conflicts        {c.conflicts} refused, {c.resolved} resolved by agents",
            f"  tests before     {_verdict(self.before)}",
            f"  tests after      {_verdict(self.after)}",
            *(f"  lock left        {lock}" for lock in c.locks_left),
            *(f"  ended badly      {why}" for why in c.failed),
            f"  logs             {self.logs}",
            f"  the project      {self.root}  (try `team ps`, `team tasks`, `team pull` there)",
            f"  who did what     {self.trail}",
        ]


def _verdict(tests: Tests) -> str:
    return f"{tests.failed} of {tests.ran} fail" if tests.failed else f"all {tests.ran} pass"


def demo_report(
    project: Project, ledger: Ledger, base: str, *, seconds: float, agents: int, client: str, runtime: str
) -> DemoReport:
    """What the demo came to; runs its tests as they were at ``base`` and as they are on main."""
    tickets = names(project.upstream, base, TASK_DIR)
    left = set(names(project.upstream, "main", TASK_DIR))
    return DemoReport(
        counts=count(project, ledger, base),
        tasks=len(tickets),
        done=sum(t not in left for t in tickets),
        before=_tests_at(project.upstream, base),
        after=_tests_at(project.upstream, "main"),
        seconds=round(seconds, 1),
        agents=agents,
        client=client,
        runtime=runtime,
        root=str(project.root),
        logs=str(project.logs),
        trail=trail(project),
    )


def _tests_at(upstream: Path, revision: str) -> Tests:
    """Run the demo's tests at ``revision``: its files are ours, and what was added came from our script."""
    with tempfile.TemporaryDirectory(prefix="team-demo-tests-") as tmp:
        archive = git("archive", "--format=tar", revision, at=upstream)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(tmp, filter="data")
        return run_tests(Path(tmp))


@dataclass(frozen=True)
class OwnReport:
    """What a rehearsal on the user's project came to."""

    counts: Counts
    agents: dict[str, str]
    """What each agent that landed reported of the test command."""
    missing: tuple[str, ...]
    """Agents that landed nothing."""
    test: str
    seconds: float
    client: str
    runtime: str

    @property
    def ok(self) -> bool:
        """Every agent landed and released, and the test command could be run. Failing tests are the project's own
        matter; they are shown."""
        return not self.missing and not self.counts.locks_left and not self.untestable

    @property
    def untestable(self) -> bool:
        """Whether the shell did not find the test command, or could not run it (126, 127), or it lacks a module."""
        return any(_CANNOT_RUN.search(said) for said in self.agents.values())

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"ok": self.ok, **asdict(self)}

    def lines(self) -> list[str]:
        """For people."""
        c, landed = self.counts, len(self.agents)
        verdicts = sorted(Counter(said.removeprefix("tests: ") for said in self.agents.values()).items())
        return [
            f"{landed} of {plural(landed + len(self.missing), 'agent')} ({self.client}, {self.runtime}) claimed, "
            f"tested, landed and released in {self.seconds:.0f} s",
            f"  claims           {c.claims} granted, {c.claims_refused} refused",
            f"  merges           {c.merges} by upstream, {c.conflicts} refused as conflicts",
            *([f"  pushes           {c.refused} refused for other reasons"] if c.refused else []),
            f"  test command     {one_line(self.test, 100) or 'none; set [test] command or kind in team.toml'}",
            *(f"  tests            {told} ({plural(count, 'agent')})" for told, count in verdicts),
            *["  ERROR the image lacks what the tests need: [image] dockerfile in team.toml adds it"] * self.untestable,
            *(f"  landed nothing   {agent}" for agent in self.missing),
            *(f"  lock left        {lock}" for lock in c.locks_left),
            *(f"  ended badly      {why}" for why in c.failed),
        ]


def own_report(
    project: Project,
    ledger: Ledger,
    base: str,
    *,
    agents: Sequence[str],
    test: str,
    seconds: float,
    client: str,
    runtime: str,
) -> OwnReport:
    """What a rehearsal on the user's project came to; nothing of it is run here."""
    said = {agent: _said(project.upstream, agent) for agent in agents}
    return OwnReport(
        counts=count(project, ledger, base),
        agents={agent: text for agent, text in said.items() if text is not None},
        missing=tuple(agent for agent, text in said.items() if text is None),
        test=test,
        seconds=round(seconds, 1),
        client=client,
        runtime=runtime,
    )


def _said(upstream: Path, agent: str) -> str | None:
    code, out = git_status("show", f"main:{scratch_path(agent)}", at=upstream, ok=(0, 128), output=1 << 16)
    return one_line(clean(out.decode("utf-8", "replace")), 120) if code == 0 else None
