"""Whole sessions of the other real clients: claim, edit, test, push and release, with everything real but the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from team import images
from team.clients import client as client_called
from team.config import Image
from team.errors import TeamError
from team.rehearsal.main import rehearse
from team.rehearsal.project import make

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("client", ["codex", "opencode", "builtin"])
def test_a_whole_session_through_the_real_door(client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root, said = make(tmp_path / "mine"), list[str]()
    (root / "team.toml").write_text('[test]\ncommand = "python3 -m compileall -q abacus"\n')
    try:
        report = rehearse(root, agents=1, client=client, runtime="docker", say=said.append)
    except TeamError as error:
        logs = "".join(p.read_text("utf-8", "replace") for p in tmp_path.rglob("*.log"))
        pytest.fail(f"{error}\n{said}\n{logs[-4000:]}")
    assert report.client == client
    assert set(report.agents.values()) == {"tests: exit 0"}


@pytest.mark.parametrize(("client", "version"), [("codex", "0.171.0"), ("opencode", "1.18.33")])
def test_the_image_has_the_pinned_program_and_no_node(client: str, version: str, engine: Any) -> None:
    tag = images.ensure(client_called(client).image, Image(), Path("/nonexistent"), say=print)
    labels = engine.inspect_image(tag)["Config"]["Labels"]
    assert (labels["team.client"], labels["team.client.version"]) == (client, version)
    box = engine.create_container(tag, ["sh", "-c", f"{client} --version; command -v node npm"], user="1000:1000")
    try:
        engine.start(box)
        engine.wait(box, timeout=120)
        assert engine.logs(box).split()[-1] == version.encode()
    finally:
        engine.remove_container(box, force=True)
