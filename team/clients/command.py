"""The client ``command``: any program that reads the prompt from its standard input."""

from __future__ import annotations

from collections.abc import Sequence

from team.clients import DOOR, Api, Outcome, Seen, exits
from team.errors import TeamError
from team.text import clean

LINE = 2000
"""Characters of one line that are shown."""


class Command:
    """Runs an argv of the user's; its environment points at the door, should it want a model."""

    name = "command"
    api: Api = "anthropic"
    needs_model = False
    image = "command"

    def __init__(self, argv: Sequence[str]) -> None:
        if not argv or not argv[0]:
            raise TeamError("the client 'command' has nothing to run: set [command] argv in team.toml")
        self._argv = tuple(argv)

    def argv(self, model: str | None, door: str = DOOR) -> Sequence[str]:
        return self._argv

    def env(self, door: str, token: str, model: str | None = None) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": door, "ANTHROPIC_API_KEY": token}

    def reader(self) -> CommandReader:
        return CommandReader()


class CommandReader:
    """Every line is text; the exit code is the verdict."""

    def feed(self, line: bytes) -> Seen:
        # Decode no more than can be shown: at most four bytes a character.
        text = clean(line[: 4 * LINE].decode("utf-8", "replace"))
        return Seen(text=text if len(text) <= LINE else text[:LINE] + "…")

    def outcome(self, code: int, out_of_memory: bool) -> tuple[Outcome, str]:
        return (Outcome.DONE, "exit 0") if code == 0 else exits.judge(code, out_of_memory)
