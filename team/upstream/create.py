"""Makes upstream from one branch of the user's repository: its history and its tags, nothing else of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from team import git
from team.errors import TeamError
from team.places import Project
from team.text import one_line
from team.upstream.quarantine import quoted

_SECONDS = 1800.0
_HOOK = """#!/bin/sh
echo "upstream takes pushes only through team: in your repository, git push team" >&2
exit 1
"""
_CONFIG = {
    "gc.auto": "0",
    "maintenance.auto": "false",
    "receive.autogc": "false",
    "receive.denyDeletes": "true",
    "receive.denyNonFastForwards": "true",
}
NO_GRAFTS = {"GIT_GRAFT_FILE": os.devnull}


def create(project: Project, source: Path, commit: str) -> None:
    """Make ``project.upstream`` with ``commit`` of the repository ``source`` as main, and ``project.rescue``.

    Built aside and renamed into place, so that a crash leaves nothing half-made. Raises :class:`TeamError` for a
    source that does not hold its whole history.
    """
    check_source(source)
    project.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for leftover in project.state.glob("new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix="new-", dir=project.state))
    try:
        aside.chmod(0o755)
        if not project.rescue.exists():
            _init(aside / "rescue.git")
            alternates = aside / "rescue.git" / "objects" / "info" / "alternates"
            alternates.write_text(f"../../{project.upstream.name}/objects\n", "utf-8")
            (aside / "rescue.git").rename(project.rescue)
        if not project.upstream.exists():
            _init(aside / "upstream.git")
            _fill(aside / "upstream.git", source, commit)
            (aside / "upstream.git").rename(project.upstream)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_source(source: Path) -> None:
    """Raise :class:`TeamError` for a repository whose history cannot be taken over whole."""
    shallow, form, *_ = git.git(
        "rev-parse", "--is-shallow-repository", "--show-object-format", at=source
    ).decode().split()  # fmt: skip
    if shallow == "true":
        raise TeamError(f"{source} is a shallow clone; run `git fetch --unshallow` first")
    if form != "sha1":
        raise TeamError(f"{source} uses {form} object names; only sha1 repositories are supported")
    if git.git_status("config", "--get", "extensions.partialclone", at=source)[0] == 0:
        raise TeamError(
            f"{source} is a partial clone; run `git fetch --refetch --no-filter` and unset its filter first"
        )


def _init(path: Path) -> None:
    git.git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(path), at=path.parent)
    with (path / "config").open("a", encoding="utf-8") as file:
        for key, value in _CONFIG.items():
            section, name = key.split(".")
            file.write(f"[{section}]\n\t{name} = {value}\n")
    hook = path / "hooks" / "pre-receive"
    hook.parent.mkdir()
    hook.write_text(_HOOK, "utf-8")
    for made in (hook.parent, hook):
        made.chmod(0o755)  # whatever our umask is: the user of a container reads here


def _fill(path: Path, source: Path, commit: str) -> None:
    """Copy what ``commit`` and the tags into its history reach. ``source``'s refs, config and stashes stay there."""
    tags = _tags(source, commit)
    wanted = "".join(f"{oid}\n" for oid in [commit, *tags.values()])
    objects = source / os.fsdecode(git.git("rev-parse", "--git-path", "objects", at=source)).removesuffix("\n")
    try:
        # run here, not there: git renames the pack into place, which fails from one file system to another
        git.git(
            "pack-objects", "--revs", "--delta-base-offset", "--quiet", "objects/pack/pack",
            at=path, stdin=wanted.encode(), seconds=_SECONDS, env={"GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted(objects)},
        )  # fmt: skip
    except git.GitError as e:
        raise TeamError(f"cannot copy {source}: {one_line(e.stderr)}; `git fsck` there says what is wrong") from None
    refs = {"refs/heads/main": commit, **tags}
    commands = "".join(f"create {name}\0{oid}\0" for name, oid in refs.items())
    git.git("update-ref", "-z", "--stdin", at=path, stdin=commands.encode("utf-8", "surrogateescape"))
    git.git("pack-refs", "--all", at=path)


def _tags(source: Path, commit: str) -> dict[str, str]:
    out = git.git(
        "for-each-ref", f"--merged={commit}", "--format=%(objectname) %(refname)", "refs/tags", at=source, env=NO_GRAFTS
    )
    lines = out.decode("utf-8", "surrogateescape").splitlines()
    return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}
