"""Whatever the model's side answers: it is understood as the API's documentation says, and nothing crashes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.clients import Outcome
from team.clients.builtin.answer import Answer, Cut, assemble
from team.gateway.allow import ROUTES, Allowed

from .conftest import STREAMS, Reply, Session, calls, refuses, says, stream


def test_thinking_goes_back_unchanged_and_calls_are_answered_together(session: Session, tmp_path: Path) -> None:
    (tmp_path / "work/one file.txt").write_text("one\n")
    (tmp_path / "work/two.txt").write_text("two\n")
    ran = session(stream("thinking_and_tools"), stream("done"))
    assert (ran.outcome, ran.reason) == (Outcome.DONE, "All is done; nothing is left.")
    said, answered = ran.provider.requests[1]["messages"][1:]
    assert said == {
        "role": "assistant",
        "content": [
            {
                "type": "thinking",
                "thinking": "Two files are asked for; I can read both at once.",
                "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds",
            },
            {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
            {"type": "text", "text": "I read both files."},
            {
                "type": "tool_use",
                "id": "toolu_01A",
                "name": "edit",
                "input": {"command": "view", "path": "one file.txt"},
                "caller": {"type": "direct"},
            },
            {
                "type": "tool_use",
                "id": "toolu_01B",
                "name": "bash",
                "input": {"command": "cat two.txt"},
                "caller": {"type": "direct"},
            },
        ],
    }
    assert answered["role"] == "user"
    assert [(b["tool_use_id"], b["content"]) for b in answered["content"]] == [
        ("toolu_01A", "     1\tone"),
        ("toolu_01B", "two\n"),
    ]
    assert (
        "> edit: view one file.txt" in ran.text
        and "> bash: cat two.txt" in ran.text
        and "I read both files." in ran.text
    )


def test_citations_go_back(session: Session) -> None:
    ran = session(stream("citations"), stream("done"))
    (cited,) = ran.provider.requests[1]["messages"][1]["content"][0]["citations"]
    assert cited["cited_text"] == "It is done."


@pytest.mark.parametrize("name", ["cut", "error_before", "error_in_the_middle"])
def test_what_breaks_in_the_middle_is_asked_again(session: Session, name: str) -> None:
    ran = session(stream(name), stream("done"))
    assert ran.outcome is Outcome.DONE
    assert ran.provider.bodies[0] == ran.provider.bodies[1]
    assert "asking again in" in ran.text


def test_limits_are_waited_for_as_long_as_is_said(session: Session) -> None:
    ran = session(refuses(429, "rate_limit_error", "wait", retry_after="1"), refuses(529, "overloaded_error", "x"),
                  says("Done."))  # fmt: skip
    assert ran.outcome is Outcome.DONE
    assert "asking again in 1.0 s" in ran.text


@pytest.mark.parametrize(
    ("status", "kind", "message", "outcome"),
    [
        (400, "invalid_request_error", "messages: no", Outcome.FAILED),
        (401, "authentication_error", "invalid x-api-key", Outcome.FAILED),
        (403, "team_budget", "team_budget: $1.00 of $1.00 is spent", Outcome.OUT_OF_BUDGET),
    ],
)
def test_what_will_not_pass_ends_the_session(
    session: Session, status: int, kind: str, message: str, outcome: Outcome
) -> None:
    ran = session(refuses(status, kind, message))
    assert (ran.outcome, ran.code, len(ran.provider.bodies)) == (outcome, 1, 1)
    assert message in ran.reason


def test_an_error_in_the_stream_that_will_not_pass_ends_the_session(session: Session) -> None:
    ran = session(stream("error_for_good"))
    assert ran.outcome is Outcome.FAILED and "makes no sense" in ran.reason and len(ran.provider.bodies) == 1


def test_a_refusal_ends_the_session_and_says_why(session: Session) -> None:
    ran = session(stream("refusal"))
    assert ran.outcome is Outcome.FAILED
    assert "the model refused: cyber: This looks like malware." in ran.reason


def test_a_call_in_a_refusal_is_not_made(session: Session, tmp_path: Path) -> None:
    assert session(stream("refusal_with_a_call")).outcome is Outcome.FAILED
    assert not (tmp_path / "work/never").exists()


def test_a_call_that_did_not_fit_is_asked_for_with_more_room(session: Session) -> None:
    ran = session(stream("max_tokens_in_a_call"), calls({"command": "echo whole"}), stream("done"))
    assert [r["max_tokens"] for r in ran.provider.requests] == [32_000, 64_000, 32_000]
    assert ran.outcome is Outcome.DONE and ran.results[0]["content"] == "whole\n"


@pytest.mark.parametrize("second", [stream("max_tokens_in_a_call"), refuses(400, "invalid_request_error", "64000?")])
def test_a_call_that_does_not_fit_at_all_is_answered_so(session: Session, second: Reply) -> None:
    ran = session(stream("max_tokens_in_a_call"), second, stream("done"))
    assert ran.outcome is Outcome.DONE
    assert ran.results[0]["is_error"] and "smaller pieces" in ran.results[0]["content"]
    assert ran.provider.requests[2]["messages"][1]["content"][1]["input"] == {}


def test_a_call_that_was_cut_before_its_input_is_none_that_takes_nothing(session: Session) -> None:
    whole = stream("max_tokens_in_a_call").body.split(b"\n\n")
    cut = Reply(b"\n\n".join(event for event in whole if b"input_json_delta" not in event))
    ran = session(cut, cut, stream("done"))
    assert ran.results[0]["is_error"] and "cut off before its input" in ran.results[0]["content"]


@pytest.mark.parametrize(
    "event",
    [
        '{"type": "content_block_delta", "index": 0, "delta": null}',
        '{"type": "message_start", "message": 5}',
        '{"type": "message_delta"}',
        "[1]",
        '{"type": "conte',
    ],
)
def test_events_that_make_no_sense_end_the_session_with_a_word(session: Session, event: str) -> None:
    name = "message_start" if "message_start" in event else "message_delta"
    start = b'event: content_block_start\ndata: {"type": "content_block_start", "index": 0, "content_block": {}}\n\n'
    ran = session(Reply(start + f"event: {name}\ndata: {event}\n\n".encode()))
    assert ran.outcome is Outcome.FAILED and "makes no sense" in ran.reason
    assert len(ran.provider.bodies) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_tokens_in_text", "cut off"),
        ("max_tokens_in_thinking", "cut off"),
        ("empty", "empty"),
        ("blank", "empty"),
        ("unknown_stop", "unknown reason (tea_break)"),
    ],
)
def test_an_answer_that_comes_to_nothing_is_gone_on_with(session: Session, name: str, said: str) -> None:
    ran = session(stream(name), stream("done"))
    assert ran.outcome is Outcome.DONE
    assert said in ran.last_message["content"][0]["text"]
    assert all(message["content"] for message in ran.provider.requests[-1]["messages"])


@pytest.mark.parametrize("name", ["empty", "pause", "unknown_stop"])
def test_not_for_ever(session: Session, name: str) -> None:
    ran = session(stream(name))
    assert ran.outcome is Outcome.FAILED and "came to nothing" in ran.reason
    assert len(ran.provider.bodies) == 4


def test_a_pause_is_sent_back_as_it_is(session: Session) -> None:
    ran = session(stream("pause"), stream("done"))
    assert ran.outcome is Outcome.DONE
    assert ran.last_message["role"] == "assistant"
    assert ran.last_message["content"][1] == {
        "type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "x"}
    }  # fmt: skip


def test_calls_are_made_whatever_the_reason_to_stop(session: Session) -> None:
    ran = session(stream("unknown_stop_with_a_call"), stream("done"))
    assert ran.results[0]["content"] == "called\n" and ran.outcome is Outcome.DONE


def test_unknown_content_goes_back_unless_it_is_not_taken(session: Session) -> None:
    ran = session(stream("unknown_block"), stream("done"))
    sent = [[b["type"] for b in r["messages"][1]["content"]] for r in ran.provider.requests[1:]]
    assert sent == [["hologram", "text", "tool_use"]]
    assert ran.outcome is Outcome.DONE and ran.results[0]["content"] == "seen\n"
    assert "unknown kinds: hologram" in ran.text
    refused = refuses(403, "permission_error", "content type 'hologram' is not let through by team")
    ran = session(stream("unknown_block"), refused, stream("done"))
    sent = [[b["type"] for b in r["messages"][1]["content"]] for r in ran.provider.requests[1:]]
    assert sent == [["hologram", "text", "tool_use"], ["text", "tool_use"]]
    assert ran.outcome is Outcome.DONE


def test_malformed_input_is_answered_with_what_is_wrong(session: Session, tmp_path: Path) -> None:
    ran = session(stream("wrong_json"), stream("wrong_input"), stream("done"))
    assert ran.outcome is Outcome.DONE and all(r["is_error"] for r in ran.results)
    json_, schema, unknown, list_ = (r["content"] for r in ran.results)
    assert json_.startswith("the input is not JSON")
    assert "command: Input should be 'view', 'create'" in schema and "path: Input should be a valid string" in schema
    assert "colour: Extra inputs are not permitted" in schema and "It takes: command, path" in schema
    assert "there is no tool 'teleport'" in unknown and "not a JSON object" in list_


def test_no_prompt_and_settings_that_make_no_sense_are_said(session: Session) -> None:
    ran = session(stream("done"), prompt=" \n")
    assert ran.outcome is Outcome.FAILED and "no prompt" in ran.reason and not ran.provider.bodies
    ran = session(stream("done"), TEAM_POLICY='{"default": "maybe"}')
    assert ran.outcome is Outcome.FAILED and "TEAM_POLICY" in ran.reason and not ran.provider.bodies


def test_every_request_passes_the_gateway(session: Session) -> None:
    ran = session(
        stream("thinking_and_tools"), stream("done"), TEAM_BUILTIN='{"thinking": "adaptive", "effort": "low"}'
    )
    assert ran.outcome is Outcome.DONE
    allowed = Allowed()
    for body in ran.provider.bodies:
        allowed.check(ROUTES["POST", "/v1/messages"], allowed.parse(body))


def test_no_call_waits_shorter_than_the_gateway_and_none_is_repeated_by_the_sdk() -> None:
    from team.clients.builtin.model import connect
    from team.config import Gateway
    from team.gateway.gateway import ANSWER_SECONDS

    client = connect("http://127.0.0.1:9", "token")
    assert client.max_retries == 0
    assert client.timeout.read > ANSWER_SECONDS + Gateway().patience  # type: ignore[union-attr, operator]


def test_the_wait_between_tries_grows_to_a_minute() -> None:
    from team.clients.builtin.model import TRIES, Model, Refused, connect

    waits: list[float] = []
    # Nothing listens there.
    model = Model(connect("http://127.0.0.1:9", "t"), lambda text: None, waits.append, random.Random(1).random)
    with pytest.raises(Refused, match="connection broke"):
        model.ask(b"{}")
    assert len(waits) == TRIES - 1 and 30 < waits[-1] <= 60
    assert waits[:6] == sorted(waits[:6])


def test_answers_that_break_in_the_middle_are_not_paid_for_ten_times(session: Session) -> None:
    ran = session(stream("cut"))
    assert ran.outcome is Outcome.FAILED and len(ran.provider.bodies) == 4


def events(name: str) -> list[dict[str, object]]:
    text = (STREAMS / f"{name}.sse").read_text()
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_usage_is_the_last_that_was_told() -> None:
    answer = assemble(events("done"))
    assert isinstance(answer, Answer)
    assert vars(answer.usage) == {
        "input_tokens": 12,
        "cache_creation_input_tokens": 1804,
        "cache_read_input_tokens": 2411,
        "output_tokens": 12,
    }


@given(st.sampled_from(sorted(p.stem for p in STREAMS.glob("*.sse") if p.stem != "cut")), st.data())
def test_a_stream_without_its_end_is_cut_wherever_it_ends(name: str, data: st.DataObject) -> None:
    told = events(name)
    with pytest.raises(Cut):
        assemble(told[: data.draw(st.integers(0, len(told) - 1))])
