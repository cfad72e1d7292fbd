"""The group itself: help, version, misspelt verbs, completion, and errors as one line."""

from __future__ import annotations

import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from team import __version__
from team.cli import VERBS, main
from team.errors import TeamError
from team.git import GitError
from team.places import Project
from team.runtimes import EngineLost

from .conftest import CommandLine


def test_help_names_every_verb_and_how_to_complete(team: CommandLine) -> None:
    shown = team("--help")
    assert shown.code == 0
    for verb in VERBS:
        assert f"\n  {verb} " in shown.out
    assert "team completion bash" in shown.out


def test_help_starts_in_about_a_tenth_of_a_second(team: CommandLine) -> None:
    def once() -> float:
        began = time.perf_counter()
        team("--help")
        return time.perf_counter() - began

    # Against a bare interpreter in the same run, so that a busy machine does not decide.
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import click"], check=True)
    bare = time.perf_counter() - began
    assert statistics.median(once() for _ in range(5)) < 0.1 + 2 * bare


def test_help_imports_no_verb_and_nothing_heavy() -> None:
    script = (
        "import sys; from team.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'pydantic', 'docker', 'aiohttp', 'asyncio', 'sqlite3', 'team.cli.up'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_its_words_match(verb: str) -> None:
    command = importlib.import_module(VERBS[verb][0]).command
    assert isinstance(command, click.Command) and command.name == verb
    shown = CliRunner().invoke(main, [verb, "--help"])
    assert shown.exit_code == 0 and f"Usage: team {verb}" in shown.output


def test_version(team: CommandLine) -> None:
    assert team("--version").out == f"team {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "mend"),
    [
        ("upp", "did you mean `team up`?"),
        ("frobnicate", "`team --help` lists them"),
        ("log", "did you mean `team logs`?"),
    ],
)
def test_a_missing_verb_is_suggested(team: CommandLine, typed: str, mend: str) -> None:
    assert team.refused(typed) == f"there is no verb '{typed}'; {mend}"


def test_a_wrong_option_is_one_line_that_names_the_help(team: CommandLine) -> None:
    assert team.refused("up", "--agentz", "3").endswith("see `team up --help`")


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "_TEAM_COMPLETE"), ("zsh", "#compdef team"), ("fish", "--command team")]
)
def test_completion_scripts(team: CommandLine, shell: str, mark: str) -> None:
    script = team("completion", shell)
    assert script.code == 0 and mark in script.out


def test_completion_completes_verbs_and_options(team: CommandLine) -> None:
    def complete(words: str, at: int) -> list[str]:
        done = team(_TEAM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(at))
        return [line.partition(",")[2] for line in done.out.splitlines()]

    assert complete("team ta", 1) == ["tasks", "task"]
    assert complete("team up --role re", 3) == ["review"]
    assert complete("team up --client co", 3) == ["codex", "command"]
    assert "--agents" in complete("team up --a", 2)


def test_completion_knows_agents_and_tasks_and_is_silent_elsewhere(
    team: CommandLine, project: Project, tmp_path: Path
) -> None:
    def complete(words: str, cwd: Path) -> list[str]:
        at = str(len(words.split(" ")) - 1)
        done = team(cwd=cwd, _TEAM_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
        assert done.err == ""
        return [line.partition(",")[2] for line in done.out.splitlines() if line]

    for agent in ("agent-01", "docs-01"):
        (project.logs / agent).mkdir()
    team("task", "add", "Fix the parser")
    below = team.root / "below"
    below.mkdir()
    assert complete("team logs a", below) == ["agent-01"]
    assert complete("team unblock ", below) == ["fix_the_parser"]
    assert complete("team rescue show ", below) == []
    for line in ("team logs a", "team unblock ", "team up --role re"):
        assert complete(line, tmp_path) == []


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (TeamError("say\nthis"), 2, "team: say this\n"),
        (EngineLost("refused"), 2, "team: the engine does not answer (refused); start it, or let `team doctor` look\n"),
        (OSError(28, "No space left on device", "/x"), 2, "team: no space left on the disk; "),
        (GitError(["pack-objects"], 128, "hint: x\nfatal: No space left on device"), 2, "team: no space left on the "),
        (
            GitError(["init"], 128, "hint: some advice\nfatal: what is wrong"),
            2,
            "team: git init: fatal: what is wrong\n",
        ),
        (PermissionError(13, "denied", "/x"), 2, "team: permission denied: /x\n"),
        (FileNotFoundError(2, "none", "git"), 2, "team: git is not installed; install git 2.38 or newer\n"),
    ],
)
def test_errors_are_one_line_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, line: str
) -> None:
    monkeypatch.setattr("team.worktree.find_root", _raiser(error))
    result = CliRunner().invoke(main, ["ps"])
    assert result.exit_code == code
    assert result.stdout == "" and result.stderr.startswith(line) and result.stderr.count("\n") == 1


def test_a_bug_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("team.worktree.find_root", _raiser(ZeroDivisionError()))
    assert isinstance(CliRunner().invoke(main, ["ps"]).exception, ZeroDivisionError)


def _raiser(error: Exception) -> Callable[..., None]:
    def fail(*args: object) -> None:
        raise error

    return fail


def test_a_reader_that_goes_away_is_no_error(team: CommandLine) -> None:
    command = " ".join(team.argv("--help")) + " | true; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", command], cwd=team.root, env=team.env, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
