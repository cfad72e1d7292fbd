"""Claude Code's output, as recorded from 2.1.332 in ``streams/``, and whatever else may appear among it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.clients import Outcome, Reader, Seen, client
from team.clients.claude_code import ClaudeCode, ClaudeCodeReader
from team.clients.lines import BIGGEST_LINE

STREAMS = Path(__file__).parent / "streams"


def read(name: str, reader: Reader) -> list[Seen]:
    return [reader.feed(line) for line in (STREAMS / f"{name}.jsonl").read_bytes().splitlines()]


# Stream, the exit code that came with it, outcome, what the reason says.
ENDS = [
    ("success", 0, Outcome.DONE, "Done: hello.txt is written."),
    ("background", 0, Outcome.DONE, "done"),
    ("bad_request", 1, Outcome.FAILED, "400 bad request"),
    ("unauthorized", 1, Outcome.FAILED, "Invalid API key"),
    ("forbidden", 1, Outcome.FAILED, "403 forbidden"),
    ("no_key", 1, Outcome.FAILED, "Not logged in"),
    ("max_turns", 1, Outcome.FAILED, "error_max_turns: Reached maximum number of turns (1)"),
    ("rate_limited", 1, Outcome.RATE_LIMITED, "(429)"),
    ("overloaded", 1, Outcome.RATE_LIMITED, "529 Overloaded"),
    ("out_of_budget", 1, Outcome.OUT_OF_BUDGET, "out of budget"),
    ("interrupted", 0, Outcome.FAILED, "error_during_execution"),
    ("terminated", 143, Outcome.CRASHED, "SIGTERM"),
]


@pytest.mark.parametrize(("name", "code", "outcome", "words"), ENDS)
def test_tells_how_a_session_ended(name: str, code: int, outcome: Outcome, words: str) -> None:
    reader = ClaudeCodeReader()
    read(name, reader)
    judged, reason = reader.outcome(code, out_of_memory=False)
    assert judged is outcome
    assert words in reason
    assert "\n" not in reason


def test_exit_0_without_a_result_is_no_success() -> None:
    reader = ClaudeCodeReader()
    lines = (STREAMS / "success.jsonl").read_bytes().splitlines()
    for line in lines[:-1]:
        reader.feed(line)
    assert reader.outcome(0, out_of_memory=False) == (Outcome.CRASHED, "ended without a result")


@pytest.mark.parametrize(
    ("code", "out_of_memory", "outcome", "words"),
    [
        (137, True, Outcome.CRASHED, "out of memory"),
        (137, False, Outcome.CRASHED, "SIGKILL"),
        (90, False, Outcome.FAILED, "setup"),
        (91, False, Outcome.FAILED, "clone"),
        (92, False, Outcome.FAILED, "door"),
        (127, False, Outcome.FAILED, "not found"),
        (3, False, Outcome.FAILED, "exit 3"),
    ],
)
def test_tells_an_end_without_a_word_by_its_exit_code(
    code: int, out_of_memory: bool, outcome: Outcome, words: str
) -> None:
    judged, reason = ClaudeCodeReader().outcome(code, out_of_memory)
    assert judged is outcome
    assert words in reason


def test_a_result_followed_by_a_crash_is_a_crash() -> None:
    reader = ClaudeCodeReader()
    read("success", reader)
    assert reader.outcome(139, out_of_memory=False)[0] is Outcome.CRASHED


def test_shows_what_the_agent_does_in_short() -> None:
    shown = "\n".join(seen.text for seen in read("success", ClaudeCodeReader()) if seen.text).split("\n")
    assert shown[0] == "claude-code 2.1.332, model claude-x"
    assert "> Bash: git status --short (and 1 more)" in shown
    assert "> Write: /workspace/hello.txt" in shown
    assert "  ! … 35 more lines" in shown
    assert "is written." in shown
    assert len(shown) < 50


def test_tells_version_and_result_once() -> None:
    seen = read("success", ClaudeCodeReader())
    assert [s.version for s in seen if s.version] == ["2.1.332"]
    assert [s.result for s in seen] == [False] * (len(seen) - 1) + [True]


def test_a_result_while_a_background_task_runs_is_not_the_end() -> None:
    seen = read("background", ClaudeCodeReader())
    raw = (STREAMS / "background.jsonl").read_bytes().splitlines()
    assert sum(b'"type":"result"' in line for line in raw) == 2
    assert [i for i, s in enumerate(seen) if s.result] == [len(seen) - 1]


def test_shows_retries_and_why_the_client_failed() -> None:
    seen = read("overloaded", ClaudeCodeReader())
    assert "(retry 1 of 10 in 0.5 s: 529 overloaded)" in [s.text for s in seen]
    assert "529 Overloaded" in seen[-1].error


def test_an_answer_that_only_talks_about_limits_is_a_success() -> None:
    reader = ClaudeCodeReader()
    reader.feed(b'{"type":"result","subtype":"success","is_error":false,"result":"I fixed the 429 rate limit test"}')
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.DONE


def test_a_bad_request_that_mentions_a_limit_is_a_failure() -> None:
    reader = ClaudeCodeReader()
    reader.feed(b'{"type":"result","is_error":true,"api_error_status":400,"result":"rate limit tier unknown"}')
    assert reader.outcome(1, out_of_memory=False)[0] is Outcome.FAILED


@pytest.mark.parametrize(
    "said", ["You've hit your session limit · resets 3am", "Claude usage limit reached|1780000000"]
)
def test_a_usage_limit_without_a_status_is_a_limit(said: str) -> None:
    reader = ClaudeCodeReader()
    reader.feed(json.dumps({"type": "result", "is_error": True, "result": said}).encode())
    assert reader.outcome(1, out_of_memory=False) == (Outcome.RATE_LIMITED, said)


def test_other_lines_are_shown_as_they_are() -> None:
    assert ClaudeCodeReader().feed(b"warning: something").text == "warning: something"
    assert ClaudeCodeReader().feed(b"").text == ""


HOSTILE = [
    b"[" * 500_000,
    b'{"type":' * 100_000,
    b'{"type":"result","api_error_status":' + b"9" * 100_000 + b"}",
    b'{"type":"result","is_error":true,"result":"\\ud800\\u001b[31mx","errors":[1,{}]}',
    b'{"type":"system","subtype":"api_retry","retry_delay_ms":1e999,"attempt":NaN}',
    b'{"type":"system","subtype":"init","claude_code_version":["a"],"model":{}}',
    b'{"type":"assistant","message":{"content":[1,null,{"type":"tool_use","name":5,"input":[]}]}}',
    b'{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":3},4]}]}}',
    b'{"type":["result"]}',
    b"\xff\xfe\x00" * 1000,
    b"{" + b"x" * (BIGGEST_LINE + 10),
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_stay_short_and_printable(line: bytes) -> None:
    reader = ClaudeCodeReader()
    seen = reader.feed(line)
    _, reason = reader.outcome(1, out_of_memory=False)
    for text in (seen.text, seen.error, seen.version, reason):
        text.encode("utf-8")
        assert "\x1b" not in text
        assert len(text) < 20_000


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_KEYS = st.sampled_from(
    ["message", "subtype", "tasks", "result", "is_error", "errors", "attempt", "retry_delay_ms", "api_error_status"]
)
_BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result"])},
    optional={"text": _VALUES, "name": _VALUES, "input": _VALUES, "content": _VALUES, "is_error": _VALUES},
)
_EVENTS = st.builds(
    lambda kind, subtype, blocks, rest: {"message": {"content": blocks}, **rest, "type": kind, "subtype": subtype},
    st.sampled_from(["system", "assistant", "user", "result"]) | _VALUES,
    st.sampled_from(["init", "api_retry", "background_tasks_changed", "success"]) | _VALUES,
    st.lists(_BLOCKS, max_size=3),
    st.dictionaries(_KEYS, _VALUES, max_size=5),
)
_LINES = st.binary(max_size=200) | _EVENTS.map(lambda event: json.dumps(event).encode())


@given(st.lists(_LINES, max_size=4), st.integers(-64, 255), st.booleans())
def test_never_raises(lines: list[bytes], code: int, out_of_memory: bool) -> None:
    reader = ClaudeCodeReader()
    for line in lines:
        seen = reader.feed(line)
        (seen.text + seen.error + seen.version).encode("utf-8")
    outcome, reason = reader.outcome(code, out_of_memory)
    assert reason
    assert "\n" not in reason
    assert outcome is not Outcome.DONE or code == 0


def test_the_prompt_and_the_token_are_not_in_argv() -> None:
    claude = client("claude-code")
    assert isinstance(claude, ClaudeCode)
    assert list(claude.argv("m"))[-2:] == ["--model", "m"]
    assert "--model" not in claude.argv(None)
    env = claude.env("http://127.0.0.1:8787", "t0ken")
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"
    assert env["ANTHROPIC_API_KEY"] == "t0ken"
    assert "t0ken" not in " ".join(claude.argv("m"))
