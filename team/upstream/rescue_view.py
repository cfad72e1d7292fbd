"""What the rescue repository holds, for a person and for whoever takes the task next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from team import git
from team.errors import TeamError
from team.text import clean, one_line

_PREFIX = "refs/rescue/"
_SECONDS, _OUTPUT = 30.0, 4 << 20
_ENTRIES = 100


@dataclass(frozen=True)
class Saved:
    """What one session left behind."""

    agent: str
    session: str
    commit: str
    at: float
    """When it was saved, in seconds since the epoch."""
    tasks: tuple[str, ...] = ()
    """What the session held when it ended."""


def saved(path: Path) -> list[Saved]:
    """Everything in the rescue repository ``path``, oldest first."""
    form = "%(committerdate:unix) %(objectname) %(refname)"
    lines = git.git("for-each-ref", f"--format={form}", _PREFIX, at=path, seconds=_SECONDS).decode("utf-8", "replace")
    found = []
    for line in lines.splitlines():
        at, commit, ref = line.split(" ", 2)
        agent, _, session = ref.removeprefix(_PREFIX).partition("/")
        found.append(Saved(agent, session, commit, float(at or 0)))
    return sorted(found, key=lambda one: (one.at, one.session))


def find(path: Path, session: str) -> Saved:
    """What ``session`` left behind. Raises :class:`TeamError` where nothing of it is kept."""
    everything = saved(path)
    for one in everything:
        if session in (one.session, f"{one.agent}/{one.session}"):
            return one
    known = ", ".join(one.session for one in everything[-5:]) or "none at all"
    raise TeamError(f"nothing of {one_line(session, 80)!r} is kept; kept: {known} (`team rescue list`)")


def show(path: Path, upstream: Path, commit: str, *, patch: bool = False) -> str:
    """Log and changed files (with ``patch``, the changes) of what main lacks of ``commit``, as clean text."""
    main = (git.resolve(upstream, "refs/heads/main") or "").strip()
    base = _base(path, main, commit)
    lacks = [commit, f"^{main}"] if main else [commit]
    log = _git(path, "log", f"--max-count={_ENTRIES}", "--no-color", "--date=iso", *lacks, "--")
    form = "--patch" if patch else f"--stat=100,80,{_ENTRIES}"
    diff = _git(path, "diff", "--no-color", "--no-ext-diff", "--no-textconv", form, base, commit, "--")
    return clean(f"{log}\n{diff}")


def summary(path: Path, upstream: Path, commit: str) -> str:
    """``3 files (a.py, b.py and 1 more)``: on one line, what main lacks of ``commit``."""
    main = (git.resolve(upstream, "refs/heads/main") or "").strip()
    out = _git(path, "diff", "--name-only", "-z", "--no-ext-diff", _base(path, main, commit), commit, "--")
    names = [one_line(name, 80) for name in out.split("\0") if name]
    rest = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{len(names)} file{'s' if len(names) != 1 else ''} ({', '.join(names[:4])}{rest})" if names else "no files"


def drop(path: Path, one: Saved) -> None:
    """Forget what a session left behind; its objects stay until the repository is packed anew by hand."""
    git.git("update-ref", "-d", f"{_PREFIX}{one.agent}/{one.session}", one.commit, at=path, seconds=_SECONDS)


def _base(path: Path, main: str, commit: str) -> str:
    """Where ``commit`` left main."""
    code, out = git.git_status("merge-base", main or commit, commit, at=path, seconds=_SECONDS)
    return out.decode().strip() if code == 0 else "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _git(path: Path, *args: str) -> str:
    try:
        out = git.git(*args, at=path, seconds=_SECONDS, output=_OUTPUT)
    except git.GitLimit as error:
        raise TeamError(f"too much to show: {error.stderr}; look at it by hand: git -C {path} log") from None
    return out.decode("utf-8", "replace")
