"""The built-in client in containers: the demo as with Claude Code, a successor that goes on, a person who is asked."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from team import images, worktree
from team.clients import client as client_called
from team.config import Image
from team.git import git
from team.ledger import Kind
from team.rehearsal.model import ScriptedModel
from team.rehearsal.script import ByAgent, commands

from .conftest import Stage

pytestmark = pytest.mark.engine


def demo(client: str, place: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The report of a demo, and what main holds at its end without the notes: path -> blob. Where two added to the
    same place, who was first decides the order of the lines."""
    place.mkdir()
    env = {**os.environ, "XDG_STATE_HOME": str(place), "XDG_CONFIG_HOME": str(place), "TMPDIR": str(place)}
    argv = [sys.executable, "-m", "team.rehearsal.main", "--json", "--client", client, "--runtime", "docker"]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=400)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(place))
        upstream = worktree.open_project(Path(report["root"])).upstream
    rows = git("ls-tree", "-r", "-z", "main", at=upstream).decode().split("\0")[:-1]
    tree = {row.partition("\t")[2]: row.split()[2] for row in rows}
    del tree["NOTES.md"]
    menu = git("show", "main:abacus/menu.py", at=upstream).decode()
    tree["abacus/menu.py"] = "\n".join(sorted(menu.split("\n")))
    return report, tree


def test_the_demo_comes_to_the_same_as_with_claude_code(tmp_path: Path) -> None:
    report, tree = demo("builtin", tmp_path / "b")
    assert (report["client"], report["runtime"], report["done"]) == ("builtin", "docker", 12)
    assert report["counts"]["failed"] == [] and report["counts"]["locks_left"] == []
    assert tree == demo("claude-code", tmp_path / "c")[1]


def test_the_successor_of_a_killed_session_goes_on_from_its_files(stage: Stage) -> None:
    work = "echo 'def two(): return 2' >> src/app.py; echo x > src/new.py"
    first = commands("team claim fix_one", work, "sleep 300; echo never")
    again = (
        "git pull -q --no-edit && git apply -3 tasks/fix_one.patch && git rm -qf tasks/fix_one.patch && cat NOTES.md"
    )
    land = "team claim fix_one && git add -A && git commit -qm 'Fix one' && git push 2>&1 | tail -3"
    second = commands(again, land, "team release --done")
    model = ScriptedModel(ByAgent({"agent-01.1": first}, second))

    async def stop(stage: Stage) -> None:
        await stage.until(lambda s: any(r.get("turn") == 2 for r in model.seen))
        container = stage.ledger(Kind.SESSION_CREATED)[0].data["container"]
        await asyncio.to_thread(stage.engine.stop, container, 10)

    stage.run(stage.plan(client="builtin"), model=model, beside=stop)
    assert stage.outcome("agent-01.1") == "crashed"
    assert "tasks/fix_one.patch" in stage.files()
    stage.run(stage.plan(client="builtin"), model=model)
    assert stage.outcome("agent-01.2") == "done", stage.log("agent-01.2")
    assert "def two(): return 2" in stage.git("show", "main:src/app.py")
    files = stage.files()
    assert "src/new.py" in files and not {"tasks/fix_one.patch", "tasks/fix_one.md"} & set(files)
    assert "### fix_one (agent-01.1)" in stage.git("show", "main:NOTES.md")


def test_a_full_session_hands_over_through_the_gate_and_with_its_claim_free(stage: Stage) -> None:
    script = commands(
        "team claim fix_two", "echo 'def two(): return 2' >> src/app.py; seq 2000", text="Two is half done."
    )
    settings = {"builtin": {"window": 6000}, "gate": {"check": "python3 -m compileall -q src"}}
    stage.run(stage.plan(client="builtin", settings=settings), model=ScriptedModel(script))
    assert stage.outcome("agent-01.1") == "done", stage.log("agent-01.1")
    assert "handed over in NOTES.md, with tasks/fix_two.patch" in stage.log("agent-01.1")
    assert "Two is half done." in stage.git("show", "main:NOTES.md")
    assert "+def two(): return 2" in stage.git("show", "main:tasks/fix_two.patch")
    assert "current_tasks/fix_two.txt" not in stage.files()
    assert len(stage.ledger(Kind.LANDING_DONE)) == 3, "claim, hand-over, release"


def test_a_person_is_asked_and_the_session_goes_on(stage: Stage) -> None:
    rules = ({"verdict": "ask", "tool": "bash", "pattern": "*make release*", "note": "it publishes"},)
    model = ScriptedModel(commands("echo make release yes", "echo make release no"))

    async def decide(stage: Stage) -> None:
        for number, verb in enumerate(("approve", "deny"), 1):
            await stage.until(lambda s: len(s.ledger(Kind.ACTION_HELD)) == number)  # noqa: B023
            assert "make release" in stage.cli("held").stdout
            await asyncio.to_thread(stage.cli, verb, f"a{number}")

    plan = stage.plan(client="builtin", settings={"policy": {"rules": rules}})
    stage.run(plan, model=model, beside=decide)
    assert stage.outcome("agent-01.1") == "done"
    results = [r["result"] for r in model.seen if r.get("turn")]
    assert "make release yes" in results[0] and "denied this call" in results[1]


def test_the_image_has_the_pinned_sdk_and_no_node(engine: Any) -> None:
    tag = images.ensure(client_called("builtin").image, Image(), Path("/nonexistent"), say=print)
    labels = engine.inspect_image(tag)["Config"]["Labels"]
    assert labels["team.client"] == "builtin"
    look = (
        "PYTHONPATH=/opt/builtin python3 -c 'import anthropic; print(anthropic.__version__)'; command -v node npm pip"
    )
    box = engine.create_container(tag, ["sh", "-c", look], user="1000:1000")
    try:
        engine.start(box)
        engine.wait(box, timeout=120)
        assert engine.logs(box).decode().split() == [labels["team.client.version"]]
    finally:
        engine.remove_container(box, force=True)
