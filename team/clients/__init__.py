"""The programs that do the thinking. One module a client; all offer the functions of :class:`Client`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from team.errors import TeamError
from team.runtimes import DOOR_PORT

DOOR = f"http://127.0.0.1:{DOOR_PORT}"
"""Where the door is in a container."""


Api = Literal["anthropic", "openai"]
"""Which provider's API a client speaks."""


class Outcome(StrEnum):
    """How a session ended. Closed list; ``strike`` tells whether it counts against the tasks it held."""

    DONE = "done"
    KILLED = "killed"
    RATE_LIMITED = "rate_limited"
    OUT_OF_BUDGET = "out_of_budget"
    FAILED = "failed"
    STALLED = "stalled"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"

    @property
    def strike(self) -> bool:
        return self in (Outcome.FAILED, Outcome.STALLED, Outcome.TIMED_OUT, Outcome.CRASHED)


@dataclass(frozen=True)
class Seen:
    """What one line of a client's output shows. Printed by the agent's side: never trusted with money or main."""

    text: str = ""
    """For people; may hold several lines; empty when there is nothing worth a log line."""
    result: bool = False
    """The client says that it is finished: the after-result grace begins."""
    goes_on: bool = False
    """The client works on: a result before this was not its last."""
    version: str = ""
    """The client's own version, when the line tells it."""
    error: str = ""
    """Why the client failed, when the line tells it."""


class Reader(Protocol):
    """Reads the output of one session, line by line, and judges its end."""

    def feed(self, line: bytes) -> Seen:
        """Take one line of output, without its newline; never raises, whatever it holds."""

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        """How the session ended given its exit code, and the reason on one line. Only for a session that
        ended by itself: whoever kills a session knows better why."""


class Client(Protocol):
    """How to run one client. The prompt is always on its standard input."""

    name: str
    needs_model: bool
    """Whether it talks to a model through the door, so that ``up`` needs a key."""
    image: str
    """Which file of ``images/`` holds it, without the ending."""

    def asks(self, model: str | None) -> tuple[Api, str | None]:
        """Which API it speaks when it is to use ``model``, and what its requests call that; None where only the
        client knows."""

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        """What runs in the container, without the prompt and the token. The first word is the program."""

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        """Environment that points the client at the door with the session's token; with ``argv``, at ``model``."""

    def reader(self) -> Reader:
        """A fresh reader for one session."""


CLIENTS: Sequence[str] = ("claude-code", "codex", "opencode", "builtin", "command")


def client(name: str, argv: Sequence[str] = ()) -> Client:
    """The client called ``name``; ``argv`` is what ``command`` runs."""
    if name == "claude-code":
        from team.clients.claude_code import ClaudeCode

        return ClaudeCode()
    if name == "codex":
        from team.clients.codex import Codex

        return Codex()
    if name == "opencode":
        from team.clients.opencode import OpenCode

        return OpenCode()
    if name == "builtin":
        from team.clients.builtin import Builtin

        return Builtin()
    if name == "command":
        from team.clients.command import Command

        return Command(argv)
    if name == "stand-in":  # for rehearsals alone, so not in CLIENTS
        from team.rehearsal.client import StandIn

        return StandIn()
    raise TeamError(f"unknown client {name!r}; known: {', '.join(CLIENTS)}")
