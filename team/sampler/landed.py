"""Where a clone stands: what is tested, and the landed state that it is measured against."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from team import git

# Locks and tickets are no part of what is tested: a claim by somebody else must not make everything unknown.
_ASIDE = (b"current_tasks", b"tasks")
OWN = {"GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL", str(Path.home() / ".gitconfig"))}
"""For git in the caller's own work tree: who may own it, and what git ignores, is the caller's to say."""
_MAINS = ("refs/remotes/team/main", "refs/remotes/origin/main")


@dataclass(frozen=True)
class Stand:
    """The state of a work tree."""

    commit: str = ""
    """What is checked out; empty outside a git repository, or before the first commit."""
    content: str = ""
    """Names the tree that is tested; empty where the work tree has changes that are not committed."""
    base: str = ""
    """The newest landed commit in it; empty where nothing lands (no remote)."""
    base_content: str = ""
    changed: Sequence[str] = ()
    """Files that differ from the landed state, or from the last commit where there is none; relative to the top."""

    @property
    def landed(self) -> bool:
        """Whether this is the landed state itself, or nothing lands here."""
        return not self.base or (bool(self.content) and self.content == self.base_content)


def stand(root: Path) -> Stand:
    """Where the work tree ``root`` stands."""
    commit = git.resolve(root, "HEAD^{commit}", OWN) if (root / ".git").exists() else None
    if commit is None:
        return Stand()
    base = _base(root)
    aside = [f":(top,exclude){name.decode()}" for name in _ASIDE]
    status = git.git("status", "--porcelain", "-z", "--no-renames", "--", ".", *aside, at=root, env=OWN, seconds=120)
    dirty = [entry[3:] for entry in status.split(b"\0") if entry]
    changed = set(dirty)
    if base:
        diff = git.git("diff", "--name-only", "-z", "--no-renames", base, commit, "--", ".", *aside, at=root, env=OWN)
        changed |= set(diff.split(b"\0")) - {b""}
    return Stand(
        commit=commit,
        content="" if dirty else content(root, commit),
        base=base,
        base_content=content(root, base) if base else "",
        changed=sorted(path.decode("utf-8", "surrogateescape") for path in changed),
    )


def content(root: Path, commit: str) -> str:
    """A name for the tree of ``commit`` without locks and tickets."""
    entries = git.git("ls-tree", "-z", commit, at=root, env=OWN).split(b"\0")
    kept = [entry for entry in entries if entry.partition(b"\t")[2] not in _ASIDE]
    return hashlib.sha256(b"\0".join(kept)).hexdigest()[:24]


def _base(root: Path) -> str:
    """The newest commit of main that what is checked out contains."""
    upstream = git.git_status("rev-parse", "--symbolic-full-name", "@{upstream}", at=root, env=OWN, ok=(0, 128))
    mains = [*_MAINS, *([upstream[1].decode().strip()] if upstream[0] == 0 else [])]
    for main in mains:
        if git.resolve(root, f"{main}^{{commit}}", OWN) is not None:
            code, out = git.git_status("merge-base", "HEAD", main, at=root, env=OWN)
            if code == 0:
                return out.decode().split("\n", 1)[0]
    return ""
