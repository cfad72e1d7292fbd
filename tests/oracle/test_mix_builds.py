"""Mix mode on real builds: Lua with gcc as reference, and compilers that get chosen files of it wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import builds
from tests.oracle.builds import Fault


def settings(build: builds.Build, candidate: str, **more: object) -> str:
    table = {
        "list": "cat units",
        "build": build.build,
        "check": build.check,
        "reference": "gcc",
        "candidate": candidate,
        **more,
    }
    (build.root / "units").write_text("".join(f"{unit}\n" for unit in build.units))
    return "[oracle]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def run(tmp_path: Path, faults: Mapping[str, Fault], *args: str, code: int = 1, **more: object) -> Any:
    """What ``team oracle`` finds in a Lua that is compiled with ``faults``."""
    build = builds.lua(tmp_path / "lua")
    check = more.pop("check", None)
    candidate = builds.miscompiler(tmp_path / "bad", faults)
    text = settings(build, candidate, **({"check": check} if check else {}), **more)
    (build.root / "team.toml").write_text(text)
    subprocess.run(["git", "init", "-q", build.root], check=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TEAM_")}
    (tmp_path / "tmp").mkdir()
    env = kept | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    argv = [sys.executable, "-m", "team.oracle.main", *(args or ("run",)), "--json"]
    done = subprocess.run(argv, cwd=build.root, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def units(report: Any) -> list[list[str]]:
    return sorted(culprit["units"] for culprit in report["culprits"])


def test_one_bad_file(tmp_path: Path) -> None:
    unit = "src/lstrlib.c"
    report = run(tmp_path, {unit: builds.LUA_FAULTS[unit]})
    assert units(report) == [[unit]] and report["rest"] == "passes"
    assert "string.reverse" in report["culprits"][0]["reason"]


def test_eight_bad_files(tmp_path: Path) -> None:
    report = run(tmp_path, builds.LUA_FAULTS, "run", "-j", "2")
    assert units(report) == sorted([unit] for unit in builds.LUA_FAULTS) and report["rest"] == "passes"


def test_a_pair_that_fails_only_together(tmp_path: Path) -> None:
    report = run(tmp_path, builds.LUA_PAIR)
    assert units(report) == [sorted(builds.LUA_PAIR)] and report["rest"] == "passes"


def test_a_file_that_cannot_be_compiled_and_one_that_is_wrong(tmp_path: Path) -> None:
    wrong = "src/loslib.c"
    report = run(tmp_path, {**builds.LUA_CRASH, wrong: builds.LUA_FAULTS[wrong]})
    assert units(report) == sorted([[wrong], [*builds.LUA_CRASH]])
    reasons = {culprit["units"][0]: culprit["reason"] for culprit in report["culprits"]}
    assert reasons[wrong].startswith("exit 1")
    assert all("the candidate cannot compile it" in reasons[unit] for unit in builds.LUA_CRASH)


@pytest.mark.parametrize("fault", ["src/lutf8lib.c"])
def test_a_check_that_is_wrong_in_one_of_five(tmp_path: Path, fault: str) -> None:
    check = builds.flaky("src/lua check.lua", 20)
    report = run(tmp_path, {fault: builds.LUA_FAULTS[fault]}, "run", "-j", "2", check=check, flaky=0.2)
    assert units(report) == [[fault]] and report["rest"] == "passes"
