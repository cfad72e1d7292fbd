"""What is printed: to somebody who has gone, to a file, and about what clients try again and again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from team.cli.screen import News, Output
from team.ledger import Event, Kind

from .conftest import CommandLine


def test_a_closed_pipe_is_told_and_ends_nothing() -> None:
    """Rich would raise SystemExit in the middle of a supervisor."""
    read, write = os.pipe()
    os.close(read)
    file = os.fdopen(write, "w")
    with pytest.raises(BrokenPipeError):
        Output(file=file).print("x")
    with pytest.raises(BrokenPipeError):  # what is left in its buffer
        file.close()


def test_no_line_of_a_file_ends_in_spaces(team: CommandLine) -> None:
    team("task", "add", "Fix the parser")
    team("up", "--agents", "1", "--sessions", "1", "--runtime", "process", "--", "true")
    for verb in ("ps", "tasks"):
        lines = team(verb, COLUMNS="240").out.splitlines()
        assert len(lines) > 1 and all(line == line.rstrip() for line in lines), lines


def test_ps_imports_nothing_of_what_runs_a_team(team: CommandLine) -> None:
    team("task", "add", "Fix the parser")
    script = (
        "import sys; from team.cli import main\n"
        "try: main(['ps'])\nexcept SystemExit: pass\n"
        "heavy = {'pydantic', 'docker', 'aiohttp', 'asyncio', 'team.supervisor'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], cwd=team.root, env=team.env, check=True, capture_output=True)


def refused(id: int, session: str, reason: str) -> Event:
    return Event(id, 0, Kind.MODEL_REFUSED, session.partition(".")[0], session, None, {"reason": reason})


def test_a_refusal_is_said_once_a_session() -> None:
    news = News()
    asked = [("a-1.1", "x"), ("a-1.1", "x"), ("a-2.1", "x"), ("a-1.1", "y"), ("a-1.1", "y"), ("a-1.2", "y")]
    said = [news.text(refused(n, *one)) is not None for n, one in enumerate(asked)]
    assert said == [True, False, True, True, False, True]
