"""The whole team with a scripted model: what `make demo` and `team rehearse` do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from team.errors import TeamError
from team.git import git, line
from team.places import state_home
from team.rehearsal.main import rehearse
from team.rehearsal.project import make


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def demo(*flags: str, **env: str) -> tuple[int, dict[str, object], str]:
    argv = [sys.executable, "-m", "team.rehearsal.main", "--json", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env}, timeout=300)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def check_demo(code: int, report: dict[str, object], progress: str) -> None:
    assert code == 0, progress
    counts = report["counts"]
    assert isinstance(counts, dict)
    assert report["done"] == report["tasks"] == 12
    assert counts["claims_refused"] >= 3, "all four wanted the first ticket"
    assert counts["conflicts"] >= 1 and counts["resolved"] >= 1
    assert counts["locks_left"] == [] and counts["failed"] == []
    assert "claimed add_mean" in progress
    root = Path(str(report["root"]))
    assert line("rev-parse", "HEAD", at=root) and git("status", "--porcelain", at=root) == b""


def test_without_an_engine_the_demo_runs_as_processes_with_a_warning() -> None:
    code, report, progress = demo(DOCKER_HOST="unix:///nonexistent.sock")
    check_demo(code, report, progress)
    assert "WARNING" in progress and report["client"] == "stand-in"


@pytest.mark.engine
def test_the_demo_runs_in_containers_with_the_real_client(claude_image: str) -> None:
    code, report, progress = demo()
    check_demo(code, report, progress)
    assert (report["client"], report["runtime"]) == ("claude-code", "docker")


def test_a_rehearsal_leaves_nothing_behind(tmp_path: Path) -> None:
    root = make(tmp_path / "mine")
    before = sorted(p.name for p in root.iterdir()), git("for-each-ref", at=root)
    said: list[str] = []
    report = rehearse(root, agents=2, client="command", runtime="process", say=said.append)
    assert report.ok  # failing tests are the project's own matter
    assert all(said.startswith("tests: exit 1: FAILED (failures=") for said in report.agents.values())
    assert (sorted(p.name for p in root.iterdir()), git("for-each-ref", at=root)) == before
    assert list(state_home().iterdir()) == []


def test_a_rehearsal_that_fails_says_why_and_keeps_its_logs(tmp_path: Path) -> None:
    root = make(tmp_path / "mine")
    (root / "team.toml").write_text('[session]\nsetup = "echo no compiler; exit 4"\n')
    said: list[str] = []
    with pytest.raises(TeamError, match="logs: "):
        rehearse(root, agents=1, client="command", runtime="process", say=said.append)
    assert any("ended badly" in text and "setup" in text for text in said)
    (state,) = state_home().iterdir()
    assert any("no compiler" in p.read_text("utf-8", "replace") for p in state.rglob("*.log"))


def test_a_report_for_machines_names_only_what_is_there(tmp_path: Path) -> None:
    root = make(tmp_path / "mine")
    argv = [sys.executable, "-P", "-m", "team.cli", "rehearse", "--json", "--agents", "1", "--runtime", "process"]
    good = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=120)
    assert json.loads(good.stdout)["ok"] is True and str(tmp_path) not in good.stdout
    (root / "team.toml").write_text('[session]\nsetup = "exit 4"\n')
    bad = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=120)
    report = json.loads(bad.stdout)
    assert (bad.returncode, report["ok"], Path(report["state"]).is_dir()) == (2, False, True)


@pytest.mark.engine
def test_a_rehearsal_in_containers_leaves_nothing_on_the_engine(tmp_path: Path, claude_image: str) -> None:
    root = make(tmp_path / "mine")
    (root / "team.toml").write_text(
        '[test]\ncommand = "test -d /home/agent/cache"\n[session]\ncache = ["/home/agent/cache"]\n'
    )
    ids: set[str] = set()
    report = rehearse(
        root,
        agents=2,
        client="claude-code",
        runtime="docker",
        say=lambda text: ids.update(path.name for path in state_home().glob("rehearsal-*")),
    )
    assert report.ok and set(report.agents.values()) == {"tests: exit 0"}
    [id] = ids
    name = f"name=team-{id}-"
    for what in (["ps", "-aq"], ["volume", "ls", "-q"]):
        left = subprocess.run(["docker", *what, "--filter", name], capture_output=True, check=True)
        assert left.stdout == b""
