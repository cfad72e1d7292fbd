"""The tasks of a project: tickets on main, and what is held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from team.names import TASK_DIR
from team.text import one_line
from team.upstream.claims import Claim, Claims
from team.upstream.objects import REGULAR, TREE, Missing
from team.upstream.paths import ticket_task
from team.upstream.queue import Queue
from team.upstream.refusal import age
from team.upstream.repository import Repository

_MOST_TICKET = 1 << 20
_TITLES = 10_000


@dataclass(frozen=True)
class Task:
    """Something to do, or being done. ``since`` is in seconds since the epoch."""

    name: str
    title: str
    state: str
    """``open``, ``held`` or ``blocked``."""
    agent: str | None = None
    session: str | None = None
    since: float | None = None
    push: str = ""
    """What became of a push for it that has not landed."""
    strikes: tuple[str, ...] = ()
    """How sessions ended badly on it since it was last done or unblocked; from three on it is blocked."""


class Tasks:
    """Lists tasks; remembers the titles of tickets by content."""

    def __init__(self, repository: Repository, claims: Claims, queue: Queue, clock: Callable[[], float]) -> None:
        self._repository, self._claims, self._queue, self._clock = repository, claims, queue, clock
        self._titles: dict[str, str] = {}

    def all(self) -> list[Task]:
        """Held tasks, then those that nobody holds, each by name."""
        tickets = self._tickets()
        held = sorted(self._claims.all(), key=lambda claim: claim.task)
        taken = {claim.task for claim in held}
        tasks = [self._held(claim, tickets.get(claim.task, "")) for claim in held]
        tasks += [self._free(name, title) for name, title in sorted(tickets.items()) if name not in taken]
        blocked = [task for task in self._claims.blocked_tasks() if task not in taken and task not in tickets]
        tasks += [self._free(task, "") for task in sorted(blocked)]
        return [replace(task, push=push) if (push := self._push(task.name)) else task for task in tasks]

    def _push(self, task: str) -> str:
        for push in self._queue.waiting():
            if task in push.tasks:
                return f"push {push.number} {push.state} since {age(self._clock() - push.at)}"
        verdict = self._queue.last_of(task)
        return f"push {verdict.push.number} was refused: {verdict.reason}" if verdict else ""

    def _held(self, claim: Claim, title: str) -> Task:
        strikes = tuple(self._claims.strikes(claim.task))
        return Task(claim.task, title, "held", claim.agent, claim.session, claim.since, strikes=strikes)

    def _free(self, name: str, title: str) -> Task:
        state = "open" if self._claims.blocked(name) is None else "blocked"
        return Task(name, title, state, strikes=tuple(self._claims.strikes(name)))

    def _tickets(self) -> dict[str, str]:
        store = self._repository.store
        root = store.commit(self._repository.main()).tree
        entry = store.find(root, TASK_DIR.encode())
        if entry is None or entry.mode != TREE:
            return {}
        tickets = {}
        for name, file in store.tree(entry.oid).items():
            task = ticket_task(f"{TASK_DIR}/".encode() + name)
            if task is not None and file.mode == REGULAR:
                tickets[task] = self._title(file.oid)
        return tickets

    def _title(self, oid: str) -> str:
        if oid not in self._titles:
            if len(self._titles) > _TITLES:
                self._titles.clear()
            try:
                text = self._repository.store.read(oid, "blob", _MOST_TICKET).decode("utf-8", "replace")
            except Missing:
                text = ""
            self._titles[oid] = title(text)
        return self._titles[oid]


def title(text: str) -> str:
    """The first line of a ticket that says something, without the marks of a heading."""
    lines = (one_line(line.strip().lstrip("#"), 120) for line in text.splitlines()[:50])
    return next((line for line in lines if line), "")
