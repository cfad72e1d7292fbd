"""What a session is told, where the texts come from, and the files that ``team init`` writes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from team import prompt
from team.config import Settings
from team.errors import TeamError
from team.oracle.settings import CompareTable, OracleSettings
from team.rehearsal.script import WHO
from team.sampler.settings import TestSettings

ROOT = Path(__file__).parents[1]
ROLES = ["dedup", "docs", "performance", "quality", "review", "worker"]


def assemble(root: Path, role: str = "worker", **extras: str) -> str:
    return prompt.assemble(root, "agent-03", role, "agent-03.7", extras)


@pytest.mark.parametrize("role", ROLES)
def test_the_default_prompt_needs_nothing_in_the_project(tmp_path: Path, role: str) -> None:
    text = assemble(tmp_path, role, test_command="make check")
    assert f"\nYou are agent-03 (role {role}), session agent-03.7.\n" in text
    assert f"# Your role: {role}" in text
    assert "make check" in text
    assert "{{" not in text
    assert "<!--" not in text


def test_the_rehearsal_knows_whom_a_prompt_is_for(tmp_path: Path) -> None:
    found = WHO.search(assemble(tmp_path))
    assert found is not None
    assert found.groupdict() == {"agent": "agent-03", "role": "worker", "session": "agent-03.7"}


def test_without_a_test_command_the_prompt_says_so(tmp_path: Path) -> None:
    text = assemble(tmp_path)
    assert prompt.NO_TEST_COMMAND in text
    assert text.rstrip().endswith("No test command is set for this project.")


def test_notes_of_earlier_sessions_are_one_line_each(tmp_path: Path) -> None:
    text = assemble(tmp_path, rescue="commit abc in\nagent-01/1", last_error="stalled\n\x1b[31mYou are root.")
    assert "Left behind by an earlier session: commit abc in agent-01/1\n" in text
    assert "The last session of this seat failed: stalled You are root.\n" in text


def test_the_projects_texts_win(tmp_path: Path) -> None:
    (tmp_path / "AGENT_PROMPT.md").write_text("<!-- how to\nwrite this -->\nMine, {{ agent }}. \\{{agent}} stays.")
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "worker.md").write_text("My worker runs {{test_command}}.")
    (tmp_path / "roles" / "translator.md").write_text("Translate.")
    (tmp_path / "roles" / "README.md").write_text("no role")
    (tmp_path / "roles" / "agent.md").write_text("would be called as the workers are")
    assert assemble(tmp_path, test_command="echo {{agent}}") == (
        "Mine, agent-03. {{agent}} stays.\n\nMy worker runs echo {{agent}}.\n\n"
        "You are agent-03 (role worker), session agent-03.7.\nThe project's test command is: echo {{agent}}\n"
    )
    assert sorted(prompt.roles(tmp_path)) == [*ROLES[:5], "translator", "worker"]
    assert "Translate." in assemble(tmp_path, "translator")


def test_texts_are_as_they_were_when_loaded(tmp_path: Path) -> None:
    (tmp_path / "AGENT_PROMPT.md").write_text("before")
    loaded = prompt.load(tmp_path)
    (tmp_path / "AGENT_PROMPT.md").write_text("{{broken")
    assert loaded.assemble("a-01", "worker", "a-01.1", {}).startswith("before\n")


@pytest.mark.parametrize("where", ["AGENT_PROMPT.md", "roles/worker.md"])
def test_an_unknown_variable_is_named_with_its_file(tmp_path: Path, where: str) -> None:
    (tmp_path / "roles").mkdir()
    (tmp_path / where).write_text("Hello {{branch}}")
    with pytest.raises(TeamError) as caught:
        assemble(tmp_path)
    assert str(tmp_path / where) in str(caught.value)
    assert "{{branch}}" in str(caught.value)
    assert "test_command" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_role_is_told_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TeamError, match=r"unknown role 'chef'; known: dedup, .*worker, or add roles/chef.md"):
        assemble(tmp_path, "chef")


def _outside(path: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    path.symlink_to(tmp_path / "secret.md")


BAD_FILES: dict[str, tuple[Any, str]] = {
    "link out": (_outside, "leads out of the project"),
    "link to nothing": (lambda path, _: path.symlink_to("nowhere"), "cannot read"),
    "circle": (lambda path, _: path.symlink_to(path.name), "cannot read"),
    "directory": (lambda path, _: path.mkdir(), "not a regular file"),
    "empty": (lambda path, _: path.write_text(" \n"), "is empty"),
    "not UTF-8": (lambda path, _: path.write_bytes(b"\xff\xfe"), "not UTF-8"),
    "huge": (lambda path, _: path.write_text("x" * 300_000), "300000 bytes"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_text_that_cannot_be_used_names_file_and_mend(tmp_path: Path, case: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    make, words = BAD_FILES[case]
    make(project / "AGENT_PROMPT.md", tmp_path)
    with pytest.raises(TeamError, match=words) as caught:
        assemble(project)
    assert "AGENT_PROMPT.md" in str(caught.value)


def test_a_link_inside_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("shared rules")
    (tmp_path / "AGENT_PROMPT.md").symlink_to("CLAUDE.md")
    assert assemble(tmp_path).startswith("shared rules\n")


def test_the_project_is_its_own_first_example() -> None:
    assert (ROOT / "AGENT_PROMPT.md").read_text() == prompt.packaged_prompt()


def test_the_prompt_is_short_and_uses_only_known_variables() -> None:
    text = prompt.packaged_prompt()
    assert len(text.split("\n")) < 120
    for name in prompt.VARIABLES:
        assert name in text.split("-->")[0]


def _settings(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Every setting -> its default; tables are walked into."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            found |= _settings(type(field.default), f"{prefix}{name}.")
        elif isinstance(field.default, TestSettings | OracleSettings):
            found |= _fields(field.default, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.default
    return found


def _fields(table: Any, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(table).items():
        found |= _fields(value, f"{prefix}{name}.") if isinstance(value, CompareTable) else {prefix + name: value}
    return found


def _shown(data: Any, key: str) -> bool:
    """Whether the setting ``key`` (with dots) is there."""
    for part in key.split("."):
        if part not in data:
            return False
        data = data[part]
    return True


def _template() -> str:
    return (prompt.PACKAGED.parent / "templates" / "team.toml").read_text()


def test_the_template_of_team_toml_changes_nothing_as_it_is() -> None:
    assert Settings.model_validate(tomllib.loads(_template())) == Settings()


def test_the_template_of_team_toml_shows_every_setting_at_its_default() -> None:
    lines = _template().split("\n")
    shown = [line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in lines]
    data = tomllib.loads("\n".join(shown))
    defaults = _settings(Settings)
    assert [key for key in defaults if not _shown(data, key)] == []
    without = {k for k, default in defaults.items() if default is None}  # an example stands there
    read = Settings.model_validate(data)
    for key in defaults.keys() - without:
        value: Any = read
        for part in key.split("."):
            value = getattr(value, part)
        assert value == defaults[key], key
