"""The gate under a whole `team up`: the real Claude Code in real containers, its pushes checked in others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from team.ledger import Kind
from team.rehearsal.model import ScriptedModel
from team.rehearsal.protocol import Edit, claim, edit, land, mark
from team.rehearsal.script import Step

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, locks, reason

pytestmark = pytest.mark.engine

# No check ends before agent-02 has claimed: a gate that held up claims would never say a word.
CHECK = """\
main() { git --git-dir=/upstream cat-file -e "main:$1" 2>/dev/null; }
until main current_tasks/fix_two.txt || ! main tasks/fix_two.md; do sleep 0.1; done
! grep -rn BAD src"""
TOML = f"""\
[gate]
check = '''{CHECK}'''
wait = 120
"""
WAIT_QUEUED = "until team tasks | grep -q 'push 1 queued'; do sleep 0.2; done"
TOLD = re.compile(r"src/app\.py:3:\s+# BAD.*log ", re.S)
LINE = "    return 1\n"


@dataclass(frozen=True)
class Worker:
    """agent-01 pushes what is red and mends it when it is told; agent-02 claims meanwhile, and lands what is green."""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        first = agent == "agent-01"
        task = "fix_one" if first else "fix_two"
        if turn == 0:
            wait = "" if first else f"{WAIT_QUEUED}\n"
            return Step(commands=(wait + claim(task, "mine"),), seconds=200)
        found = mark(last_tool_result)
        word = found.word if found else ""
        if word == "CLAIMED":
            new = Edit("src/app.py", LINE, f"{LINE}    # BAD\n") if first else Edit("src/two.py", "", "two = 2\n")
            return Step(commands=(f"{edit((new,))}\n{land(task, f'Do {task}')}",), seconds=200)
        if word == "NOT_LANDED" and TOLD.search(last_tool_result):
            mend = edit((Edit("src/app.py", "# BAD", "# good"),))
            again = "git push 2>&1 && echo '== LANDED fix_one' || echo '== STUCK fix_one'"
            return Step(commands=(f"{mend}\ngit commit -qam 'Mend fix_one'\n{again}",), seconds=200)
        return Step(f"Done: {word}")


@dataclass
class Ran:
    """A run that is over."""

    stage: Stage
    shown: set[str]
    """What `team ps` said of pushes that waited."""


async def watch(stage: Stage) -> set[str]:
    """Look at `team ps` until the team has ended."""
    shown: set[str] = set()
    for _ in range(400):
        seen = (await asyncio.to_thread(stage.cli, "ps")).stdout
        shown.update(line for line in seen.splitlines() if "waiting for the gate" in line)
        if "nothing runs" in seen:
            return shown
        await asyncio.sleep(0.3)
    raise AssertionError(f"it still runs: {[e.kind for e in stage.ledger()]}")


@pytest.fixture(scope="module")
def ran(stages: Stages, homes: Path) -> Iterator[Ran]:
    """`team up` in the background, as a person would, until it has ended by itself."""
    stage = stages({"team.toml": TOML})
    stage.images("claude-code")

    async def run() -> set[str]:
        async with ScriptedModel(Worker(), gather=2, gather_seconds=60).running() as url:
            config = homes / "config" / "team" / "config.toml"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(f'[gateway]\nbase_url = "{url}"\n')
            up = ("up", "--yes", "-d", "--agents", "2", "--sessions", "1", "--client", "claude-code")
            await asyncio.to_thread(stage.cli, *up, ANTHROPIC_API_KEY="no-key-is-needed-here")
            try:
                return await watch(stage)
            finally:
                await asyncio.to_thread(stage.cli, "down", ok=None)

    yield Ran(stage, asyncio.run(run()))
    assert_gone(stage)
    assert_sound(stage)


def test_a_red_push_is_told_and_its_mend_lands(ran: Ran) -> None:
    stage = ran.stage
    red, *others = stage.ledger(Kind.PUSH_VERDICT, agent="agent-01")
    assert not red.data["landed"] and "on the merge with main, twice" in red.data["reason"]
    assert any("src/app.py:3:" in line for line in red.data["lines"]), red.data
    assert "BAD" in Path(red.data["log"]).read_text()
    assert [e.data["landed"] for e in others] == [True], stage.log("agent-01.1")
    assert stage.git("show", "main:src/app.py") == "def one():\n    return 1\n    # good\n"
    assert "BAD" not in stage.git("log", "--first-parent", "-p", "--format=", "main", "--", "src")
    assert reason(stage, "agent-01.1")[0] == "done"


def test_claims_land_while_the_gate_is_at_work(ran: Ran) -> None:
    stage = ran.stage
    [queued, *_] = stage.ledger(Kind.PUSH_QUEUED, agent="agent-01")
    [claimed] = stage.ledger(Kind.CLAIM, task="fix_two")
    [first, *_] = stage.ledger(Kind.GATE_RUN)
    assert queued.id < claimed.id < first.id, "the claim had to wait for the check"


def test_the_other_agent_lands_and_nothing_stays_taken(ran: Ran) -> None:
    stage = ran.stage
    assert [e.data["landed"] for e in stage.ledger(Kind.PUSH_VERDICT, agent="agent-02")] == [True]
    assert "src/two.py" in stage.files() and locks(stage) == []
    assert not [path for path in stage.files() if path.startswith("tasks/")]
    assert reason(stage, "agent-02.1")[0] == "done"


def test_a_person_sees_what_waits(ran: Ran) -> None:
    assert ran.shown, "`team ps` never spoke of the gate"
