"""``[policy]``: from team.toml into a session's container, and only for the client that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from team import config_file, launch
from team.clients import client
from team.clients.builtin import policy
from team.config import Settings, UserSettings
from team.containers import spec_for
from team.errors import TeamError
from team.places import Project
from team.plan import Plan, Seat

TABLE = """
[policy]
default = "allow"
rules = [
  { verdict = "ask", tool = "bash", pattern = "*npm publish*" },
  { verdict = "deny", tool = "*edit*", pattern = "* /workspace/vendor/*", note = "vendor/ comes from elsewhere" },
]
"""


def settings(root: Path, text: str) -> Settings:
    (root / "team.toml").write_text(text)
    return config_file.load(root)


def env(root: Path, given: Settings) -> dict[str, str]:
    seat = Seat("agent-01", "worker")
    plan = Plan((seat,), given, root, "command", "docker", "image", client_argv=("true",))
    project = Project(root, "demo-1", root / "state")
    return dict(spec_for(project, plan, client("command", ("true",)), seat, "agent-01.1", "token", "url").env)


def test_the_table_reaches_the_container(tmp_path: Path) -> None:
    table = policy.load(env(tmp_path, settings(tmp_path, TABLE)))
    assert table.decide("bash", {"command": "cd x; npm publish"}).verdict is policy.Verdict.ASK
    said = table.decide("edit", {"command": "create", "path": "src/../vendor/a"})
    assert said == policy.Decision(policy.Verdict.DENY, "vendor/ comes from elsewhere")
    assert table.decide("bash", {"command": "ls"}).verdict is policy.Verdict.ALLOW


def test_without_a_table_there_is_nothing_to_know(tmp_path: Path) -> None:
    assert policy.VARIABLE not in env(tmp_path, Settings())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[policy]\ndefault = "maybe"\n', "policy.default"),
        ('[policy]\nrules = [{ tool = "bash" }]\n', "policy.rules.0.verdict"),
        ('[policy]\nrules = [{ verdict = "ask", pattern = "" }]\n', "policy.rules.0.pattern"),
        ('[policy]\nrules = [{ verdict = "ask", command = "x" }]\n', "policy.rules.0.command"),
        ('[policy]\nrules = ["ask"]\n', "policy.rules.0"),
    ],
)
def test_a_table_without_sense_names_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TeamError) as caught:
        settings(tmp_path, text)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_client_that_would_not_keep_it_is_not_started(tmp_path: Path) -> None:
    given = settings(tmp_path, TABLE)
    with pytest.raises(TeamError, match=r"policy: only the client builtin keeps it, not claude-code"):
        launch.make_plan(tmp_path, given, UserSettings(), launch.Wishes(), {})
