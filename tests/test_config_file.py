"""Broken configuration is named with file, line, key and the mend; good configuration is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from team import config_file
from team.config import Settings, UserSettings
from team.errors import TeamError


def write(root: Path, text: str) -> Path:
    (root / "team.toml").write_text(text, "utf-8")
    return root


def complaint(root: Path, text: str) -> str:
    with pytest.raises(TeamError) as caught:
        config_file.load(write(root, text))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_file_means_all_defaults(tmp_path: Path) -> None:
    assert config_file.load(tmp_path) == Settings()


def test_values_are_read(tmp_path: Path) -> None:
    text = '\ufeffagents = 16\r\nroles = ["docs", "review:2"]\r\n[session]\r\nmemory = "512m"\r\nmax_time = "2h"\r\n'
    settings = config_file.load(write(tmp_path, text))
    assert settings.agents == 16
    assert settings.roles == ("docs", "review:2")
    assert settings.session.memory == 512 << 20
    assert settings.session.max_time == 7200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '# a\n\nagents = 3\n\n[session]\n# b\nmemory = "4q"\n',
            "team.toml:7: session.memory: a size is a number with k, m, g or t, like '4g'; it is '4q'",
        ),
        ("agents = 0\n", "team.toml:1: agents: must be at least 1; it is 0"),
        ("agents = 1.5\n", "team.toml:1: agents: expected a whole number; it is 1.5"),
        ("agents = 1000\n", "team.toml:1: agents: must be at most 256; it is 1000"),
        ("agents = true\n", "team.toml:1: agents: expected a whole number; it is true"),
        ("agents = '4'\n", "team.toml:1: agents: expected a whole number; it is '4'"),
        ("[landing]\nsecrets = 'no'\n", "team.toml:2: landing.secrets: expected true or false; it is 'no'"),
        ("[session]\nmax_time = true\n", "team.toml:2: session.max_time: expected a number; it is true"),
        ("model = ' '\n", "team.toml:1: model: expected a name; without a line here the client chooses"),
        ("roles = ['nosuch:2']\n", "team.toml:1: roles: unknown role 'nosuch'; known: dedup, docs, "),
        ("models = { nosuch = 'm' }\n", "team.toml:1: models.nosuch: unknown role 'nosuch'; known: "),
        ("[budget]\nroles = { nosuch = { usd = 1 } }\n", "team.toml:2: budget.roles.nosuch: unknown role 'nosuch'"),
        ("[budget]\nmax = 1\n", "team.toml:2: budget.max: unknown key; known here: usd, tokens, day, "),
        ("[network]\nallowed = ['a']\n", "team.toml:2: network.allowed: unknown key; did you mean 'allow'?"),
        ("agent = 3\n", "team.toml:1: agent: unknown key; did you mean 'agents'?"),
        (
            "[session]\nmax-time = 3\n",
            "team.toml:2: session.max-time: unknown key; did you mean 'max_time'?",
        ),
        ("[test]\nzzz = 1\n", "team.toml:2: test.zzz: unknown key; known here: kind, run"),
        (
            'client = "gpt"\n',
            "team.toml:1: client: unknown client 'gpt'; allowed: claude-code, codex, opencode, builtin, command",
        ),
        (
            'x = 1\n"""',
            "team.toml:2: not TOML: ",
        ),
        ('a = "1"\nb = [1,\n2\n', "team.toml:3: not TOML: "),
        ("agents == 3\n", "team.toml:1: not TOML: "),
        ("session = 4\n", "team.toml:1: session: expected a table; it is 4"),
        ("roles = 'docs'\n", 'team.toml:1: roles: expected a list, like ["a", "b"]; it is \'docs\''),
        (
            "roles = [\n  # first\n  'docs',\n  'review:0',\n]\n",
            "team.toml:1: roles: 'review:0' is no role; write 'review' or 'review:2'",
        ),
        ("session = { memory = '1x' }", "team.toml:1: session.memory: a size is"),
        ("[session]\ncpus = inf", "team.toml:2: session.cpus: expected a number, not inf or nan"),
        ('[test]\ncommand = """\nmake\n\n[x]\n"""\n[logs]\nmax_file = []', "team.toml:8: logs.max_file: "),
        ("session.setup = 'a'\nsession.pids = 3", "team.toml:2: session.pids: must be at least 64; it is 3"),
        ("[session]\ncache = ['/a', 'b']", "team.toml:2: session.cache.1: a cache is an absolute path"),
        ("a = " + "[" * 5000, "team.toml"),
    ],
)
def test_one_line_names_file_line_key_and_mend(tmp_path: Path, text: str, expected: str) -> None:
    assert complaint(tmp_path, text).startswith(expected)


def test_a_key_of_the_persons_own_configuration_is_refused(tmp_path: Path) -> None:
    said = complaint(tmp_path, "[gateway]\nbase_url = 'http://evil.example'\n")
    assert said.startswith("team.toml:1: gateway: unknown key here; it is read from ")
    assert said.endswith("config.toml only")


def test_terminal_codes_in_a_value_are_not_repeated(tmp_path: Path) -> None:
    assert "\x1b" not in complaint(tmp_path, 'agents = "\\u001b[2J"\n')


def test_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_bytes(b"agents = 1\n# \xff\n")
    with pytest.raises(TeamError, match=r"team\.toml:2: not UTF-8"):
        config_file.load(tmp_path)


def test_link_out_of_the_tree_is_refused_and_link_inside_is_read(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (tmp_path / "other.toml").write_text("agents = 2\n")
    (root / "team.toml").symlink_to("../other.toml")
    with pytest.raises(TeamError, match="symbolic link out of the work tree"):
        config_file.load(root)
    (root / "team.toml").unlink()
    (root / "mine.toml").write_text("agents = 2\n")
    (root / "team.toml").symlink_to("mine.toml")
    assert config_file.load(root).agents == 2
    (root / "mine.toml").unlink()
    with pytest.raises(TeamError, match="not a regular file"):
        config_file.load(root)


def test_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "team.toml")
    with pytest.raises(TeamError, match="not a regular file"):
        config_file.load(tmp_path)


def write_user(home: Path, text: str) -> None:
    (home / "team").mkdir(parents=True)
    (home / "team" / "config.toml").write_text(text)


def test_user_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_file.load_user() == UserSettings()
    write_user(tmp_path, '[gateway]\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "MY_KEY"\n')
    assert config_file.load_user().gateway.key_env == "MY_KEY"


@pytest.mark.parametrize(
    "text",
    [
        "[gateway]\nkey_env = 'sk-ant-secret'\n",
        "[gateway]\nkey = 'sk-ant-secret'\n",
        "[gateway]\nkey_env = ['sk-ant-secret']\n",
        "[gateway]\nbase_url = 'https://me:sk-ant-secret@host'\n",
        "agents = 'sk-ant-secret'\n",
    ],
)
def test_user_settings_never_show_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write_user(tmp_path, text)
    with pytest.raises(TeamError) as caught:
        config_file.load_user()
    assert "secret" not in str(caught.value)
    assert str(tmp_path / "team" / "config.toml") + ":" in str(caught.value)


def test_a_role_of_the_projects_own_may_have_a_limit(tmp_path: Path) -> None:
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "parser.md").write_text("Mend the parser.\n")
    settings = config_file.load(write(tmp_path, "[budget]\nroles = { parser = { usd = 1 } }\n"))
    assert settings.budget.roles["parser"].usd == 1
