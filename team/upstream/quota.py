"""How many bytes a session may push in all: what came in cannot always be thrown away again."""

from __future__ import annotations

import threading

from team.ledger import Kind, Ledger
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused

_STEPS = 64


class Quota:
    """Counts what sessions push. Safe to use from several threads.

    The ledger hears of each 64th of the quota that is used up, so that small pushes cost it nothing, and a restart
    forgets no more than that.
    """

    def __init__(self, ledger: Ledger, most: int) -> None:
        """``most`` bytes a session."""
        self._ledger, self._most = ledger, most
        self._totals: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, pusher: Pusher, size: int) -> None:
        """Add a push of ``size`` bytes. Raises :class:`Refused` past the quota. A person has none."""
        if pusher.session is None:
            return
        with self._lock:
            before = self._totals.get(pusher.session)
            if before is None:
                before = self._recorded(pusher.session)
            total = self._totals[pusher.session] = before + size
            step = max(1, self._most // _STEPS)
            if total // step > before // step:
                self._ledger.append(Kind.PUSH_BYTES, agent=pusher.name, session=pusher.session, total=total)
        if total > self._most:
            raise Refused(
                "quota",
                f"this session pushed {total} bytes, at most {self._most} ([landing] session_quota); "
                "finish what you have in a new session",
            )

    def _recorded(self, session: str) -> int:
        event = self._ledger.last(Kind.PUSH_BYTES, session=session)
        return int(event.data["total"]) if event is not None else 0
