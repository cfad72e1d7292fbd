"""A user's project of its own, its upstream, and runs of the team on it in real containers; all removed at the end.

``stages()`` makes one, ``stages(files=..., fill=...)`` shapes it; ``stage`` is a plain one. ``stage.run(agents=2,
argv=(...))`` runs the whole system in this process until its seats are done, with ``beside`` next to it on the host.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import docker
import pytest

from team import images, worktree
from team.clients import client as client_called
from team.config import Image, Settings
from team.git import git, line
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Key, Plan, seats
from team.rehearsal.model import ScriptedModel
from team.supervisor import supervise

PERSON = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Pat Example"), ("EMAIL", "pat@example.org"))
}
FILES = {
    "README.md": "# A project\n",
    "src/app.py": "def one():\n    return 1\n",
    "tasks/fix_one.md": "# Fix one\n",
    "tasks/fix_two.md": "# Fix two\n",
    "current_tasks/.gitkeep": "",
}

Beside = Callable[["Stage"], Awaitable[None]]


@dataclass
class Stage:
    """One project and everything that belongs to it."""

    root: Path
    project: Project
    images: Callable[[str], str]
    """The tag of the image that a client runs in."""
    engine: docker.APIClient
    events: list[Event] = field(default_factory=list)
    """Everything that the runs so far told, in order; grows while one runs."""

    # -- running ----------------------------------------------------------------------------------------------

    def plan(self, *, agents: int = 1, client: str = "command", **changes: Any) -> Plan:
        """A plan of ``agents`` workers, by default with one session each; ``changes`` are fields of :class:`Plan`,
        ``argv`` is what the client ``command`` runs, ``settings`` a :class:`Settings` or a dict of its tables."""
        settings = changes.pop("settings", Settings())
        plan = Plan(
            seats=seats(agents, (), {}),
            settings=settings if isinstance(settings, Settings) else Settings(**settings),
            tree=self.root,
            client=client,
            runtime="docker",
            image=self.images(client),
            client_argv=tuple(changes.pop("argv", ())),
            sessions=1,
            uid=os.getuid() or 1000,
            gid=os.getgid() or 1000,
        )
        return replace(plan, **changes)

    def run(
        self,
        plan: Plan | None = None,
        *,
        model: ScriptedModel | None = None,
        beside: Beside | None = None,
        seconds: float = 300,
        **changes: Any,
    ) -> str:
        """Run ``plan`` (or that of ``changes``) to its end; returns the supervisor's reason.

        ``model`` plays the provider, with a key that is worth nothing unless the plan has one. An error of ``beside``
        is raised after the team has stopped and cleaned up.
        """
        plan = plan or self.plan(**changes)
        return asyncio.run(self._run(plan, model, beside, seconds))

    async def _run(self, plan: Plan, model: ScriptedModel | None, beside: Beside | None, seconds: float) -> str:
        if model is None:
            return await self._supervise(plan, beside, seconds)
        async with model.running() as url:
            plan = replace(plan, model_url=url, key=plan.key or Key("no-key-is-needed-here"))
            return await self._supervise(plan, beside, seconds)

    async def _supervise(self, plan: Plan, beside: Beside | None, seconds: float) -> str:
        team = asyncio.create_task(supervise(self.project, plan, on_event=self.events.append))
        other = asyncio.create_task(_nothing() if beside is None else _coroutine(beside(self)))
        try:
            return await asyncio.wait_for(asyncio.shield(team), seconds)
        finally:
            if not team.done():
                os.kill(os.getpid(), 15)
                await asyncio.sleep(0.2)
                os.kill(os.getpid(), 15)
                with suppress(Exception):
                    await team
            if not other.done():
                done, _ = await asyncio.wait({other}, timeout=20)
                if not done:
                    other.cancel()
            await other

    async def until(self, found: Callable[[Stage], Any], seconds: float = 200) -> Any:
        """Wait until ``found(stage)`` is true; its value. Fails after ``seconds``."""
        for _ in range(int(seconds / 0.1)):
            if value := found(self):
                return value
            await asyncio.sleep(0.1)
        raise AssertionError(f"not seen within {seconds:g} s; events: {[e.kind for e in self.events]}")

    def cli(self, *args: str, ok: int | None = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """``team ARGS`` in the user's work tree."""
        done = subprocess.run(
            [sys.executable, "-m", "team.cli", *args],
            cwd=self.root,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ok is None or done.returncode == ok, done
        return done

    # -- looking ----------------------------------------------------------------------------------------------

    def ledger(self, *kinds: Kind, **narrow: Any) -> list[Event]:
        """Events from the ledger's file, oldest first."""
        with closing(Ledger(self.project.ledger)) as ledger:
            return list(ledger.events(*kinds, **narrow))

    def main(self) -> str:
        """The commit that upstream's main is at."""
        return line("rev-parse", "refs/heads/main", at=self.project.upstream)

    def git(self, *args: str) -> str:
        """What git prints in upstream."""
        return git(*args, at=self.project.upstream).decode("utf-8", "replace")

    def files(self, revision: str = "refs/heads/main") -> list[str]:
        """Every path on upstream's main."""
        return self.git("ls-tree", "-r", "-z", "--name-only", revision).split("\0")[:-1]

    def log(self, session: str) -> str:
        """The readable log of ``session``."""
        (started,) = self.ledger(Kind.SESSION_STARTING, session=session)
        return Path(started.data["log"]).read_text("utf-8")

    def printed(self, session: str) -> list[str]:
        """What the agent's side printed in ``session``, line by line."""
        return [text.removeprefix("| ") for text in self.log(session).splitlines() if text.startswith("| ")]

    def attacks(self, session: str) -> dict[str, Any]:
        """What the ``ATTACK <name> <JSON>`` lines of ``session`` say; a long result is in several lines."""
        said: dict[str, str] = {}
        for text in self.printed(session):
            if match := re.match(r"ATTACK (\S+) (.*)", text):
                said[match[1]] = said.get(match[1], "") + match[2]
        return {name: json.loads(text) for name, text in said.items()}

    def outcome(self, session: str) -> str:
        """How ``session`` ended."""
        (ended,) = self.ledger(Kind.SESSION_ENDED, session=session)
        return str(ended.data["outcome"])

    def on_engine(self) -> list[str]:
        """Names of this project's containers and volumes that exist now."""
        prefix = f"team-{self.project.id}-"
        rows = self.engine.containers(all=True, filters={"name": prefix})
        volumes = self.engine.volumes(filters={"name": prefix})["Volumes"] or []
        return [row["Names"][0].lstrip("/") for row in rows] + [v["Name"] for v in volumes]

    def clear(self) -> None:
        """Remove whatever this project still has on the engine, by its id."""
        prefix = f"team-{self.project.id}-"
        for row in self.engine.containers(all=True, filters={"name": prefix}):
            with suppress(docker.errors.APIError):
                self.engine.remove_container(row["Id"], v=True, force=True)
        for volume in self.engine.volumes(filters={"name": prefix})["Volumes"] or []:
            with suppress(docker.errors.APIError):
                self.engine.remove_volume(volume["Name"], force=True)


async def _nothing() -> None:
    pass


async def _coroutine(awaitable: Awaitable[None]) -> None:
    await awaitable


class Stages(Protocol):
    """Makes stages; see :func:`stages`."""

    def __call__(self, files: Mapping[str, str | bytes] = {}, fill: Callable[[Path], None] | None = None) -> Stage: ...


@pytest.fixture(scope="module")
def homes() -> Iterator[Path]:
    """State, configuration and sockets of this module's tests, in a short directory of their own."""
    base = Path(tempfile.mkdtemp(prefix="te-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("state", "config", "run"):
            (base / name).mkdir(mode=0o700)
        (base / "gitconfig").write_text("[user]\n\tname = Pat Example\n\temail = pat@example.org\n")
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(base / "config"))
        patch.setenv("XDG_RUNTIME_DIR", str(base / "run"))
        patch.setenv("GIT_CONFIG_GLOBAL", str(base / "gitconfig"))
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            patch.delenv(name, raising=False)
        yield base
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def stages(homes: Path, engine: docker.APIClient) -> Iterator[Stages]:
    """Makes projects with ``files`` (beside :data:`FILES`) in one commit on main; ``fill(root)`` may then do more to
    the repository before the team sees it. For fixtures that several tests look at."""
    made: list[Stage] = []

    def image(client: str) -> str:
        return images.ensure(client_called(client, ("true",)).image, Image(), Path("/nonexistent"), say=print)

    def make(files: Mapping[str, str | bytes] = {}, fill: Callable[[Path], None] | None = None) -> Stage:
        root = homes / f"p{len(made)}"
        for path, content in {**FILES, **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content.encode() if isinstance(content, str) else content)
        git("init", "-q", "-b", "main", at=root)
        git("add", "-A", at=root)
        git("commit", "-q", "-m", "Begin", at=root, env=PERSON)
        if fill is not None:
            fill(root)
        stage = Stage(root, worktree.open_project(root), image, engine)
        made.append(stage)
        return stage

    try:
        yield make
    finally:
        for stage in made:
            stage.clear()


@pytest.fixture
def stage(stages: Stages) -> Stage:
    """A small project that the team has not run on yet."""
    return stages()
