"""Real clients in containers without network, in front of a scripted model."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from team import images
from team.clients import DOOR, Client, Outcome, Seen
from team.clients import client as client_called
from team.config import Image
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.script import commands

PROMPT = "--help me.\n\n$(touch /tmp/never) 'Do' the \"next\" thing: naïve ✓.\n"
_START = (
    "socat TCP-LISTEN:8787,bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:/run/model/model.sock & "
    "cd /workspace && exec {argv} < /run/model/prompt.md"
)


@dataclass
class Ran:
    """One run of a client."""

    outcome: Outcome
    reason: str
    seen: list[Seen]
    model: ScriptedModel
    prompt: str
    """What the model saw as the prompt."""

    @property
    def text(self) -> str:
        return "\n".join(s.text for s in self.seen if s.text)


Boxed = Callable[..., Awaitable[Ran]]


class _Listening:
    """A script that keeps the prompt which it was asked with."""

    def __init__(self, lines: list[str]) -> None:
        self._script, self.prompt = commands(*lines), ""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Any:
        self.prompt = prompt
        return self._script.next(agent, session, turn, last_tool_result, prompt)


@pytest.fixture
def boxed(tmp_path: Path) -> Boxed:
    """``await boxed("codex", ["echo hi"], fault, model="m", VARIABLE="value")``: one session and what came of it."""

    async def run(
        name: str, lines: list[str], fault: Fault | None = None, model: str | None = "scripted", **extra: str
    ) -> Ran:
        client, script = client_called(name), _Listening(lines)
        image = await asyncio.to_thread(images.ensure, client.image, Image(), Path("/nonexistent"), say=print)
        scripted = ScriptedModel(script, fault=fault)
        async with scripted.running(unix=tmp_path / "model.sock"):
            code, printed = await asyncio.to_thread(_run, image, client, tmp_path, model, extra)
        reader = client.reader()
        seen = [reader.feed(line) for line in printed]
        return Ran(*reader.outcome(code, out_of_memory=False), seen, scripted, script.prompt)

    return run


def _run(
    image: str, client: Client, directory: Path, model: str | None, extra: dict[str, str]
) -> tuple[int, list[bytes]]:
    """Exit code and output."""
    directory.chmod(0o755)
    (directory / "model.sock").chmod(0o666)
    (directory / "prompt.md").write_text(PROMPT)
    engine = docker.from_env()
    box = engine.containers.create(
        image,
        entrypoint=["/bin/sh", "-c", _START.format(argv=shlex.join(client.argv(model)))],
        environment={"HOME": "/home/agent", **client.env(DOOR, "token-of-a-session", model), **extra},
        network_mode="none",
        init=True,
        user="1000:1000",
        tmpfs={"/workspace": "uid=1000,gid=1000", "/tmp": "exec,mode=1777"},
        volumes={str(directory): {"bind": "/run/model", "mode": "ro"}},
        cap_drop=["ALL"],
    )
    try:
        box.start()
        code = box.wait(timeout=150)["StatusCode"]
        return code, box.logs(stdout=True, stderr=True).split(b"\n")
    finally:
        box.remove(force=True)
        engine.close()
