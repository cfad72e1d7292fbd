"""``[builtin]`` of team.toml as the container reads it: standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

MODEL = "claude-sonnet-5-5"
"""Asked where no model is set."""
WINDOW = 200_000
"""Tokens of context, where a model has no less; more makes every turn dearer and no session better."""
VARIABLE = "TEAM_BUILTIN"
MODEL_VARIABLE = "TEAM_BUILTIN_MODEL"
WINDOW_VARIABLE = "TEAM_BUILTIN_WINDOW"


@dataclass(frozen=True)
class Options:
    """The settings; :class:`team.config.Builtin` checks them."""

    max_tokens: int = 32_000
    """Of one answer."""
    window: int = 0
    """Tokens of context that a session may fill; 0: what the model has, at most 200,000."""
    full: float = 0.75
    """At this share of the window the session hands over."""
    when_full: str = "end"
    """``end``: the session ends and a fresh one goes on from the files; ``compact``: it goes on from its own note."""
    notes: str = "NOTES.md"
    """File in the work tree that a hand-over's note is written to."""
    thinking: str = ""
    """``adaptive`` asks for it; empty: as the model has it."""
    effort: str = ""
    """How much effort the model puts into an answer, where it knows that."""
    turns: int | None = 500
    """Model calls of one session."""
    tokens: int | None = None
    """Tokens of one session, read from cache or not, in and out."""
    seconds: float | None = None
    """From the client's start."""


def load(env: Mapping[str, str]) -> Options:
    """The options of this session, as the host sends them."""
    told = json.loads(env.get(VARIABLE) or "{}")
    window = told.get("window") or int(env.get(WINDOW_VARIABLE) or WINDOW)
    # Answer and conversation share the window.
    room = min(told.get("max_tokens", Options.max_tokens), max(1024, window // 4))
    return Options(**{**told, "window": window, "max_tokens": room})
