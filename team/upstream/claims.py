"""Who holds which task, derived from the ledger, and the rules by which a push changes that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from team.clients import Outcome
from team.ledger import Event, Kind, Ledger, New
from team.names import lock_path
from team.text import one_line
from team.upstream.objects import Change
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused, age

_KINDS = (
    Kind.CLAIM, Kind.RELEASE, Kind.LANDING_INTENT, Kind.LANDING_DONE, Kind.LANDING_DROPPED, Kind.SESSION_ENDING,
    Kind.TASK_UNBLOCKED, Kind.RESCUE_SAVED, Kind.RESCUE_DROPPED,
)  # fmt: skip
STRIKES = 3
"""Sessions in a row that ended badly on a task, after which it is blocked."""
_BAD = frozenset(outcome.value for outcome in Outcome if outcome.strike)


@dataclass(frozen=True)
class Claim:
    """A task that is held. ``since`` is in seconds since the epoch."""

    task: str
    agent: str
    session: str
    since: float
    landing: int
    commit: str
    """The commit on main that did it."""
    text: str = ""
    """What its lock said when it was claimed."""


@dataclass(frozen=True)
class Released:
    """The last time a task became free."""

    agent: str
    session: str
    at: float
    commit: str
    """The commit on main that did it."""
    pushed: str | None
    """What its holder had pushed, None where upstream released it."""
    why: str
    done: bool = False
    """Whether its work was finished."""
    by: str = ""
    """Who released it: its holder, a person, or upstream itself."""
    text: str = ""
    """What its lock said."""


@dataclass(frozen=True)
class Lock:
    """What one commit does to the lock of one task."""

    commit: str
    task: str
    change: Change


class Claims:
    """The ledger's view of claims and landings, kept up to date by :meth:`sync`. Safe to use from several threads."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.landings = 0
        """The highest landing number so far."""
        self.open: dict[int, Event] = {}
        """Landings of which only the intent is recorded."""
        self._held: dict[str, Claim] = {}
        self._released: dict[str, Released] = {}
        self._lost: dict[str, list[str]] = {}
        self._strikes: dict[str, list[str]] = {}
        self._rescued: dict[str, dict[str, str]] = {}
        self._had: dict[str, list[str]] = {}
        """What each session held when it ended."""
        self._fresh: list[str] = []
        self._seen = 0
        self._lock = threading.Lock()

    def sync(self) -> None:
        """Take in what was appended to the ledger since the last time, by whatever process."""
        with self._lock:
            for event in self.ledger.events(*_KINDS, after=self._seen):
                self._take(event)
                self._seen = event.id

    def holder(self, task: str) -> Claim | None:
        """The live claim on ``task``."""
        return self._held.get(task)

    def held_by(self, session: str) -> list[str]:
        """The tasks that ``session`` holds, oldest first."""
        return [c.task for c in list(self._held.values()) if c.session == session]

    def all(self) -> list[Claim]:
        """Every live claim, oldest first."""
        return list(self._held.values())

    def released(self, task: str) -> Released | None:
        """The last release of ``task``."""
        return self._released.get(task)

    def lost_by(self, session: str) -> list[str]:
        """What ``session`` lost without giving it up, in words."""
        return list(self._lost.get(session, ()))

    def names(self) -> list[str]:
        """Every task that was ever claimed, oldest first, from where the last call of this ended."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def strikes(self, task: str) -> list[str]:
        """How the sessions that ended badly on ``task`` since it was last done or unblocked ended, oldest first."""
        return list(self._strikes.get(task, ()))

    def blocked(self, task: str) -> str | None:
        """Why nobody may claim ``task``, or None where it is not blocked."""
        strikes = self._strikes.get(task, [])
        if len(strikes) < STRIKES:
            return None
        return (
            f"{task} is blocked: {len(strikes)} sessions failed on it, the last: {strikes[-1]}; pick another task "
            f"(a person unblocks it: `team unblock {task}`)"
        )

    def blocked_tasks(self) -> list[str]:
        """The tasks that nobody may claim."""
        return [task for task, strikes in self._strikes.items() if len(strikes) >= STRIKES]

    def left_behind(self, task: str) -> list[str]:
        """Work on ``task`` that main does not have, kept from sessions that ended, in words."""
        return [
            f"session {session} left work on {task} that main does not have{f': {what}' if what else ''}; "
            f"it is kept for a person (`team rescue show {session}`)"
            for session, what in self._rescued.get(task, {}).items()
        ]

    def had(self, session: str) -> tuple[str, ...]:
        """What ``session`` held when it ended."""
        return tuple(self._had.get(session, ()))

    def rescued(self) -> dict[str, list[str]]:
        """Tasks with the sessions that left work on them which main does not have."""
        return {task: list(sessions) for task, sessions in self._rescued.items() if sessions}

    def ahead(self) -> Claims:
        """A copy, to try out what has not happened yet by :meth:`imagine`; never :meth:`sync` it."""
        copy = Claims(self.ledger)
        copy.landings, copy._held, copy._released = self.landings, dict(self._held), dict(self._released)
        copy._strikes, copy._rescued = dict(self._strikes), dict(self._rescued)
        return copy

    def imagine(self, events: Iterable[New], at: float) -> None:
        """Go on as if ``events`` had been recorded."""
        for new in events:
            self._take(Event(0, at, new.kind, new.agent, new.session, new.task, new.data))

    def _take(self, event: Event) -> None:
        data = event.data
        number = int(data.get("landing") or 0)
        if event.kind == Kind.LANDING_INTENT:
            self.open[number] = event
            self.landings = max(self.landings, number)
        elif event.kind in (Kind.LANDING_DONE, Kind.LANDING_DROPPED):
            self.open.pop(number, None)
        elif event.kind == Kind.SESSION_ENDING:
            self._end(event.session or "", str(data.get("outcome", "")), str(data.get("reason", "")))
        elif event.kind == Kind.RESCUE_SAVED:
            for task in self._had.get(event.session or "", ()):
                self._rescued[task] = {**self._rescued.get(task, {}), event.session or "": str(data.get("summary", ""))}
        elif event.kind == Kind.RESCUE_DROPPED:
            for task, kept in list(self._rescued.items()):
                self._rescued[task] = {s: what for s, what in kept.items() if s != event.session}
        elif event.task is None:
            return
        elif event.kind == Kind.TASK_UNBLOCKED:
            self._strikes.pop(event.task, None)
        elif event.kind == Kind.CLAIM:
            self._fresh.append(event.task)
            self._held[event.task] = Claim(
                event.task,
                event.agent or "",
                event.session or "",
                event.at,
                number,
                str(data.get("commit", "")),
                str(data.get("text", "")),
            )
        else:
            held = self._held.pop(event.task, None)
            if data.get("done"):
                self._strikes.pop(event.task, None)
                self._rescued.pop(event.task, None)
            by = str(data.get("by", ""))
            if event.session and by and by != event.agent:
                said = f"{event.task} is not yours any more: released by {one_line(by, 60)}"
                self._lost.setdefault(event.session, []).append(said)
            self._released[event.task] = Released(
                event.agent or "",
                event.session or "",
                event.at,
                str(data.get("commit", "")),
                data.get("pushed"),
                str(data.get("why", "")),
                bool(data.get("done")),
                str(data.get("by", "")),
                held.text if held else "",
            )

    def _end(self, session: str, outcome: str, reason: str) -> None:
        self._had[session] = self.held_by(session)
        if outcome in _BAD:
            for task in self._had[session]:
                self._strikes[task] = [*self._strikes.get(task, ()), one_line(f"{session} {outcome}: {reason}", 200)]


def events_of(kind: Kind, data: Mapping[str, Any], agent: str, session: str | None) -> list[New]:
    """The ledger's events for a landing that is done, from what its intent recorded."""
    base = {"landing": data["landing"], "commit": data["new"], "pushed": data["pushed"]}
    events = [New(kind, agent, session, None, dict(data))]
    texts = data.get("texts", {})
    for task in data["claims"]:
        said = {"text": texts[task]} if texts.get(task) else {}
        forced = {"forced": True} if task in data.get("forced", ()) else {}
        events.append(New(Kind.CLAIM, agent, session, task, {**base, **said, **forced}))
    why = {**base, "why": data["why"], "by": data["by"]}
    for task in data["releases"]:
        holder, held_in = data["holders"][task]
        done = {"done": True} if task in data.get("done", ()) else {}
        events.append(New(Kind.RELEASE, holder, held_in, task, {**why, **done}))
    return events


class Judge:
    """Follows the locks through one push of an agent, commit by commit, and refuses what breaks a rule."""

    def __init__(
        self,
        pusher: Pusher,
        claims: Claims,
        most: int,
        now: float,
        *,
        saw: Callable[[Released], bool],
        is_done: Callable[[str], bool],
        restores: Callable[[Lock, Claim], bool],
    ) -> None:
        """``saw`` tells whether the push builds on that release, ``is_done`` whether main lost the task's ticket,
        ``restores`` whether a commit puts a lock that it has seen back as it is on main."""
        self._pusher, self._claims, self._most, self._now = pusher, claims, most, now
        self._saw, self._is_done, self._restores = saw, is_done, restores
        self.before = tuple(claims.held_by(pusher.session or ""))
        """What the session held before the push."""
        self.held = set(self.before)
        self.claimed: dict[str, None] = {}
        """Every task that some commit of the push claims anew."""

    def follow(self, lock: Lock) -> None:
        """What one commit of the push does to a lock. Raises :class:`Refused`.

        Another's lock may be taken away and put back again; whether it is there in the end, :meth:`conclude` sees.
        """
        holder = self._claims.holder(lock.task)
        if holder is None or holder.session == self._pusher.session:
            self._take(lock.task, lock.change)
        elif lock.change.old is None and not self._restores(lock, holder):
            raise self._taken(lock.task, holder, is_claim=True)

    def conclude(self, task: str, change: Change) -> None:
        """What the whole push does to a lock on main. Raises :class:`Refused`."""
        holder = self._claims.holder(task)
        if holder is not None and holder.session != self._pusher.session:
            raise self._taken(task, holder, is_claim=change.old is None)
        self._take(task, change)

    def _take(self, task: str, change: Change) -> None:
        if change.new is None:
            self.held.discard(task)
        elif task not in self.held:
            self._claim(task)

    def _claim(self, task: str) -> None:
        if task not in self.before:
            self._check_fresh(task)
        if len(self.held) >= self._most:
            mine = ", ".join(sorted(self.held))
            raise Refused("claims", f"you hold {mine}, at most {self._most} at a time; release it before {task}")
        self.held.add(task)
        self.claimed[task] = None

    def _check_fresh(self, task: str) -> None:
        released = self._claims.released(task)
        if released is not None and released.session != self._pusher.session and not self._saw(released):
            ago = age(self._now - released.at)
            how = "finished" if self._is_done(task) else "released"
            raise Refused(
                "stale", f"{task} was {how} by {released.agent} {ago} ago; `git pull`, then look at what is open"
            )
        if self._is_done(task):
            raise Refused("stale", f"{task} was finished since your last pull; `git pull` and pick another task")

    def _taken(self, task: str, holder: Claim, *, is_claim: bool) -> Refused:
        since = age(self._now - holder.since)
        if is_claim:
            return Refused(
                "held",
                f"{task} is held by {holder.agent} since {since}; pick another task, after undoing this claim "
                "(`git reset --hard HEAD~1` where it is the last commit)",
            )
        return Refused(
            "held",
            f"{lock_path(task)} is held by {holder.agent} since {since}; only its holder changes or removes it; "
            f"`git pull`, then `git checkout origin/main -- {lock_path(task)}` and commit",
        )
