"""The compiler wrapper under other people's builds, with compilers that are wrong, and one that is another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pytest

from team.oracle import cc
from tests.oracle import builds
from tests.oracle.builds import Build, Fault
from tests.sampler import toolchains


class Mix:
    """A project that is built with two compilers."""

    def __init__(self, project: Build, folder: Path, candidate: str) -> None:
        self.project = project
        self.cache = folder / "cache"
        self.assignment = folder / "assignment"
        self.listing = folder / "listing"
        wrapper = cc.environment(
            project.root,
            reference="gcc",
            candidate=candidate,
            assignment=self.assignment,
            cache=self.cache,
            listing=self.listing,
        )
        self.env = {**os.environ, **wrapper}

    def build(self, units: Collection[str]) -> list[str]:
        """Build with ``units`` from the candidate; the units that were compiled for it."""
        cc.assign(self.project.root, self.cache, self.assignment, units)
        self.listing.unlink(missing_ok=True)
        self._run(self.project.build).check_returncode()
        return cc.units(self.project.root, self.listing)

    def passes(self) -> bool:
        return self._run(self.project.check).returncode == 0

    def _run(self, command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["sh", "-c", command], cwd=self.project.root, env=self.env, capture_output=True)


def cmake(folder: Path) -> Build:
    return builds.zlib(folder, cmake=True)


@pytest.mark.parametrize(
    ("make", "faults"),
    [
        (builds.lua, builds.LUA_FAULTS),
        (builds.zlib, builds.ZLIB_FAULTS),
        (cmake, builds.ZLIB_FAULTS),
        (builds.sqlite, builds.SQLITE_FAULTS),
    ],
)
def test_each_bad_file_fails_alone_and_the_rest_passes(
    tmp_path: Path, make: Callable[[Path], Build], faults: Mapping[str, Fault]
) -> None:
    mix = Mix(make(tmp_path / "project"), tmp_path, builds.miscompiler(tmp_path / "bad", faults))
    assert sorted(mix.build([])) == sorted(mix.project.units)
    assert mix.passes()
    last: set[str] = set()
    linked = {"bld/shell.c"} & set(mix.project.units)  # in one call with its compilation
    for unit in faults:
        assert set(mix.build([unit])) == last | {unit} | linked
        assert not mix.passes()
        last = {unit}
    mix.build(sorted(set(mix.project.units) - set(faults))[::3])
    assert mix.passes()


def test_a_pair_fails_only_together(tmp_path: Path) -> None:
    mix = Mix(builds.lua(tmp_path / "project"), tmp_path, builds.miscompiler(tmp_path / "bad", builds.LUA_PAIR))
    one, other = builds.LUA_PAIR
    for units, wanted in (([one], True), ([one, other], False), ([other], True)):
        mix.build(units)
        assert mix.passes() is wanted


def test_a_file_that_cannot_be_compiled_and_one_that_cannot_be_linked(tmp_path: Path) -> None:
    faults = {**builds.LUA_CRASH, **builds.LUA_NO_LINK}
    mix = Mix(builds.lua(tmp_path / "project"), tmp_path, builds.miscompiler(tmp_path / "bad", faults))
    for unit in faults:
        with pytest.raises(subprocess.CalledProcessError):
            mix.build([unit])
    assert [(failure.unit, failure.compiler) for failure in cc.failures(mix.cache)] == [
        (unit, "candidate") for unit in builds.LUA_CRASH
    ]
    mix.build([])
    assert mix.passes()


def test_tcc_is_another_compiler(tmp_path: Path) -> None:
    toolchains.need("tcc")
    said = subprocess.run(["tcc", "-print-search-dirs"], capture_output=True, text=True, check=True).stdout
    library = next(line.strip() for line in said.splitlines() if line.endswith("libtcc1.a"))
    mix = Mix(builds.lua(tmp_path / "project", libraries=f"-lm {library}"), tmp_path, "tcc")
    for units in (mix.project.units, mix.project.units[::2], mix.project.units[1::2]):
        mix.build(units)
        assert mix.passes()
    objects = [(mix.project.root / unit).with_suffix(".o").read_bytes() for unit in mix.project.units]
    assert [b"GCC: " in data for data in objects] == [True, False] * 16 + [True]
