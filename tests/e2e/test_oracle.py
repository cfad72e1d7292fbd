"""``team oracle next`` in real sessions: four agents, three bad files of Lua, each found by exactly one of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from team import images
from team.config import Image
from team.ledger import Kind
from tests.oracle import builds

from .conftest import FILES, Stage, Stages
from .lifecycle_kit import KIT, locks, reason, signal

pytestmark = pytest.mark.engine

BAD = ("src/ltablib.c", "src/lmathlib.c", "src/lobject.c")
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc make libc6-dev >/dev/null
"""
SCRIPT = """
team oracle next --json >/tmp/found 2>/tmp/said; code=$?
echo "FOUND $(cat /tmp/found)"; echo "code $code"; cat /tmp/said
git status --porcelain | sed 's/^/changed /'
[ $code != 3 ] || echo "AGAIN $(team oracle next --agent agent-09 --json)"
[ $code != 0 ] || wait_for go_on
"""


def project(folder: Path) -> dict[str, str]:
    """Lua with a compiler that gets three of its files wrong, as files of a project."""
    lua = builds.lua(folder / "lua")
    builds.miscompiler(folder / "bad", {unit: builds.LUA_FAULTS[unit] for unit in BAD})
    inside = [path for path in (lua.root / "src").iterdir() if path.suffix in (".c", ".h") or path.name == "Makefile"]
    files = {str(path.relative_to(lua.root)): path.read_text("latin-1") for path in inside}
    wrong = (folder / "bad" / "wrong").read_text()
    compiler = (folder / "bad" / "miscompiler").read_text()
    assert f"-wrapper '{folder / 'bad' / 'wrong'}'" in compiler
    # No file of the project is a program here: the shell and python start both.
    compiler = compiler.replace(f"-wrapper '{folder / 'bad' / 'wrong'}'", '-wrapper "python3,-IS,${0%/*}/wrong"')
    return files | {
        "check.lua": (lua.root / "check.lua").read_text(),
        "badcc/wrong": wrong,
        "badcc/cc": compiler,
        "units": "".join(f"{unit}\n" for unit in lua.units),
    }


async def the_fourth_is_done(stage: Stage) -> None:
    """Those who hold a culprit go on when the one who found none has ended: it must not find what they give back."""
    await stage.until(lambda s: s.ledger(Kind.SESSION_ENDED), 240)
    await signal(stage, "go_on")


def test_four_agents_find_three_bad_files_each_by_one_of_them(stages: Stages, tmp_path: Path) -> None:
    lua = project(tmp_path)
    stage = stages(files={**FILES, **lua})
    (stage.root / "tools.Dockerfile").write_text(DOCKERFILE)
    image = images.ensure("command", Image(dockerfile="tools.Dockerfile"), stage.root, say=lambda line: None)
    flags = "-std=gnu99 -O0 -DLUA_COMPAT_5_3 -DLUA_USE_POSIX"
    oracle = {
        "list": "cat units",
        "build": f"make -s -C src CC=team-cc CFLAGS='{flags}' LIBS=-lm AR='ar rc' lua",
        "check": "src/lua check.lua",
        "reference": "gcc",
        "candidate": "sh badcc/cc",
    }
    stage.run(
        agents=4,
        argv=("sh", "-c", KIT + SCRIPT),
        beside=the_fourth_is_done,
        image=image,
        settings={"oracle": oracle},
    )
    found: dict[str, Any] = {}
    again: list[Any] = []
    for n in range(1, 5):
        session = f"agent-{n:02d}.1"
        said = "\n".join(stage.printed(session))
        assert reason(stage, session)[0] == "done", said
        assert "changed" not in said, "the clone was built in"
        match = re.search(r"^FOUND (.*)$", said, re.M)
        assert match, said
        found[session] = json.loads(match[1])
        # Four that start at once may each be the first to ask; who comes after them is not.
        again += [json.loads(text) for text in re.findall(r"^AGAIN (.*)$", said, re.M)]
    culprits = [report["culprits"][0]["units"] for report in found.values() if report["culprits"]]
    assert sorted(culprits) == sorted([unit] for unit in BAD), found
    assert [report["claimed"] for report in found.values()].count("") == 1
    claims = [event.task or "" for event in stage.ledger(Kind.CLAIM)]
    assert sorted(claims) == sorted(f"fix_src--{Path(unit).name}" for unit in BAD)
    assert {event.task for event in stage.ledger(Kind.ORACLE_FOUND)} >= set(claims)
    assert len(again) == 1 and again[0]["spared"], "nobody used what another had found out"
    assert locks(stage) == [], "a lock outlived its session"
