"""``team task add`` and ``team tasks``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.ticket import name_and_title

from .conftest import CommandLine, git


def test_a_title_becomes_a_ticket_on_main(team: CommandLine, root: Path) -> None:
    added = team("task", "add", "Fix the parser for empty files")
    assert added.code == 0, added
    assert "added tasks/fix_the_parser_for_empty_files.md on main" in added.out and "team pull" in added.out
    text = git(root, "--git-dir", str(upstream(root)), "show", "main:tasks/fix_the_parser_for_empty_files.md")
    assert text.startswith("# Fix the parser for empty files") and "Which check proves it" in text
    assert git(root, "status", "--porcelain") == ""


def upstream(root: Path) -> Path:
    return Path(git(root, "config", "remote.team.url"))


def test_a_ticket_from_a_file_or_standard_input(team: CommandLine, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "ticket.md"
    file.write_text("The parser fails on empty files.\n")
    assert team("task", "add", "fix_parser", "--file", str(file)).code == 0
    assert team("task", "add", "Fix it", "--name", "other", "-F", "-", stdin="# Own title\n\nbody\n").code == 0
    show = ["--git-dir", str(upstream(root)), "show"]
    assert git(root, *show, "main:tasks/fix_parser.md") == "# fix parser\n\nThe parser fails on empty files."
    assert git(root, *show, "main:tasks/other.md") == "# Own title\n\nbody"


def test_json(team: CommandLine) -> None:
    document = team("task", "add", "Fix the parser", "--json").json
    assert document["task"] == "fix_the_parser" and document["path"] == "tasks/fix_the_parser.md"
    assert len(document["commit"]) == 40


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("fix/parser", "fix_parser"),
        ("../etc", "etc"),
        ("fix..parser", "fix.parser"),
        ("fix\nparser", "fix_parser"),
        ("x" * 300, "x" * 100),
        ("Fix_Parser", "fix_parser"),
        ("réparer", "reparer"),
        ("-rf", "rf"),
        ("fix_parser.md", "fix_parser"),
        ("fix_parser\u200b", "fix_parser"),
        ("\x1b[31mred", "31mred"),
    ],
)
def test_a_bad_name_is_answered_with_the_nearest_good_one(team: CommandLine, root: Path, name: str, near: str) -> None:
    message = team.refused("task", "add", "--", name)
    assert message.endswith(f"try `--name {near}`"), message
    assert "\x1b" not in message and len(message) < 400
    assert not (root / ".team").exists()
    assert team.refused("task", "add", "Some title", "--name", name).endswith(f"try `--name {near}`")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fix the parser", "fix_the_parser"),
        ("  Fix a/b: don't crash ", "fix_a_b_don_t_crash"),
        ("Füge Umlaute hinzu", "fuge_umlaute_hinzu"),
        ("fix_parser", "fix_parser"),
    ],
)
def test_names_from_titles(text: str, name: str) -> None:
    assert name_and_title(text, None)[0] == name


@pytest.mark.parametrize("text", ["", "   ", "修复 解析器", "many words " * 30, "two\nlines here"])
def test_titles_that_make_no_name(text: str) -> None:
    with pytest.raises(TeamError, match="try `--name"):
        name_and_title(text, None)


def test_bad_files(team: CommandLine, root: Path, tmp_path: Path) -> None:
    binary, empty, large = tmp_path / "binary", tmp_path / "empty", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe\x00")
    empty.write_text(" \n")
    large.write_text("x" * 300_000)
    os.mkfifo(tmp_path / "fifo")
    for file, words in (
        (tmp_path / "missing", "cannot be read: No such file"),
        (tmp_path, "no regular file"),
        (tmp_path / "fifo", "no regular file"),
        (binary, "not UTF-8"),
        (empty, "is empty"),
        (large, "256 KiB"),
    ):
        assert words in team.refused("task", "add", "Fix it all", "--file", str(file))
    assert not (root / ".team").exists()


def test_an_existing_task_is_not_overwritten(team: CommandLine, root: Path) -> None:
    assert team("task", "add", "Fix it all").code == 0
    assert "fix_it_all" in team.refused("task", "add", "Fix it all")


def test_tasks_lists_what_is_free_and_who_holds_the_rest(team: CommandLine, project: Project, ledger: Ledger) -> None:
    assert "no tasks" in team("tasks").out
    team("task", "add", "Fix the parser")
    team("task", "add", "Speed it up")
    shown = team("tasks")
    assert shown.code == 0
    assert "fix_the_parser" in shown.out and "Fix the parser" in shown.out and "open" in shown.out
    assert {t["name"] for t in team("tasks", "--json").json["tasks"]} == {"fix_the_parser", "speed_it_up"}
    assert [e.task for e in ledger.events(Kind.TASK_ADDED)] == ["fix_the_parser", "speed_it_up"]


def test_tasks_before_the_first_up(team: CommandLine, root: Path) -> None:
    assert team("tasks").code == 0
    assert team("tasks", "--json").json == {"tasks": []}
    assert not (root / ".team").exists()
