"""What is printed to somebody who has gone."""

from __future__ import annotations

import os

import pytest

from team.cli.screen import Output


def test_a_closed_pipe_is_told_and_ends_nothing() -> None:
    """Rich would raise SystemExit in the middle of a supervisor."""
    read, write = os.pipe()
    os.close(read)
    file = os.fdopen(write, "w")
    with pytest.raises(BrokenPipeError):
        Output(file=file).print("x")
    with pytest.raises(BrokenPipeError):  # what is left in its buffer
        file.close()
