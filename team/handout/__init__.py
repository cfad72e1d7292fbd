"""What a role is handed when its session starts: found by code on the host, so that no model spends tokens on a search.

Everything is read from upstream's objects by git, without a checkout, within bounds of time and size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from team import git
from team.config import Settings
from team.handout.search import FINDERS, SECONDS, Request
from team.ledger import Kind, Ledger
from team.schedule import last_done

_GRACE = 20.0
"""Seconds beyond its own bound after which the search is ended from outside."""
_KEPT = 16


@dataclass(frozen=True)
class Context:
    """What a hand-out is made from."""

    upstream: Path
    """The bare repository."""
    base: str
    """The commit of main that the session starts from."""
    ledger: Ledger
    settings: Settings
    agent: str


@dataclass(frozen=True)
class Handout:
    """What a session of a role gets beside its prompt."""

    text: str
    """Markdown with a heading of its own, cleaned; it quotes what agents wrote."""
    items: int
    """How many things are handed out: places, files, landings."""


def hand_out(role: str, context: Context) -> Handout | None:
    """What a session of ``role`` is handed; None where there is nothing to hand out, or the role gets nothing.

    May take half a minute the first time for a commit: call it in a thread of its own. It never raises for what is in
    the repository: a bound that is passed makes the hand-out smaller, or none.
    """
    if role not in FINDERS:
        return None
    done = last_done(context.ledger, role)
    request = Request(
        role,
        str(context.upstream),
        context.base,
        since=str(done.data.get("base") or "") if done is not None else "",
        benchmark=context.settings.role_of(role).benchmark,
        measured=_measured(context.ledger) if role == "performance" else (),
    )
    return _kept.get(request, lambda: _search(request, context))


def _measured(ledger: Ledger) -> tuple[str, ...]:
    """What the newest measured landings did to the benchmark, newest first."""
    events = ledger.events(Kind.ROLE_MEASURED, newest_first=True, limit=10)
    return tuple(
        f"{e.data['commit'][:10]} {e.data['subject']}: {e.data['before']} ms -> {e.data['after']} ms" for e in events
    )


def _search(request: Request, context: Context) -> Handout | None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "team.handout.search"],
        cwd="/",
        env=git.clean_env(),  # it needs no key of ours
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(request.json(), timeout=SECONDS + _GRACE)
            found = json.loads(out)
        except (subprocess.TimeoutExpired, ValueError):
            process.kill()
            reason = f"what to hand to {request.role} could not be found out (exit {process.wait()})"
            context.ledger.append(Kind.ERROR, agent=context.agent, reason=reason)
            return None
    return Handout(found["text"], found["items"]) if found else None


class _Kept:
    """The newest hand-outs: the supervisor asks whether there is one, and the prompt for the same right after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[Request, Handout | None] = OrderedDict()

    def get(self, request: Request, find: Callable[[], Handout | None]) -> Handout | None:
        with self._lock:
            if request in self._found:
                return self._found[request]
        found = find()
        with self._lock:
            self._found[request] = found
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        return found


_kept = _Kept()
