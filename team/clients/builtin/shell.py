"""A bash that lives as long as the session: directory, variables and background jobs stay from call to call."""

from __future__ import annotations

import os
import secrets
import select
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from team.clients.builtin.output import Capture, Spill
from team.clients.builtin.processes import children, descendants, end

SECONDS = 600.0
"""How long a command may take where the call does not say; a push may wait for a gate."""
MOST_SECONDS = 1500.0
"""Below [session] silence: nothing is printed meanwhile."""
_ENV = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}
_READ = 1 << 16
_GRACE = 2.0
"""Seconds in which a shell goes on after its command was ended."""
_LOOK = 0.1
"""Seconds between two looks at whether the shell lives."""
_OWN_OUTPUT = 198
"""The shell's own output, whatever a command does to its own: a descriptor far from those that commands use."""


@dataclass(frozen=True)
class Ran:
    """What became of one command."""

    text: str
    code: int | None
    """None: it took too long and was ended, or the shell ended with it."""


class Shell:
    """One bash. What a command starts in the background stays, and what it prints later comes with a later call."""

    def __init__(self, spill: Spill, clock: Callable[[], float] = time.monotonic) -> None:
        self._spill, self._clock = spill, clock
        self._process: subprocess.Popen[bytes] | None = None
        self._ahead = b""
        """What was read beyond the end of the last command."""

    def run(self, command: str, seconds: float = SECONDS) -> Ran:
        """Run ``command`` to its end, or for so many seconds."""
        shell = self._started()
        before, mark = children(shell.pid), secrets.token_hex(16)
        # Standard error goes where the output goes, in order; the mark goes to the shell's own, whatever the command
        # did to its output. eval: `cd`, variables and functions stay, but none takes the place of what is written here.
        what = shlex.quote(command.replace("\0", ""))
        line = f'\\builtin eval {what} </dev/null 2>&1; \\builtin printf "\\n%s %s\\n" {mark} "$?" >&{_OWN_OUTPUT}\n'
        capture = Capture(self._spill)
        try:
            self._send(shell, line)
        except OSError:
            self.close()
            return Ran("the shell was gone; a new one starts with the next command", None)
        code = self._follow(capture, mark, self._clock() + seconds)
        if code is not None:
            return Ran(capture.text(), code)
        if shell.poll() is not None:
            text = f"{capture.text()}\n[the shell ended with exit {shell.returncode}; the next call has a new one]"
            self.close()
            return Ran(text.strip(), None)
        return self._too_long(shell, capture, mark, before, seconds)

    def close(self) -> None:
        """End the shell and what runs in it."""
        if self._process is not None:
            end(descendants(self._process.pid))
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None
        self._ahead = b""

    def _too_long(
        self, shell: subprocess.Popen[bytes], capture: Capture, mark: str, before: set[int], seconds: float
    ) -> Ran:
        """End the command, and the shell where it is the one that does not come back."""
        until = self._clock() + _GRACE
        while self._clock() < until:
            end(descendants(shell.pid, but=before))
            if self._follow(capture, mark, min(until, self._clock() + 0.2)) is not None:
                return Ran(f"{capture.text()}\n[ended: it took longer than {seconds:g} s]".strip(), None)
        text = capture.text()
        self.close()
        return Ran(f"{text}\n[ended: it took longer than {seconds:g} s; the next call has a new shell]".strip(), None)

    def _follow(self, capture: Capture, mark: str, until: float) -> int | None:
        """Read until the mark; the command's exit code. None where the shell ended, or the time was over, before."""
        end_mark = f"\n{mark} ".encode()
        held, self._ahead = self._ahead, b""
        while True:
            at = held.find(end_mark)
            rest = held[at + len(end_mark) :] if at >= 0 else b""
            if b"\n" in rest:
                capture.feed(held[:at])
                told, _, self._ahead = rest.partition(b"\n")
                return int(told)
            if at < 0 and len(held) > len(end_mark):  # its end may be the beginning of the mark
                capture.feed(held[: -len(end_mark)])
                held = held[-len(end_mark) :]
            data = self._read(until)
            if data:
                held += data
                continue
            if self._process is not None and self._process.poll() is not None:
                capture.feed(held)
            else:
                self._ahead = held
            return None

    def _read(self, until: float) -> bytes:
        """What the shell or its children printed; nothing where the shell has ended, or at the time ``until``. What
        it left behind may hold the pipe for ever, so its end is not waited for."""
        assert self._process is not None and self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while True:
            ended = self._process.poll() is not None
            left = until - self._clock()
            if left <= 0:  # also of a flood, which always has more
                return b""
            if select.select([fd], [], [], 0 if ended else max(0.0, min(left, _LOOK)))[0]:
                data = os.read(fd, _READ)
                if not data:
                    self._process.wait(_GRACE)
                return data
            if ended:
                return b""

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(
                ["bash", "--noprofile", "--norc"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENV},
                start_new_session=True,
            )
            self._send(self._process, f"exec {_OWN_OUTPUT}>&1\n")
        return self._process

    def _send(self, shell: subprocess.Popen[bytes], line: str) -> None:
        assert shell.stdin is not None
        shell.stdin.write(line.encode("utf-8", "replace"))
        shell.stdin.flush()
