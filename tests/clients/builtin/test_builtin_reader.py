"""The host's side: what it makes of the client's output, and of whatever else may appear among it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.builtin import measure
from team.clients import Outcome, client
from team.clients.builtin import BuiltinReader
from team.clients.builtin.options import Options, load
from team.config import Builtin


def read(*events: dict[str, Any]) -> BuiltinReader:
    reader = BuiltinReader()
    for event in events:
        reader.feed(json.dumps(event).encode())
    return reader


def result(outcome: str, reason: str = "why", **more: Any) -> dict[str, Any]:
    return {"type": "result", "outcome": outcome, "reason": reason, **more}


@pytest.mark.parametrize(
    ("event", "code", "outcome"),
    [
        (result("done"), 0, Outcome.DONE),
        (result("done"), 139, Outcome.CRASHED),
        (result("failed"), 1, Outcome.FAILED),
        (result("timed_out"), 1, Outcome.TIMED_OUT),
        (result("out_of_budget"), 1, Outcome.OUT_OF_BUDGET),
        (result("refused", "API error 429", status=429), 1, Outcome.RATE_LIMITED),
        (result("refused", "API error 529", status=529), 1, Outcome.RATE_LIMITED),
        (result("refused", "API error 403: team_budget: spent", status=403), 1, Outcome.OUT_OF_BUDGET),
        (result("refused", "API error 400", status=400), 1, Outcome.FAILED),
        (result("killed"), 0, Outcome.FAILED),
        ({"type": "start"}, 0, Outcome.CRASHED),
        ({"type": "start"}, 143, Outcome.CRASHED),
    ],
)
def test_how_a_session_ended(event: dict[str, Any], code: int, outcome: Outcome) -> None:
    assert read(event).outcome(code, out_of_memory=False)[0] is outcome


def test_shows_what_it_does_in_short() -> None:
    reader = BuiltinReader()
    start = reader.feed(b'{"type": "start", "version": "2.14.0", "model": "m"}')
    assert (start.text, start.version) == ("builtin 2.14.0, model m", "2.14.0")
    call = {"type": "tool_use", "name": "bash", "input": {"command": "make\nmake test"}}
    said = {"type": "assistant", "content": [{"type": "text", "text": "I look.\x1b[31m"}, call]}
    assert reader.feed(json.dumps(said).encode()).text == "I look.\n> bash: make (and 1 more)"
    tools = {"type": "tools", "content": [{"type": "tool_result", "content": "no\nrule", "is_error": True}]}
    assert reader.feed(json.dumps(tools).encode()).text == "  ! no\n  ! rule"
    assert reader.feed(b"printed by something else").text == "printed by something else"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text"]), inner),
    max_leaves=5,
)
_EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["start", "assistant", "tools", "note", "result"]) | _VALUES},
    optional=dict.fromkeys(("content", "text", "outcome", "reason", "status", "version", "model"), _VALUES),
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(
    st.lists(st.binary(max_size=200) | _EVENTS.map(lambda e: json.dumps(e).encode()), max_size=4),
    st.integers(-64, 255),
    st.booleans(),
)
def test_never_raises(lines: list[bytes], code: int, out_of_memory: bool) -> None:
    reader = BuiltinReader()
    for text in lines:
        seen = reader.feed(text)
        (seen.text + seen.error).encode("utf-8")
    outcome, reason = reader.outcome(code, out_of_memory)
    assert reason and "\n" not in reason
    assert outcome is not Outcome.DONE or code == 0


def test_what_it_runs_with() -> None:
    builtin = client("builtin")
    assert list(builtin.argv("m", "http://127.0.0.1:9")) == ["team-builtin"]
    env = builtin.env("http://127.0.0.1:9", "t0ken", "claude-haiku-4-5-20251001")
    assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"]) == ("http://127.0.0.1:9", "t0ken")
    assert (env["TEAM_BUILTIN_MODEL"], env["TEAM_BUILTIN_WINDOW"]) == ("claude-haiku-4-5-20251001", "200000")
    assert builtin.env("d", "t", "claude-haiku-5-5")["TEAM_BUILTIN_WINDOW"] == "100000", "beyond, all costs five times"
    assert builtin.asks(None) == ("anthropic", builtin.env("d", "t")["TEAM_BUILTIN_MODEL"])


def test_the_container_reads_what_the_host_sends() -> None:
    assert vars(load({})) == {**vars(Options()), "window": 200_000}
    host = Builtin.model_validate({"full": 0.5, "when_full": "compact", "seconds": "2h", "turns": None}, strict=False)
    told = load({"TEAM_BUILTIN": host.model_dump_json(), "TEAM_BUILTIN_WINDOW": "8000"})
    assert told == Options(full=0.5, when_full="compact", seconds=7200.0, turns=None, window=8000, max_tokens=2000)
    assert Builtin().model_dump() == vars(Options()), "both have the same settings and defaults"


def test_the_benchmark_tells_what_a_session_costs() -> None:
    found = measure(12)
    assert {"turn_overhead_ms", "rss_mb", "cache_read_share"} <= found.keys()
    assert found["rss_mb"] < 120
    assert found["cache_read_share"] > 0.8
