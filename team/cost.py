"""What the team's model calls came to: tokens, money, and what they bought. Pure functions over the ledger."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from team.gateway.prices import from_usd, usd
from team.ledger import Event, Kind
from team.text import one_line

TOKENS = ("input", "output", "cache_write", "cache_read")
"""Fields of a call; no token is in two of them."""
KINDS = (
    Kind.TEAM_STARTED,
    Kind.MODEL_RESERVED,
    Kind.MODEL_CALL,
    Kind.CLAIM,
    Kind.RELEASE,
    Kind.LANDING_DONE,
    Kind.SESSION_ENDING,
)
"""All that is read here."""


@dataclass(frozen=True)
class Call:
    """One request to a model."""

    at: float
    agent: str
    role: str
    session: str
    task: str
    model: str
    tokens: dict[str, int]
    """As the provider told them."""
    cost: int
    """Picodollars at list price, of those tokens."""
    booked: int
    """Picodollars that count against the budget; more than ``cost`` where the end is not known."""
    billed: bool
    """Whether its tokens are paid for one by one."""
    known: bool = True
    """Whether the provider told the end of the count."""
    running: bool = False
    """Not over yet: ``booked`` is what is reserved."""
    failed: bool = False

    def key(self, by: str) -> str:
        """What the call is counted under: one of :data:`GROUPS`."""
        return GROUPS[by](self)


def utc_day(at: float) -> str:
    """The day of ``at`` as providers count: ``2026-10-16``, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


GROUPS: dict[str, Callable[[Call], str]] = {
    "agent": lambda call: call.agent,
    "role": lambda call: call.role,
    "task": lambda call: call.task or "(no task)",
    "model": lambda call: call.model or "(no model)",
    "day": lambda call: time.strftime("%Y-%m-%d", time.localtime(call.at)),
    "session": lambda call: call.session,
}


@dataclass
class Sum:
    """Calls added up. Money in picodollars, at list price; what is billed and what is not are kept apart."""

    calls: int = 0
    failed: int = 0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    billed: int = 0
    """Of calls whose tokens are paid for one by one."""
    unbilled: int = 0
    """Of calls under a plan: what their tokens would have cost."""
    unknown: int = 0
    """Calls that broke off before the provider told the end of the count."""
    unknown_most: int = 0
    """What those may have cost at most, beyond what is known of them."""
    running: int = 0
    """Calls that are not over."""
    reserved: int = 0
    """What those may cost at most."""

    def add(self, call: Call) -> None:
        self.calls += 1
        self.failed += call.failed
        for name, count in call.tokens.items():
            self.tokens[name] += count
        if call.billed:
            self.billed += call.cost
        else:
            self.unbilled += call.cost
        if call.running:
            self.running += 1
            self.reserved += call.booked
        elif not call.known:
            self.unknown += 1
            self.unknown_most += max(0, call.booked - call.cost)

    @property
    def all_tokens(self) -> int:
        return sum(self.tokens.values())

    @property
    def cost(self) -> int:
        """Everything known, at list price."""
        return self.billed + self.unbilled


@dataclass
class Work:
    """What the calls bought."""

    landed: int = 0
    """Commits of agents' work on main."""
    tries: list[tuple[str, int]] = field(default_factory=list)
    """Each time a task was finished: its name, and how many sessions had claimed it until then."""

    @property
    def finished(self) -> int:
        return len(self.tries)

    @property
    def first_try_rate(self) -> float | None:
        """Which part of the finished tasks was landed by the first session that claimed them."""
        return sum(1 for _, tries in self.tries if tries == 1) / len(self.tries) if self.tries else None

    @property
    def tries_per_task(self) -> float | None:
        return sum(tries for _, tries in self.tries) / len(self.tries) if self.tries else None


@dataclass
class Report:
    """All of ``team cost``."""

    by: str
    rows: dict[str, Sum]
    total: Sum
    work: Work
    tasks: Sum
    """The calls made while one of the finished tasks was held."""

    @property
    def tokens_per_landed(self) -> float | None:
        return self.total.all_tokens / self.work.landed if self.work.landed else None

    @property
    def cost_per_task(self) -> int | None:
        """Picodollars of one finished task, on average."""
        return round(self.tasks.cost / self.work.finished) if self.work.finished else None

    @property
    def tokens_per_task(self) -> float | None:
        return self.tasks.all_tokens / self.work.finished if self.work.finished else None


def report(events: Iterable[Event], by: str, *, running: bool) -> Report:
    """What ``events`` (oldest first) come to, grouped by one of :data:`GROUPS`.

    ``running``: a supervisor runs, so that a call which was reserved and not settled may still be under way.
    """
    known = list(events)
    done = work(known)
    finished = {task for task, _ in done.tries}
    rows: defaultdict[str, Sum] = defaultdict(Sum)
    total, tasks = Sum(), Sum()
    for call in calls(known, running=running):
        rows[call.key(by)].add(call)
        total.add(call)
        if call.task in finished:
            tasks.add(call)
    order = sorted(rows, key=None if by == "day" else lambda name: (-rows[name].cost, -rows[name].all_tokens, name))
    return Report(by, {name: rows[name] for name in order}, total, done, tasks)


def calls(events: Iterable[Event], *, running: bool) -> Iterator[Call]:
    """Every call in ``events`` (oldest first). What was reserved and never settled comes last, as not known."""
    reserved: dict[Any, Event] = {}
    started = 0
    for event in events:
        if event.kind == Kind.MODEL_RESERVED:
            reserved[event.data.get("call", event.id)] = event
        elif event.kind == Kind.MODEL_CALL:
            before = reserved.pop(event.data.get("call"), None)
            yield _call(event, before)
        elif event.kind == Kind.TEAM_STARTED:
            started = event.id
    for event in reserved.values():
        alive = running and event.id > started
        yield _call(event, None, known=False, running=alive, booked=_pico(event.data.get("cost")))


def _call(event: Event, before: Event | None, **changes: Any) -> Call:
    data, status = event.data, int(event.data.get("status") or 0)
    known = not data.get("unknown")
    # Without an answer the provider told nothing: what the event has instead is what was reserved.
    told = event.kind == Kind.MODEL_CALL and (known or status > 0)
    cost = _pico(data.get("cost")) if told else 0
    facts: dict[str, Any] = {
        "cost": cost,
        "booked": max(cost, _pico(data.get("booked"))),
        "known": known,
        "failed": bool(data.get("error")) or status >= 400,
    }
    return Call(
        at=before.at if before is not None else event.at,
        agent=one_line(event.agent or "", 40),
        role=one_line(str(data.get("role") or ""), 40),
        session=one_line(event.session or "", 60),
        task=one_line(event.task or "", 100),
        model=one_line(str(data.get("model") or ""), 80),
        tokens={name: _count(data, name) if told else 0 for name in TOKENS},
        billed=bool(data.get("billed", True)),
        **(facts | changes),
    )


def _count(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0


def _pico(value: object) -> int:
    return from_usd(value) if isinstance(value, int | float) else 0


def work(events: Iterable[Event]) -> Work:
    """What landed, and how many tries each finished task took.

    A task is finished when a session that landed work while it held the task gave it back by a push of its own, or
    ended as done. Claimed again after that, it begins anew.
    """
    done = Work()
    holder: dict[str, str] = {}
    tried: defaultdict[str, list[str]] = defaultdict(list)
    worked: set[str] = set()
    outcomes: dict[str, str] = {}
    for event in events:
        session, task, data = event.session or "", event.task or "", event.data
        if event.kind == Kind.LANDING_DONE and data.get("kind") == "work" and event.session is not None:
            done.landed += 1
            worked.update(name for name, who in holder.items() if who == session)
            worked.update(data.get("claims") or ())
        elif event.kind == Kind.CLAIM:
            holder[task] = session
            if session not in tried[task]:
                tried[task].append(session)
        elif event.kind == Kind.SESSION_ENDING:
            outcomes[session] = str(data.get("outcome"))
        elif event.kind == Kind.RELEASE:
            holder.pop(task, None)
            if task in worked and (data.get("pushed") or outcomes.get(session) == "done"):
                done.tries.append((task, max(1, len(tried.pop(task, [])))))
            worked.discard(task)
    return done


def as_json(made: Report) -> dict[str, Any]:
    """``made`` as plain data; money in dollars."""
    cost = made.cost_per_task
    return {
        "by": made.by,
        "rows": [{made.by: name, **_sum_json(row)} for name, row in made.rows.items()],
        "total": _sum_json(made.total),
        "landed_commits": made.work.landed,
        "tokens_per_landed_commit": made.tokens_per_landed,
        "tasks_finished": made.work.finished,
        "cost_per_task_usd": None if cost is None else usd(cost),
        "tokens_per_task": made.tokens_per_task,
        "first_try_rate": made.work.first_try_rate,
        "tries_per_task": made.work.tries_per_task,
    }


def _sum_json(row: Sum) -> dict[str, Any]:
    return {
        "calls": row.calls,
        "failed": row.failed,
        **row.tokens,
        "tokens": row.all_tokens,
        "billed_usd": usd(row.billed),
        "list_price_usd": usd(row.unbilled),
        "unknown_calls": row.unknown,
        "unknown_usd": usd(row.unknown_most),
        "running_calls": row.running,
        "reserved_usd": usd(row.reserved),
    }


def short(count: float) -> str:
    """``count`` for people, three digits that count: ``950``, ``12.3k``, ``4.56M``."""
    for unit in ("", "k", "M", "G"):
        if abs(count) < 999.5 or unit == "G":
            return f"{count:.0f}" if not unit else f"{count:.3g}{unit}" if count < 99.95 else f"{count:.0f}{unit}"
        count /= 1000
    raise AssertionError


def money(pico: int) -> str:
    """``pico`` for people: ``$1,234.56``, ``$0.0042``, ``$0``."""
    dollars = usd(pico)
    if dollars == 0:
        return "$0"
    return f"${dollars:,.2f}" if abs(dollars) >= 0.0995 else f"${dollars:.2g}" if abs(dollars) >= 1e-4 else "<$0.0001"
