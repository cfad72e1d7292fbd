"""Copies of the work tree in which sets of units are built: one for each build at a time, kept from run to run.

What a build made stays, so that the next one makes only what changed; the agent's own work tree is never touched.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from team import git
from team.errors import TeamError
from team.sampler.landed import OWN

_MANIFEST = ".team-oracle-files"


def home(root: Path) -> Path:
    """Where the copies of ``root`` and the objects of its builds are: a directory that is nobody else's."""
    name = f"team-oracle-{os.getuid()}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    path = Path(tempfile.gettempdir()) / name
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if path.is_symlink() or found.st_uid != os.getuid():
        raise TeamError(f"{path} belongs to somebody else; remove it or set TMPDIR")
    path.chmod(0o700)
    return path


def state_of(root: Path) -> str:
    """A name for all files of the work tree as they are, whether or not they are committed."""
    if not (root / ".git").exists():
        found = hashlib.sha256()
        for name in files(root):
            found.update(os.fsencode(name) + b"\0" + _content(root / name))
        return found.hexdigest()[:32]
    with tempfile.TemporaryDirectory(prefix="team-oracle-") as directory:
        env = {**OWN, "GIT_INDEX_FILE": f"{directory}/index", "GIT_OBJECT_DIRECTORY": f"{directory}/objects"}
        objects = git.line("rev-parse", "--path-format=absolute", "--git-path", "objects", at=root, env=OWN)
        Path(env["GIT_OBJECT_DIRECTORY"]).mkdir()
        env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = objects
        if git.resolve(root, "HEAD^{commit}", OWN) is not None:
            git.git("read-tree", "HEAD", at=root, env=env)
        aside = (":(top,exclude)current_tasks", ":(top,exclude)tasks", ":(top,exclude)agent_logs")
        git.git("rm", "-r", "-q", "--cached", "--ignore-unmatch", "current_tasks", "tasks", at=root, env=env)
        git.git("add", "-A", "--", ".", *aside, at=root, env=env, seconds=600)
        return git.line("write-tree", at=root, env=env)


def files(root: Path) -> list[str]:
    """The files of the work tree that git would keep; all of them where there is no git."""
    if (root / ".git").exists():
        out = git.git("ls-files", "-z", "-c", "-o", "--exclude-standard", at=root, env=OWN, seconds=120)
        names = {os.fsdecode(name) for name in out.split(b"\0") if name}
    else:
        names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink()}
    return sorted(name for name in names if os.path.lexists(root / name) and not name.startswith("agent_logs/"))


def take(home: Path) -> tuple[Path, BinaryIO]:
    """A copy that no other process builds in, and what keeps it so: it is the caller's until that is closed."""
    for n in itertools.count():
        lock = (home / f"tree-{n}.lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        return home / f"tree-{n}", lock
    raise AssertionError


def bring_up_to_date(root: Path, copy: Path) -> None:
    """Make the files in ``copy`` those of ``root``: what did not change keeps its time, what a build made stays."""
    copy.mkdir(parents=True, exist_ok=True)
    now = files(root)
    manifest = copy / _MANIFEST
    started = manifest.exists()
    before = os.fsdecode(manifest.read_bytes()).split("\0") if started else []
    for name in set(before) - set(now):
        if name:
            _remove(copy / name)
    for name in now:
        _copy(root / name, copy / name, started=started)
    manifest.write_bytes(os.fsencode("\0".join(now)))


def strip(copy: Path) -> None:
    """Remove what was built in ``copy``: what a build that was killed left half made cannot be told from the rest."""
    manifest = copy / _MANIFEST
    kept = {_MANIFEST, *(os.fsdecode(manifest.read_bytes()).split("\0") if manifest.exists() else [])}
    parents = {str(parent) for name in kept for parent in Path(name).parents}
    for folder, folders, names in os.walk(copy):
        for name in [*folders, *names]:
            path = Path(folder) / name
            place = str(path.relative_to(copy))
            if place not in kept and place not in parents:
                _remove(path)
        folders[:] = [name for name in folders if str((Path(folder) / name).relative_to(copy)) in parents]


def _copy(source: Path, target: Path, *, started: bool) -> None:
    """``started``: something may have been built already, so what changed is newer than that, whenever it was
    written."""
    want = source.lstat()
    if stat.S_ISDIR(want.st_mode):  # a submodule
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        return
    if os.path.lexists(target):
        have = target.lstat()
        alike = (have.st_size, have.st_mode) == (want.st_size, want.st_mode)
        if alike and (_time(have) == _time(want) or _content(source) == _content(target)):
            return
        _remove(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)
    if started:
        os.utime(target, follow_symlinks=False)


def _time(found: os.stat_result) -> int:
    """When a file was changed; a link has no time that tells anything."""
    return found.st_ino if stat.S_ISLNK(found.st_mode) else found.st_mtime_ns


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    return os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
