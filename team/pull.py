"""Brings upstream's main into the user's branch, and looks at what agents wrote before it touches a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from team import worktree
from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.text import one_line
from team.upstream import protected as rules
from team.upstream.refusal import listed
from team.view import plural
from team.worktree import TRACKING, commit_of, is_ancestor, user_git


@dataclass(frozen=True)
class Landing:
    """One landing that was pulled."""

    commit: str
    subject: str


@dataclass(frozen=True)
class Pulled:
    """What a pull did."""

    how: str
    """``up to date``, ``fast-forward`` or ``merge``."""
    branch: str
    old: str
    new: str
    landings: tuple[Landing, ...]
    """Those of work, newest first."""
    files: int
    """Files of the work tree that changed."""


@dataclass(frozen=True)
class _Change:
    path: str
    kind: str
    """``A``, ``M``, ``D`` or ``T``, as ``git diff-tree`` has it."""


def pull(project: Project, ledger: Ledger, *, protected: Iterable[str] = (), accepted: str | None = None) -> Pulled:
    """Merge upstream's main into the checked-out branch; the work tree is as it was unless all of it succeeds.

    ``protected``: globs on top of the default list. ``accepted``: the commit of main up to which the person has
    looked at what agents did to protected paths. Raises :class:`TeamError` for a dirty tree, a conflict, a file
    that is in the way, and landings of agents that touch protected paths.
    """
    root = project.root
    branch = worktree.require_branch(root)
    worktree.require_clean(root)
    worktree.fetch(project)
    old, main = commit_of(root, "HEAD"), commit_of(root, TRACKING)
    looked_at = _accepted(root, accepted, main)
    if is_ancestor(root, main, old):
        return Pulled("up to date", branch, old, old, (), 0)
    landings, steps = tuple(_landings(root, old, main)), _steps(root, old, main)
    result = worktree.merged_tree(root, old, main)
    changes = list(_changes(root, old, result))
    _refuse_reserved(project, changes)
    _refuse_protected(project, ledger, changes, steps, tuple(protected), looked_at, main)
    _refuse_overwriting(root, changes)
    if is_ancestor(root, old, main):
        how = "fast-forward"
        _merge(root, old, "--ff-only", main)
    else:
        how = "merge"
        worktree.require_identity(root)
        message = f"Merge the team's main ({plural(len(landings), 'landing')})"
        _merge(root, old, "--no-ff", "--no-edit", "-m", message, main)
    return Pulled(how, branch, old, commit_of(root, "HEAD"), landings, len(changes))


def _landings(root: Path, old: str, main: str) -> Iterator[Landing]:
    """The landings on main that ``old`` lacks, newest first."""
    out = user_git(root, "log", "-z", *worktree.LANDINGS, "--format=%H %s", main, f"^{old}", "--").out
    for entry in out.decode("utf-8", "replace").split("\0"):
        commit, _, subject = entry.partition(" ")
        if commit:
            yield Landing(commit, one_line(subject, 100))


def _steps(root: Path, old: str, main: str) -> list[str]:
    """Every step of main that ``old`` lacks, newest first, also those that took or freed a lock."""
    return user_git(root, "rev-list", "--first-parent", main, f"^{old}", "--").text.split()


def _changes(root: Path, old: str, tree: str) -> Iterator[_Change]:
    """What differs between the commit ``old`` and ``tree``."""
    out = user_git(root, "diff-tree", "-r", "-z", "--no-renames", "--name-status", old, tree, "--").out
    parts = [os.fsdecode(part) for part in out.split(b"\0")][:-1]
    for kind, path in zip(parts[::2], parts[1::2], strict=True):
        yield _Change(path, kind)


def _refuse_reserved(project: Project, changes: Iterable[_Change]) -> None:
    """Refuse what would lie where team keeps its pointer and its link: git overwrites ignored files on merge."""
    taken = rules.reserved(c.path for c in changes if c.kind != "D")
    if taken:
        mend = f"`git clone {project.upstream}`, `git rm` it there and push that first"
        raise TeamError(f"main holds {listed(taken, 3)}, a name of team's own; {mend}")


def _refuse_protected(
    project: Project,
    ledger: Ledger,
    changes: Iterable[_Change],
    steps: Iterable[str],
    protected: tuple[str, ...],
    accepted: str | None,
    main: str,
) -> None:
    """Refuse protected paths that change here and that a landing of an agent has touched."""
    root = project.root
    changed = set(rules.touched([c.path for c in changes], protected))
    if not changed:
        return
    by_person = {event.data.get("new") for event in ledger.events(Kind.LANDING_DONE) if event.session is None}
    found: dict[str, str] = {}
    for step in steps:
        if step in by_person or (accepted and is_ancestor(root, step, accepted)):
            continue
        for change in _changes(root, f"{step}^1", step):
            if change.path in changed:
                found.setdefault(change.path, step)
    if found:
        shown = listed([f"{path} ({commit[:10]})" for path, commit in found.items()], 3)
        raise TeamError(
            f"agents changed protected paths: {shown}; look with `git diff HEAD...team/main`, "
            f"then `team pull --accept-protected {main[:12]}`"
        )


def _accepted(root: Path, revision: str | None, main: str) -> str | None:
    if revision is None:
        return None
    ran = user_git(
        root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", ok=(0, 1, 128)
    )
    if ran.code != 0 or not is_ancestor(root, ran.text, main):
        raise TeamError(f"{one_line(revision, 60)} is no commit of the team's main; `git log team/main` shows them")
    return ran.text


def _refuse_overwriting(root: Path, changes: Iterable[_Change]) -> None:
    """Refuse to replace files that git does not track: a merge overwrites the ignored ones without a word."""
    tracked = set(user_git(root, "ls-files", "-z").out.split(b"\0"))
    blocked: dict[str, None] = {}
    for change in changes:
        if change.kind == "D" or os.fsencode(change.path) in tracked:
            continue
        blocked |= dict.fromkeys(_in_the_way(root, change.path, tracked))
    if blocked:
        shown = listed(list(blocked), 3)
        raise TeamError(f"files that git does not track would be overwritten: {shown}; move them away first")


def _in_the_way(root: Path, path: str, tracked: set[bytes]) -> Iterator[str]:
    """Untracked files at ``path``, below it, or in place of one of its directories."""
    parts = path.split("/")
    for n in range(1, len(parts)):
        above = root.joinpath(*parts[:n])
        if above.is_symlink() or (above.exists() and not above.is_dir()):
            if os.fsencode("/".join(parts[:n])) not in tracked:
                yield "/".join(parts[:n])
            return
    full = root / path
    if full.is_symlink() or full.is_file():
        yield path
    elif full.is_dir():
        for directory, _, names in os.walk(full):
            for name in names:
                inner = (Path(directory) / name).relative_to(root).as_posix()
                if os.fsencode(inner) not in tracked:
                    yield inner
    elif full.exists():
        yield path


def _merge(root: Path, old: str, *args: str) -> None:
    """``git merge`` with ``args``; where it fails the work tree is put back as it was."""
    ran = user_git(root, "merge", "--quiet", "--commit", "--no-squash", "--no-overwrite-ignore", *args, ok=range(256))
    if ran.code == 0:
        return
    files = user_git(root, "diff", "--name-only", "--diff-filter=U", "-z").out
    unmerged = [os.fsdecode(f) for f in files.split(b"\0") if f]
    user_git(root, "merge", "--abort", ok=range(256))
    if commit_of(root, "HEAD") != old:
        raise TeamError(f"git merged, and then failed: {one_line(ran.error)}")
    if unmerged:
        raise worktree.conflict(unmerged)
    words = one_line(ran.error or os.fsdecode(ran.out)).removeprefix("fatal: ")
    raise TeamError(f"git refused the merge: {words}; `git merge team/main` by hand")
