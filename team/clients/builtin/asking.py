"""Asks a person, through the door, whether a call may be made, and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

LOOK_SECONDS = 2.0
"""Between two looks at whether it is decided."""
PATIENCE = 150
"""Looks in a row that may fail: the supervisor may be starting again."""


class Door(Protocol):
    """What :class:`team.door_client.DoorClient` offers."""

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclass
class Asking:
    """One session's questions."""

    door: Door
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep

    def allowed(self, tool: str, given: Mapping[str, Any], note: str) -> tuple[bool, str]:
        """Whether a person allows the call, and what they say. Nobody to ask means no."""
        try:
            held = self.door.ask("/team/action/ask", {"tool": tool, "input": dict(given), "note": note})
            if held.get("state") == "waiting":
                self.say(f"{tool} waits for a person: team approve {held.get('id')}, or team deny {held.get('id')}")
            failures = 0
            while held.get("state") == "waiting":
                self.sleep(LOOK_SECONDS)
                try:
                    held = {**held, **self.door.ask("/team/action/state", {"id": held.get("id")})}
                    failures = 0
                except OSError:
                    failures += 1
                    if failures == PATIENCE:
                        raise
        except OSError as error:
            return False, f"a person must allow this call, and cannot be asked: {error}"
        return held.get("state") == "allowed", str(held.get("note") or "")
