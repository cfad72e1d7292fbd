"""What an exit code, or the refusal of a model, says about the end of a session, for any client."""

from __future__ import annotations

import re
import signal

from team.clients import Outcome

SETUP_FAILED = 90
CLONE_FAILED = 91
NO_DOOR = 92
"""Exit codes of ``team/inside/entry``, which runs before the client."""

_REASONS = {
    SETUP_FAILED: "the setup command ([session] setup in team.toml) failed; its output is above",
    CLONE_FAILED: "the clone of upstream failed; git's words are above",
    NO_DOOR: "the door did not answer from inside the container; `team doctor` tells why",
    126: "the client could not be started: not executable in this image",
    127: "the client could not be started: not found in this image",
}


_LIMITED = (429, 503, 529)
_RATE = re.compile(
    r"rate.?limit|usage limit|hit your .{0,20}limit|quota exceeded|overloaded|at capacity|\b(?:429|529)\b",
    re.I,
)
_BUDGET = re.compile(r"team_budget|out of budget|error_max_budget", re.I)


def refused(status: int | None, said: str) -> Outcome:
    """Outcome of a client that failed, given the HTTP status of the model call that failed, where it told one, and
    everything that it said about it. Limits, overload and budget are nobody's fault."""
    if _BUDGET.search(said):
        return Outcome.OUT_OF_BUDGET
    if status in _LIMITED or (status is None and _RATE.search(said)):
        return Outcome.RATE_LIMITED
    return Outcome.FAILED


def judge(code: int, out_of_memory: bool) -> tuple[Outcome, str]:
    """Outcome and reason for an exit code other than 0. ``out_of_memory`` is what the engine says: code 137
    alone may be any SIGKILL."""
    if out_of_memory:
        return Outcome.CRASHED, f"out of memory (exit {code}); raise [session] memory in team.toml"
    if code in _REASONS:
        return Outcome.FAILED, _REASONS[code]
    number = code - 128 if code > 128 else -code
    try:
        return Outcome.CRASHED, f"killed by {signal.Signals(number).name} (exit {code})"
    except ValueError:
        return Outcome.FAILED, f"exit {code}"
