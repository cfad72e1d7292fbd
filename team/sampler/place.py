"""Where ``team test`` was called, by whom, and what it has at hand there."""

from __future__ import annotations

import getpass
import hashlib
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from team import git, places
from team.errors import TeamError
from team.sampler import landed
from team.sampler import settings as settings_
from team.sampler.cases import Options
from team.sampler.landed import Stand, stand
from team.sampler.memory import Compared, Memory, Run
from team.sampler.report import SuiteRun
from team.sampler.suites import detect
from team.text import one_line

if TYPE_CHECKING:
    from team.sampler.settings import SuiteSettings, TestSettings

_MOST_AGENT = 100


@dataclass(frozen=True)
class Place:
    """Where ``team test`` was called, and by whom."""

    root: Path
    settings: TestSettings
    agent: str
    memory: Memory
    stand: Stand
    notes: list[str]
    """What the report must say besides: the memory cannot be reached, or the like."""


def find(agent: str | None, env: Mapping[str, str]) -> Place:
    """The place of a call in the current directory. ``agent``: who calls, where the environment does not say."""
    here = Path.cwd()
    root = next((path for path in (here, *here.parents) if (path / ".git").exists()), here)
    settings = settings_.load(root, env)
    agent = agent or env.get("TEAM_AGENT") or _user()
    if one_line(agent, _MOST_AGENT) != agent:
        raise TeamError(f"the name of an agent (--agent, TEAM_AGENT) is one line of at most {_MOST_AGENT} characters")
    notes: list[str] = []
    memory = _memory(root, env, notes)
    return Place(root, settings, agent, memory, stand(root), notes)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"user-{os.getuid()}"


def _memory(root: Path, env: Mapping[str, str], notes: list[str]) -> Memory:
    if file := env.get("TEAM_TEST_RESULTS"):
        from team.sampler.remote import Written

        return Written(Path(file))
    if env.get("TEAM_SESSION") and env.get("TEAM_DOOR"):
        from team.sampler.remote import Remote

        return Remote(env)
    from team.sampler.memory import File

    try:
        return File(_file(root), notes=notes)
    except (OSError, sqlite3.Error) as error:  # a full disk, a read-only work tree: tests can run all the same
        notes.append(f"what earlier runs left cannot be read, nor this one kept: {error}")
        return File(Path(":memory:"))


def _file(root: Path) -> Path:
    """The project's own memory, which its sessions share; else one of the clone."""
    project = places.find_project(root)
    if project is not None:
        return project.tests
    if (root / ".git").exists():
        return (
            Path(git.line("rev-parse", "--path-format=absolute", "--git-common-dir", at=root, env=landed.OWN))
            / "team"
            / "tests.db"
        )
    return places.state_home() / "tests" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.db"


def suites_of(place: Place, only: str | None) -> dict[str, SuiteSettings]:
    """The suites by name, their kinds known."""
    found = place.settings.all()
    if only is not None:
        if only not in found:
            known = ", ".join(name for name in found if name) or "none has a name"
            raise TeamError(f"there is no suite {only!r} in [test.suites]; known: {known}")
        found = {only: found[only]}
    return {
        name: one if one.kind else replace(one, kind=detect(place.root / one.directory)) for name, one in found.items()
    }


def options_of(one: SuiteSettings, jobs: int | None = None, seconds: float | None = None) -> Options:
    return Options(jobs or one.jobs, seconds or one.timeout, one.memory or half_of_memory())


def half_of_memory() -> int:
    """Bytes: half of what this machine or container has."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            sizes.append(int(Path(file).read_text()))
    return min(sizes) // 2


def remember(place: Place, run: SuiteRun, rate: str) -> Compared:
    """Keep the results, and compare them with the landed state."""
    where = place.stand
    try:
        return place.memory.record(
            Run(
                agent=place.agent,
                suite=run.suite,
                commit=where.commit,
                content=where.content,
                base=where.base,
                base_content=where.base_content,
                rate=rate,
                total=run.total,
                seconds=run.seconds,
                results=run.results,
            )
        )
    except (OSError, sqlite3.Error) as error:
        place.notes.append(f"the results could not be kept: {error}")
        return Compared(unknown=len(run.failures))
