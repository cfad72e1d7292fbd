"""What is shown of the team: seats, totals and lines, all derived from the ledger, event by event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from team.gateway.health import UNREACHED
from team.gateway.reset import clock_words
from team.ledger import Event, Kind, Ledger
from team.text import one_line

QUIET = frozenset(
    {
        Kind.MODEL_CALL,
        Kind.MODEL_RESERVED,
        Kind.SESSION_CREATED,
        Kind.LANDING_INTENT,
        Kind.RESCUE_EMPTY,
        Kind.PUSH_BYTES,
    }
)
"""Kinds that no view needs: reading a ledger leaves them out."""


@dataclass
class SeatView:
    """One seat as the ledger tells it."""

    agent: str
    role: str = "worker"
    state: str = "new"
    """``new``, ``starting``, ``running``, ``ending``, ``ended``, ``waiting`` or ``stopped``."""
    since: float = 0.0
    """When the state began, in seconds since the epoch."""
    session: str | None = None
    n: int = 0
    """Number of the seat's newest session, from 1."""
    tasks: list[str] = field(default_factory=list)
    landings: int = 0
    """Landings of this run that changed more than locks."""
    last_landing: float | None = None
    """When the newest of them landed, in this run or before it."""
    wait_until: float | None = None
    """None where it does not wait, or nobody knows until when."""
    wait_reason: str = ""
    outcome: str = ""
    """How the newest ended session ended."""
    reason: str = ""
    log: str = ""
    """Log file of the newest session, as the ledger names it."""
    version: str = ""
    """What the client says it is."""
    asks: dict[str, str] = field(default_factory=dict)
    """Actions of its session that wait for a person, each in words."""
    listed: bool = False
    """Whether the newest run has this seat."""

    @property
    def live(self) -> bool:
        """Whether its session has started and not ended, as far as the ledger knows."""
        return self.state in ("starting", "running", "ending")


@dataclass
class Totals:
    """What happened since the team was last started."""

    started: float | None = None
    sessions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    landings: int = 0
    """Landings that changed more than locks."""
    merges: int = 0
    claims: int = 0
    refused: int = 0
    claims_refused: int = 0
    rescued: int = 0
    errors: int = 0


class View:
    """The state of the team after the events fed so far; costs the same for each event however many came before."""

    def __init__(self) -> None:
        self.seats: dict[str, SeatView] = {}
        self.totals = Totals()
        self.started: Event | None = None
        """The newest ``team.started``."""
        self.stopping = ""
        """Why the team is stopping; empty when it is not."""
        self.stopped: str | None = None
        """Why the team stopped; None while it runs or when it did not say (its process was killed)."""
        self.engine_lost = ""
        """Why the engine does not answer; empty when it does."""
        self.models_lost: dict[str, str] = {}
        """Providers that do not answer, each with the reason."""
        self.idle = ""
        """What every seat waits for; empty while one works."""
        self.paused_until = 0.0
        """Until when nobody asks the provider (seconds since the epoch): it said so."""
        self.pause_reason = ""
        self.last_id = 0
        self.open: dict[str, str] = {}
        """Sessions that began and of which something may be left, each with its agent."""
        self.pushes: dict[int, str] = {}
        """Pushes without a verdict: ``queued`` for the gate or ``held`` for the person, by number."""
        self._holders: dict[str, SeatView] = {}

    @property
    def tasks(self) -> dict[str, SeatView]:
        """Which seat holds which task."""
        return dict(self._holders)

    def feed(self, event: Event) -> None:
        """Take the next event; one taken already, and a kind that this version does not know, change nothing."""
        if event.id <= self.last_id:
            return
        self.last_id = event.id
        handler = _HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def catch_up(self, ledger: Ledger) -> list[Event]:
        """Feed everything that was appended since, and return it (without :data:`QUIET` kinds)."""
        new = list(ledger.events(*_READ, after=self.last_id))
        for event in new:
            self.feed(event)
        return new

    def rows(self, *, all_seats: bool = False) -> list[SeatView]:
        """The seats of the newest run, and others whose session has not ended; every seat ever with ``all_seats``."""
        return [s for s in self.seats.values() if all_seats or s.listed or s.live]

    def _seat(self, event: Event) -> SeatView:
        name = event.agent or "?"
        return self.seats.setdefault(name, SeatView(name, role=name.rpartition("-")[0].replace("agent", "worker")))

    def _team_started(self, event: Event) -> None:
        self.started, self.totals = event, Totals(started=event.at)
        self.stopping, self.stopped, self.engine_lost, self.idle = "", None, "", ""
        self.models_lost = {}
        for seat in self.seats.values():
            seat.listed, seat.landings = False, 0
        for name, role in event.data.get("seats", []):
            seat = self.seats.setdefault(name, SeatView(name))
            seat.role, seat.listed = role, True
            if not seat.live:
                _enter(seat, "new", event.at)
        # in the order of the plan, then what is left of earlier runs; a stable sort keeps both
        self.seats = dict(sorted(self.seats.items(), key=lambda item: _place(event, item[0])))

    def _team_stopping(self, event: Event) -> None:
        self.stopping = _stop_reason(event) or "asked to"

    def _team_stopped(self, event: Event) -> None:
        self.stopping, self.stopped = "", _stop_reason(event)
        for seat in self.seats.values():
            if not seat.live:
                _enter(seat, "stopped", event.at)

    def _team_idle(self, event: Event) -> None:
        self.idle = _idle_words(event)

    def _model_paused(self, event: Event) -> None:
        self.paused_until = float(event.data.get("until") or 0)
        self.pause_reason = _words(event, "reason")

    def _waiting(self, event: Event) -> None:
        seat = self._seat(event)
        _enter(seat, "waiting", event.at)
        seconds = event.data.get("seconds")
        seat.wait_until = None if seconds is None else event.at + float(seconds)
        seat.wait_reason = _words(event, "reason")

    def _runtime_lost(self, event: Event) -> None:
        self.engine_lost = _words(event, "reason") or "it does not answer"

    def _runtime_found(self, event: Event) -> None:
        self.engine_lost = ""

    def _model_lost(self, event: Event) -> None:
        self.models_lost[_words(event, "provider")] = _words(event, "reason")

    def _model_found(self, event: Event) -> None:
        self.models_lost.pop(_words(event, "provider"), None)

    def _starting(self, event: Event) -> None:
        seat = self._seat(event)
        _enter(seat, "starting", event.at)
        seat.session, seat.n = event.session, int(event.data.get("n") or seat.n + 1)
        seat.role = str(event.data.get("role") or seat.role)
        seat.log = str(event.data.get("log") or "")
        seat.version = ""
        self.idle = ""
        self.totals.sessions += 1
        self.open[event.session or "?"] = seat.agent

    def _running(self, event: Event) -> None:
        seat = self._seat(event)
        seat.session = event.session
        _enter(seat, "running", event.at)

    def _version(self, event: Event) -> None:
        self._seat(event).version = _words(event, "version")

    def _ending(self, event: Event) -> None:
        seat = self._seat(event)
        if seat.session == event.session:
            _enter(seat, "ending", event.at)
            seat.asks.clear()
            seat.outcome, seat.reason = _words(event, "outcome"), _words(event, "reason")

    def _ended(self, event: Event) -> None:
        seat = self._seat(event)
        outcome = _words(event, "outcome")
        self.totals.outcomes[outcome] += 1
        if seat.session in (event.session, None):  # the next session may have begun while the rescue still ran
            _enter(seat, "ended", event.at)
            seat.outcome, seat.reason = outcome, _words(event, "reason")

    def _removed(self, event: Event) -> None:
        self.open.pop(event.session or "?", None)

    def _push_waits(self, event: Event) -> None:
        self.pushes[int(event.data["number"])] = "held" if event.kind == Kind.PUSH_HELD else "queued"

    def _push_decided(self, event: Event) -> None:
        self.pushes.pop(int(event.data["number"]), None)

    def _action_held(self, event: Event) -> None:
        seat = self._seat(event)
        if seat.session == event.session and seat.state in ("starting", "running"):  # not one that has ended meanwhile
            seat.asks[f"a{event.data['number']}"] = _call(event)

    def _action_decided(self, event: Event) -> None:
        self._seat(event).asks.pop(f"a{event.data['number']}", None)

    def _refused(self, event: Event) -> None:
        self.totals.refused += 1
        self.totals.claims_refused += event.data.get("rule") in CLAIM_RULES

    def _landed(self, event: Event) -> None:
        if not worth_a_landing(event):
            return
        self.totals.landings += 1
        self.totals.merges += bool(event.data.get("merge"))
        if event.session is not None:  # None: the person's own push
            seat = self._seat(event)
            seat.landings += 1
            seat.last_landing = event.at

    def _claim(self, event: Event) -> None:
        self.totals.claims += 1
        if event.task and event.session is not None:
            seat = self._holders[event.task] = self._seat(event)
            if event.task not in seat.tasks:
                seat.tasks.append(event.task)

    def _release(self, event: Event) -> None:
        seat = self._holders.pop(event.task or "", None)
        if seat is not None and event.task in seat.tasks:
            seat.tasks.remove(event.task)

    def _rescued(self, event: Event) -> None:
        self.totals.rescued += 1

    def _error(self, event: Event) -> None:
        self.totals.errors += 1


CLAIM_RULES = frozenset({"held", "stale"})
"""Rules of ``push.refused`` that say: somebody else has, or had, this task."""


def _place(started: Event, agent: str) -> int:
    names = [name for name, _ in started.data.get("seats", [])]
    return names.index(agent) if agent in names else len(names)


def _enter(seat: SeatView, state: str, at: float) -> None:
    if seat.state != state:
        seat.state, seat.since = state, at
    seat.wait_until, seat.wait_reason = None, ""


_HANDLERS: dict[str, Callable[[View, Event], None]] = {
    Kind.TEAM_STARTED: View._team_started,
    Kind.TEAM_STOPPING: View._team_stopping,
    Kind.TEAM_STOPPED: View._team_stopped,
    Kind.TEAM_IDLE: View._team_idle,
    Kind.SEAT_WAITING: View._waiting,
    Kind.MODEL_PAUSED: View._model_paused,
    Kind.MODEL_LOST: View._model_lost,
    Kind.MODEL_FOUND: View._model_found,
    Kind.RUNTIME_LOST: View._runtime_lost,
    Kind.RUNTIME_FOUND: View._runtime_found,
    Kind.SESSION_STARTING: View._starting,
    Kind.SESSION_RUNNING: View._running,
    Kind.SESSION_ADOPTED: View._running,
    Kind.SESSION_VERSION: View._version,
    Kind.SESSION_ENDING: View._ending,
    Kind.SESSION_ENDED: View._ended,
    Kind.SESSION_REMOVED: View._removed,
    Kind.PUSH_REFUSED: View._refused,
    Kind.PUSH_QUEUED: View._push_waits,
    Kind.PUSH_HELD: View._push_waits,
    Kind.PUSH_APPROVED: View._push_waits,
    Kind.PUSH_VERDICT: View._push_decided,
    Kind.ACTION_HELD: View._action_held,
    Kind.ACTION_DECIDED: View._action_decided,
    Kind.LANDING_DONE: View._landed,
    Kind.CLAIM: View._claim,
    Kind.RELEASE: View._release,
    Kind.RESCUE_SAVED: View._rescued,
    Kind.ERROR: View._error,
}
_READ = tuple(kind for kind in Kind if kind not in QUIET)


def view(ledger: Ledger) -> View:
    """The view of everything in ``ledger``."""
    result = View()
    result.catch_up(ledger)
    return result


def seats(ledger: Ledger) -> list[SeatView]:
    """The seats of the newest run, and others whose session has not ended."""
    return view(ledger).rows()


def totals(ledger: Ledger) -> Totals:
    """What happened since the team was last started."""
    return view(ledger).totals


def worth_a_landing(event: Event) -> bool:
    """Whether a ``landing.done`` brought more than locks taken or given back."""
    return event.data.get("kind") == "work"


def waiting_words(view: View) -> str:
    """How many pushes and actions wait for what, on one line; empty where none does."""
    held = [number for number, state in view.pushes.items() if state == "held"]
    queued = len(view.pushes) - len(held)
    parts = [f"{plural(queued, 'push')} waiting for the gate"] if queued else []
    if held:
        parts.append(f"{plural(len(held), 'push')} held for you ({', '.join(map(str, held[:5]))}): `team held`")
    if asks := [id for seat in view.seats.values() for id in seat.asks]:
        parts.append(f"{plural(len(asks), 'action')} held for you ({', '.join(asks[:5])}): `team held`")
    return "; ".join(parts)


def span(seconds: float) -> str:
    """``seconds`` for people: ``45 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def plural(count: int, noun: str) -> str:
    """``1 landing``, ``2 landings``, ``2 pushes``."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith(('s', 'sh', 'ch')) else 's'}"


def describe(event: Event) -> str | None:
    """One line about ``event``, ready for a screen or a log, or None where it is not worth one.

    Everything that an agent may have written is cleaned and cut.
    """
    words = _DESCRIPTIONS.get(event.kind)
    text = words(event) if words is not None else None
    nobody = "you" if event.kind == Kind.LANDING_DONE else "team"
    return None if text is None else f"{one_line(event.agent or nobody, 40)}: {text}"


def _words(event: Event, key: str, width: int = 200) -> str:
    value = event.data.get(key)
    return "" if value is None else one_line(str(value), width)


_SIGNALS = {"SIGINT": "ctrl-c", "SIGTERM": "team down", "SIGHUP": "the terminal was closed"}


def _stop_reason(event: Event) -> str:
    reason = _words(event, "reason")
    return _SIGNALS.get(reason, reason)


def _because(event: Event) -> str:
    reason = _words(event, "reason")
    return f": {reason}" if reason else ""


def _task(event: Event) -> str:
    return one_line(event.task or "?", 100)


def _say_started(event: Event) -> str:
    parts = [plural(len(event.data.get("seats", [])), "seat"), _words(event, "client"), _words(event, "runtime")]
    return f"started: {', '.join(p for p in parts if p)}"


def _say_stopping(event: Event) -> str:
    seconds = float(event.data.get("seconds") or 0)
    again = ", ctrl-c again ends them now" if event.data.get("reason") == "SIGINT" else ""
    return f"stopping: {_stop_reason(event)}" + (f"; sessions have {span(seconds)} to land{again}" if seconds else "")


def _say_waiting(event: Event) -> str:
    seconds = event.data.get("seconds")
    return ("waits" if seconds is None else f"waits {span(float(seconds))}") + _because(event)


def _idle_words(event: Event) -> str:
    return _words(event, "reason") or "every seat waits for main to move"


def _say_model_refused(event: Event) -> str | None:
    if _words(event, "reason").startswith(UNREACHED):  # once is enough: see MODEL_LOST
        return None
    return f"model call refused{_because(event)}"


def _say_egress(event: Event) -> str | None:
    if not event.data.get("refused"):
        return None
    host = _words(event, "host", 100)
    where = f"{host}:{_words(event, 'port', 5)}" if host else "a connection"
    return f"the network refused {where}: {_words(event, 'refused')}"


def _say_ended(event: Event) -> str:
    landings = int(event.data.get("landings") or 0)
    facts = [_words(event, "outcome") or "?", plural(landings, "landing"), span(float(event.data.get("seconds") or 0))]
    return f"session ended: {', '.join(facts)}{_because(event)}"


def _say_held(event: Event) -> str:
    number = event.data.get("number")
    return f"push {number} held{_because(event)}; `team held {number}`, `team approve {number}`, `team deny {number}`"


def _call(event: Event) -> str:
    """The tool call of an action on one line."""
    return one_line(f"{event.data.get('tool')}: {event.data.get('text')}", 120)


def _say_action_held(event: Event) -> str:
    id = f"a{event.data.get('number')}"
    return f"asks for {id}: {_call(event)}; `team held {id}`, `team approve {id}`, `team deny {id}`"


def _say_action_decided(event: Event) -> str:
    note = f": {note}" if (note := _words(event, "note")) else ""
    word = "allowed" if event.data.get("allowed") else "denied"
    return f"action a{event.data.get('number')} {word} by {_words(event, 'by')}{note}"


def _say_landed(event: Event) -> str | None:
    if not worth_a_landing(event):
        return None
    subject = _words(event, "subject", 100).removeprefix("Land ").removesuffix(f" ({event.agent})")
    return f"landed {_words(event, 'new')[:10]} {subject}".rstrip()


def _say_released(event: Event) -> str:
    why = _words(event, "why", 120) if event.data.get("by") != event.agent else ""
    return f"released {_task(event)}" + (f" ({why})" if why else "")


_DESCRIPTIONS: dict[str, Callable[[Event], str | None]] = {
    Kind.TEAM_STARTED: _say_started,
    Kind.TEAM_STOPPING: _say_stopping,
    Kind.TEAM_STOPPED: lambda e: f"stopped: {_stop_reason(e)}",
    Kind.TEAM_IDLE: lambda e: f"idle: {_idle_words(e)}; nothing is spent",
    Kind.MODEL_PAUSED: lambda e: f"all wait until {clock_words(float(e.data.get('until') or 0))}{_because(e)}",
    Kind.MODEL_LOST: lambda e: f"ERROR no answer from {_words(e, 'provider')}{_because(e)}; agents try again",
    Kind.MODEL_FOUND: lambda e: (
        f"{_words(e, 'provider')} answers again after {span(float(e.data.get('seconds') or 0))}"
    ),
    Kind.MODEL_REFUSED: _say_model_refused,
    Kind.BUDGET_SET: lambda e: f"the budget is ${float(e.data.get('usd') or 0):g} now",
    Kind.EGRESS: _say_egress,
    Kind.SEAT_WAITING: _say_waiting,
    Kind.RUNTIME_LOST: lambda e: f"engine lost{_because(e)}; sessions keep their tasks until it answers",
    Kind.RUNTIME_FOUND: lambda e: f"engine answers again after {span(float(e.data.get('seconds') or 0))}",
    Kind.SESSION_STARTING: lambda e: f"session {e.data.get('n', '?')} starts",
    Kind.SESSION_ADOPTED: lambda e: "session adopted: it went on running",
    Kind.SESSION_ENDED: _say_ended,
    Kind.PUSH_REFUSED: lambda e: f"push refused{_because(e)}",
    Kind.PUSH_QUEUED: lambda e: f"push {e.data.get('number')} waits for the gate",
    Kind.PUSH_HELD: _say_held,
    Kind.PUSH_APPROVED: lambda e: f"push {e.data.get('number')} approved by {_words(e, 'by')}; waits for the gate",
    Kind.ACTION_HELD: _say_action_held,
    Kind.ACTION_DECIDED: _say_action_decided,
    Kind.PUSH_TAMPERING: lambda e: f"tests: a push {one_line(', '.join(e.data.get('findings') or []), 300)}",
    Kind.GATE_FLAKY: lambda e: f"the check is flaky: failed once, passed on the same commit (log {_words(e, 'log')})",
    Kind.CLAIMS_KEPT: lambda e: "its session ended; what it holds stays taken until its push has a verdict",
    Kind.LANDING_DONE: _say_landed,
    Kind.LANDING_DROPPED: lambda e: f"landing dropped{_because(e)}",
    Kind.CLAIM: lambda e: f"claimed {_task(e)}",
    Kind.RELEASE: _say_released,
    Kind.RESCUE_SAVED: lambda e: f"work rescued to {_words(e, 'ref')}",
    Kind.RESCUE_FAILED: lambda e: f"ERROR rescue failed{_because(e)}",
    Kind.ROLE_SKIPPED: lambda e: f"no session of {_words(e, 'role')} now{_because(e)}",
    Kind.ROLE_MEASURED: lambda e: (
        f"benchmark of {_words(e, 'role')}: {_words(e, 'before')} ms before {_words(e, 'commit')[:10]}, "
        f"{_words(e, 'after')} ms after"
    ),
    Kind.TASK_ADDED: lambda e: f"task added: {_task(e)}",
    Kind.ERROR: lambda e: f"ERROR {_words(e, 'reason')}",
}


def seat_json(seat: SeatView, now: float) -> dict[str, Any]:
    """``seat`` as plain data, cleaned."""
    return {
        "agent": seat.agent,
        "role": seat.role,
        "state": seat.state,
        "since": seat.since or None,
        "session": seat.session,
        "n": seat.n,
        "tasks": [one_line(t, 100) for t in seat.tasks],
        "landings": seat.landings,
        "last_landing": seat.last_landing,
        "wait_until": seat.wait_until,
        "wait_seconds": None if seat.wait_until is None else max(0.0, round(seat.wait_until - now, 1)),
        "wait_reason": seat.wait_reason,
        "asks": dict(seat.asks),
        "outcome": seat.outcome,
        "reason": seat.reason,
        "log": seat.log,
        "version": seat.version,
    }


def totals_json(totals: Totals) -> dict[str, Any]:
    """``totals`` as plain data."""
    return {**vars(totals), "outcomes": dict(totals.outcomes)}


def event_json(event: Event) -> dict[str, Any]:
    """``event`` as plain data, with the line that :func:`describe` gives it."""
    return {**vars(event), "text": describe(event)}


def summary(totals: Totals, now: float) -> list[str]:
    """What this run came to, in a few lines."""
    t = totals
    took = "" if t.started is None else f" in {span(now - t.started)}"
    ended = ", ".join(f"{count} {outcome}" for outcome, count in t.outcomes.most_common())
    merges = f" ({plural(t.merges, 'merge')} of parallel work)" if t.merges else ""
    what = (
        f"{plural(t.landings, 'landing')}{merges}, {plural(t.claims, 'claim')}, {plural(t.sessions, 'session')}{took}"
    )
    lines = [what + (f": {ended}" if ended else "")]
    trouble = [(t.refused, "push", "refused"), (t.rescued, "rescue", "saved"), (t.errors, "error", "")]
    if any(count for count, _, _ in trouble):
        lines.append(", ".join(f"{plural(n, noun)} {verb}".rstrip() for n, noun, verb in trouble if n))
    return lines


def follow(
    view: View, ledger: Ledger, *, ended: Callable[[], bool], pause: Callable[[], None]
) -> Iterable[list[Event]]:
    """Feed ``view`` as the ledger grows and yield what was new (often nothing), until ``ended()``."""
    while True:
        over = ended()  # asked first, so that what was appended before the end is still read
        yield view.catch_up(ledger)
        if over:
            return
        pause()
