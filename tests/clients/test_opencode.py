"""opencode's output, as recorded from 1.18.33 in ``streams/opencode/``, and whatever else may appear among it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.clients import Outcome, Reader, Seen, client
from team.clients.opencode import OpenCodeReader

STREAMS = Path(__file__).parent / "streams" / "opencode"


def read(name: str, reader: Reader) -> list[Seen]:
    return [reader.feed(line) for line in (STREAMS / f"{name}.jsonl").read_bytes().splitlines()]


# Stream, the exit code that came with it, outcome, what the reason says.
ENDS = [
    ("success", 0, Outcome.DONE, "Done: hello.txt is written."),
    ("bad_request", 1, Outcome.FAILED, "APIError: bad request (400)"),
    ("unauthorized", 1, Outcome.FAILED, "(401)"),
    ("unknown_model", 1, Outcome.FAILED, "UnknownError: Unexpected server error"),
    ("rate_limited", 1, Outcome.RATE_LIMITED, "(429)"),
    ("out_of_budget", 1, Outcome.OUT_OF_BUDGET, "team_budget"),
    ("interrupted", 130, Outcome.CRASHED, "SIGINT"),
    ("terminated", 143, Outcome.CRASHED, "SIGTERM"),
]


@pytest.mark.parametrize(("name", "code", "outcome", "words"), ENDS)
def test_tells_how_a_session_ended(name: str, code: int, outcome: Outcome, words: str) -> None:
    reader = OpenCodeReader()
    read(name, reader)
    judged, reason = reader.outcome(code, out_of_memory=False)
    assert judged is outcome
    assert words in reason
    assert "\n" not in reason


def test_exit_0_in_the_middle_of_a_step_is_no_success() -> None:
    reader = OpenCodeReader()
    for line in (STREAMS / "success.jsonl").read_bytes().splitlines()[:-1]:
        reader.feed(line)
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.CRASHED


def test_an_answer_that_was_cut_short_is_no_success() -> None:
    reader = OpenCodeReader()
    reader.feed(b'{"type":"step_finish","part":{"reason":"length"}}')
    assert reader.outcome(0, out_of_memory=False) == (Outcome.FAILED, "the model's last answer ended with 'length'")


def test_a_finish_followed_by_a_crash_is_a_crash() -> None:
    reader = OpenCodeReader()
    read("success", reader)
    assert reader.outcome(139, out_of_memory=False)[0] is Outcome.CRASHED


def test_an_error_after_the_finish_is_a_failure() -> None:
    reader = OpenCodeReader()
    read("success", reader)
    read("unauthorized", reader)
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.FAILED


def test_shows_what_the_agent_does_in_short() -> None:
    seen = read("success", OpenCodeReader())
    shown = "\n".join(s.text for s in seen if s.text).split("\n")
    assert shown[:3] == ["I look first.", "Then I write.", "> bash: git status --short (and 1 more)"]
    assert "  ! … 34 more lines" in shown
    assert "Done: hello.txt is written." in shown
    assert len(shown) < 30
    assert [s.result for s in seen] == [False] * (len(seen) - 1) + [True]


def test_a_step_after_the_last_one_takes_the_end_back() -> None:
    reader = OpenCodeReader()
    read("success", reader)
    assert reader.feed(b'{"type":"step_start","part":{"type":"step-start"}}').goes_on
    assert reader.outcome(0, out_of_memory=False)[0] is Outcome.CRASHED


def test_a_tool_that_failed_is_marked() -> None:
    state = {"status": "error", "input": {"filePath": "/w/a.py"}, "error": "no such file\x1b[31m"}
    event = {"type": "tool_use", "part": {"tool": "read", "state": state}}
    seen = OpenCodeReader().feed(json.dumps(event).encode())
    assert seen.text == "> read: /w/a.py\n  ! no such file"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_STATES = st.fixed_dictionaries(
    {"status": st.sampled_from(["error", "completed"]) | _VALUES},
    optional=dict.fromkeys(("input", "output", "error", "metadata"), _VALUES),
)
_PARTS = st.fixed_dictionaries(
    {}, optional={"text": _VALUES, "reason": _VALUES, "tool": _VALUES, "state": _STATES | _VALUES}
)
_ERRORS = st.fixed_dictionaries(
    {},
    optional={
        "name": _VALUES,
        "data": st.dictionaries(st.sampled_from(["message", "statusCode", "responseBody"]), _VALUES) | _VALUES,
    },
)
_EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["step_start", "text", "tool_use", "step_finish", "error"]) | _VALUES},
    optional={"part": _PARTS | _VALUES, "error": _ERRORS | _VALUES},
)
_LINES = st.binary(max_size=200) | _EVENTS.map(lambda event: json.dumps(event).encode())


@given(st.lists(_LINES, max_size=4), st.integers(-64, 255), st.booleans())
def test_never_raises(lines: list[bytes], code: int, out_of_memory: bool) -> None:
    reader = OpenCodeReader()
    for line in lines:
        seen = reader.feed(line)
        (seen.text + seen.error).encode("utf-8")
        assert len(seen.text + seen.error) < 20_000
    outcome, reason = reader.outcome(code, out_of_memory)
    assert reason
    assert "\n" not in reason
    assert outcome is not Outcome.DONE or code == 0


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [("claude-x", "anthropic", "claude-x"), ("openai/gpt-x", "openai", "gpt-x"), (None, "anthropic", None)],
)
def test_the_door_and_the_model_are_told_and_the_prompt_is_not(
    model: str | None, provider: str, name: str | None
) -> None:
    opencode = client("opencode")
    argv, env = list(opencode.argv(model)), opencode.env("http://127.0.0.1:9", "t0ken", model)
    assert argv[:2] == ["opencode", "run"]
    assert argv[-2:] == (["--model", f"{provider}/{name}"] if name else ["--title", "team"])
    assert "t0ken" not in " ".join(argv)
    (told,) = json.loads(env["OPENCODE_CONFIG_CONTENT"])["provider"].items()
    assert told[0] == provider
    assert told[1]["options"] == {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "t0ken"}
    assert told[1].get("models") == ({name: {}} if name else None)
