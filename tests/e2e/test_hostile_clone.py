"""Clones that attack whoever opens them, a fork bomb, and a stranger with our labels: the host runs none of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from team.git import git, line
from team.ledger import Kind
from tests.e2e.conftest import PERSON, Stage, Stages

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
SECRET = "stashed, and nobody's business\n"


@dataclass
class Clones:
    """One run of three hostile sessions beside containers that are not ours."""

    stage: Stage
    mark: Path
    strangers: list[str]
    """Ids of containers that carry the labels of this project's sessions."""
    volume: str

    def rescued(self, session: str, path: str = "") -> str:
        """What was rescued of ``session``: its files, or the content of one."""
        commit = next(e.data["commit"] for e in self.stage.ledger(Kind.RESCUE_SAVED, session=session))
        args = ["cat-file", "-p", f"{commit}:{path}"] if path else ["ls-tree", "-r", "--name-only", commit]
        return git(*args, at=self.stage.project.rescue).decode()


def strange(stage: Stage) -> tuple[list[str], str]:
    """Containers and a volume of somebody else that carry the labels of this project's sessions."""
    ids, name = [], f"stranger-{uuid.uuid4().hex[:8]}"
    for entry in ("entry", "rescue"):
        labels = {"team.project": stage.project.id, "team.session": "agent-01.1", "team.entry": entry}
        host: dict[str, Any] = stage.engine.create_host_config(network_mode="none")
        made = stage.engine.create_container(
            stage.images("command"), ["sleep", "900"], name=f"{name}-{entry}", labels=labels, host_config=host
        )
        stage.engine.start(made["Id"])
        ids.append(made["Id"])
    stage.engine.create_volume(name, labels={"team.project": stage.project.id, "team.session": "agent-01.1"})
    return ids, name


@pytest.fixture(scope="module")
def clones(stages: Stages, homes: Path) -> Iterator[Clones]:
    files = {f"tests/e2e/{n}.py": (HERE / f"{n}.py").read_text() for n in ("hostile_kit", "hostile_clone")}

    def stash(root: Path) -> None:
        (root / "README.md").write_text(SECRET)
        git("stash", "push", "-q", at=root, env=PERSON)

    stage, mark = stages(files, stash), homes / "mark"
    given = {
        "mark": str(mark),
        "objects": str(stage.root / ".git/objects"),
        "secret": line("rev-parse", "stash", at=stage.root),
    }
    ids, volume = strange(stage)
    try:
        argv = ("python3", "-m", "tests.e2e.hostile_clone", json.dumps(given))
        stage.run(agents=3, argv=argv, settings={"session": {"pids": 64, "max_time": 200.0}})
        for verb in ("ps", "tasks", "logs", "pull", "down"):
            stage.cli(verb)
        yield Clones(stage, mark, ids, volume)
    finally:
        for id in ids:
            with suppress(docker.errors.APIError):
                stage.engine.remove_container(id, v=True, force=True)
        with suppress(docker.errors.APIError):
            stage.engine.remove_volume(volume, force=True)


def test_nothing_of_a_hostile_clone_runs_on_the_host(clones: Clones) -> None:
    said = clones.stage.attacks("agent-01.1")
    assert said["ran_here"] is True, "in the session's own container it runs: the trap is armed"
    assert not clones.mark.exists()


def test_a_hostile_clone_is_rescued_without_running_anything_of_it(clones: Clones) -> None:
    files = clones.rescued("agent-01.1").splitlines()
    assert "notes.txt" in files and "RAN_IN_RESCUE" not in files
    assert clones.rescued("agent-01.1", "notes.txt") == "untracked, and worth saving\n"
    assert clones.rescued("agent-01.1", "README.md") == "changed, and worth saving\n"


def test_links_in_a_clone_are_saved_as_links(clones: Clones) -> None:
    assert clones.rescued("agent-01.1", "passwd") == "/etc/passwd"
    assert clones.rescued("agent-01.1", "token") == "/run/team/token"


def test_alternates_of_a_clone_give_no_access_to_the_users_repository(clones: Clones) -> None:
    for repository in (clones.stage.project.upstream, clones.stage.project.rescue):
        contents = git("cat-file", "--batch-all-objects", "--batch", "--unordered", at=repository)
        assert b"worth saving" in contents or repository == clones.stage.project.upstream
        assert SECRET.encode() not in contents


def test_a_clone_whose_git_directory_leads_elsewhere_is_rescued_all_the_same(clones: Clones) -> None:
    assert clones.stage.attacks("agent-02.1")["gitfile"] == "Begin"
    assert clones.rescued("agent-02.1", "kept.txt") == "worth saving too\n"


def test_a_fork_bomb_ends_with_its_session(clones: Clones) -> None:
    count, error = clones.stage.attacks("agent-03.1")["forks"]
    assert error == "EAGAIN" and 30 <= count < 64
    (ended,) = clones.stage.ledger(Kind.SESSION_ENDED, session="agent-03.1")
    assert ended.data["seconds"] < 150 and ended.data["outcome"] in ("done", "failed")
    assert [clones.stage.outcome(f"agent-0{n}.1") for n in (1, 2)] == ["done", "done"], "the others did not notice"


def test_the_sessions_leave_nothing_and_the_strangers_live(clones: Clones) -> None:
    assert clones.stage.on_engine() == []
    for id in clones.strangers:
        assert clones.stage.engine.inspect_container(id)["State"]["Running"] is True
    assert clones.stage.engine.inspect_volume(clones.volume)["Name"] == clones.volume
