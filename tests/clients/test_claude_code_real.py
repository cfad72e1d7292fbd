"""Facts that we rely on, asked of the real Claude Code in a container without network."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import docker
import pytest

from team import images
from team.clients import Outcome, Seen
from team.clients.claude_code import ClaudeCode, ClaudeCodeReader
from team.config import Image
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import commands

pytestmark = pytest.mark.engine

_START = (
    "socat TCP-LISTEN:8787,bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:/run/model/model.sock & "
    "cd /workspace && exec {argv} < /run/model/prompt.md"
)


@pytest.fixture(scope="module")
def image() -> str:
    return images.ensure("claude-code", Image(), Path(__file__).parents[2], say=print)


def run(image: str, directory: Path, extra: dict[str, str]) -> tuple[int, list[bytes]]:
    """One session of Claude Code as :class:`ClaudeCode` says; its exit code and output."""
    directory.chmod(0o755)
    (directory / "model.sock").chmod(0o666)
    (directory / "prompt.md").write_text("Do the next thing.")
    claude = ClaudeCode()
    engine = docker.from_env()
    box = engine.containers.create(
        image,
        entrypoint=["/bin/sh", "-c", _START.format(argv=shlex.join(claude.argv("scripted")))],
        environment={"HOME": "/tmp/home", **claude.env("http://127.0.0.1:8787", "token-of-a-session"), **extra},
        network_mode="none",
        init=True,
        user="1000:1000",
        tmpfs={"/workspace": "uid=1000,gid=1000", "/tmp": "exec,mode=1777"},
        volumes={str(directory): {"bind": "/run/model", "mode": "ro"}},
        cap_drop=["ALL"],
    )
    try:
        box.start()
        code = box.wait(timeout=120)["StatusCode"]
        return code, box.logs(stdout=True, stderr=True).split(b"\n")
    finally:
        box.remove(force=True)
        engine.close()


async def session(
    image: str, directory: Path, script: list[str], fault: Fault | None = None, **extra: str
) -> tuple[Outcome, str, list[Seen]]:
    model = ScriptedModel(commands(*script), fault=fault)
    async with model.running(unix=directory / "model.sock"):
        code, lines = await asyncio.to_thread(run, image, directory, extra)
    reader = ClaudeCodeReader()
    seen = [reader.feed(line) for line in lines]
    return *reader.outcome(code, out_of_memory=False), seen


async def test_runs_a_command_and_tells_version_and_result(image: str, tmp_path: Path) -> None:
    outcome, reason, seen = await session(image, tmp_path, ["echo once > f; cat f"])
    assert (outcome, reason) == (Outcome.DONE, "Done.")
    assert [bool(re.fullmatch(r"\d+\.\d+\.\d+", s.version)) for s in seen if s.version] == [True]
    text = "\n".join(s.text for s in seen)
    assert "> Bash: echo once > f; cat f" in text
    assert "\n  once\n" in text
    assert sum(s.result for s in seen) == 1


async def test_a_command_past_its_time_out_is_ended_not_moved_to_the_background(image: str, tmp_path: Path) -> None:
    slow = ["python3 -c 'import time; time.sleep(20)'"]
    outcome, _, seen = await session(image, tmp_path, slow, BASH_DEFAULT_TIMEOUT_MS="1000")
    assert outcome is Outcome.DONE
    assert "timed out after 1s" in "\n".join(s.text for s in seen)
    assert sum(s.result for s in seen) == 1


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
    image: str, tmp_path: Path, fault: Fault, outcome: Outcome
) -> None:
    found, reason, seen = await session(image, tmp_path, ["true"], fault, CLAUDE_CODE_MAX_RETRIES="1")
    assert found is outcome, reason
    assert any(s.error for s in seen)
