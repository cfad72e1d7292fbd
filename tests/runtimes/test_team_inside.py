"""``team/inside/bin/team``, the shell script, against a real door: by socat over the socket and, without it, by TCP."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from team.door import Door, Tenant
from team.ledger import Ledger
from team.places import Project
from team.upstream.upstream import Upstream
from tests.upstream.conftest import make_source

SCRIPT = Path(__file__).parents[2] / "team/inside/bin/team"


@pytest.fixture(params=["socket", "tcp", "no socat"])
async def way(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of a session whose door is reached in one of three ways."""
    project = Project(tmp_path / "source", "demo-1", tmp_path / "state")
    source = make_source(project.root, {"README.md": "x", "tasks/fix_parser.md": "# Fix the parser\n"})
    Upstream.create(project, source.path, source.head())
    ledger = Ledger(project.ledger)
    upstream = Upstream(project, ledger)

    async def no_model(request: web.Request) -> web.Response:
        return web.Response(status=404)

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TEAM_TOKEN": "secret-token"}
    directory = Path(tempfile.mkdtemp(prefix="t-"))
    tenant = Tenant("agent-01", "agent-01@team.invalid", "worker", "agent-01.1", "secret-token")
    door = Door(tenant, upstream, no_model)
    if request.param == "socket":
        await door.open(directory)
        env["TEAM_DOOR_SOCKET"] = str(directory / "door.sock")
    else:
        env |= {"TEAM_DOOR": await door.open_tcp(), "TEAM_DOOR_SOCKET": ""}
    if request.param == "no socat":
        hidden = tmp_path / "bin"
        hidden.mkdir()
        for name in ("sh", "bash", "cat", "tr", "git"):
            (hidden / name).symlink_to(shutil.which(name) or name)
        env["PATH"] = str(hidden)
        text = SCRIPT.read_text().replace("socat=/usr/bin/socat", "socat=/nowhere")
        (hidden / "team").write_text(text)
        env["SCRIPT"] = str(hidden / "team")
    yield env
    await door.close()
    upstream.close()
    ledger.close()
    shutil.rmtree(directory)


async def run(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    argv = ["sh", env.get("SCRIPT", str(SCRIPT)), *args]
    return await asyncio.to_thread(subprocess.run, argv, env=env, capture_output=True, text=True)


async def test_claim_tasks_and_release(way: dict[str, str]) -> None:
    done = await run(way, "tasks")
    assert (done.returncode, done.stdout) == (0, "open fix_parser Fix the parser\n"), done
    done = await run(way, "claim", "fix_parser", "--note", 'it\'s "mine"\nscope=no; $(x) é', "--scope", "src/**")
    assert done.returncode == 0 and done.stdout.startswith("you hold fix_parser"), done
    assert "yours fix_parser" in (await run(way, "tasks")).stdout
    done = await run(way, "claim", "other_thing")
    assert done.returncode == 1 and done.stderr.startswith("refused: you hold fix_parser"), done
    done = await run(way, "claim", "Bad Name")
    assert done.returncode == 1 and "try 'bad_name'" in done.stderr, done
    done = await run(way, "release", "--done")
    assert done.returncode == 0 and "done and free" in done.stdout, done
    assert (await run(way, "tasks")).stdout.startswith("no tasks are written down")


@pytest.mark.parametrize(
    "args", [[], ["frob"], ["claim"], ["claim", "a", "b"], ["claim", "a", "--scope"], ["tasks", "x"]]
)
async def test_wrong_use_is_told(args: list[str]) -> None:
    done = await run({"PATH": os.environ["PATH"]}, *args)
    assert done.returncode == 2 and "usage: team claim TASK" in done.stderr


async def test_no_door_is_said(tmp_path: Path) -> None:
    done = await run({"PATH": os.environ["PATH"], "TEAM_DOOR": "http://127.0.0.1:9", "TEAM_DOOR_SOCKET": ""}, "tasks")
    assert done.returncode == 1 and "the door does not answer" in done.stderr
