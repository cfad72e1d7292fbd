"""The policy table: first match wins, and no command hides behind another."""

from __future__ import annotations

import json

import pytest

from team.clients.builtin.policy import VARIABLE, Decision, Policy, Rule, Verdict, load, texts

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
LISTED = Policy(
    ASK, (Rule(DENY, "bash", "curl *", "no network"), *(Rule(ALLOW, "bash", f"{w}*") for w in ("git ", "echo", "cd ")))
)
"""A table that knows what it allows."""


def of(command: str, policy: Policy = LISTED) -> Verdict:
    return policy.decide("bash", {"command": command}).verdict


def test_the_first_rule_that_matches_wins_and_the_default_stands_for_the_rest() -> None:
    rules = (Rule(ALLOW, "bash", "rm -rf build"), Rule(DENY, "bash", "rm *", "keep it"), Rule(ASK, "ed*"))
    policy = Policy(ALLOW, rules)
    assert policy.decide("bash", {"command": "rm  -rf\tbuild"}) == Decision(ALLOW)
    assert policy.decide("bash", {"command": "rm -rf /"}) == Decision(DENY, "keep it")
    assert policy.decide("edit", {"command": "view", "path": "a"}).verdict is ASK
    assert policy.decide("claim", {"task": "x"}) == Decision(ALLOW)
    assert Policy().decide("bash", {}) == Decision(ALLOW)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "cd x && git log --oneline | git shortlog 2>&1",
        'git commit -m "a; b (c)"',
        "git commit -m 'curl x; it is \"quoted\"'",
        "git log \\\n  -1",
        'echo "$(git log "a;b")"; git log',
        "echo a &> out; git log <<< 'a;b'",
        "echo a#b # why; echo",
    ],
)
def test_what_is_listed_is_allowed_however_it_is_chained(command: str) -> None:
    assert of(command) is ALLOW


@pytest.mark.parametrize(
    "command",
    [
        "git status; curl x",
        "git status\ncurl x",
        "git status&&curl x",
        "git log | curl x",
        "git status & curl x",
        "git log >&2&curl x",
        'git log "$(curl x)"',
        'git log "`curl x`"',
        "git log `curl x`",
        "git diff <(curl x)",
        "(curl x)",
        "git log; if true; then curl x; fi",
        'echo "$(git log)"; curl x "',
        "echo # it's\ncurl x; echo '",
        "echo a;# it's\ncurl x; echo '",
        "echo $'a\\'' ; curl x ; echo '",
        "echo 'a\\' ; curl x ; echo '",
        "echo \\' ; curl x ; echo '",
        "echo \\\\\ncurl x",
        "cu\\\nrl x",
        "echo <<E\nit's\nE\ncurl x\necho '",
        'echo "$(case x in a) echo;curl x;; esac)"',
        'echo "$(echo # )\necho;curl x\n)"',
        "{ curl x; }",
        "! curl x",
        "env A=1 curl x",
        "A='b c' curl x",
        "sudo -n nice /usr/bin/curl x",
        "'cu'rl x",
        "xargs curl <urls",
        "bash -c 'git log\ncurl x'",
        "git log; sh -ec \"eval 'curl x'\"",
        "echo \"$(bash -lc 'curl x')\"",
    ],
)
def test_no_command_hides_in_a_line(command: str) -> None:
    assert of(command) is DENY


@pytest.mark.parametrize("command", ["/tmp/git log", "LD_PRELOAD=x git log", "sudo git log", "bash -c 'make'"])
def test_what_is_allowed_is_allowed_as_it_is_written_only(command: str) -> None:
    assert of(command) is ASK


def test_a_pattern_may_span_commands() -> None:
    assert of("curl a | sh", Policy(ALLOW, (Rule(DENY, "bash", "*curl*| sh*"),))) is DENY


def test_paths_are_absolute_and_without_detours() -> None:
    assert texts("edit", {"command": "create", "path": "src/../../etc/x"}) == ["create /etc/x"]
    assert texts("edit", {"path": "a"}) == ["/workspace/a"]
    assert texts("claim", {"b": "é", "a": 1}) == ['{"a": 1, "b": "é"}']
    assert texts("bash", {"restart": True}) == ['{"restart": true}']


def test_a_megabyte_of_separators_is_read() -> None:
    assert of("echo;" * 200_000) is ALLOW


def test_the_environment_holds_the_table() -> None:
    rule = {"verdict": "ask", "tool": "bash", "pattern": "npm publish*", "note": ""}
    found = load({VARIABLE: json.dumps({"default": "deny", "rules": [rule]})})
    assert found == Policy(DENY, (Rule(ASK, "bash", "npm publish*"),))
    assert load({}) == Policy()


@pytest.mark.parametrize("text", ["{", "[]", '{"default": "maybe", "rules": []}', '{"default": "ask", "rules": [1]}'])
def test_a_table_without_sense_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="TEAM_POLICY makes no sense"):
        load({VARIABLE: text})
