"""The user's work tree: what is refused, what is made at first use, and what is landed at `up`."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from team import places, worktree
from team.config import Settings
from team.errors import TeamError
from team.ledger import Ledger
from team.places import Project


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with a git identity, for every test."""
    at = tmp_path / "home"
    at.mkdir()
    monkeypatch.setenv("HOME", str(at))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "GIT_DIR", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    (at / ".gitconfig").write_text("[user]\n\tname = Pat\n\temail = pat@example.com\n[init]\n\tdefaultBranch = main\n")
    return at


def run(at: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(at: Path, path: str, text: str) -> str:
    file = at / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    run(at, "add", "--", path)
    run(at, "commit", "-qm", f"change {path}")
    return run(at, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    """A repository with one commit, in a directory with an awkward name."""
    at = tmp_path / "my project é"
    at.mkdir()
    run(at, "init", "-q")
    commit(at, "a.txt", "one\n")
    return at


def open_with_ledger(root: Path) -> tuple[Project, Ledger]:
    project = worktree.open_project(root)
    return project, Ledger(project.ledger)


# -- finding the work tree ------------------------------------------------------------------------------------------


def test_find_root_from_a_directory_below(root: Path) -> None:
    (root / "x" / "y").mkdir(parents=True)
    assert worktree.find_root(root / "x" / "y") == root


def test_find_root_ignores_variables_of_a_hook(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert worktree.find_root(root) == root


def test_not_a_repository(tmp_path: Path) -> None:
    with pytest.raises(TeamError, match="not in a git repository; cd into one, or `git init`"):
        worktree.find_root(tmp_path)


def test_bare_repository_and_git_directory(tmp_path: Path, root: Path) -> None:
    run(tmp_path, "init", "-q", "--bare", "bare.git")
    for inside in (tmp_path / "bare.git", root / ".git"):
        with pytest.raises(TeamError, match=r"bare repository or in \.git; run team in a work tree"):
            worktree.find_root(inside)


def test_bare_repository_that_an_agent_committed_is_not_entered(root: Path) -> None:
    run(root, "init", "-q", "--bare", "lure")
    with (root / "lure" / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = touch ../pwned\n\tworktree = .\n")
    with pytest.raises(TeamError):
        worktree.find_root(root / "lure")
    assert not (root / "pwned").exists()


def test_repository_of_another_user(root: Path) -> None:
    if os.getuid() == 0:
        os.chown(root, 4242, 4242)
        with pytest.raises(TeamError, match="belongs to another user"):
            worktree.find_root(root)


def test_no_commits(tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "new")
    assert worktree.find_root(tmp_path / "new") == tmp_path / "new"
    with pytest.raises(TeamError, match="no commits; `git add` your files and `git commit` first"):
        worktree.open_project(tmp_path / "new")
    assert_nothing_made(tmp_path / "new")


def test_detached_head(root: Path) -> None:
    run(root, "checkout", "-q", "--detach")
    with pytest.raises(TeamError, match="detached; `git switch BRANCH`"):
        worktree.open_project(root)
    assert_nothing_made(root)


def test_shallow_and_partial_clones(root: Path, tmp_path: Path) -> None:
    commit(root, "a.txt", "two\n")
    run(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "shallow")
    with pytest.raises(TeamError, match="`git fetch --unshallow` first"):
        worktree.open_project(tmp_path / "shallow")
    run(root, "config", "uploadpack.allowFilter", "true")
    run(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{root}", "partial")
    with pytest.raises(TeamError, match="partial clone"):
        worktree.open_project(tmp_path / "partial")


def assert_nothing_made(root: Path) -> None:
    assert not (root / ".team").exists()
    assert not (root / "agent_logs").is_symlink()
    assert run(root, "remote") == ""
    assert not list(places.state_home().glob("*/project.json"))


# -- first use ------------------------------------------------------------------------------------------------------


def test_first_use_makes_everything_and_git_status_stays_clean(root: Path) -> None:
    project = worktree.open_project(root)
    assert project.state.stat().st_mode & 0o777 == 0o700
    assert (root / ".team").read_text() == project.id + "\n"
    assert (root / "agent_logs").resolve() == project.logs
    assert run(root, "status", "--porcelain") == ""
    assert run(root, "remote") == "team"
    assert run(project.upstream, "rev-parse", "main") == run(root, "rev-parse", "HEAD")
    run(root, "fetch", "-q", "team")
    assert run(root, "rev-parse", "team/main") == run(root, "rev-parse", "HEAD")


def test_second_use_changes_nothing(root: Path) -> None:
    first = worktree.open_project(root)
    before = (root / ".git" / "config").read_text(), (root / ".git" / "info" / "exclude").read_text()
    assert worktree.open_project(root) == first == worktree.existing_project(root)
    assert before == ((root / ".git" / "config").read_text(), (root / ".git" / "info" / "exclude").read_text())


def test_exclude_without_a_last_newline_is_kept(root: Path) -> None:
    exclude = root / ".git" / "info" / "exclude"
    exclude.write_text("*.swp")
    worktree.open_project(root)
    assert exclude.read_text() == "*.swp\n/.team\n/agent_logs\n"


def test_branch_called_master_and_submodule(root: Path, tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "-b", "master", "super")
    run(tmp_path / "super", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(root), "sub")
    run(tmp_path / "super", "commit", "-qm", "sub")
    project, ledger = open_with_ledger(tmp_path / "super")
    notes = worktree.sync_up(project, ledger, Settings())
    assert any("submodules are empty directories for agents: sub" in note for note in notes)
    run(tmp_path / "super" / "sub", "switch", "-q", "main")
    inner = worktree.open_project(worktree.find_root(tmp_path / "super" / "sub"))
    assert inner.root == tmp_path / "super" / "sub"
    assert inner.id != project.id


def test_git_clean_does_not_lose_the_team(root: Path) -> None:
    project = worktree.open_project(root)
    run(root, "clean", "-fdxq")
    assert not (root / ".team").exists()
    assert worktree.existing_project(root) == project
    assert worktree.open_project(root) == project
    assert (root / "agent_logs").is_symlink()


def test_moved_tree_keeps_its_team_and_a_copy_gets_its_own(root: Path, tmp_path: Path) -> None:
    project = worktree.open_project(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    copied = worktree.open_project(copy)
    assert copied.id != project.id
    assert run(copy, "config", "remote.team.url") == str(copied.upstream)
    moved = tmp_path / "moved"
    root.rename(moved)
    assert worktree.open_project(moved).id == project.id


def test_linked_worktree_names_where_the_team_is(root: Path, tmp_path: Path) -> None:
    project = worktree.open_project(root)
    run(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    with pytest.raises(TeamError, match=r"works from its worktree .*my project é; run team there"):
        worktree.open_project(tmp_path / "side")
    assert worktree.open_project(root) == project


def test_team_in_a_linked_worktree(root: Path, tmp_path: Path) -> None:
    run(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    project = worktree.open_project(tmp_path / "side")
    assert run(tmp_path / "side", "status", "--porcelain") == ""
    assert project.root == tmp_path / "side"
    run(root, "worktree", "remove", "--force", str(tmp_path / "side"))
    assert worktree.open_project(root).id == project.id  # the worktree is gone, its team goes on


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_agent_logs_of_the_user_is_not_touched(root: Path, kind: str) -> None:
    mine = root / "agent_logs"
    if kind == "file":
        mine.write_text("mine")
    elif kind == "directory":
        (mine / "x").mkdir(parents=True)
    else:
        mine.symlink_to("/tmp/logs")
    with pytest.raises(TeamError, match="agent_logs is not team's; rename it"):
        worktree.open_project(root)
    assert os.path.lexists(mine)
    assert not (root / ".team").exists()
    assert not list(places.state_home().glob("*/project.json"))


def test_pointer_of_the_user_is_not_touched(root: Path) -> None:
    (root / ".team").write_text("the a-team\n")
    with pytest.raises(TeamError, match=r"\.team"):
        worktree.open_project(root)
    assert (root / ".team").read_text() == "the a-team\n"


def test_remote_of_the_user_is_not_touched(root: Path) -> None:
    run(root, "remote", "add", "team", "https://example.com/x.git")
    with pytest.raises(TeamError, match="`git remote rename team OTHER-NAME`"):
        worktree.open_project(root)
    assert run(root, "config", "remote.team.url") == "https://example.com/x.git"
    assert not (root / ".team").exists()


def test_half_made_state_is_thrown_away_and_unlanded_work_never(root: Path) -> None:
    half = places.new_project(root)
    kept = places.new_project(root)
    Ledger(kept.ledger).close()
    project = worktree.open_project(root)
    assert not half.state.exists()
    assert kept.state.exists()
    assert project.id not in (half.id, kept.id)


def test_killed_while_writing_pointer_or_remote(root: Path) -> None:
    project = worktree.open_project(root)
    (root / ".team").write_text("")
    run(root, "config", "--unset", "remote.team.push")
    assert worktree.open_project(root) == project
    assert run(root, "config", "remote.team.push") == "HEAD:refs/for/main"


def test_failed_first_use_leaves_nothing(root: Path) -> None:
    places.state_home().mkdir(parents=True)
    (root / ".git" / "objects" / "pack").mkdir(exist_ok=True)
    head = run(root, "rev-parse", "HEAD:a.txt")
    (root / ".git" / "objects" / head[:2] / head[2:]).unlink()
    with pytest.raises(Exception):  # noqa: B017 - whatever upstream says of a broken repository
        worktree.open_project(root)
    assert_nothing_made(root)


def _open(root: str) -> str:
    return worktree.open_project(Path(root)).id


def test_two_at_once_make_one_team(root: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        ids = pool.map(_open, [str(root)] * 3)
    assert len(set(ids)) == 1
    assert len(list(places.state_home().glob("*/project.json"))) == 1


def test_killed_at_any_point_the_next_use_finishes(root: Path) -> None:
    code = "import sys; from pathlib import Path; from team import worktree; worktree.open_project(Path(sys.argv[1]))"
    for delay in (0.25, 0.4, 0.55, 0.7):
        process = subprocess.Popen([sys.executable, "-c", code, str(root)], stderr=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    project = worktree.open_project(root)
    assert worktree.existing_project(root) == project
    assert len(list(places.state_home().glob("*/project.json"))) == 1
    assert run(root, "status", "--porcelain") == ""


# -- the remote -----------------------------------------------------------------------------------------------------


def test_push_to_the_remote_lands_and_runs_no_code_of_the_tree(root: Path) -> None:
    project = worktree.open_project(root)
    for name in ("team/__init__.py", "click.py", "json.py"):
        commit(root, name, "import os; os.system('touch pwned')\n")
    new = commit(root, "b.txt", "b\n")
    run(root, "push", "-q", "team")
    assert not (root / "pwned").exists()
    run(root, "fetch", "-q", "team")
    assert run(root, "merge-base", "team/main", new) == new
    assert run(project.upstream, "rev-parse", "main^2") == new


# -- sync_up --------------------------------------------------------------------------------------------------------


def test_sync_up_lands_what_the_person_committed(root: Path) -> None:
    project, ledger = open_with_ledger(root)
    assert worktree.sync_up(project, ledger, Settings()) == []
    commit(root, "b.txt", "b\n")
    new = commit(root, "team.toml", "agents = 2\n")
    assert worktree.sync_up(project, ledger, Settings()) == ["landed 2 commits of yours from main"]
    assert run(project.upstream, "rev-parse", "main^2") == new
    assert run(project.upstream, "log", "-1", "--format=%an <%ae>") == "Pat <pat@example.com>"
    assert worktree.behind(project) == 1
    assert worktree.sync_up(project, ledger, Settings()) == ["1 landing not in main yet; `team pull` brings them"]


def test_sync_up_refuses_a_dirty_tree(root: Path) -> None:
    project, ledger = open_with_ledger(root)
    for n in range(5):
        commit(root, f"f {n}\n.txt", "x")
    for n in range(5):
        (root / f"f {n}\n.txt").write_text("y")
    run(root, "add", "f 0\n.txt")
    with pytest.raises(TeamError, match=r"not committed: f 0 \.txt, f 1 \.txt, f 2 \.txt and 2 more; commit or stash"):
        worktree.sync_up(project, ledger, Settings())


def test_sync_up_mentions_untracked_files_that_matter_first(root: Path) -> None:
    project, ledger = open_with_ledger(root)
    for name in ("a1", "a2", "a3", "team.toml"):
        (root / name).write_text("agents = 1\n")
    (root / "tasks").mkdir()
    (root / "tasks" / "x.md").write_text("x")
    notes = worktree.sync_up(project, ledger, Settings())
    assert notes == ["agents see only what is committed; not committed: tasks/, team.toml, a1 and 2 more"]


def test_sync_up_with_a_conflict_names_files_and_mend(root: Path, tmp_path: Path) -> None:
    project, ledger = open_with_ledger(root)
    land_elsewhere(project, tmp_path, "a.txt", "theirs\n")
    commit(root, "a.txt", "mine\n")
    with pytest.raises(TeamError, match=r"conflict in a\.txt; `git merge team/main` and resolve"):
        worktree.sync_up(project, ledger, Settings())


def land_elsewhere(project: Project, tmp_path: Path, path: str, text: str) -> str:
    """Another clone of the person's lands a change; returns its commit."""
    from team.upstream.pusher import Pusher
    from team.upstream.upstream import Upstream

    clone = tmp_path / f"clone-{os.urandom(3).hex()}"
    run(tmp_path, "clone", "-q", str(project.upstream), str(clone))
    made = commit(clone, path, text)
    settings = Settings()
    upstream = Upstream(project, Ledger(project.ledger), settings.landing, settings.protected)
    upstream.land_commit(Pusher("Pat", "pat@example.com", None), made, clone)
    return made


def test_sync_up_without_identity(root: Path, home: Path) -> None:
    project, ledger = open_with_ledger(root)
    commit(root, "b.txt", "b\n")
    (home / ".gitconfig").write_text("")
    with pytest.raises(TeamError, match=r"git does not know who you are; `git config user\.name"):
        worktree.sync_up(project, ledger, Settings())


@pytest.mark.parametrize("state", ["merge", "rebase"])
def test_half_done_merge_or_rebase_is_named(root: Path, state: str) -> None:
    project, ledger = open_with_ledger(root)
    run(root, "switch", "-qc", "side")
    commit(root, "a.txt", "side\n")
    run(root, "switch", "-q", "main")
    commit(root, "a.txt", "main\n")
    subprocess.run(["git", state, "side"], cwd=root, capture_output=True, check=False)
    with pytest.raises(TeamError, match=r"half-done|detached"):
        worktree.sync_up(project, ledger, Settings())


def test_state_on_another_file_system(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(root, "tag", "v1")
    with tempfile.TemporaryDirectory(prefix="team:", dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != root.stat().st_dev
        monkeypatch.setenv("XDG_STATE_HOME", elsewhere)
        project = worktree.open_project(root)
        assert run(project.upstream, "rev-parse", "main", "v1").split() == [run(root, "rev-parse", "HEAD")] * 2
        run(project.upstream, "fsck", "--strict")
        assert worktree.behind(project) == 0


def test_what_team_test_knew_before_there_was_a_team_is_the_teams(root: Path) -> None:
    from contextlib import closing

    from team.sampler.cases import Outcome, Result
    from team.sampler.memory import File, Run

    logs = root / "agent_logs" / "tests"
    logs.mkdir(parents=True)
    (logs / "20260101-000000.log").write_text("ok a\n")
    with closing(File(root / ".git" / "team" / "tests.db")) as before:
        before.record(Run("me", "", "c", "tree", "", "", "all", 1, 1.0, [Result("a", Outcome.PASSED, 0.1)]))
    project = worktree.open_project(root)
    assert (root / "agent_logs").is_symlink() and (project.logs / "tests" / "20260101-000000.log").exists()
    with closing(File(project.tests)) as after:
        assert [seen.outcome for seen in after.history("", "a")] == ["passed"]
