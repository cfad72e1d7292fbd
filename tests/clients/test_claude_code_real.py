"""Facts that we rely on, asked of the real Claude Code in a container without network."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from team.clients import Outcome
from team.rehearsal.model import Fault

pytestmark = pytest.mark.engine


async def test_runs_a_command_and_tells_version_and_result(boxed: Callable[..., Any]) -> None:
    ran = await boxed("claude-code", ["echo once > f; cat f"])
    assert (ran.outcome, ran.reason) == (Outcome.DONE, "Done.")
    assert [bool(re.fullmatch(r"\d+\.\d+\.\d+", s.version)) for s in ran.seen if s.version] == [True]
    assert "> Bash: echo once > f; cat f" in ran.text
    assert "\n  once\n" in ran.text
    assert sum(s.result for s in ran.seen) == 1


async def test_a_command_past_its_time_out_is_ended_not_moved_to_the_background(boxed: Callable[..., Any]) -> None:
    slow = ["python3 -c 'import time; time.sleep(20)'"]
    ran = await boxed("claude-code", slow, BASH_DEFAULT_TIMEOUT_MS="1000")
    assert ran.outcome is Outcome.DONE
    assert "timed out after 1s" in ran.text
    assert sum(s.result for s in ran.seen) == 1


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault("400"), Outcome.FAILED),
        (Fault("400", message="out of budget"), Outcome.OUT_OF_BUDGET),
        (Fault("429"), Outcome.RATE_LIMITED),
        (Fault("401"), Outcome.FAILED),
    ],
    ids=["400", "budget", "429", "401"],
)
async def test_a_refusal_of_the_model_becomes_an_outcome(
    boxed: Callable[..., Any], fault: Fault, outcome: Outcome
) -> None:
    ran = await boxed("claude-code", ["true"], fault, CLAUDE_CODE_MAX_RETRIES="1")
    assert ran.outcome is outcome, ran.reason
    assert any(s.error for s in ran.seen)
