"""What `entry`, `left` and `rescue` do in a container: the life of a session, and what is saved of its work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from team.git import git, line, resolve

from .conftest import Bench, Door, Ended

pytestmark = pytest.mark.engine


def left(door: Door) -> str:
    """What the session told the door at its end."""
    path, body = door.heard[-1]
    assert path == "/team/left"
    return body


def test_the_door_hears_of_the_start_and_of_a_clean_end(bench: Bench, door: Door, upstream: Path) -> None:
    head = line("rev-parse", "main", at=upstream)
    assert bench.run("exit 3").code == 3
    assert door.heard == [("/team/ready", head), ("/team/left", f"clean {head}")]


@pytest.mark.parametrize(
    "push",
    [
        "git push",
        "git push origin HEAD:main",
        "git checkout -q --detach && git commit -q --allow-empty -m x && git push",
        "git checkout -qb topic && git push",
    ],
)
def test_pushes_go_through_the_door(bench: Bench, upstream: Path, push: str) -> None:
    before = line("rev-parse", "main", at=upstream)
    ended = bench.run(f"echo new >new && git add new && git commit -qm new && {push} 2>&1 && git log -1 --format=%H")
    assert ended.code == 0, ended.text
    commit = ended.lines[-1].decode()
    assert commit in (resolve(upstream, "refs/for/main"), resolve(upstream, "main"))
    assert commit != before


def test_pull_merges_what_landed_meanwhile(bench: Bench, upstream: Path) -> None:
    ended = bench.run(
        "echo a >a && git add a && git commit -qm a && git clone -q /upstream ~/other && cd ~/other && echo b >b &&"
        " git add b && git commit -qm b && git push -q http://127.0.0.1:8787/git/upstream HEAD:main && cd /workspace &&"
        " git pull -q --no-edit && ls && git checkout -qb topic && git pull -q && git log --merges --oneline | wc -l"
    )
    assert ended.text.split() == ["a", "b", "file0.txt", "file1.txt", "file2.txt", "1"]


@pytest.mark.parametrize(
    ("script", "clean"),
    [
        ("mkdir ignored && echo x >ignored/x", True),
        ("echo x >new", False),
        ("git commit -q --allow-empty -m x", False),
        ("git commit -q --allow-empty -m x && git push -q origin HEAD:main", True),
        ("git checkout -qb x && git commit -q --allow-empty -m x && git checkout -q main", False),
        ("echo x >file0.txt && git stash -q", False),
        ("rm -rf .git", False),
        ("git config status.showUntrackedFiles no; echo x >new", False),
        ("printf '#!/bin/sh\\nsleep 100 &\\n' >~/f; chmod +x ~/f; git config core.fsmonitor ~/f", True),
    ],
)
def test_left_tells_clean_from_dirty(bench: Bench, door: Door, script: str, clean: bool) -> None:
    ended = bench.run(script)
    assert ended.code == 0, ended.text
    assert left(door).startswith("clean ") is clean


def test_failures_have_a_line_and_a_code_of_their_own(bench: Bench, door: Door) -> None:
    def run(**changes: object) -> Ended:
        spec = bench.fresh()
        return bench.run("echo never", **{k: getattr(spec, k) for k in ("name", "session", "workspace")} | changes)

    env = bench.spec.env
    failed = run(env={**env, "TEAM_SETUP": "echo setting up; exit 7"})
    assert (failed.code, failed.lines) == (90, [b"setting up", b"team: setup failed with exit 7"])
    failed = run(upstream=door.directory)
    assert failed.code == 91
    assert all(line.startswith(b"team: ") for line in failed.lines)
    door.refuse = True
    failed = run()
    assert (failed.code, failed.lines) == (92, [b"team: the door does not answer"])


def test_setup_comes_before_the_client(bench: Bench) -> None:
    ended = bench.run("cat ~/made", env={**bench.spec.env, "TEAM_SETUP": "pwd >~/made"})
    assert ended.lines == [b"/workspace"]


class Rescue:
    """Leaves something behind in a session, then rescues it."""

    def __init__(self, bench: Bench, upstream: Path) -> None:
        self.bench, self.upstream = bench, upstream
        self.base = line("rev-parse", "main", at=upstream)
        self.ref = f"refs/rescue/agent-01/{bench.spec.session}"

    def __call__(self, script: str, **env: str) -> Ended:
        left = self.bench.run(script)
        assert left.code == 0, left.text
        spec = replace(self.bench.spec, name=f"{self.bench.spec.name}-rescue", entry="rescue", argv=())
        spec = replace(spec, env={**spec.env, "TEAM_BASE": self.base, **env})
        id = self.bench.runtime.create(spec)
        self.bench.ids.append(id)
        self.bench.runtime.start(id)
        return self.bench.finish(id)

    def show(self, path: str) -> str:
        return git("show", f"{self.ref}:{path}", at=self.upstream).decode()

    def files(self) -> list[str]:
        return git("ls-tree", "-r", "--name-only", "-z", self.ref, at=self.upstream).decode().split("\0")[:-1]

    def message(self) -> str:
        return git("show", "-s", "--format=%B", self.ref, at=self.upstream).decode()

    def parents(self) -> list[str]:
        return line("show", "-s", "--format=%P", self.ref, at=self.upstream).split()


@pytest.fixture
def rescue(bench: Bench, upstream: Path) -> Rescue:
    return Rescue(bench, upstream)


def test_files_of_any_name_are_saved(rescue: Rescue) -> None:
    ended = rescue("echo x >'-a b'; echo x >\"n\nl\"; echo x >ünï; mkdir ignored; echo x >ignored/x; echo y >file0.txt")
    assert ended.code == 0, ended.text
    assert rescue.files() == ["-a b", ".gitignore", "file0.txt", "file1.txt", "file2.txt", "n\nl", "ünï"]
    assert rescue.show("file0.txt") == "y\n"
    assert rescue.parents() == [rescue.base]


@pytest.mark.parametrize(
    "script", ["true", "rm -rf .git", "rm -rf .git * .gitignore", "mkdir ignored; echo >ignored/x"]
)
def test_nothing_is_saved_when_nothing_is_new(rescue: Rescue, script: str) -> None:
    ended = rescue(script)
    assert (ended.code, ended.lines) == (3, [b"team: nothing to rescue"])
    assert resolve(rescue.upstream, rescue.ref) is None


def test_unpushed_commits_branches_stashes_and_the_index(rescue: Rescue) -> None:
    ended = rescue(
        "git checkout -qb other && git commit -q --allow-empty -m other && git checkout -q main &&"
        " echo s >file1.txt && git stash -q && git commit -q --allow-empty -m mine &&"
        " mkdir ignored && echo f >ignored/forced && git add -f ignored/forced &&"
        " echo staged >file2.txt && git add file2.txt && echo later >file2.txt; touch .git/index.lock"
    )
    assert ended.code == 0, ended.text
    subjects = git("log", "--format=%s", rescue.ref, "^main", at=rescue.upstream).decode()
    for subject in ("other", "mine", "On main", "WIP on main", "rescue: what was staged"):
        assert (subject in subjects) or subject == "On main", subjects
    assert rescue.show("file2.txt") == "later\n"
    assert rescue.show("ignored/forced") == "f\n"
    assert "staged" in [
        git("show", f"{parent}:file2.txt", at=rescue.upstream).decode().strip() for parent in rescue.parents()
    ]


def test_a_commit_alone_is_saved_as_it_is(rescue: Rescue) -> None:
    assert rescue("git commit -q --allow-empty -m mine").code == 0
    assert rescue.message().strip() == "mine"


def test_a_half_done_merge(rescue: Rescue) -> None:
    ended = rescue(
        "git checkout -qb other && echo o >file0.txt && git commit -qam other && git checkout -q main &&"
        " echo m >file0.txt && git commit -qam mine && ! git merge -q other"
    )
    assert ended.code == 0, ended.text
    assert "<<<<<<<" in rescue.show("file0.txt")
    assert "MERGE_HEAD" in rescue.message()
    assert len(rescue.parents()) == 2


def test_a_half_done_rebase(rescue: Rescue) -> None:
    ended = rescue(
        "git checkout -qb other && echo o >file0.txt && git commit -qam other && git checkout -q main &&"
        " echo m >file0.txt && git commit -qam mine && ! git rebase -q other 2>/dev/null"
    )
    assert ended.code == 0, ended.text
    assert "rebase-merge" in rescue.message()
    assert "mine" in git("log", "--format=%s", rescue.ref, at=rescue.upstream).decode().split()


@pytest.mark.parametrize(
    "wreck",
    [
        "rm -rf .git",
        "rm -rf .git && echo 'gitdir: /nowhere' >.git",
        "mv .git ~/g; ln -s /tmp .git",
        "rm -rf .git/objects/??",
        "echo junk >.git/index; echo junk >.git/HEAD",
        "rm -rf .git/refs .git/packed-refs; mkfifo .git/refs",
    ],
)
def test_a_wrecked_git_directory(rescue: Rescue, wreck: str) -> None:
    ended = rescue(f"git commit -q --allow-empty -m mine; echo new >new; git add new; {wreck}")
    assert ended.code == 0, ended.text
    assert rescue.show("new") == "new\n"


def test_hostile_settings_do_not_run(rescue: Rescue) -> None:
    trap = "/workspace/ignored/trap"
    ended = rescue(
        f"mkdir ignored; printf '#!/bin/sh\\ntouch /workspace/ran\\nsleep 600\\n' >{trap}; chmod +x {trap};"
        f"for k in core.fsmonitor filter.x.clean filter.x.process core.sshCommand; do git config $k {trap}; done;"
        f"git config core.hooksPath /workspace/ignored; cp {trap} ignored/reference-transaction;"
        "mkdir -p .git/hooks; cp ignored/trap .git/hooks/pre-push; echo /dev/zero >>.git/objects/info/alternates;"
        "echo '* filter=x working-tree-encoding=nonsense' >.gitattributes; mkfifo pipe; ln -s /etc/passwd link;"
        "echo new >new; chmod 0 new; git config core.worktree /etc"
    )
    assert ended.code == 0, ended.text
    assert rescue.show("new") == "new\n"
    assert rescue.show("link") == "/etc/passwd"
    assert "ran" not in rescue.files()


def test_large_files_are_named_not_saved(rescue: Rescue) -> None:
    ended = rescue(
        "head -c 3000 /dev/zero >big; head -c 3000 /dev/zero >file1.txt; echo x >small", TEAM_RESCUE_MAX="2000"
    )
    assert ended.code == 0, ended.text
    assert "big" not in rescue.files()
    assert "small" in rescue.files()
    assert rescue.show("file1.txt") == "1\n"
    assert (
        rescue.message()
        .rstrip()
        .endswith("Not saved (too large, or not readable):\n\nbig\nfile1.txt".replace("\n\n", "\n"))
    )


def test_a_rescue_that_is_too_large_is_tried_again_smaller(rescue: Rescue) -> None:
    git("config", "receive.maxInputSize", "200k", at=rescue.upstream)
    ended = rescue("head -c 1000000 /dev/urandom >big; echo x >small")
    assert ended.code == 0, ended.text
    assert "small" in rescue.files()
    assert "big" in rescue.message()


def test_what_landed_is_not_saved_again(rescue: Rescue) -> None:
    ended = rescue("echo x >new; git add new; git commit -qm new; git push -q origin HEAD:main; rm -rf .git")
    assert ended.code == 3, ended.text
