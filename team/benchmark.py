"""Runs a role's benchmark before and after what it landed, as the gate runs checks: in a container without door or key.

What an agent landed can lie about its own time; it can spend nothing, and reach nothing, by that.
"""

from __future__ import annotations

import secrets
import shlex
import threading
from dataclasses import dataclass

from team.config import Gate
from team.errors import TeamError
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Plan
from team.runtimes import EngineLost, Gone, Runtime
from team.sampler.settings import environment
from team.text import one_line
from team.upstream.check import Broken, ContainerChecker, Stopped
from team.upstream.repository import Repository
from team.upstream.shelf import Shelf

ROUNDS = 3
_SECONDS = 15 * 60.0
"""Of all rounds on one commit."""
_MOST = 3
"""Landings of one session that are measured."""


@dataclass(frozen=True)
class Benchmark:
    """Measures landings of one run of the team; several at once from several threads."""

    project: Project
    plan: Plan
    ledger: Ledger
    runtime: Runtime

    def measure(self, role: str, session: str, stop: threading.Event) -> None:
        """Record what the landings of ``session`` did to the time of the role's benchmark; nothing without one.

        ``stop`` ends it. What cannot be measured is an error in the ledger.
        """
        command = self.plan.settings.role_of(role).benchmark
        if not command:
            return
        landed = [e for e in self.ledger.events(Kind.LANDING_DONE, session=session) if e.data.get("kind") == "work"]
        for landing in landed[-_MOST:]:
            try:
                self._measure(role, command, landing, stop)
            except Stopped:
                return
            except (Broken, TeamError, EngineLost, Gone) as error:
                reason = f"the benchmark of {role} was not measured: {one_line(str(error))}"
                self.ledger.append(Kind.ERROR, agent=landing.agent, session=session, reason=reason)

    def _measure(self, role: str, command: str, landing: Event, stop: threading.Event) -> None:
        # In turn, so that a machine that gets busy slows both.
        times: dict[str, list[int]] = {"old": [], "new": []}
        for which in ("old", "new", "old", "new"):
            times[which].append(self._time(landing.data[which], command, f"{_name(landing)}-{which}", stop))
        self.ledger.append(
            Kind.ROLE_MEASURED,
            agent=landing.agent,
            session=landing.session,
            role=role,
            commit=landing.data["new"],
            subject=_subject(landing),
            before=min(times["old"]),
            after=min(times["new"]),
        )

    def _time(self, commit: str, command: str, name: str, stop: threading.Event) -> int:
        """Milliseconds of the fastest of some rounds at ``commit``. Raises :class:`Broken`, :class:`Stopped`."""
        Shelf(self.project.gate, Repository(self.project.upstream)).make()  # checks mount it
        mark, plan = secrets.token_hex(16), self.plan
        checker = ContainerChecker(
            self.project, Gate(count=rf"^{mark} (\d+)$", timeout=_SECONDS), self.runtime, plan.image,
            plan.settings.session.setup, plan.uid, plan.gid, plan.limits, env=environment(plan.settings.test),
        )  # fmt: skip
        result = checker.run(commit, _script(command, mark), name, stop)
        if not result.ok or not result.tests:
            raise Broken(f"at {commit[:10]}: {result.reason or 'it told no time'} (log {result.log})")
        return result.tests


def _name(landing: Event) -> str:
    """A part of names for what belongs to ``landing``."""
    return f"bench-{landing.data.get('landing', 0)}"


def _script(command: str, mark: str) -> str:
    """Prints the milliseconds of the fastest round, at least 1, after ``mark``."""
    return f"""best=
for round in {" ".join(str(n) for n in range(ROUNDS))}; do
    began=$(date +%s%N)
    sh -c {shlex.quote(command)} || exit
    took=$(( ($(date +%s%N) - began) / 1000000 + 1 ))
    if [ -z "$best" ] || [ "$took" -lt "$best" ]; then best=$took; fi
done
echo {mark} $best"""


def _subject(landing: Event) -> str:
    """What landed, in its author's words."""
    return one_line(str(landing.data.get("subject", "")).removeprefix("Land ").removesuffix(f" ({landing.agent})"), 100)
