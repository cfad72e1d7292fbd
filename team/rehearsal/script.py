"""What a scripted model answers: decided per request, from the conversation alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

WHO = re.compile(
    r"You are (?P<agent>[a-z0-9][a-z0-9-]*) \(role (?P<role>[a-z0-9_-]+)\), session (?P<session>[a-z0-9-]+\.\d+)"
)
"""The line of the prompt that tells who is asking: ``You are agent-03 (role worker), session agent-03.7``."""


@dataclass(frozen=True)
class Step:
    """One answer: shell commands to run (all in one message), or, without any, the closing text."""

    text: str = ""
    commands: tuple[str, ...] = ()
    seconds: float | None = None
    """How long a command may take, told to clients whose tool knows a time-out."""


@dataclass(frozen=True)
class Ask:
    """What one request shows of its conversation."""

    agent: str
    """Empty where the prompt does not say."""
    session: str
    turn: int
    """How many tool results the conversation holds."""
    last_tool_result: str
    prompt: str

    @property
    def first_session(self) -> bool:
        return self.session.endswith(".1")


class Script(Protocol):
    """Decides each answer. Keeps no state: several agents, restarts and retries share one."""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        """The answer to a request of ``agent`` that has ``turn`` tool results so far."""


@dataclass(frozen=True)
class Fixed:
    """The same steps for everybody, one a turn; the last one for ever."""

    steps: Sequence[Step]

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        return self.steps[min(turn, len(self.steps) - 1)]


def commands(*lines: str, text: str = "Done.") -> Fixed:
    """A script that runs ``lines``, one command a turn, and then says ``text``."""
    return Fixed([*(Step(commands=(line,)) for line in lines), Step(text)])


@dataclass(frozen=True)
class ByAgent:
    """Another script for each agent (or session, which goes first); ``other`` for those not named."""

    scripts: Mapping[str, Script]
    other: Script

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        script = self.scripts.get(session) or self.scripts.get(agent) or self.other
        return script.next(agent, session, turn, last_tool_result, prompt)
