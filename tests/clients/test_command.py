"""The client that is any program of the user's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.clients import Outcome, client
from team.clients.command import LINE, Command, CommandReader
from team.errors import TeamError


def test_runs_what_the_user_says_and_points_it_at_the_door() -> None:
    command = client("command", ["my-agent", "--headless"])
    assert list(command.argv("model-of-others")) == ["my-agent", "--headless"]
    assert command.env("http://127.0.0.1:8787", "t")["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"
    assert not command.needs_model


@pytest.mark.parametrize("argv", [[], [""]])
def test_nothing_to_run_names_the_setting(argv: list[str]) -> None:
    with pytest.raises(TeamError, match=r"\[command\] argv in team.toml"):
        Command(argv)


def test_an_unknown_client_is_told_the_known_ones() -> None:
    with pytest.raises(TeamError, match="known: claude-code, codex, opencode, builtin, command"):
        client("clippy")


@pytest.mark.parametrize(
    ("code", "out_of_memory", "outcome"),
    [
        (0, False, Outcome.DONE),
        (1, False, Outcome.FAILED),
        (90, False, Outcome.FAILED),
        (137, True, Outcome.CRASHED),
        (139, False, Outcome.CRASHED),
    ],
)
def test_the_exit_code_is_the_verdict(code: int, out_of_memory: bool, outcome: Outcome) -> None:
    assert CommandReader().outcome(code, out_of_memory)[0] is outcome


def test_every_line_is_text() -> None:
    reader = CommandReader()
    assert reader.feed(b'{"type":"result"}').text == '{"type":"result"}'
    assert reader.feed(b"\x1b[31mred\x1b[0m \xff").text == "red \ufffd"
    assert len(reader.feed(b"x" * 1_000_000).text) == LINE + 1


@given(st.binary(max_size=300))
def test_never_raises(line: bytes) -> None:
    CommandReader().feed(line).text.encode("utf-8")
