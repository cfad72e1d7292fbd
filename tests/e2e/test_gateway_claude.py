"""The real Claude Code behind the gateway: budgets, limits of the provider, refused keys, kills; no key in sight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from team.config import Budget
from team.ledger import Event, Kind
from team.plan import Key
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import commands
from tests.e2e.conftest import Stage

pytestmark = pytest.mark.engine
KEY = "sk-ant-the-real-key-of-the-person-0123456789"


@pytest.fixture
def plan(stage: Stage) -> Callable[..., Any]:
    """A plan for one session of the real Claude Code, with a real key."""
    return lambda **changes: replace(stage.plan(client="claude-code"), model="claude-sonnet-5", key=Key(KEY), **changes)


def calls(stage: Stage) -> list[Event]:
    return stage.ledger(Kind.MODEL_CALL)


def ended(stage: Stage) -> list[tuple[str, str]]:
    return [(e.data["outcome"], e.data["reason"]) for e in stage.ledger(Kind.SESSION_ENDED)]


def test_success_to_the_token_and_no_key_anywhere(stage: Stage, plan: Callable[..., Any]) -> None:
    look = (
        "(env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; "
        "find / -xdev -type f -size -1M -newer /bin/sh -exec cat {} + 2>/dev/null) | grep -ac 'real[-]key-of'; true"
    )
    model = ScriptedModel(commands(look))
    stage.run(plan(), model=model)
    assert ended(stage)[0][0] == "done"
    told = vars(model.totals.usage)
    assert sum(e.data["output"] for e in calls(stage)) == told["output_tokens"]
    assert sum(e.data["input"] for e in calls(stage)) == told["input_tokens"]
    assert sum(e.data["cache_read"] for e in calls(stage)) == told["cache_read_input_tokens"]
    assert not any(e.data["unknown"] for e in calls(stage))
    assert model.seen[-1]["result"].strip() == "0"
    state = b"".join(p.read_bytes() for p in stage.project.state.rglob("*") if p.is_file())
    assert KEY.encode() not in state


def test_a_budget_that_is_spent_ends_the_session_without_retries(stage: Stage, plan: Callable[..., Any]) -> None:
    model = ScriptedModel(commands(*(f"echo {n}" for n in range(50))))
    spending = Budget.model_validate({"session": {"usd": 0.2}})
    stage.run(plan(spending=spending), model=model)
    outcome, reason = ended(stage)[0]
    assert outcome == "out_of_budget" and "budget of session agent-01.1" in reason
    assert 2 <= model.totals.answered < 50
    assert sum(e.data["booked"] for e in calls(stage)) <= 0.2
    assert len(stage.ledger(Kind.MODEL_REFUSED)) <= 2


def test_a_seat_without_budget_waits_and_a_raise_goes_on(stage: Stage, plan: Callable[..., Any]) -> None:
    model = ScriptedModel(commands("echo hi"))

    async def raise_it(stage: Stage) -> None:
        waiting = await stage.until(lambda s: s.ledger(Kind.SEAT_WAITING))
        assert "out of budget" in waiting[0].data["reason"]
        stage_ledger_append(stage, usd=5.0)

    stage.run(replace(plan(spending=Budget(usd=0.0001)), sessions=2), model=model, beside=raise_it)
    assert [outcome for outcome, _ in ended(stage)] == ["out_of_budget", "done"]


def stage_ledger_append(stage: Stage, usd: float) -> None:
    from contextlib import closing

    from team.ledger import Ledger

    with closing(Ledger(stage.project.ledger)) as ledger:
        ledger.append(Kind.BUDGET_SET, usd=usd)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("429", first=2, headers={"retry-after": "2"}),
        Fault("429", first=2),
        Fault("529", seconds=30),
    ],
    ids=["429-retry-after", "429", "529-for-30-seconds"],
)
def test_limits_of_the_provider_are_waited_out_unseen(stage: Stage, plan: Callable[..., Any], fault: Fault) -> None:
    model = ScriptedModel(commands("echo hi"), fault=fault)
    stage.run(plan(), model=model)
    assert ended(stage) == [("done", "Done.")]
    assert "retry" not in stage.log("agent-01.1") and stage.ledger(Kind.MODEL_PAUSED)
    assert sum(model.statuses[status] for status in (429, 529)) <= 6, "it was asked again and again"


def test_a_refused_key_stops_the_team_at_once(stage: Stage, plan: Callable[..., Any]) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("401"))
    reason = stage.run(replace(plan(), sessions=None), model=model)
    assert "refuses the key (401)" in reason and model.totals.requests <= 3
    assert len(stage.ledger(Kind.SESSION_CREATED)) == 1, "another session was started on a key that is refused"


def test_a_stream_that_is_cut_and_a_client_that_loops(stage: Stage, plan: Callable[..., Any]) -> None:
    model = ScriptedModel(commands("make all"), fault=Fault("loop"))
    stage.run(plan(), model=model)
    outcome, reason = ended(stage)[0]
    assert outcome == "failed" and "5 times running" in reason and model.totals.answered <= 6
    assert "round in circles" in stage.log("agent-01.1")


def test_killed_in_mid_stream_is_counted(stage: Stage, plan: Callable[..., Any]) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("slow", delay=0.7))

    async def kill(stage: Stage) -> None:
        await stage.until(lambda s: model.totals.usage.output_tokens)
        container = stage.ledger(Kind.SESSION_CREATED)[0].data["container"]
        await asyncio.to_thread(stage.engine.kill, container)

    stage.run(plan(), model=model, beside=kill)
    assert ended(stage)[0][0] in ("crashed", "failed")
    told = vars(model.totals.usage)
    assert sum(e.data["output"] for e in calls(stage)) == told["output_tokens"] > 1
    assert len(stage.ledger(Kind.MODEL_RESERVED)) == len(calls(stage))
