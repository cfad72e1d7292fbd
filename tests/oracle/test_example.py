"""The worked example does what its README says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.sampler import toolchains

TOP = Path(__file__).resolve().parents[2]


def test_the_example(tmp_path: Path) -> None:
    toolchains.need("gcc")
    toolchains.need("make")
    root = tmp_path / "example"
    shutil.copytree(TOP / "examples" / "oracle", root)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TEAM_")}
    env = kept | {"PYTHONPATH": str(TOP), "TMPDIR": str(tmp_path)}

    def oracle(*args: str, code: int) -> str:
        argv = [sys.executable, "-m", "team.oracle.main", *args]
        done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    report = json.loads(oracle("run", "--json", code=1))
    assert [culprit["units"] for culprit in report["culprits"]] in (
        [["src/roman.c"], ["src/queue.c", "src/stack.c"]],
        [["src/queue.c", "src/stack.c"], ["src/roman.c"]],
    )
    assert report["builds"] <= 16 and report["rest"] == "passes"
    assert "roman(XIV) is -4, not 14" in oracle("check", "src/roman.c", code=1)
    assert "fix_src--" in oracle("next", code=0)
    assert "order of lines" in oracle("compare", code=1)
