"""Tool chains and other people's projects that tests of suites use: installed where missing, as root on Debian."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from team.sampler.cases import Case, Options, Result
from team.sampler.suites import Suite

_PACKAGES = {
    "cargo": ("cargo", "rustc", "gcc", "libc6-dev"),
    "go": ("golang-go",),
    "cmake": ("cmake", "make", "gcc", "libc6-dev"),
    "dpkg-source": ("dpkg-dev", "xz-utils"),
    "ccache": ("ccache",),
    "gcc": ("gcc", "libc6-dev"),
    "make": ("make",),
    "ninja": ("ninja-build",),
    "tcc": ("tcc", "libc6-dev"),
    "tclsh": ("tcl",),
}
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


def need(program: str) -> None:
    """Make sure that ``program`` is there. A test without it fails: one that is skipped proves nothing."""
    if shutil.which(program):
        return
    packages = _PACKAGES[program]
    if os.geteuid() or not shutil.which("apt-get"):
        pytest.fail(f"{program} is not installed: on Debian `apt-get install {' '.join(packages)}`", pytrace=False)
    install = [*_APT, "install", "-y", "--no-install-recommends", *packages]
    if _call(install).returncode:
        _call([*_APT, "update"])
        _done(install)


def library(package: str, folder: Path) -> Path:
    """What a Debian package installs, unpacked below ``folder``: for source that it ships, tests and all."""
    _debian()
    if _call([*_APT, "download", package], folder).returncode:
        _call([*_APT, "update"])
        _done([*_APT, "download", package], folder)
    (file,) = folder.glob(f"{package}_*.deb")
    _done(["dpkg", "-x", str(file), str(folder / package)])
    return folder / package


def source(package: str, folder: Path) -> Path:
    """The source of a Debian package, unpacked below ``folder``."""
    _debian()
    need("dpkg-source")
    # With lists of our own: those of the machine have no sources, and stay as they are.
    lists = folder / "lists"
    lists.joinpath("partial").mkdir(parents=True)
    fields = "--format=$(REPO_URI) $(RELEASE) $(COMPONENT)"
    targets = _done(["apt-get", "indextargets", fields, "Created-By: Packages", "Origin: Debian", "Component: main"])
    if not targets:
        _done([*_APT, "update"])
        targets = _done(["apt-get", "indextargets", fields, "Created-By: Packages", "Origin: Debian"])
    (folder / "sources.list").write_text(f"deb-src {targets.splitlines()[0]}\n")
    places = [f"Dir::Etc::SourceList={folder}/sources.list", "Dir::Etc::SourceParts=-", f"Dir::State::Lists={lists}"]
    options = [word for place in places for word in ("-o", place)]
    _done([*_APT, *options, "update"])
    _done([*_APT, *options, "source", package], folder)
    (found,) = (path for path in folder.glob(f"{package}-*") if path.is_dir())
    return found


def _debian() -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.fail("this test takes its project from Debian's packages: run it on Debian", pytrace=False)


def _call(argv: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _done(argv: Sequence[str], cwd: Path | None = None) -> str:
    done = _call(argv, cwd)
    if done.returncode:
        pytest.fail(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}", pytrace=False)
    return done.stdout


def write(folder: Path, files: dict[str, str]) -> Path:
    """``folder`` with these files in it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def outcomes(suite: Suite, options: Options, wanted: Callable[[Case], bool] = lambda case: True) -> dict[str, Result]:
    """Run what is ``wanted`` of a suite: the results by name, one for each chosen case and no other."""
    asked: list[Sequence[Case]] = []
    results: list[Result] = []

    def choose(cases: Sequence[Case]) -> Sequence[Case]:
        asked.append([case for case in cases if wanted(case)])
        return asked[-1]

    suite.run(choose, options, results.append)
    (chosen,) = asked
    assert sorted(result.name for result in results) == sorted(case.name for case in chosen)
    assert all(result.seconds >= 0 for result in results)
    return {result.name: result for result in results}


def running(text: str) -> list[str]:
    """The processes whose command line holds ``text``."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if text in line]
