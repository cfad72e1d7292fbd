"""Every git call of ours: clean environment, limits, ``-z`` and ``--`` by the caller.

Never run in a session's clone: its config, filters and hooks would run on the host.
"""

from __future__ import annotations

import os
import resource
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MINIMUM = (2, 38)
"""``git merge-tree --write-tree`` came with 2.38."""


def without_hints(stderr: str) -> str:
    """What git complains about, without the advice that it puts before it."""
    return "\n".join(line for line in stderr.splitlines() if not line.startswith("hint:")).strip()


class GitError(Exception):
    """A git command of ours failed."""

    def __init__(self, args: Sequence[str], returncode: int, stderr: str) -> None:
        self.args_, self.returncode, self.stderr = list(args), returncode, without_hints(stderr)
        super().__init__(f"git {' '.join(args[:3])}: {self.stderr or f'exit {returncode}'}")


class GitLimit(GitError):
    """A git command of ours was ended because it took too long or printed too much."""

    def __init__(self, args: Sequence[str], what: str) -> None:
        super().__init__(args, -1, what)


# Settings that must hold whatever any config file says. fsck and gc: DESIGN.md, maintenance by the host only.
_ALWAYS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "core.quotePath=false",
    "-c", "commit.gpgSign=false",
    "-c", "tag.gpgSign=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "protocol.ext.allow=never",
    "-c", "advice.detachedHead=false",
)  # fmt: skip


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which neither the user's git configuration nor ``GIT_*`` variables have a say."""
    keep = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")
    env = {k: os.environ[k] for k in keep if k in os.environ}
    env |= {
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_AUTHOR_NAME": "team",
        "GIT_AUTHOR_EMAIL": "team@team.invalid",
        "GIT_COMMITTER_NAME": "team",
        "GIT_COMMITTER_EMAIL": "team@team.invalid",
        "GIT_ATTR_NOSYSTEM": "1",
    }
    return env | dict(extra or {})


def git(
    *args: str,
    at: Path,
    stdin: bytes | None = None,
    stdin_file: int | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 60,
    output: int = 64 << 20,
    memory: int | None = None,
    ok: Sequence[int] = (0,),
    on_stderr: Callable[[bytes], None] | None = None,
) -> bytes:
    """Run git in ``at`` (a work tree or a bare repository of ours) and return what it prints.

    ``seconds`` bounds wall time, ``output`` the bytes of standard output, ``memory`` the address space.
    Raises :class:`GitLimit` past a bound and :class:`GitError` for an exit code not in ``ok``.
    """
    return git_status(
        *args,
        at=at,
        stdin=stdin,
        stdin_file=stdin_file,
        env=env,
        seconds=seconds,
        output=output,
        memory=memory,
        ok=ok,
        on_stderr=on_stderr,
    )[1]


def git_status(
    *args: str,
    at: Path,
    stdin: bytes | None = None,
    stdin_file: int | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 60,
    output: int = 64 << 20,
    memory: int | None = None,
    ok: Sequence[int] = (0, 1),
    on_stderr: Callable[[bytes], None] | None = None,
) -> tuple[int, bytes]:
    """Like :func:`git`, for commands whose exit code is an answer: returns it with the output."""
    argv = ["git", *_ALWAYS, *args]
    process = subprocess.Popen(
        argv,
        cwd=at,
        env=clean_env(env),
        stdin=stdin_file if stdin_file is not None else (subprocess.PIPE if stdin is not None else subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        umask=0o022,
        preexec_fn=None if memory is None else _limit_memory(memory),
    )
    try:
        out, err = _exchange(process, args, stdin or b"", seconds, output, on_stderr)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if process.returncode not in ok:
        raise GitError(args, process.returncode, err.decode("utf-8", "replace"))
    return process.returncode, out


def _limit_memory(memory: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return limit


def _exchange(
    process: subprocess.Popen[bytes],
    args: Sequence[str],
    stdin: bytes,
    seconds: float,
    output: int,
    on_stderr: Callable[[bytes], None] | None,
) -> tuple[bytes, bytes]:
    """Feed and drain ``process`` within the bounds, until both of its pipes are closed and it has ended."""
    deadline = time.monotonic() + seconds
    out, err = bytearray(), bytearray()
    pending = memoryview(stdin)
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise GitLimit(args, f"took longer than {seconds:g} s")
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    pending = _feed(process, pending)
                    if not pending:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                    continue
                key.data.extend(chunk)
                if key.data is err and on_stderr is not None:
                    on_stderr(chunk)
                if len(out) > output or len(err) > 1 << 20:
                    raise GitLimit(args, f"printed more than {output} bytes")
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GitLimit(args, f"took longer than {seconds:g} s") from None
    return bytes(out), bytes(err)


def _feed(process: subprocess.Popen[bytes], pending: memoryview) -> memoryview:
    assert process.stdin is not None
    try:
        return pending[os.write(process.stdin.fileno(), pending[: 1 << 16]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:  # it answered without reading everything; its exit code tells
        return pending[:0]


def start(*args: str, at: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A git process that stays, for the caller to talk to and to end; what it complains about is dropped."""
    return subprocess.Popen(
        ["git", *_ALWAYS, *args],
        cwd=at,
        env=clean_env(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def line(*args: str, at: Path, **options: object) -> str:
    """The first line that git prints, without its newline."""
    return git(*args, at=at, **options).decode("utf-8", "surrogateescape").split("\n", 1)[0]  # type: ignore[arg-type]


def version() -> tuple[int, ...]:
    """The version of the host's git, for example ``(2, 39, 5)``; raises :class:`FileNotFoundError` without git."""
    words = line("version", at=Path("/")).split()
    return tuple(int(n) for n in words[2].split(".") if n.isdigit())


def resolve(at: Path, revision: str, env: Mapping[str, str] | None = None) -> str | None:
    """The object id of ``revision``, or None where it names nothing."""
    code, out = git_status("rev-parse", "--verify", "--quiet", "--end-of-options", revision, at=at, env=env)
    return out.decode().strip() if code == 0 else None


def is_ancestor(at: Path, older: str, newer: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether ``older`` is reachable from ``newer``."""
    return git_status("merge-base", "--is-ancestor", older, newer, at=at, env=env)[0] == 0
