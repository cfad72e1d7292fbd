"""A supervisor killed with SIGKILL while an answer streams through its gateway, and started again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from team import places
from team.gateway.books import LOST
from team.ledger import Kind
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import commands

from .conftest import Stage

pytestmark = pytest.mark.engine
UP = ("up", "--agents", "1", "--sessions", "1", "--budget", "5")
MODELS = {"claude-code": "claude-sonnet-5", "codex": "gpt-6.2-sol", "opencode": "claude-sonnet-5"}


async def up(root: Path, client: str) -> asyncio.subprocess.Process:
    """A real ``team up``."""
    argv = (sys.executable, "-m", "team.cli", *UP, "--client", client, "--model", MODELS[client])
    out = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(*argv, cwd=root, stdin=out, stdout=out, stderr=out)


@pytest.mark.parametrize("client", MODELS)
async def test_what_was_under_way_is_booked_as_reserved_and_said(stage: Stage, client: str) -> None:
    model = ScriptedModel(commands("echo hi"), fault=Fault("slow", delay=0.7))
    config = places.config_home() / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    async with model.running() as url:
        openai = f'[gateway.providers.local]\napi = "openai"\nbase_url = "{url}"\nmodels = ["gpt*"]\n'
        config.write_text(f'[gateway]\nbase_url = "{url}"\n{openai}')
        try:
            first = await up(stage.root, client)
            await stage.until(lambda s: model.totals.requests)
            await asyncio.sleep(1.5)  # into the stream; it takes three times as long
            first.kill()
            await first.wait()
            told = model.totals.usage.output_tokens
            model.fault = None
            second = await up(stage.root, client)
            assert await asyncio.wait_for(second.wait(), 120) == 0, stage.log("agent-01.1")
        finally:
            config.unlink()
    assert stage.outcome("agent-01.1") == "done", stage.log("agent-01.1")
    assert stage.ledger(Kind.SESSION_ADOPTED), "the session did not go on"
    lost, *others = (event.data for event in stage.ledger(Kind.MODEL_CALL))
    reserved = stage.ledger(Kind.MODEL_RESERVED)[0].data
    assert lost["call"] == reserved["call"] and lost["unknown"] and lost["error"] == LOST
    assert lost["booked"] == reserved["cost"] > 0
    assert not any(call["unknown"] for call in others)
    assert sum(call["output"] for call in others) == model.totals.usage.output_tokens - told
    said = stage.cli("cost").stdout
    assert "1 call broke off before the provider told all tokens" in said and "booked as reserved" in said
