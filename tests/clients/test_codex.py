"""Codex's output, as recorded from 0.171.0 in ``streams/codex/``, and whatever else may appear among it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.clients import Outcome, Reader, Seen, client
from team.clients.codex import CodexReader
from team.gateway.allow import ROUTES, Allowed
from team.gateway.answers import Refusal

STREAMS = Path(__file__).parent / "streams" / "codex"


def read(name: str, reader: Reader) -> list[Seen]:
    return [reader.feed(line) for line in (STREAMS / f"{name}.jsonl").read_bytes().splitlines()]


# Stream, the exit code that came with it, outcome, what the reason says.
ENDS = [
    ("success", 0, Outcome.DONE, "Done: hello.txt is written."),
    ("bad_request", 1, Outcome.FAILED, "bad request"),
    ("unauthorized", 1, Outcome.FAILED, "401 Unauthorized"),
    ("cut", 1, Outcome.FAILED, "stream disconnected"),
    ("rate_limited", 1, Outcome.RATE_LIMITED, "429"),
    ("overloaded", 1, Outcome.RATE_LIMITED, "529"),
    ("at_capacity", 1, Outcome.RATE_LIMITED, "at capacity"),
    ("out_of_budget", 1, Outcome.OUT_OF_BUDGET, "team_budget"),
    ("interrupted", 1, Outcome.FAILED, "exit 1"),
    ("terminated", 143, Outcome.CRASHED, "SIGTERM"),
]


@pytest.mark.parametrize(("name", "code", "outcome", "words"), ENDS)
def test_tells_how_a_session_ended(name: str, code: int, outcome: Outcome, words: str) -> None:
    reader = CodexReader()
    read(name, reader)
    judged, reason = reader.outcome(code, out_of_memory=False)
    assert judged is outcome
    assert words in reason
    assert "\n" not in reason


def test_exit_0_without_a_completed_turn_is_no_success() -> None:
    reader = CodexReader()
    for line in (STREAMS / "success.jsonl").read_bytes().splitlines()[:-1]:
        reader.feed(line)
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.CRASHED


def test_a_completed_turn_followed_by_a_crash_is_a_crash() -> None:
    reader = CodexReader()
    read("success", reader)
    assert reader.outcome(139, out_of_memory=False)[0] is Outcome.CRASHED


def test_shows_what_the_agent_does_in_short() -> None:
    seen = read("success", CodexReader())
    shown = "\n".join(s.text for s in seen if s.text).split("\n")
    assert shown[:3] == ["I look first.", "Then I write.", "> git status --short (and 1 more)"]
    assert "  ! … 34 more lines" in shown
    assert "> printf 'hello\\n' > hello.txt (and 1 more)" in shown
    assert "Done: hello.txt is written." in shown
    assert len(shown) < 30
    assert [s.result for s in seen] == [False] * (len(seen) - 1) + [True]


def test_shows_retries_and_warnings_and_why_it_failed() -> None:
    seen = read("out_of_budget", CodexReader())
    texts = [s.text for s in seen]
    assert any(t.startswith("(Model metadata for") for t in texts)
    assert any(t.startswith("(Reconnecting... 1/5 (unexpected status 403") for t in texts)
    assert "team_budget" in seen[-1].error and seen[-1].result


def test_a_second_turn_takes_the_end_back() -> None:
    reader = CodexReader()
    read("unauthorized", reader)
    seen = read("success", reader)
    assert any(s.goes_on for s in seen)
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.DONE


def test_an_answer_that_only_talks_about_limits_is_a_success() -> None:
    reader = CodexReader()
    for event in (
        {"type": "item.completed", "item": {"type": "agent_message", "text": "I fixed the 429 rate limit test"}},
        {"type": "turn.completed", "usage": {}},
    ):
        reader.feed(json.dumps(event).encode())
    assert reader.outcome(0, out_of_memory=False) == (Outcome.DONE, "I fixed the 429 rate limit test")


def test_shows_changed_files() -> None:
    item = {"type": "file_change", "changes": [{"path": "/workspace/a\x07.py", "kind": "update"}, 3]}
    seen = CodexReader().feed(json.dumps({"type": "item.completed", "item": item}).encode())
    assert seen.text == "> update /workspace/a.py"


def test_a_usage_limit_without_a_status_is_a_limit() -> None:
    reader = CodexReader()
    said = "You've hit your usage limit. Try again at 3:00 PM."
    reader.feed(json.dumps({"type": "turn.failed", "error": {"message": said}}).encode())
    assert reader.outcome(1, out_of_memory=False) == (Outcome.RATE_LIMITED, said)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_ITEMS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["agent_message", "command_execution", "file_change", "mcp_tool_call", "error"])
        | _VALUES
    },
    optional=dict.fromkeys(
        ("text", "command", "aggregated_output", "exit_code", "changes", "message", "tool", "status"), _VALUES
    ),
)
_EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["item.started", "item.completed", "error", "turn.failed", "turn.completed"]) | _VALUES,
        "item": _ITEMS | _VALUES,
    },
    optional={"message": _VALUES, "error": st.fixed_dictionaries({"message": _VALUES}) | _VALUES},
)
_LINES = st.binary(max_size=200) | _EVENTS.map(lambda event: json.dumps(event).encode())


@given(st.lists(_LINES, max_size=4), st.integers(-64, 255), st.booleans())
def test_never_raises(lines: list[bytes], code: int, out_of_memory: bool) -> None:
    reader = CodexReader()
    for line in lines:
        seen = reader.feed(line)
        (seen.text + seen.error).encode("utf-8")
        assert len(seen.text + seen.error) < 20_000
    outcome, reason = reader.outcome(code, out_of_memory)
    assert reason
    assert "\n" not in reason
    assert outcome is not Outcome.DONE or code == 0


def test_argv_holds_the_door_and_the_model_but_neither_prompt_nor_token() -> None:
    codex = client("codex")
    argv = list(codex.argv("m", "http://127.0.0.1:9"))
    assert argv[0] == "codex" and argv[-3:] == ["-m", "m", "-"]
    assert 'base_url="http://127.0.0.1:9/v1"' in " ".join(argv)
    assert "-m" not in codex.argv(None)
    assert codex.env("http://127.0.0.1:9", "t0ken") == {"OPENAI_API_KEY": "t0ken"}


@pytest.mark.parametrize(
    "tool", [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]
)
def test_the_gateway_also_looks_at_tools_that_come_as_content(tool: dict[str, object]) -> None:
    harmless = {"type": "custom", "name": "exec", "format": {"type": "grammar"}}
    group = {"type": "namespace", "name": "functions", "tools": [harmless]}
    route = ROUTES["POST", "/v1/responses"]
    item = {"type": "additional_tools", "role": "developer", "tools": [group]}
    Allowed().check(route, {"model": "m", "input": [item]})
    item["tools"] = [group, tool]
    with pytest.raises(Refusal, match="is not let through"):
        Allowed().check(route, {"model": "m", "input": [item]})
