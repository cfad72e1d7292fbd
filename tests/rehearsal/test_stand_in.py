"""The scripted model, the stand-in client and the demo's scripts together, on a plain bare repository."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from team.git import git
from team.rehearsal import standin
from team.rehearsal.demo_script import DemoScript
from team.rehearsal.model import Fault, ScriptedModel
from team.rehearsal.own_script import OwnScript
from team.rehearsal.project import make, run_tests
from team.rehearsal.script import Script, commands


def plain_upstream(tmp_path: Path) -> Path:
    project, upstream = make(tmp_path / "demo"), tmp_path / "upstream.git"
    git("clone", "-q", "--bare", str(project), str(upstream), at=tmp_path)
    return upstream


def clone(upstream: Path, path: Path) -> Path:
    git("clone", "-q", str(upstream), str(path), at=upstream.parent)
    return path


async def session(url: str, agent: str, n: int, cwd: Path) -> list[dict[str, object]]:
    """Run one stand-in in ``cwd``; gives its events."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": f"token-of-{agent}", "GIT_CONFIG_GLOBAL": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": agent, f"GIT_{who}_EMAIL": f"{agent}@team.invalid"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(standin.__file__)), cwd=cwd, env=env,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    prompt = f"# The team\n\nYou are {agent} (role worker), session {agent}.{n}.\n\nDo good work.\n"
    out, _ = await asyncio.wait_for(process.communicate(prompt.encode()), 60)
    return [json.loads(line) for line in out.splitlines()]


async def seat(url: str, upstream: Path, agent: str, tmp: Path) -> list[str]:
    """Sessions one after another until one finds nothing to do; gives all that they printed."""
    said = []
    for n in range(1, 14):
        events = await session(url, agent, n, clone(upstream, tmp / f"{agent}.{n}"))
        assert events[-1]["type"] == "result" and events[-1]["is_error"] is False, events[-1]
        said.append(json.dumps(events))
        if "No task is open" in str(events[-1]["result"]):
            break
    return said


async def test_four_agents_finish_the_demo_in_spite_of_collisions_and_conflicts(tmp_path: Path) -> None:
    upstream = plain_upstream(tmp_path)
    model = ScriptedModel(DemoScript(), gather=4)
    async with model.running() as url:
        said = await asyncio.gather(*(seat(url, upstream, f"agent-0{n}", tmp_path) for n in range(1, 5)))
    work = clone(upstream, tmp_path / "after")
    assert not (work / "tasks").exists(), "every ticket is done"
    assert [p.name for p in (work / "current_tasks").iterdir()] == [".gitkeep"]
    assert run_tests(work).failed == 0
    everything = "".join(line for lines in said for line in lines)
    assert len(re.findall(r"== REFUSED \w+ ", everything)) >= 3, "all four wanted the first ticket"
    assert "== CONFLICT" in everything
    assert everything.count("== LANDED") >= 12
    assert "<<<<<<<" not in (work / "NOTES.md").read_text() + (work / "abacus/menu.py").read_text()


async def test_an_agent_rehearses_on_any_project(tmp_path: Path) -> None:
    upstream = plain_upstream(tmp_path)
    async with ScriptedModel(OwnScript("echo ran; exit 3")).running() as url:
        events = await session(url, "docs-01", 1, clone(upstream, tmp_path / "work"))
    assert events[-1]["result"] == "Claimed, tested, landed and released."
    work = clone(upstream, tmp_path / "after")
    assert (work / "team-rehearsal/docs-01.txt").read_text() == "tests: exit 3: ran\n"
    assert [p.name for p in (work / "current_tasks").iterdir()] == [".gitkeep"]


async def run_once(script: Script, tmp_path: Path, fault: Fault | None = None) -> list[dict[str, object]]:
    async with ScriptedModel(script, fault=fault).running() as url:
        return await session(url, "agent-01", 1, tmp_path)


async def test_the_stand_in_says_what_claude_code_says(tmp_path: Path) -> None:
    events = await run_once(commands("echo out; echo err >&2; exit 4"), tmp_path)
    assert [e["type"] for e in events] == ["system", "assistant", "user", "assistant", "result"]
    result = events[2]["message"]["content"][0]  # type: ignore[index]
    assert result["content"] == "Exit code 4\nout\nerr\n" and result["is_error"] is True
    assert events[-1]["subtype"] == "success" and events[-1]["num_turns"] == 2


async def test_the_stand_in_fails_on_an_error_and_on_a_cut_stream(tmp_path: Path) -> None:
    for fault in (Fault("401"), Fault("529"), Fault("cut")):
        events = await run_once(commands("true"), tmp_path, fault)
        assert events[-1]["is_error"] is True and "API Error" in str(events[-1]["result"])


def test_the_stand_in_needs_nothing_but_python() -> None:
    code = "import sys; sys.path[:0] = [sys.argv[1]]; import standin; print(*sys.modules)"
    here = str(Path(standin.__file__).parent)
    loaded = subprocess.run([sys.executable, "-I", "-c", code, here], capture_output=True, text=True, check=True)
    assert "aiohttp" not in loaded.stdout and "team" not in loaded.stdout.split()
