"""``team mirror``: main, and nothing else, on a remote of the person's."""

from __future__ import annotations

from pathlib import Path

import pytest

from team import mirror
from team.errors import TeamError
from team.places import Project

from .conftest import CommandLine, git


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", "remote.git")
    return tmp_path / "remote.git"


def test_once_publishes_main_and_no_other_ref(team: CommandLine, root: Path, project: Project, remote: Path) -> None:
    assert team("task", "add", "Fix the parser").code == 0
    git(root, "remote", "add", "public", str(remote))
    done = team("mirror", "public", "--once", "--json")
    main = git(project.upstream, "rev-parse", "main")
    assert done.json == {"remote": str(remote), "branch": "main", "commit": main}
    assert git(remote, "for-each-ref", "--format=%(refname) %(objectname)") == f"refs/heads/main {main}"
    assert team("mirror", str(remote), "--once", "--branch", "team").code == 0


def test_it_follows_main(root: Path, project: Project, team: CommandLine, remote: Path) -> None:
    seen: list[str] = []

    def sleep(seconds: float) -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt
        assert team("task", "add", "One more").code == 0

    with pytest.raises(KeyboardInterrupt):
        mirror.run(
            project, root, str(remote), "main", once=False,
            say=lambda published: seen.append(published.commit), sleep=sleep, jitter=lambda: 0.0,
        )  # fmt: skip
    assert seen[1] == git(remote, "rev-parse", "main") != seen[0]


def test_foreign_commits_and_bad_remotes_are_told(
    team: CommandLine, root: Path, project: Project, remote: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", str(remote), "other")
    git(tmp_path / "other", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
    git(tmp_path / "other", "push", "-q", "origin", "HEAD:main")
    assert "has commits on main that main lacks" in team.refused("mirror", str(remote), "--once")
    assert "there is no remote 'nowhere'" in team.refused("mirror", "nowhere", "--once")
    assert "is no remote" in team.refused("mirror", "--once", "--", "-x")
    assert "own upstream" in team.refused("mirror", str(project.upstream), "--once")


def test_passing_trouble_is_tried_again_with_bounds(root: Path, project: Project) -> None:
    pauses: list[float] = []
    with pytest.raises(TeamError, match="does not take main"):
        mirror.run(
            project, root, "http://user:secret@127.0.0.1:9/x.git", "main", once=True, say=print,
            sleep=pauses.append, jitter=lambda: 0.5,
        )  # fmt: skip
    assert pauses == [0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 45.0]
    assert "secret" not in mirror.without_credentials("http://user:secret@127.0.0.1:9/x.git")
