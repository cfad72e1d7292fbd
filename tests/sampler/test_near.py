"""Cases near the files that changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from team.sampler.cases import Case
from team.sampler.near import near

CASES = [
    Case("tests/test_parser.py::test_a", "tests/test_parser.py"),
    Case("tests/test_lexer.py::test_b", "tests/test_lexer.py"),
    Case("src/ParserTest.java::c", "src/ParserTest.java"),
    Case("tests/test_lexer.py::test_d", "tests/test_lexer.py"),
    Case("no file"),
]


def names(changed: list[str], root: Path, most: int = 10) -> list[str]:
    return [case.name for case in near(CASES, changed, root, most)]


def test_the_changed_file_itself_then_files_named_like_it(tmp_path: Path) -> None:
    assert names(["src/lexer.c"], tmp_path) == ["tests/test_lexer.py::test_b", "tests/test_lexer.py::test_d"]
    assert names(["tests/test_lexer.py", "src/parser.rs"], tmp_path) == [
        "tests/test_lexer.py::test_b", "tests/test_lexer.py::test_d",
        "tests/test_parser.py::test_a", "src/ParserTest.java::c",
    ]  # fmt: skip
    assert names(["tests/test_lexer.py", "src/parser.rs"], tmp_path, most=1) == ["tests/test_lexer.py::test_b"]


def test_names_that_say_nothing_and_nothing_at_all(tmp_path: Path) -> None:
    assert names(["src/__init__.py", "main.c", "README.md"], tmp_path) == []
    assert names([], tmp_path) == []


def test_coverage_data_tell_which_cases_run_a_file(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "test_one.py").write_text("import engine\n\ndef test_double():\n    assert engine.double(2) == 4\n")
    (tmp_path / "test_two.py").write_text("def test_nothing():\n    pass\n")
    argv = [sys.executable, "-m", "pytest", "-q", "--cov", "--cov-context=test"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    cases = [Case("test_one.py::test_double", "test_one.py"), Case("test_two.py::test_nothing", "test_two.py")]
    assert near(cases, ["engine.py"], tmp_path, 5) == cases[:1]
    (tmp_path / ".coverage").write_bytes(b"SQLite format 3\0 torn")
    assert near(cases, ["engine.py"], tmp_path, 5) == []
