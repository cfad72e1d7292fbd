"""Every real client behind the gateway: what a provider can do to it, and what it must not notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from team.config import Budget
from team.gateway import gateway, pace
from team.ledger import Kind
from team.plan import Key
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import Step, commands

from .conftest import Stage

pytestmark = pytest.mark.engine
KEY = "sk-the-real-key-of-the-person-0123456789"
MODELS = {
    "claude-code": "claude-sonnet-5",
    "codex": "gpt-6.2-sol",
    "opencode": "claude-sonnet-5",
    "builtin": "claude-sonnet-5",
}
LOOK = (
    "(env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; "
    "find / -xdev -type f -size -1M -newer /bin/sh -exec cat {} + 2>/dev/null) | grep -ac 'real[-]key-of'; true"
)


@pytest.fixture
def plan(stage: Stage) -> Callable[..., Any]:
    """A plan for one session of a real client, with a real key."""

    def make(client: str, **changes: Any) -> Any:
        return replace(stage.plan(client=client), model=MODELS[client], key=Key(KEY), **changes)

    return make


class Weather:
    """A script after whose answer to turn n comes the fault n, once."""

    def __init__(self, *faults: Fault | None) -> None:
        self.faults = list(faults)
        self.model = ScriptedModel(self)
        self._script = commands(LOOK, *(f"echo {n}" for n in range(1, len(faults))))
        self._told = -1

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        if self._told < turn < len(self.faults):
            self._told = turn
            fault = self.faults[turn]
            if fault is not None and fault.first is not None:
                fault = replace(fault, first=self.model.totals.requests + fault.first)
            self.model.fault = fault
        return self._script.next(agent, session, turn, last_tool_result, prompt)


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode", "builtin"])
def test_limits_cuts_and_hangs_are_outlasted_and_counted(
    stage: Stage, plan: Callable[..., Any], client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(pace, "BACKOFF_FIRST", 0.3)
    faults = [Fault("429", first=1, headers={"retry-after": "1"}), Fault("529", first=2), Fault("cut", first=1)]
    weather = Weather(*faults, Fault("hang", first=1), Fault("429", first=1))
    outside: list[str] = []

    async def look(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.MODEL_PAUSED))
        outside.append(await asyncio.to_thread(seen_from_outside, stage))

    stage.run(plan(client), model=weather.model, beside=look)
    assert stage.outcome("agent-01.1") == "done", stage.log("agent-01.1")
    looked = [seen["result"].split()[-1] for seen in weather.model.seen if seen.get("turn") == 1]
    assert looked and set(looked) == {"0"}, "the key is in the container"
    statuses = weather.model.statuses
    assert (statuses[429], statuses[529]) == (2, 2), "no limit was asked again in vain"
    assert len(stage.ledger(Kind.MODEL_PAUSED)) == 4
    calls = [event.data for event in stage.ledger(Kind.MODEL_CALL)]
    assert sum(call["unknown"] for call in calls) == 2, "the cut and the hang are booked as reserved"
    told = vars(weather.model.totals.usage)
    assert sum(c["output"] for c in calls) == told["output_tokens"]
    assert sum(c["input"] for c in calls) == told["input_tokens"]
    reserved = {event.data["call"] for event in stage.ledger(Kind.MODEL_RESERVED)}
    assert reserved == {call["call"] for call in calls}
    state = b"".join(p.read_bytes() for p in stage.project.state.rglob("*") if p.is_file())
    assert KEY.encode() not in state
    assert "agent-01" in outside[0] and KEY not in outside[0]


def seen_from_outside(stage: Stage) -> str:
    """What the engine tells of the session's container and its image, and this machine of its processes."""
    container = stage.ledger(Kind.SESSION_CREATED)[0].data["container"]
    engine: Any = stage.engine
    found = engine.inspect_container(container)
    image = [engine.inspect_image(found["Image"]), engine.history(found["Image"])]
    arguments = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            arguments.append(process.read_bytes())
    told = [found, image, engine.top(container), engine.logs(container).decode("utf-8", "replace")]
    return json.dumps(told) + b"\n".join(arguments).decode("utf-8", "replace")


@pytest.mark.parametrize("client", ["codex", "opencode", "builtin"])
def test_killed_in_mid_stream_is_counted(stage: Stage, plan: Callable[..., Any], client: str) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("slow", delay=0.3))

    async def kill(stage: Stage) -> None:
        await stage.until(lambda s: model.totals.usage.input_tokens)
        await asyncio.to_thread(stage.engine.kill, stage.ledger(Kind.SESSION_CREATED)[0].data["container"])

    stage.run(plan(client), model=model, beside=kill)
    assert stage.outcome("agent-01.1") in ("crashed", "failed")
    calls = [event.data for event in stage.ledger(Kind.MODEL_CALL)]
    told = vars(model.totals.usage)
    assert sum(c["output"] for c in calls) == told["output_tokens"] > 1
    assert sum(c["input"] for c in calls) == told["input_tokens"] and not any(c["unknown"] for c in calls)
    assert len(stage.ledger(Kind.MODEL_RESERVED)) == len(calls)


@pytest.mark.parametrize("client", ["codex", "opencode", "builtin"])
def test_a_refused_key_stops_the_team_at_once(stage: Stage, plan: Callable[..., Any], client: str) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("401"))
    reason = stage.run(replace(plan(client), sessions=None), model=model)
    assert "refuses the key (401)" in reason and model.totals.requests <= 3
    assert stage.outcome("agent-01.1") == "killed", "no strike: it is nobody's fault here"
    assert len(stage.ledger(Kind.SESSION_CREATED)) == 1, "another session was started on a key that is refused"


@pytest.mark.parametrize("client", ["codex", "opencode", "builtin"])
def test_a_budget_that_is_spent_ends_the_session(stage: Stage, plan: Callable[..., Any], client: str) -> None:
    model = ScriptedModel(commands(*(f"echo {n}" for n in range(50))))
    spending = Budget.model_validate({"session": {"usd": 0.2}})
    stage.run(plan(client, spending=spending), model=model)
    (ended,) = stage.ledger(Kind.SESSION_ENDED)
    assert ended.data["outcome"] == "out_of_budget" and "budget of session agent-01.1" in ended.data["reason"]
    assert 2 <= model.totals.answered < 50
    assert sum(e.data["booked"] for e in stage.ledger(Kind.MODEL_CALL)) <= 0.2
    assert len(stage.ledger(Kind.MODEL_REFUSED)) <= 2, "it was asked again and again"
