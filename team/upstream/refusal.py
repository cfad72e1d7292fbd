"""Why a push does not land."""

from __future__ import annotations

from team.text import one_line


class Refused(Exception):
    """A push broke a rule: ``reason`` is one line that names the mend, ``rule`` is a word for the ledger."""

    def __init__(self, rule: str, reason: str) -> None:
        self.rule, self.reason = rule, one_line(reason, 600)
        super().__init__(self.reason)


def listed(names: list[str], most: int = 5) -> str:
    """``a, b and 3 more``: names from a push, safe to show."""
    shown = ", ".join(one_line(n, 100) for n in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def age(seconds: float) -> str:
    """``0 min``, ``12 min``, ``3 h``: how long ago."""
    minutes = max(0, int(seconds // 60))
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
