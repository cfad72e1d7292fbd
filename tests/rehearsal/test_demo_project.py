"""The demo project and what the scripted model knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from team.git import git
from team.names import task_problem
from team.rehearsal import protocol
from team.rehearsal.project import make, run_tests
from team.rehearsal.solutions import SOLUTIONS


def apply(tree: Path, task: str) -> None:
    for e in SOLUTIONS[task].edits:
        old = (tree / e.path).read_text() if e.old else ""
        assert e.old in old
        (tree / e.path).write_text(old.replace(e.old, e.new, 1) if e.old else e.new)


def test_it_is_the_same_repository_every_time(tmp_path: Path) -> None:
    heads = {git("rev-parse", "HEAD", at=make(tmp_path / name)) for name in ("one", "two words")}
    assert len(heads) == 1
    assert git("status", "--porcelain", at=tmp_path / "one") == b""
    assert int(git("rev-list", "--count", "HEAD", at=tmp_path / "one")) == 3


def test_many_tests_fail_before_and_all_pass_after(tmp_path: Path) -> None:
    tree = make(tmp_path / "demo")
    before = run_tests(tree)
    assert before.ran == 25 and before.failed == 16
    for task in SOLUTIONS:
        apply(tree, task)
    assert run_tests(tree).failed == 0


def test_every_ticket_has_a_solution_and_a_good_name(tmp_path: Path) -> None:
    tickets = {p.stem: p.read_text() for p in (make(tmp_path / "demo") / "tasks").glob("*.md")}
    assert set(tickets) == set(SOLUTIONS) and len(tickets) == 12
    for name, text in tickets.items():
        assert task_problem(name) is None
        assert SOLUTIONS[name].test in text, "the ticket names the test that proves it"


@pytest.mark.parametrize("task", sorted(SOLUTIONS))
def test_each_solution_alone_makes_its_own_test_pass(tmp_path: Path, task: str) -> None:
    tree = make(tmp_path / "demo")
    before = run_tests(tree)
    apply(tree, task)
    assert run_tests(tree).failed < before.failed


def test_a_mark_is_the_last_line_of_ours_in_the_output() -> None:
    assert protocol.mark("noise\n== OPEN a b\n") == protocol.Mark("OPEN", ("a", "b"))
    assert protocol.mark("== CLAIMED a\nExit code 1\n== REFUSED a b") == protocol.Mark("REFUSED", ("a", "b"))
    assert protocol.mark("== OPEN") == protocol.Mark("OPEN", ())
    assert protocol.mark("killed") is None
