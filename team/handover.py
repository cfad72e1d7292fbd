"""The hand-over: what a session is told, put together by code from the texts, the ledger and main.

No model sums anything up. A few lines each: what others landed since this agent's last session, how that ended, what
it left behind, which failures are worth remembering, and what its role is handed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from team import prompt
from team.clients import Outcome
from team.config import Settings
from team.handout import Context, hand_out
from team.ledger import Kind, Ledger
from team.plan import Seat
from team.prompt import Prompts
from team.text import one_line
from team.upstream.tasks import Task
from team.upstream.upstream import Upstream
from team.view import describe, plural, worth_a_landing

MOST_LANDINGS = 10
"""Landings of others that are named; the rest is counted."""
MOST_TASKS, MOST_TESTS = 5, 8
RUNS_LOOKED_AT = 300
"""The newest runs of `team test` in which failures are looked for."""
SESSIONS_BROKEN = 2
"""A test that newly failed in so many sessions is worth a warning."""


@dataclass(frozen=True)
class Handover:
    """Makes the prompts of one team."""

    prompts: Prompts
    settings: Settings
    tree: Path
    """The person's work tree."""
    ledger: Ledger
    upstream: Upstream

    def prompt(self, seat: Seat, session: str, base: str) -> str:
        """The whole prompt of ``session`` of ``seat``, which starts from the commit ``base`` of main.

        May run git for half a minute. Raises :class:`TeamError` as :meth:`Prompts.assemble` does.
        """
        extras = prompt.about_tests(self.tree, self.settings.test)
        extras |= self._last_session(seat)
        extras["changed"] = "\n".join(self._changed(seat))
        extras["failures"] = "\n".join(self._failures())
        context = Context(self.upstream.project.upstream, base, self.ledger, self.settings, seat.name)
        handout = hand_out(seat.role, context)
        extras["handout"] = handout.text if handout is not None else ""
        return self.prompts.assemble(seat.name, seat.role, session, extras)

    def _last_session(self, seat: Seat) -> dict[str, str]:
        """How the last session of ``seat`` ended, and what earlier ones left behind."""
        extras: dict[str, str] = {}
        last = self.ledger.last(Kind.SESSION_ENDING, agent=seat.name)
        if last is not None:
            outcome, reason = Outcome(last.data["outcome"]), str(last.data["reason"])
            if outcome.strike:
                extras["last_error"] = reason
            elif outcome is not Outcome.DONE:
                extras["cut_off"] = f"{outcome.value}: {reason}"
        # By the ledger: a git process for each of 16 sessions that start at once would hold up all of them.
        if last is not None and (saved := self.ledger.last(Kind.RESCUE_SAVED, session=last.session)) is not None:
            what = f", {files}" if (files := saved.data.get("summary")) else ""
            extras["rescue"] = (
                f"work of {last.session} that main does not have{what}; it is kept for a person, out of reach"
            )
        if left := self.upstream.left_behind():
            extras["rescue"] = "; ".join(left[-5:])
        return extras

    def _changed(self, seat: Seat) -> Iterator[str]:
        """What others landed since the last session of ``seat`` started, newest first."""
        last = self.ledger.last(Kind.SESSION_STARTING, agent=seat.name)
        if last is None:  # the log of main tells a new seat as much
            return
        landed = self.ledger.events(Kind.LANDING_DONE, after=last.id, newest_first=True)
        others = [event for event in landed if event.agent != seat.name and worth_a_landing(event)]
        lines = [describe(replace(event, agent=event.agent or "a person")) for event in others]
        yield from (one_line(line or "", 160) for line in lines[:MOST_LANDINGS])
        if len(lines) > MOST_LANDINGS:
            yield f"and {plural(len(lines) - MOST_LANDINGS, 'landing')} before these"

    def _failures(self) -> list[str]:
        tasks = [line for task in self.upstream.tasks() if task.state != "held" and (line := _trouble(task))]
        more = [f"and {plural(len(tasks) - MOST_TASKS, 'task')} more (`team tasks`)"] if len(tasks) > MOST_TASKS else []
        return [*tasks[:MOST_TASKS], *more, *self._tests()]

    def _tests(self) -> Iterator[str]:
        """Tests that newly failed in the work of several sessions, as these reported it."""
        broken: dict[str, set[str]] = defaultdict(set)
        for run in self.ledger.events(Kind.TEST_RUN, newest_first=True, limit=RUNS_LOOKED_AT):
            for name in run.data["failing"][: run.data["new"]]:  # what is new comes first
                broken[name].add(run.session or "")
        often = sorted((-len(sessions), name) for name, sessions in broken.items() if len(sessions) >= SESSIONS_BROKEN)
        if often:
            names = ", ".join(f"{one_line(name, 100)} ({-count})" for count, name in often[:MOST_TESTS])
            yield f"tests that the work of several sessions broke at first: {names}"


def _trouble(task: Task) -> str:
    """What went wrong with a task so far; empty where nothing did."""
    parts = []
    if task.strikes:
        word = "is blocked" if task.state == "blocked" else "was tried"
        parts.append(f"{word}: {plural(len(task.strikes), 'session')} failed on it, the last: {task.strikes[-1]}")
    if task.push:
        parts.append(task.push)
    return one_line(f"task {task.name} {'; '.join(parts)}", 300) if parts else ""
