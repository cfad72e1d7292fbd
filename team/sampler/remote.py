"""The memory behind the door: the session's side, and the words that both sides speak.

JSON over HTTP, one POST for each question. What an agent sends is checked here, on the host, before it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from team.door_client import DoorClient
from team.errors import TeamError
from team.sampler import sample
from team.sampler.cases import Outcome, Result
from team.sampler.memory import Compared, Look, Memory, Run, Seen
from team.text import clean

PATH = "/team/test/"
MOST_BYTES = 64 << 20
"""Of one question: 500,000 cases of 100 characters."""
_MOST_RESULTS = 500_000
_TEXTS = {"suite": 40, "commit": 64, "content": 64, "base": 64, "base_content": 64, "rate": 20}
"""Fields of a run that are text, with their longest."""


class Remote:
    """A memory on the other side of the session's door."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """``env``: the session's environment, which says where the door is."""
        self._door = DoorClient(env)

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True, landed: bool = True) -> Look:
        found = self._door.ask(PATH + "look", {"suite": suite, "names": list(names), "place": place, "landed": landed})
        return Look(found["positions"], found["seconds"], [names[i] for i in found["failing"]])

    def record(self, run: Run) -> Compared:
        return Compared(**self._door.ask(PATH + "record", as_json(run)))

    def history(self, suite: str, name: str) -> Sequence[Seen]:
        return [Seen(**row) for row in self._door.ask(PATH + "history", {"suite": suite, "name": name})["seen"]]

    def flaky(self, suite: str) -> Sequence[str]:
        names: Sequence[str] = self._door.ask(PATH + "flaky", {"suite": suite})["names"]
        return names


class Written:
    """A memory that only writes down: for a check of the gate, which has no door. The host reads it afterwards."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self, suite: str, names: Sequence[str], agent: str, *, place: bool = True, landed: bool = True) -> Look:
        return Look([sample.stray(name) for name in names], [None] * len(names), [])

    def record(self, run: Run) -> Compared:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(as_json(run)) + "\n")
        return Compared(unknown=sum(result.outcome.bad for result in run.results))

    def history(self, suite: str, name: str) -> Sequence[Seen]:
        return []

    def flaky(self, suite: str) -> Sequence[str]:
        return []


def as_json(run: Run) -> dict[str, Any]:
    """``run`` as JSON-ready data."""
    rows = [[r.name, r.outcome.value, round(r.seconds, 4), r.reason[:200]] for r in run.results]
    return {**vars(run), "results": rows}


# -- the host's side ------------------------------------------------------------------------------------------


def answer(memory: Memory, what: str, body: bytes, agent: str, session: str, task: str) -> tuple[dict[str, Any], Any]:
    """The answer to a session's question, and what there is to note of it: the run, or None.

    Who asks is known from the door, whatever the question says. Raises :class:`TeamError` for a question that is none.
    """
    try:
        asked = json.loads(body)
        if not isinstance(asked, dict):
            raise ValueError
        if what == "look":
            names = _names(asked["names"])
            look = memory.look(
                _text(asked, "suite"), names, agent, place=asked["place"] is True, landed=asked["landed"] is True
            )
            places = {name: i for i, name in enumerate(names)}
            failing = [places[name] for name in look.failing]
            return {"positions": list(look.positions), "seconds": list(look.seconds), "failing": failing}, None
        if what == "record":
            run = replace(run_from(asked), agent=agent, session=session, task=task)
            compared = memory.record(run)
            return asdict(compared), (run, compared)
        if what == "history":
            seen = memory.history(_text(asked, "suite"), _names([asked["name"]])[0])
            return {"seen": [asdict(one) for one in seen]}, None
        if what == "flaky":
            return {"names": list(memory.flaky(_text(asked, "suite")))}, None
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        pass
    raise TeamError("this is no question of `team test`; run it from the container's own /opt/team")


def run_from(asked: Mapping[str, Any]) -> Run:
    """The run that :func:`as_json` wrote, without who ran it. Raises :class:`ValueError`, :class:`LookupError`
    or :class:`TypeError` for anything else."""
    rows = asked["results"]
    if not isinstance(rows, list) or len(rows) > _MOST_RESULTS:
        raise ValueError
    results = [
        Result(name, Outcome(outcome), _seconds(seconds), clean(str(reason))[:200])
        for name, (_, outcome, seconds, reason) in zip(_names([row[0] for row in rows]), rows, strict=True)
    ]
    texts = {key: _text(asked, key) for key in _TEXTS}
    total = int(asked["total"])
    if not 0 <= total < 1 << 53:
        raise ValueError
    return Run(agent="", total=total, seconds=_seconds(asked["seconds"]), results=results, **texts)


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < 1e7:
        raise ValueError
    return seconds


def _text(asked: Mapping[str, Any], key: str) -> str:
    value = asked[key]
    if not isinstance(value, str) or len(value) > _TEXTS[key] or clean(value) != value:
        raise ValueError
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > _MOST_RESULTS or not all(isinstance(name, str) for name in value):
        raise ValueError
    return value
