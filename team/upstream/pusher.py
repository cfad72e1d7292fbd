"""Who pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Pusher:
    """The session, or the person, on whose behalf objects come in."""

    name: str
    """``agent-03``, or the person's name."""
    email: str
    session: str | None
    """None: the person at the keyboard."""
    role: str = ""
    ending: bool = False
    """An ending session's only right is one push to its rescue ref."""
    alive: Callable[[], bool] = _always
    """Asked again right before main moves; False refuses the push."""

    @property
    def is_person(self) -> bool:
        """Whether this is the person at the keyboard, who skips claims and may touch protected paths."""
        return self.session is None

    @property
    def pull(self) -> str:
        """How main comes into the pusher's clone: the person's remote is ``team``, and `git pull` asks another."""
        return "`git fetch team && git merge team/main`" if self.is_person else "`git pull`"
