"""Runs one job after another for a pool and lets nothing of them live on; a program of its own (see process.py).

What it knows of processes the pool uses too. The pool is at the other end of descriptor 0; when that closes, the
pool is dead, and the keeper ends what it runs and then itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import marshal
import os
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_GLANCE = 0.005  # seconds between two looks whether a job has ended, where the kernel does not say
_TINY = 2  # milliseconds
_LOOK = 0.1  # seconds between two looks at what a job holds in memory
PATIENCE = 5.0  # seconds for killed processes to go; what is left then cannot be killed by us
_CHUNK = 1 << 16
_PIPE = 1 << 20
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
# What our interpreter or our caller ignores, a job must not.
_DEFAULTS = [
    int(number)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
]
_IDLE = [signal.SIGINT, signal.SIGHUP, signal.SIGTERM]  # a job that sends these to its parent is only rude


# --- processes


def adopt(on: bool) -> bool:
    """Whether orphans below this process become its children from now on; returns what held before. Linux only."""
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_SET_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def children(pid: int) -> set[int]:
    """The processes whose parent is ``pid``, also those that ended and were not waited for; none where it is gone."""
    if not _LISTED:
        return {child for child, parent in _parents().items() if parent == pid}
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - hot
            found.update(map(int, _read(f"/proc/{pid}/task/{task}/children").split()))
    return found


def below(roots: Iterable[int]) -> set[int]:
    """``roots`` and everything that descends from them."""
    found: set[int] = set()
    new = set(roots)
    parents = {} if _LISTED else _parents()
    while new:
        found |= new
        if _LISTED:
            new = set().union(*map(children, new)) - found
        else:
            new = {child for child, parent in parents.items() if parent in new} - found
    return found


def end(roots: Callable[[], Iterable[int]]) -> dict[int, int]:
    """Kill everything below our children ``roots()`` until none is left, and wait for them.

    Returns the wait status of each root. Gives up after some seconds: what another user owns cannot be killed.
    """
    ended: dict[int, int] = {}
    patience = time.monotonic() + PATIENCE
    while (top := set(roots())) and time.monotonic() < patience:
        held: set[int] = set()
        # Stopped before they are killed, or they could start more between our look and our kill.
        while new := below(top) - held:
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            held |= new
        for pid in held:
            _signal(pid, signal.SIGKILL)
        for pid in top:
            with contextlib.suppress(ChildProcessError):
                gone, status = os.waitpid(pid, os.WNOHANG)
                if gone:
                    ended[gone] = status
        time.sleep(0.001)
    return ended


def resident(pids: Iterable[int], enough: int) -> int:
    """Bytes that these processes hold in memory. Pages that several share count once, if the sum passes ``enough``."""
    pids = list(pids)
    total = sum(_PAGE * int(line[1]) for pid in pids if (line := _read(f"/proc/{pid}/statm").split()))
    return total if total <= enough else sum(map(_share, pids))


def _share(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    held = _read(f"/proc/{pid}/statm").split()
    return _PAGE * int(held[1]) if held else 0


def _parents() -> dict[int, int]:
    """The parent of every process, for kernels that do not list children."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - hot
        if fields := _read(f"/proc/{name}/stat").rpartition(b")")[2].split():
            found[int(name)] = int(fields[1])
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _read(path: str) -> bytes:
    """A small file of /proc or /sys; empty where it is gone."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - hot
            return file.read()
    except OSError:
        return b""


_LISTED = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")  # noqa: PTH110 - no pathlib here


# --- messages: length, then what marshal makes of a tuple (built in, and both ends are one interpreter)


def pack(message: tuple[Any, ...]) -> bytes:
    """``message`` as it goes over the socket."""
    data = marshal.dumps(message)
    return struct.pack("<I", len(data)) + data


def unpack(buffer: bytearray) -> tuple[Any, ...] | None:
    """The first whole message of ``buffer``, taken out of it; None while it is not all there."""
    if len(buffer) < 4:
        return None
    size = 4 + struct.unpack_from("<I", buffer)[0]
    if len(buffer) < size:
        return None
    message: tuple[Any, ...] = marshal.loads(memoryview(buffer)[4:size])
    del buffer[:size]
    return message


# --- a job


class Kept:
    """The first and the last half of a stream of bytes."""

    def __init__(self, most: int) -> None:
        self.half = max(most // 2, 1)
        self.head = b""
        self.tail = b""
        self.printed = 0

    def add(self, data: bytes) -> None:
        self.printed += len(data)
        if room := self.half - len(self.head):
            self.head += data[:room]
            data = data[room:]
        if data:
            self.tail = (self.tail + data)[-self.half :]

    def text(self) -> bytes:
        left_out = self.printed - len(self.head) - len(self.tail)
        if not left_out:
            return self.head + self.tail
        return self.head + b"\n[... %d bytes left out ...]\n" % left_out + self.tail


class Job:
    """What runs now, or will."""

    def __init__(
        self,
        number: int,
        argv: list[str],
        cwd: str,
        env: Mapping[str, str],
        seconds: float | None,
        memory: int | None,
        output: int,
        merge: bool,
        stream: bool,
    ) -> None:
        self.number, self.argv, self.cwd, self.env, self.merge, self.stream = number, argv, cwd, env, merge, stream
        self.memory = memory
        self.out, self.err = Kept(output), Kept(output)
        self.streams: dict[int, Kept] = {}
        self.polled: set[int] = set()
        self.pid = 0
        self.process: int | None = None  # can be polled for its end; None where the kernel does not offer it
        self.status: int | None = None
        self.why = ""
        self.seconds = seconds
        self.begun = self.next_look = self.deadline = 0.0

    def start(self, environment: Mapping[str, str]) -> None:
        """Raises OSError where it cannot be started."""
        self.begun = time.monotonic()
        self.deadline = self.begun + (float("inf") if self.seconds is None else self.seconds)
        self.next_look = self.begun + _LOOK
        os.chdir(self.cwd)
        out, write_out = os.pipe()
        err, write_err = (out, write_out) if self.merge else os.pipe()
        try:
            self.pid = _spawn(self.argv, {**environment, **self.env}, write_out, write_err)
        except BaseException:
            for fd in {out, err}:
                os.close(fd)
            raise
        finally:
            for fd in {write_out, write_err}:
                os.close(fd)
        self.streams = {out: self.out} if self.merge else {out: self.out, err: self.err}
        with contextlib.suppress(OSError, AttributeError):
            self.process = os.pidfd_open(self.pid)

    def wait(self) -> int:
        """Milliseconds until something is due."""
        due = min(self.deadline, self.next_look) - time.monotonic()
        return 1 + int(1000 * min(max(due, 0.0), _GLANCE if self.process is None else _LOOK))

    def look(self) -> str:
        """Why it must be killed now; empty where it may go on."""
        now = time.monotonic()
        if now >= self.deadline:
            return "timed out"
        if now < self.next_look:
            return ""
        self.next_look = now + _LOOK
        if self.memory is not None and resident(below(children(os.getpid())), self.memory) > self.memory:
            return "memory"
        return ""

    def report(self, kernel: KernelKills) -> tuple[Any, ...]:
        code = os.waitstatus_to_exitcode(self.status or 0)
        # The kernel kills for want of memory by signal 9, which a shell tells as 137.
        if not self.why and code in (-signal.SIGKILL, 128 + signal.SIGKILL) and kernel.killed():
            self.why = "memory"
        took = time.monotonic() - self.begun
        printed = self.out.printed + self.err.printed
        return ("ended", code, took, self.why, self.out.text(), self.err.text(), printed)


def _spawn(argv: list[str], environment: Mapping[str, str], out: int, err: int) -> int:
    """Start ``argv`` in the current directory, in a session of its own; posix_spawn, since it never copies us."""
    program = _which(argv[0], environment.get("PATH", os.defpath))
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    ]
    try:
        return os.posix_spawn(program, argv, environment, file_actions=actions, setsid=True, setsigdef=_DEFAULTS)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without a first line that names its interpreter: a shell would read it itself.
    argv = ["/bin/sh", program, *argv[1:]]
    return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True, setsigdef=_DEFAULTS)


def _which(name: str, path: str, known: dict[tuple[str, str], str] = {}) -> str:  # noqa: B006 - it remembers
    if "/" in name:
        return name
    if os.access(known.get((name, path), ""), os.X_OK):
        return known[name, path]
    for directory in path.split(":"):
        found = f"{directory or '.'}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):  # noqa: PTH112 - no pathlib here
            if found[0] == "/":
                known[name, path] = found
            return found
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


class KernelKills:
    """How many processes of our container (of the machine, where it has none) the kernel has killed for want of
    memory."""

    def __init__(self) -> None:
        self.before = self.last = self.read()
        self.next = 0.0

    def look(self, now: float) -> None:
        """While a job runs: what was killed long before its end is another's fault. Two looks are kept, since a large
        process takes its time to die."""
        if now >= self.next:
            self.next = now + 3 * _LOOK
            self.before, self.last = self.last, self.read()

    def killed(self) -> bool:
        """Whether there was one lately."""
        return self.read() > self.before

    def read(self) -> int:
        for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"):
            for line in _read(path).splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
        return 0


# --- the program


class Gone(Exception):
    """The pool is dead."""


class Keeper:
    """Takes jobs from descriptor 0 and runs them one by one."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.kills: dict[int, str] = {}
        self.environment = dict(os.environ)
        self.kernel = KernelKills()
        self.buffer = bytearray()
        for number in _IDLE:
            signal.signal(number, lambda *_: None)
        self.poll = select.poll()
        self.poll.register(0, select.POLLIN)

    def serve(self) -> None:
        """Until the pool goes; then nothing that was started is left."""
        try:
            while True:
                while not self.waiting:
                    self.receive()
                self.send(self.run(self.waiting.popleft()))
        except Gone:
            end(lambda: children(os.getpid()))

    def receive(self) -> None:
        data = os.read(0, _PIPE)
        if not data:
            raise Gone
        self.buffer += data
        while message := unpack(self.buffer):
            if message[0] == "job":
                self.waiting.append(Job(*message[1:]))
            else:
                self.kills[message[1]] = message[2]

    def send(self, message: tuple[Any, ...]) -> None:
        data = memoryview(pack(message))
        try:
            while data:
                data = data[os.write(0, data) :]
        except OSError as error:
            raise Gone from error

    def run(self, job: Job) -> tuple[Any, ...]:
        self.kernel.look(time.monotonic())
        try:
            job.start(self.environment)
        except (OSError, ValueError) as error:  # no such program or directory; a NUL in an argument
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            text = f"cannot start {job.argv[0]} in {job.cwd}: {why}\n".encode("utf-8", "surrogateescape")
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return ("ended", code, 0.0, "", text, b"", len(text))
        if job.process is not None:
            self.poll.register(job.process, select.POLLIN)
            # A tiny job ends before its output matters: one thing to wake up for, not three.
            self.poll.poll(_TINY)
        self.watch(job)
        if job.process is not None:
            self.poll.unregister(job.process)
            os.close(job.process)
        return job.report(self.kernel)

    def watch(self, job: Job) -> None:
        """Until nothing of the job runs, and what it printed has been read."""
        alone = _reap(job)
        for fd in job.streams:
            os.set_blocking(fd, False)
            if job.status is None:
                self.poll.register(fd, select.POLLIN)
                job.polled.add(fd)
        while job.status is None:
            for fd, _ in self.poll.poll(job.wait()):
                if fd == 0:
                    self.receive()
                elif fd != job.process:
                    self.drain(job, fd, _PIPE)
            alone = _reap(job)
            if job.status is None:
                self.kernel.look(time.monotonic())
            if job.status is None and (why := self.kills.pop(job.number, "") or job.look()):
                job.why = why
                break
        if not alone:
            ended = end(lambda: children(os.getpid()))
            job.status = ended.get(job.pid, signal.SIGKILL) if job.status is None else job.status
        # Only now: what it left behind may have held its pipes for ever.
        for fd in list(job.streams):
            self.drain(job, fd, 1 << 62)
            self.close(job, fd)

    def drain(self, job: Job, fd: int, most: int) -> None:
        """Read what is there, about ``most`` bytes of it: who prints without end must not keep us from the clock."""
        while most > 0 and fd in job.streams:
            try:
                data = os.read(fd, _PIPE)
            except BlockingIOError:
                return
            if not data:
                self.close(job, fd)
                return
            if len(data) == _CHUNK:  # the pipe was full: a larger one is quicker
                with contextlib.suppress(OSError):
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE)
            job.streams[fd].add(data)
            if job.stream and job.streams[fd] is job.out:
                self.send(("output", data))
            most -= len(data)

    def close(self, job: Job, fd: int) -> None:
        if job.streams.pop(fd, None):
            if fd in job.polled:
                self.poll.unregister(fd)
            os.close(fd)


def _reap(job: Job) -> bool:
    """Wait for whatever has ended; whether no child is left."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return False
            if pid == job.pid:
                job.status = status
    except ChildProcessError:
        return True


if __name__ == "__main__":
    adopt(True)
    Keeper().serve()
    os._exit(0)  # at once: the pool waits
