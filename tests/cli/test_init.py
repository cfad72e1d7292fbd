"""`team init`: writes what is missing, never overwrites, says what to do next."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from team import config_file, scaffold
from team.cli import main
from team.config import Budget, Settings
from team.errors import TeamError

FILES = ["team.toml", "AGENT_PROMPT.md", "current_tasks/.gitkeep", "tasks/README.md"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*args: str) -> Result:
    return CliRunner().invoke(main, ["init", *args])


def test_writes_everything_and_says_in_three_lines_what_to_do(root: Path) -> None:
    result = init()
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[-1] for line in lines[:4]] == FILES
    assert [line[:2] for line in lines[4:]] == ["1.", "2.", "3."]
    assert all((root / path).is_file() for path in FILES)
    assert "proves" in (root / "tasks" / "README.md").read_text()


def test_the_template_shows_the_defaults(root: Path) -> None:
    init()
    assert config_file.load(root) == Settings()
    text = (root / "team.toml").read_text()
    (root / "team.toml").write_text(re.sub(r"(?m)^#(\w+ = )", r"\1", text))
    settings = config_file.load(root)
    examples: dict[str, object] = {
        "model": None,
        "budget": Budget(),
        "builtin": settings.builtin.model_copy(update={"tokens": None, "seconds": None}),
        "breaker": settings.breaker.model_copy(update={"turns": None}),
        "test": replace(settings.test, memory=None),
        "oracle": replace(settings.oracle, memory=None),
        "session": settings.session.model_copy(update={"cpus": None}),
    }
    assert settings.model_copy(update=examples) == Settings()


def test_never_overwrites(root: Path) -> None:
    (root / "AGENT_PROMPT.md").write_text("mine")
    (root / "team.toml").symlink_to("elsewhere")
    result = init("--json")
    assert json.loads(result.output)["existed"] == ["team.toml", "AGENT_PROMPT.md"]
    assert (root / "AGENT_PROMPT.md").read_text() == "mine"
    assert not (root / "elsewhere").exists()
    assert json.loads(init("--json").output)["created"] == []


def test_from_a_directory_below_writes_at_the_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "src").mkdir()
    monkeypatch.chdir(root / "src")
    assert init().exit_code == 0
    assert (root / "team.toml").exists()
    assert not (root / "src" / "team.toml").exists()


@pytest.mark.parametrize("kind", ["file", "link out"])
def test_in_the_way_means_nothing_is_written(root: Path, tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    outside = tmp_path_factory.mktemp("outside")
    if kind == "file":
        (root / "tasks").write_text("a list of tasks")
    else:
        (root / "tasks").symlink_to(outside)
    result = init()
    assert result.exit_code == 2
    assert result.output.startswith("team: tasks is a ")
    assert not (root / "team.toml").exists()
    assert not list(outside.iterdir())


def test_failure_in_the_middle_leaves_nothing(root: Path) -> None:
    too_long = "x" * 300  # no file system takes it, whoever asks
    with pytest.raises(TeamError, match="nothing was written"):
        scaffold.write(root, {"new.txt": "1", "dir/new.txt": "2", too_long: "3"})
    assert [path.name for path in root.iterdir()] == [".git"]


def test_ignored_files_are_named(root: Path) -> None:
    (root / ".gitignore").write_text("tasks/\n")
    assert "ignored tasks/README.md" in init().output


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = init()
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1
