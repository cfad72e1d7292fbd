"""One check at one commit, in a fresh container without door, key or network."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from team.config import Gate
from team.errors import TeamError
from team.places import Project
from team.runtimes import EngineLost, Gone, Limits, Runtime, Spec
from team.text import clean, one_line

EXIT_SETUP, EXIT_CHECKOUT = 90, 91
_LOG_BYTES = 20 << 20
_MOST_LOGS = 200
_SHOWN = 8
"""Lines of a red check that its pusher sees."""
_MOST_RESULTS = 16 << 20
"""Bytes of what ``team test`` leaves of its runs, as sent."""
_STOP_LOOK = 0.2
_TELLING = re.compile(
    r"\b(?:FAILED|FAIL|Failed|failed|Error|ERROR|error|panicked|Traceback|assert\w*|not ok|undefined|expected)\b"
)
_NOISE = re.compile(r"\b(?:0 failed|0 errors?|no errors?|failures: 0|errors: 0)\b", re.I)


class Broken(Exception):
    """A check could not be run at all: that says nothing about the push."""


class Stopped(Exception):
    """A check was ended because nobody needs its result any more."""


@dataclass(frozen=True)
class Result:
    """How a check ended."""

    ok: bool
    reason: str
    """Why it is red; empty where it is green."""
    seconds: float
    tests: int | None
    """How many ran, None where nobody counts."""
    lines: tuple[str, ...]
    """The few that tell most of a red check."""
    log: str


OnTests = Callable[[bytes], int | None]
"""Given what ``team test`` left of its runs; returns how many tests ran, None for no sense."""


class Checker(Protocol):
    """Runs checks; several at once from several threads."""

    def run(self, commit: str, command: str, name: str, stop: threading.Event) -> Result:
        """Run ``command`` at ``commit``. ``name`` is part of the log's. Raises :class:`Broken`, :class:`Stopped`."""


@dataclass(frozen=True)
class ContainerChecker:
    """Checks in containers of the image that sessions have, with the same limits."""

    project: Project
    gate: Gate
    runtime: Runtime
    image: str
    setup: str
    uid: int
    gid: int
    limits: Limits
    env: Mapping[str, str] = field(default_factory=dict)
    """More for the check, for example what ``team test`` has to know."""
    on_tests: OnTests | None = None
    """Keeps and counts what ``team test`` reported in a check."""

    def run(self, commit: str, command: str, name: str, stop: threading.Event) -> Result:
        began = time.monotonic()
        spec, nonce = self._spec(commit, command, name), secrets.token_hex(16)
        spec.env["TEAM_NONCE"] = nonce
        log = self._log(name)
        output = _Output(log, nonce, self.gate.count)
        code, why = self._run(spec, output, stop, self.gate.timeout)
        took = time.monotonic() - began
        if code == EXIT_CHECKOUT:
            raise Broken(f"the gate could not check out {commit[:10]} (log {log})")
        if not why and code:
            why = "the setup failed" if code == EXIT_SETUP else f"the check failed with exit {code}"
        tests = output.tests(junit=bool(self.gate.junit))
        if output.results and self.on_tests is not None:
            counted = self.on_tests(bytes(output.results))
            tests = counted if tests is None else tests
        lines = () if not why else output.telling()
        return Result(not why, why, round(took, 1), tests, lines, str(log))

    def _spec(self, commit: str, command: str, name: str) -> Spec:
        key = f"team-{self.project.id}-gate-{name}-{secrets.token_hex(3)}"
        env = {
            **self.env,
            "TEAM_AGENT": "gate",
            "TEAM_COMMIT": commit,
            "TEAM_CHECK": command,
            "TEAM_JUNIT": self.gate.junit,
            "TEAM_SETUP": self.setup,
        }
        return Spec(
            name=key, project=self.project.id, session=f"gate-{name}", image=self.image, argv=(), env=env,
            upstream=self.project.upstream, door=None, workspace=key, entry="gate", gate=self.project.gate,
            uid=self.uid, gid=self.gid, limits=self.limits,
        )  # fmt: skip

    def _log(self, name: str) -> Path:
        directory = self.project.logs / "gate"
        directory.mkdir(parents=True, exist_ok=True)
        found = []
        for path in directory.glob("gate_*.log"):
            with suppress(FileNotFoundError):  # a check beside this one has just removed it
                found.append((path.stat().st_mtime, path))
        for _, path in sorted(found)[:-_MOST_LOGS]:
            path.unlink(missing_ok=True)
        return directory / f"gate_{name}_{secrets.token_hex(3)}.log"

    def _run(self, spec: Spec, output: _Output, stop: threading.Event, seconds: float) -> tuple[int, str]:
        """The exit code, and why the check is red whatever that says."""
        try:
            container = self.runtime.create(spec)
        except TeamError as e:
            raise Broken(one_line(str(e))) from None
        follower = threading.Thread(target=self._follow, args=(container, output), daemon=True)
        try:
            self.runtime.start(container)
            follower.start()
            deadline = time.monotonic() + seconds
            while (exit := self.runtime.wait(container, _STOP_LOOK)) is None:
                if stop.is_set():
                    raise Stopped
                if time.monotonic() > deadline:
                    self.runtime.stop(container, 0)
                    self.runtime.wait(container, 30)
                    follower.join(10)
                    return -1, f"took longer than {seconds:g} s ([gate] timeout)"
            follower.join(10)
            if exit.error and exit.code < 0:
                raise Broken(exit.error)
            return exit.code, "ran out of memory ([session] memory)" if exit.out_of_memory else ""
        finally:
            output.close()
            # Not waited for, but by the end of this process: a verdict need not wait for the engine to clean up.
            threading.Thread(target=self._remove, args=(container, spec.workspace), name="gate clean-up").start()

    def _remove(self, container: str, volume: str) -> None:
        with suppress(TeamError, EngineLost, Gone):  # the next supervisor removes what is left
            self.runtime.remove(container)
            self.runtime.remove_volume(volume)

    def _follow(self, container: str, output: _Output) -> None:
        with suppress(Exception):  # what is lost of the output says nothing about the check
            self.runtime.follow(container, output.line)


class _Output:
    """What a check prints: to a log of bounded size, and searched for what tells most."""

    def __init__(self, path: Path, nonce: str, count: str) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._nonce, self._count = nonce, re.compile(count) if count else None
        self._size, self._closed = 0, False
        self._telling: list[str] = []
        self._last: list[str] = []
        self._counted: int | None = 0 if count else None
        self._junit: int | None = None
        self.results = bytearray()
        """What ``team test`` left: JSON lines, compressed, in base64."""
        self._lock = threading.Lock()

    def line(self, raw: bytes) -> None:
        text = clean(raw.decode("utf-8", "replace")).rstrip()
        if text.startswith(self._nonce):
            words = text.split()
            if words[1:2] == ["results"] and len(self.results) < _MOST_RESULTS:
                self.results += "".join(words[2:3]).encode("ascii", "replace")
                return
            numbers = [int(word) for word in text.split()[1:3] if word.isdigit()]
            if len(numbers) == 2:
                self._junit = max(0, numbers[0] - numbers[1])
            return
        with self._lock:
            self._size += len(text) + 1
            if not self._closed and self._size < _LOG_BYTES:
                self._file.write(text + "\n")
        if not text.strip():
            return
        if self._count is not None and self._counted is not None:
            found = (match[1] for match in self._count.finditer(text[:4096]))
            self._counted += sum(int(n) for n in found if n and n.isdigit() and len(n) < 10)
        short = one_line(text, 200)
        self._last = [*self._last[-(_SHOWN - 1) :], short]
        if _TELLING.search(short) and not _NOISE.search(short):
            self._telling = [*self._telling[-(_SHOWN - 1) :], short]

    def telling(self) -> tuple[str, ...]:
        return tuple(self._telling or self._last)

    def tests(self, *, junit: bool) -> int | None:
        return (self._junit or 0) if junit else self._counted

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._file.close()
