"""What `doctor` finds on this machine, and inside a real container."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from team import doctor, places
from team.config import Settings
from team.doctor import Finding, Status

SECRET = "sk-ant-not-a-real-key-0123456789"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit; state and configuration below the test's own directory."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    at = tmp_path / "project"
    at.mkdir()
    for args in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=Pat", "-c", "user.email=p@x", *args], cwd=at, check=True)
    return at


def by_name(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        assert "\n" not in finding.text + finding.mend
        found.setdefault(finding.name, []).append(finding)
    return found


def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")


def test_without_an_engine_the_rest_is_still_looked_at(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_engine(monkeypatch, tmp_path)
    found = by_name(doctor.checks(root, {}))
    assert found["engine"][0].status is Status.FAIL
    assert "start it with" in found["engine"][0].text
    assert found["git"][0].status is Status.OK
    assert found["state"][0].status is Status.OK
    assert found["sockets"][0].status is Status.OK
    assert found["configuration"][1].mend == "set [test] command, or kind for `team test`, in team.toml"
    assert not places.state_home().exists()


def test_key_is_named_and_never_shown(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch, tmp_path)
    assert by_name(doctor.checks(root, {}))["key"][0].status is Status.WARN
    found = list(doctor.checks(root, {"ANTHROPIC_API_KEY": SECRET}))
    assert by_name(found)["key"][0].text.startswith("ANTHROPIC_API_KEY in the environment has the key")
    assert SECRET not in repr(found)


def test_keys_of_files_commands_and_other_providers_are_looked_for(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_engine(monkeypatch, tmp_path)
    (tmp_path / "vault").write_text(SECRET)
    config = places.config_home() / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f"""
[gateway]
key_file = "{tmp_path / "vault"}"
[gateway.providers.local]
api = "openai"
base_url = "http://127.0.0.1:8000/v1"
[gateway.providers.vault]
api = "openai"
base_url = "https://models.example.com/v1"
key_command = ["false"]
[gateway.providers.bare]
api = "openai"
base_url = "https://bare.example.com/v1"
models = ["bare-*"]
"""
    )
    found = by_name(doctor.checks(root, {}))
    assert found["key"][0].text.startswith(f"key_file {tmp_path / 'vault'} has the key for https://api.anthropic.com")
    assert "gets none" in found["provider local"][0].text
    assert "key_command false ended with exit code 1" in found["provider vault"][0].text
    assert "no key for https://bare.example.com/v1 for bare-*" in found["provider bare"][0].text
    assert SECRET not in repr(found)


def test_broken_configuration_is_a_finding(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_engine(monkeypatch, tmp_path)
    (root / "team.toml").write_text("agents = 0\n")
    found = by_name(doctor.checks(root, {}))["configuration"]
    assert [f.status for f in found] == [Status.FAIL]
    assert found[0].text.startswith("team.toml:1: agents: ")


def test_state_open_to_others_and_long_socket_paths(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_engine(monkeypatch, tmp_path)
    project = places.new_project(root)
    project.upstream.mkdir()
    (project.upstream / "HEAD").touch()
    (root / ".team").write_text(project.id)
    project.state.chmod(0o755)
    monkeypatch.setattr(doctor, "LONGEST_SESSION", "x" * 120)
    found = by_name(doctor.checks(root, {}))
    assert found["state"][0].mend == f"chmod 700 {project.state}"
    assert found["sockets"][0].mend == "set XDG_RUNTIME_DIR to a short directory"


def test_a_process_that_is_not_shut_in_is_seen_for_what_it_is() -> None:
    probe = Path(doctor.__file__).parent / "probe.py"
    # In a network namespace of its own: it tries public addresses, and a test has no business there.
    argv = ["unshare", "--map-root-user", "--net", sys.executable, "-c", probe.read_text(), "sh", ""]
    out = subprocess.run(argv, capture_output=True, check=True).stdout
    found = by_name(doctor.shut_in(json.loads(out), 1000, 1000, 1 << 30))
    assert {name for name, (f,) in found.items() if f.status is Status.FAIL} >= {"mounts", "rights", "memory"}


@pytest.fixture(scope="module")
def report(agent_image: str) -> dict[str, Any]:
    from team.runtimes.docker import DockerRuntime

    return doctor.probe(agent_image, Settings(), "git", DockerRuntime(), 1000, 1000, versioned=True)


@pytest.mark.engine
def test_a_real_container_is_shut_in(report: dict[str, Any]) -> None:
    found = by_name(doctor.shut_in(report, 1000, 1000, Settings().session.memory))
    assert {f.status for findings in found.values() for f in findings} == {Status.OK}, found
    assert set(found) == {"user", "mounts", "network", "rights", "memory"}
    assert report["reaches"] == {"IPv4": False, "IPv6": False, "metadata address": False, "DNS": False}


@pytest.mark.engine
def test_image_contract(report: dict[str, Any]) -> None:
    (good,) = doctor.contract(report, "img", "git")
    assert good.status is Status.OK
    poor = report | {"python": [3, 9, 2], "git": "error: no", "socat": False, "client": None}
    (bad,) = doctor.contract(poor, "img", "claude")
    assert bad.status is Status.FAIL
    for words in ("python 3.9.2 is older than 3.11", "git 2.38 or newer", "socat is missing", "client (claude)"):
        assert words in bad.text


@pytest.mark.engine
def test_nothing_is_left_on_the_engine(report: dict[str, Any]) -> None:
    for what in (
        ["ps", "-aq", "--filter", "name=team-doctor-"],
        ["volume", "ls", "-q", "--filter", "name=team-doctor-"],
    ):
        done = subprocess.run(["docker", *what], capture_output=True, text=True, check=True)
        assert done.stdout == ""


@pytest.mark.engine
def test_image_without_a_client_says_so_and_is_cleaned_up(agent_image: str) -> None:
    from team.runtimes.docker import DockerRuntime

    findings = list(doctor.inside(agent_image, Settings(), "no-such-client", DockerRuntime(), versioned=True))
    assert findings[0].status is Status.FAIL
    assert "the client (no-such-client) is missing" in findings[0].text


@pytest.mark.engine
def test_image_that_is_not_built_is_only_reported(root: Path) -> None:
    (root / "team.toml").write_text('client = "command"\n[command]\nargv = ["x"]\n[image]\nbase = "no-such-base"\n')
    found = by_name(doctor.checks(root, {}))
    assert found["engine"][0].status is Status.OK
    assert found["image"][0].mend.startswith("`team image build`")
    assert "probe" not in found
