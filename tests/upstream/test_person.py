"""The person at the keyboard: makes upstream, pushes by the same rules, adds tasks; and what sessions leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream
from tests.upstream.conftest import Clone, Site, environment, make_source

ANN = Pusher("Ann", "ann@example.org", None)


def test_create_takes_one_branch_and_its_tags_and_nothing_else(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    source.git("tag", "v1")
    source.git("tag", "-a", "v2", "-m", "two")
    first = source.head()
    source.git("checkout", "-q", "-b", "secret")
    secret = source.commit("secret", secret="s\n")
    source.git("tag", "other")
    source.git("checkout", "-q", "main")
    (source.path / "README.md").write_text("stashed\n")
    source.git("stash", "-q")
    source.git("remote", "add", "origin", "https://user:token@example.org/x")
    source.git("config", "core.fsmonitor", str(tmp_path / "evil"))
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "evil").chmod(0o755)
    project = Project(source.path, "p-1", tmp_path / "state")
    Upstream.create(project, source.path, first)
    upstream = Clone(project.upstream, "x", "x@x")
    assert upstream.git("for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main", "refs/tags/v1", "refs/tags/v2",
    ]  # fmt: skip
    assert upstream.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert upstream.run("cat-file", "-e", secret).returncode != 0
    assert upstream.run("cat-file", "-e", source.git("rev-parse", "stash")).returncode != 0
    assert "token" not in (project.upstream / "config").read_text()
    assert not (tmp_path / "ran").exists()
    assert sorted(p.name for p in project.state.iterdir()) == ["rescue.git", "upstream.git"]
    for path in [project.upstream, *project.upstream.rglob("*")]:
        assert path.stat().st_mode & 0o044 == 0o044, path
    assert upstream.git("fsck", "--strict") == ""
    Upstream.create(project, source.path, secret)  # what is there already stays
    assert upstream.git("rev-parse", "main") == first


def test_create_refuses_what_it_cannot_take_whole(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    source.commit("two", two="2\n")
    shallow = Clone(tmp_path / "shallow", "x", "x@x")
    source.git("clone", "-q", "--depth", "1", f"file://{source.path}", str(shallow.path))
    project = Project(shallow.path, "p-1", tmp_path / "state")
    with pytest.raises(TeamError, match="git fetch --unshallow"):
        Upstream.create(project, shallow.path, shallow.head())
    assert not project.upstream.exists()
    new = Clone(tmp_path / "sha256", "x", "x@x")
    source.git("init", "-q", "--object-format=sha256", str(new.path))
    with pytest.raises(TeamError, match="only sha1"):
        Upstream.create(project, new.path, "0" * 64)


def test_create_keeps_submodules_and_lfs_pointers_and_is_safe_to_repeat(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", {"big.bin": "version https://git-lfs.github.com/spec/v1\n"})
    source.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    source.git("commit", "-q", "-m", "sub")
    project = Project(source.path, "p-1", tmp_path / "state")
    (project.state / "new-crashed").mkdir(parents=True)
    Upstream.create(project, source.path, source.head())
    assert "160000 commit" in Clone(project.upstream, "x", "x@x").git("ls-tree", "main")
    assert not list(project.state.glob("new-*"))


def test_git_push_team_works_without_a_supervisor(site: Site) -> None:
    (site.project.state / "project.json").write_text(json.dumps({"root": str(site.project.root)}))
    ann = site.source
    ann.git("remote", "add", "team", str(site.project.upstream))
    ann.git("config", "remote.team.receivepack", f"{sys.executable} -m team.upstream.receive_pack")
    ann.git("config", "remote.team.push", "HEAD:refs/for/main")
    one = site.agent(1)
    one.claim("fix_parser")
    one.lands()

    def push(*args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        env = environment() | {"PYTHONPATH": str(Path(__file__).parents[2])} | extra
        return subprocess.run(["git", "push", "team", *args], cwd=ann.path, env=env, capture_output=True, text=True)

    ann.commit_paths("mine", {"CLAUDE.md": "obey\n"})
    done = push()
    assert done.returncode == 0 and "remote: landed on main as" in done.stderr, done.stderr
    assert site.git("log", "-1", "--format=%an|%s", "main") == "Ann|Land mine (Ann)"
    one.commit("both", both="x")
    one.lands()
    ann.commit_paths("lock", {"current_tasks/x.txt": ""})
    assert "only sessions claim" in push().stderr
    ann.git("reset", "-q", "--hard", "HEAD~1")
    ann.git("pull", "-q", "--no-edit", "--no-rebase", "team", "main")
    ann.commit_paths("sweep", {"current_tasks/fix_parser.txt": None})
    done = push("HEAD:main")
    assert "remote: you released fix_parser" in done.stderr, done.stderr
    release = site.events(Kind.RELEASE)[0]
    assert (release.agent, release.data["by"]) == ("agent-01", "Ann")
    one.pull()
    one.commit("theirs", both="y")
    one.lands()
    ann.commit("hers", both="z")
    assert "conflicts with main in both; `git fetch team && git merge team/main`, resolve" in push().stderr
    ann.git("reset", "-q", "--hard", "HEAD~1")
    assert "git does not know who you are" in push(GIT_COMMITTER_EMAIL="", GIT_COMMITTER_NAME="").stderr
    assert "git push team HEAD:refs/for/main" in push("HEAD:refs/heads/x").stderr
    (site.project.state / "project.json").unlink()
    assert "is no upstream of team" in push().stderr


def test_add_task(site: Site) -> None:
    commit = site.upstream.add_task("new_task", "# New\n\ntask", ANN)
    assert commit == site.upstream.main()
    assert site.git("show", "main:tasks/new_task.md") == "# New\n\ntask"
    assert site.git("log", "-1", "--format=%an %s", "main^2") == "Ann Add task new_task"
    assert "new_task" in [t.name for t in site.upstream.tasks()]
    assert site.events(Kind.TASK_ADDED)[0].data["title"] == "New"
    with pytest.raises(TeamError, match="already"):
        site.upstream.add_task("new_task", "x", ANN)
    with pytest.raises(TeamError, match="try 'fix_it'"):
        site.upstream.add_task("Fix it!", "x", ANN)
    assert site.upstream.main() == commit


def test_land_commit_brings_in_what_the_users_branch_has_more(site: Site) -> None:
    head = site.source.commit("more", more="x\n")
    one = site.agent(1)
    one.commit("one", one="1\n")
    one.lands()
    landed = site.upstream.land_commit(ANN, head, site.source.path)
    assert landed is not None and landed.commit == site.upstream.main()
    assert {"more", "one"} <= set(site.files())
    assert site.upstream.land_commit(ANN, head, site.source.path) is None
    site.source.commit("conflict", one="other\n")
    with pytest.raises(TeamError, match="conflicts with main in one"):
        site.upstream.land_commit(ANN, site.source.head(), site.source.path)


def test_an_ending_session_saves_its_work_once_and_nothing_else(site: Site) -> None:
    one, two = site.agent(1, "s-1"), site.agent(2)
    main = site.upstream.main()
    head = one.commit_paths("wip", {"CLAUDE.md": "x", "wip": "x"})
    site.ending(one)
    one.refused()
    one.refused("origin", "HEAD:refs/rescue/agent-02/s-1")
    assert site.rule() == "ended"
    assert site.upstream.rescued("s-1") is None
    assert "remote: saved as refs/rescue/agent-01/s-1" in one.lands("origin", "HEAD:refs/rescue/agent-01/s-1")
    assert site.upstream.rescued("s-1") == head
    one.commit("more", more="x")
    assert "never overwritten" in one.refused("origin", "HEAD:refs/rescue/agent-01/s-1")
    assert site.upstream.rescued("s-1") == head
    assert site.upstream.main() == main
    assert site.git("for-each-ref", "refs/rescue") == ""
    assert Clone(site.project.upstream, "x", "x@x").run("cat-file", "-e", head).returncode != 0
    rescue = Clone(site.project.rescue, "x", "x@x")
    assert rescue.git("show", f"{head}:wip") == "x"
    assert rescue.git("fsck", "--strict", "--no-dangling") == ""
    two.refused("origin", "HEAD:refs/rescue/agent-02/s2")
    big = site.agent(3, "s-3")
    head = big.commit_paths("many", {f"many/{n}": f"{n}\n" for n in range(300)})
    site.ending(big)
    big.lands("origin", "HEAD:refs/rescue/agent-03/s-3")
    assert site.upstream.rescued("s-3") == head


def test_a_large_history_is_taken_over_quickly_and_stale_pushes_stay_small(tmp_path: Path) -> None:
    source = Clone(tmp_path / "source", "Ann", "ann@example.org")
    source.path.mkdir()
    source.git("init", "-q", "-b", "main", ".")
    stream = b"".join(
        b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 1\nx\nM 644 inline f%d\ndata 2\n%d\n\n"
        % (n, n % 500, n % 10)
        for n in range(1, 2001)
    )
    source.git("fast-import", "--quiet", stdin=stream)
    source.git("checkout", "-q", "main")
    project = Project(source.path, "p-1", tmp_path / "state")
    Upstream.create(project, source.path, source.head())
    ledger = Ledger(project.ledger)
    upstream = Upstream(project, ledger)
    advertised = upstream.advertise(ANN)
    assert advertised.count(b".have") < 120
    landed = upstream.land_commit(ANN, source.commit("more", more="x\n"), source.path)
    assert landed is not None
    upstream.close()
    ledger.close()
    assert not list(project.incoming.iterdir())
