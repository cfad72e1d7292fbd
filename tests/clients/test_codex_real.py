"""Facts that we rely on, asked of the real Codex in a container without network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from team.clients import Outcome
from team.rehearsal.model import Fault

pytestmark = pytest.mark.engine
OWN = "gpt-6.2-sol"
"""A model that Codex knows gets its tools in another way than one that it does not."""


@pytest.mark.parametrize("model", ["scripted", OWN, None])
async def test_runs_commands_with_the_prompt_from_standard_input(boxed: Callable[..., Any], model: str | None) -> None:
    ran = await boxed(
        "codex", ["echo once > f; cat f", "cat nothing", "tr '\\0' ' ' < /proc/$PPID/cmdline"], model=model
    )
    assert (ran.outcome, ran.reason) == (Outcome.DONE, "Done.")
    assert ran.prompt.startswith("--help me.") and "naïve ✓" in ran.prompt
    assert "> echo once > f; cat f\n  once\n" in ran.text
    assert "  ! cat: nothing: No such file" in ran.text
    assert "codex exec" in ran.text and "help me" not in ran.text, "the prompt is in argv"
    assert sum(s.result for s in ran.seen) == 1
    assert {(r["method"], r["path"]) for r in ran.model.seen} == {("POST", "/v1/responses")}


async def test_a_command_that_takes_long_is_waited_for(boxed: Callable[..., Any]) -> None:
    ran = await boxed("codex", ["echo begun; python3 -c 'import time; time.sleep(33)'; echo ended"])
    assert ran.outcome is Outcome.DONE
    assert "ended" in ran.model.seen[-1]["result"] and ran.model.seen[-1]["turn"] == 1
    assert ran.model.totals.answered == 3, "begin, look again, end"


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        (Fault("400"), Outcome.FAILED, "bad request"),
        (Fault("403", message="team_budget: $1.00 of $1.00 is spent"), Outcome.OUT_OF_BUDGET, "team_budget"),
        (Fault("429"), Outcome.RATE_LIMITED, "429"),
        (Fault("503"), Outcome.RATE_LIMITED, "at capacity"),
        (Fault("401"), Outcome.FAILED, "401"),
        (Fault("cut"), Outcome.FAILED, "disconnected"),
    ],
    ids=["400", "budget", "429", "503", "401", "cut"],
)
async def test_a_refusal_of_the_model_becomes_an_outcome(
    boxed: Callable[..., Any], fault: Fault, outcome: Outcome, words: str
) -> None:
    ran = await boxed("codex", ["true"], fault)
    assert ran.outcome is outcome, ran.reason
    assert words in ran.reason
    assert any(s.error for s in ran.seen)


async def test_a_fault_that_passes_is_outlasted(boxed: Callable[..., Any]) -> None:
    ran = await boxed("codex", ["true"], Fault("529", first=3))
    assert ran.outcome is Outcome.DONE
