"""What happened, as JSON lines on standard output: the host reads it for logs, and believes none of it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from team.text import one_line


def _print(line: str) -> None:
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n")
    sys.stdout.flush()


class Transcript:
    """Writes events, each whole."""

    def __init__(self, write: Callable[[str], None] = _print) -> None:
        self._write, self._lock = write, threading.Lock()

    def event(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._write(json.dumps({"type": kind, **fields}, ensure_ascii=False))

    def note(self, text: str) -> None:
        """Something that people should know."""
        self.event("note", text=one_line(text, 1000))
