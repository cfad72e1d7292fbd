"""The client ``stand-in``: for rehearsals alone, where the real one is not wanted or cannot run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from team.clients import DOOR, Api
from team.clients.claude_code import ClaudeCodeReader


class StandIn:
    """Runs :mod:`team.rehearsal.standin`, given as text so that any image with python3 can."""

    name = "stand-in"
    api: Api = "anthropic"
    needs_model = True
    image = "command"

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        return ("python3", "-c", Path(__file__).with_name("standin.py").read_text("utf-8"))

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": door, "ANTHROPIC_API_KEY": token}

    def reader(self) -> ClaudeCodeReader:
        return ClaudeCodeReader()
