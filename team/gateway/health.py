"""Whether providers answer, as the calls in the ledger tell: said once per change, however often clients try."""

from __future__ import annotations

from collections import Counter

from team.ledger import Event, Kind, New
from team.text import one_line

UNREACHED = "the model could not be reached"
"""How a refusal begins that :attr:`Kind.MODEL_LOST` tells better."""
FAILURES = 3
"""Errors of a provider's own in a row, whoever asked, before it counts as lost; one now and then is usual."""
_OVERLOADED = 529
_OURS = frozenset({"cancelled", "the client went away"})
"""Errors of a call without an answer that say nothing about the provider."""


class Health:
    """Of all providers, from the calls fed so far."""

    def __init__(self) -> None:
        self._failed: Counter[str] = Counter()
        self._lost: dict[str, float] = {}
        """Since when (seconds since the epoch)."""

    def feed(self, event: Event) -> New | None:
        """Take the next event; the news of its provider, where it has some."""
        if event.kind != Kind.MODEL_CALL:
            return None
        provider, error = str(event.data.get("provider")), str(event.data.get("error") or "")
        status = int(event.data.get("status") or 0)
        match _answers(status, error):
            case None:
                return None
            case True:
                del self._failed[provider]
                since = self._lost.pop(provider, None)
                if since is None:
                    return None
                return New(Kind.MODEL_FOUND, data={"provider": provider, "seconds": round(event.at - since, 1)})
        self._failed[provider] += 1
        if provider in self._lost or (status and self._failed[provider] < FAILURES):
            return None
        self._lost[provider] = event.at
        reason = one_line(f"{status} {error}" if status else error)
        return New(Kind.MODEL_LOST, data={"provider": provider, "reason": reason})


def _answers(status: int, error: str) -> bool | None:
    """Whether a call with this end shows that the provider answers; None where it shows neither."""
    if status == 0:
        return None if error in _OURS else False
    if status == _OVERLOADED:  # a pause, and told as one
        return None
    if status >= 500:
        return False
    return None if status < 300 and error else True  # the answer broke off
