"""Other people's projects as their authors publish them, and interpreters for their tests; made once, and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

PYTEST = "pytest==8.3.4"
OLD_PYTEST = "pytest==6.2.5"
PLUGINS = (
    PYTEST,
    "pytest-asyncio==0.25.0",
    "pytest-cov==6.0.0",
    "pytest-randomly==3.16.0",
    "pytest-rerunfailures==15.0",
    "pytest-subtests==0.14.1",
    "pytest-timeout==2.3.1",
    "pytest-xdist==3.6.1",
)
SUITES = {
    "click==8.1.8": (PYTEST, "click==8.1.8"),
    "more-itertools==10.5.0": (PYTEST, "more-itertools==10.5.0"),
    "jinja2==3.1.6": (PYTEST, "jinja2==3.1.6", "trio==0.27.0"),
}
"""Pytest suites with over 500 cases each: the project, and what its tests need."""


def interpreter(*packages: str) -> Path:
    """A Python with these packages."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        _pip("--python", folder / "bin" / "python", "install", *packages)

    return _kept(" ".join(packages), make) / "bin" / "python"


def project(requirement: str, target: Path) -> Path:
    """The source distribution of ``requirement`` (``name==version``), unpacked below ``target`` as a git repository."""

    def make(folder: Path) -> None:
        _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", folder, requirement)

    (archive,) = _kept(f"source of {requirement}", make).glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(target, filter="data")
    (root,) = target.iterdir()
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def _kept(what: str, make: Callable[[Path], None]) -> Path:
    """A directory that ``make`` filled, now or earlier."""
    top = Path(tempfile.gettempdir()) / f"real-suites-{os.getuid()}"
    top.mkdir(mode=0o700, exist_ok=True)
    folder = top / hashlib.sha256(f"{sys.version} {what}".encode()).hexdigest()[:16]
    done = folder / ".complete"
    with FileLock(f"{folder}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
