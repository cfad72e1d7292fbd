"""Processes that tools start: run to their end with a bound, and found and ended with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from team.clients.builtin.output import Capture, Spill

_READ = 1 << 16


def run(
    argv: Sequence[str], seconds: float, spill: Spill, env: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Exit code and output of ``argv``; no code where it took longer than ``seconds`` and was ended."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        )
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    assert process.stdout is not None
    capture = Capture(spill)
    reader = threading.Thread(target=_drain, args=(process.stdout, capture), daemon=True)
    reader.start()
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(seconds)
    if code is None:
        end(descendants(process.pid))
        process.kill()
        process.wait()
    reader.join(1)  # not longer: what it left behind may hold the pipe
    return code, capture.text()


def _drain(pipe: IO[bytes], capture: Capture) -> None:
    """Holds ``pipe`` open for as long as it reads: its number must not become another file's."""
    with suppress(OSError, ValueError), pipe:
        while data := os.read(pipe.fileno(), _READ):
            capture.feed(data)


def children(pid: int) -> set[int]:
    """The processes that ``pid`` itself started and that live; cheap, but empty on kernels that do not tell."""
    with suppress(OSError, ValueError):
        return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()}
    return set()


def descendants(pid: int, but: Collection[int] = ()) -> set[int]:
    """All living processes that ``pid`` started, and those that they did, without the branches of ``but``."""
    started: dict[int, list[int]] = {}
    for child, parent in _processes():
        if child not in but:
            started.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in started.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def end(pids: set[int]) -> None:
    """Kill them."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, int]]:
    """Process and parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            yield int(path.parent.name), int(path.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
