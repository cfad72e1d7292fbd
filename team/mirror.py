"""Publishes upstream's main to a remote, from the host, with the person's own git and its credentials."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from team import git
from team.errors import TeamError
from team.places import Project
from team.text import one_line

LOOK_SECONDS = 2.0
"""How often main is looked at."""
TRIES = 8
FIRST_PAUSE, MOST_PAUSE = 1.0, 60.0
"""Seconds between two tries: doubling from the first to the most, each made shorter by chance, at most by half."""
_PUSH_SECONDS = 600
_FINAL = re.compile(
    r"non-fast-forward|fetch first|stale info|protected branch|pre-receive hook declined|denied|forbidden|403|401"
    r"|authentication failed|could not read username|does not appear to be a git|not found|does not exist",
    re.I,
)
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Published:
    """What the remote now has; ``remote`` is shown without credentials."""

    remote: str
    commit: str


def target(root: Path, remote: str) -> str:
    """The URL that ``remote`` means: a remote of the repository at ``root``, or itself. Raises :class:`TeamError`."""
    if remote.startswith("-") or not remote.strip() or "\n" in remote:
        raise TeamError(f"{one_line(remote, 60)!r} is no remote; give a URL or the name of a remote")
    found = subprocess.run(
        ["git", "remote", "get-url", "--push", "--", remote], cwd=root, capture_output=True, text=True, check=False
    )
    if found.returncode == 0:
        return found.stdout.strip()
    if re.fullmatch(r"[A-Za-z0-9_.-]+", remote) and not (root / remote).exists():
        raise TeamError(f"there is no remote {remote!r}; `git remote -v` lists them, or give a URL")
    if remote.startswith("ext::"):
        raise TeamError("a remote that runs a command is not mirrored to; give a URL")
    return remote


def run(
    project: Project,
    root: Path,
    url: str,
    branch: str,
    *,
    once: bool,
    say: Callable[[Published], None],
    sleep: Callable[[float], None],
    jitter: Callable[[], float],
) -> None:
    """Publish main now and, unless ``once``, whenever it moves. Raises :class:`TeamError` where that fails for good."""
    if git.git_status("check-ref-format", f"refs/heads/{branch}", at=root)[0]:
        raise TeamError(f"{one_line(branch, 60)!r} is no branch name")
    if Path(url).expanduser().resolve() == project.upstream.resolve():
        raise TeamError("that is the team's own upstream; give another remote")
    published = ""
    while True:
        main = git.line("rev-parse", "refs/heads/main", at=project.upstream)
        if main != published:
            _publish(project, root, url, branch, main, sleep, jitter)
            published = main
            say(Published(without_credentials(url), main))
        if once:
            return
        sleep(LOOK_SECONDS)


def without_credentials(text: str) -> str:
    """``text`` as it may be shown."""
    return one_line(_CREDENTIALS.sub("", text), 300)


def _publish(
    project: Project,
    root: Path,
    url: str,
    branch: str,
    commit: str,
    sleep: Callable[[float], None],
    jitter: Callable[[], float],
) -> None:
    pause = FIRST_PAUSE
    for attempt in range(1, TRIES + 1):
        problem = _push(project, root, url, branch, commit)
        if problem is None:
            return
        if re.search(r"non-fast-forward|fetch first", problem, re.I):
            raise TeamError(
                f"{without_credentials(url)} has commits on {branch} that main lacks; `git pull` them and "
                "`git push team`, or give another --branch"
            )
        if _FINAL.search(problem) or attempt == TRIES:
            raise TeamError(f"{without_credentials(url)} does not take main: {without_credentials(problem)}")
        sleep(pause * (1 - jitter() / 2))
        pause = min(2 * pause, MOST_PAUSE)


def _push(project: Project, root: Path, url: str, branch: str, commit: str) -> str | None:
    """One push of main alone; None, or what git complained about."""
    # The person's configuration decides how to reach the remote; upstream's objects are only borrowed, and no hook or
    # configuration of anything that agents wrote takes part.
    env = os.environ | {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(project.upstream / "objects"),
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "push", "--quiet", "--porcelain", "--no-follow-tags"]
            + ["--no-recurse-submodules", "--", url, f"{commit}:refs/heads/{branch}"],
            cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PUSH_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"took longer than {_PUSH_SECONDS} s"
    if done.returncode == 0:
        return None
    text = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"rejected|fatal:|error:|remote:", line)]
    return "; ".join(telling[:3] or lines[:3]) or f"exit {done.returncode}"
