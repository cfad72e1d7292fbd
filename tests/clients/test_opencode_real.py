"""Facts that we rely on, asked of the real opencode in a container without network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from team.clients import Outcome
from team.rehearsal.model import Fault

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("model", ["claude-newer-than-opencode", None, "openai/gpt-newer-than-opencode"])
async def test_runs_commands_with_the_prompt_from_standard_input(boxed: Callable[..., Any], model: str | None) -> None:
    lines = ["echo once > f; cat f", "cat nothing", "tr '\\0' ' ' < /proc/$PPID/cmdline"]
    ran = await boxed("opencode", lines, model=model)
    assert (ran.outcome, ran.reason) == (Outcome.DONE, "Done.")
    assert ran.prompt.startswith("--help me.") and "naïve ✓" in ran.prompt
    assert "> bash: echo once > f; cat f\n  once\n" in ran.text
    assert "  ! cat: nothing: No such file" in ran.text
    assert "opencode run" in ran.text and "help me" not in ran.text, "the prompt is in argv"
    assert sum(s.result for s in ran.seen) == 1
    path = "/v1/responses" if (model or "").startswith("openai/") else "/v1/messages"
    assert {(r["method"], r["path"]) for r in ran.model.seen} == {("POST", path)}
    assert ran.model.totals.requests == 4, "no second model is asked for a title"
    if model:
        assert {r["model"] for r in ran.model.seen} == {model.removeprefix("openai/")}


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        (Fault("400"), Outcome.FAILED, "bad request (400)"),
        (Fault("403", message="team_budget: $1.00 of $1.00 is spent"), Outcome.OUT_OF_BUDGET, "team_budget"),
        (Fault("401"), Outcome.FAILED, "(401)"),
    ],
    ids=["400", "budget", "401"],
)
async def test_a_refusal_of_the_model_becomes_an_outcome(
    boxed: Callable[..., Any], fault: Fault, outcome: Outcome, words: str
) -> None:
    ran = await boxed("opencode", ["true"], fault)
    assert ran.outcome is outcome, ran.reason
    assert words in ran.reason
    assert any(s.error for s in ran.seen)


async def test_a_limit_that_passes_is_outlasted(boxed: Callable[..., Any]) -> None:
    ran = await boxed("opencode", ["true"], Fault("429", first=2))
    assert ran.outcome is Outcome.DONE
