"""Odd and oversized pushes: landed rightly, or refused with a reason. The fixture looks at fsck afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from team.ledger import Ledger
from team.places import Project
from team.upstream.upstream import Upstream
from tests.upstream.conftest import Clone, Site, make_source


def commits(clone: Clone, count: int) -> None:
    """``count`` commits on top of HEAD, by one fast-import."""
    who = f"committer {clone.name} <{clone.email}> 1700000000 +0000"
    head = clone.head()
    lines = [f"reset refs/heads/main\nfrom {head}\n"]
    lines += [
        f"commit refs/heads/main\n{who}\ndata 1\nx\nM 100644 inline src/many.txt\ndata {len(str(n)) + 1}\n{n}\n\n"
        for n in range(count)
    ]
    clone.git("fast-import", "--quiet", "--force", stdin="".join(lines).encode())
    clone.git("reset", "-q", "--hard")


def test_fifty_thousand_commits_are_refused(site: Site) -> None:
    one = site.agent(1)
    commits(one, 50_000)
    assert "more than 2000 new commits in one push" in one.refused()
    assert site.git("count-objects", "-v").count("size-pack: 0") or int(site.git("rev-list", "--count", "main")) == 1


def test_a_gigabyte_of_nothing_is_refused_before_it_is_unpacked(site: Site) -> None:
    one = site.agent(1)
    with (one.path / "zeros").open("wb") as file:
        file.truncate(1 << 30)
    one.git("-c", "core.bigFileThreshold=1m", "add", "zeros")
    one.git("commit", "-q", "-m", "large")
    assert "unpacks to more than" in one.refused()
    assert site.rule() == "inflated"


def test_ten_thousand_locks_in_a_push_are_one_too_many(site: Site) -> None:
    one = site.agent(1)
    one.commit_paths("Mine", {f"current_tasks/task_{n:05d}.txt": "mine\n" for n in range(10_000)})
    assert "at most 1 at a time" in one.refused()


def test_ten_thousand_locks_that_a_project_begins_with_are_freed(tmp_path: Path) -> None:
    locks = {f"current_tasks/task_{n:05d}.txt": "old\n" for n in range(10_000)}
    source = make_source(tmp_path / "source", {"README.md": "x\n", **locks})
    project = Project(source.path, "demo-1", tmp_path / "state")
    Upstream.create(project, source.path, source.head())
    upstream = Upstream(project, Ledger(project.ledger))
    upstream.settle()
    bare = Clone(project.upstream, "x", "x@x")
    assert bare.git("ls-tree", "-r", "--name-only", "main").split("\n") == ["README.md"]
    assert not bare.run("fsck", "--strict", "--no-dangling").stdout
    upstream.close()


@pytest.mark.parametrize("kind", ["directory", "symlink", "submodule"])
def test_a_lock_that_is_no_file_is_refused(site: Site, kind: str) -> None:
    one = site.agent(1)
    lock = "current_tasks/fix_parser.txt"
    if kind == "directory":
        one.commit_paths("Claim", {f"{lock}/x": "x\n"})
    else:
        mode = "120000" if kind == "symlink" else "160000"
        oid = one.git("hash-object", "-w", "--stdin", stdin=b"x") if kind == "symlink" else one.head()
        one.git("update-index", "--add", "--cacheinfo", f"{mode},{oid},{lock}")
        one.git("commit", "-q", "-m", "Claim")
    one.refused()
    assert site.rule() == "lock"
    assert site.upstream.holder("fix_parser") is None


def test_a_lock_directory_that_is_a_file_is_refused(site: Site) -> None:
    one = site.agent(1)
    one.commit_paths("Away", {"current_tasks/.gitkeep": None})
    (one.path / "current_tasks").rmdir() if (one.path / "current_tasks").exists() else None
    one.commit_paths("Claim", {"current_tasks": "everything\n"})
    one.refused()
    assert site.rule() == "lock"


def test_a_rename_and_an_edit_of_the_same_file_meet(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.git("mv", "src/a.txt", "src/moved.txt")
    one.git("commit", "-q", "-m", "Move")
    one.lands()
    two.commit("Edit", src__a_DOT_txt="a\n" * 19 + "edited\n")
    two.lands()
    assert "src/a.txt" not in site.files()
    assert site.git("show", "main:src/moved.txt").endswith("edited")


def test_two_renames_of_one_file_conflict_and_say_so(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    for agent, name in ((one, "x"), (two, "y")):
        agent.git("mv", "src/a.txt", f"src/{name}.txt")
        agent.git("commit", "-q", "-m", "Move")
    one.lands()
    assert "conflicts with main" in two.refused()


def test_a_rename_in_case_only_lands_as_a_rename(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.git("mv", "src/a.txt", "src/A.txt")
    one.git("commit", "-q", "-m", "Case")
    one.lands()
    two.commit("Edit", src__a_DOT_txt="a\n" * 19 + "edited\n")
    two.lands()
    assert "src/A.txt" in site.files() and "src/a.txt" not in site.files()


def test_the_story_and_the_locks_are_two_views_of_main(site: Site) -> None:
    one = site.agent(1, "s-1")
    one.claim("fix_parser", "Claim of mine\n")
    one.lands()
    one.commit("Claim that this is better", src__a_DOT_txt="better\n")
    one.lands()
    one.commit_paths("Fix it", {"current_tasks/fix_parser.txt": None, "tasks/fix_parser.md": None, "src/b.txt": "b\n"})
    one.lands()
    one.claim("fix_lexer")
    one.lands()
    site.upstream.release("s-1", "agent-01", "it ended")
    locks = ["--grep=^Team-Kind: claim$", "--grep=^Team-Kind: release$"]
    log = ["log", "--first-parent", "--format=%s", "main"]
    story = site.git(*log, "--invert-grep", *locks).split("\n")
    assert story == ["Land Fix it (agent-01)", "Land Claim that this is better (agent-01)", "Start"]
    audit = site.git(*log, *locks).split("\n")
    assert audit == [
        "Release fix_lexer (agent-01): it ended",
        "Claim fix_lexer (agent-01)",
        "Claim fix_parser (agent-01)",
    ]
    life = site.git(*log, "--", "current_tasks/fix_parser.txt").split("\n")
    assert life == ["Land Fix it (agent-01)", "Claim fix_parser (agent-01)"]
