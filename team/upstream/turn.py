"""One lander at a time: in this process first come, first served; between processes by a lock on a file."""

from __future__ import annotations

import fcntl
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turn:
    """The landing lock of a project. Not re-entrant."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._queue: deque[threading.Event] = deque()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn and hold it."""
        mine = threading.Event()
        with self._guard:
            self._queue.append(mine)
            if len(self._queue) == 1:
                mine.set()
        try:
            mine.wait()
            fd = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                yield
            finally:
                os.close(fd)
        finally:
            with self._guard:
                self._queue.remove(mine)
                if self._queue:
                    self._queue[0].set()
