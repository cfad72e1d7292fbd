"""`team pull`: what landed comes in, and nothing of the person's is lost or overwritten."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from team import worktree
from team.cli import main
from team.config import Settings
from team.ledger import Ledger
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream


def run(at: Path, *args: str, stdin: str | None = None) -> str:
    done = subprocess.run(["git", *args], cwd=at, check=True, capture_output=True, text=True, input=stdin)
    return done.stdout.strip()


def write(at: Path, path: str, text: str) -> None:
    file = at / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def commit(at: Path, path: str, text: str) -> str:
    write(at, path, text)
    run(at, "add", "-f", "--", path)
    run(at, "commit", "-qm", f"change {path}")
    return run(at, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on `master` whose team was set up, with nothing landed yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Pat\n\temail = pat@example.com\n")
    at = tmp_path / "project"
    at.mkdir()
    run(at, "init", "-q", "-b", "master")
    commit(at, "a.txt", "one\n")
    worktree.open_project(at)
    monkeypatch.chdir(at)
    return at


def project_of(root: Path) -> Project:
    project = worktree.existing_project(root)
    assert project is not None
    return project


def clone_of(root: Path) -> Path:
    clone = root.parent / f"clone-{os.urandom(3).hex()}"
    run(root.parent, "clone", "-q", str(project_of(root).upstream), str(clone))
    return clone


def land(root: Path, path: str, text: str, *, agent: bool = True) -> str:
    """An agent (or the person, elsewhere) lands a change of ``path``, by the rules of upstream."""
    project, settings = project_of(root), Settings()
    clone = clone_of(root)
    run(clone, "config", "user.name", "agent-01" if agent else "Pat")
    run(clone, "config", "user.email", "a@team.invalid" if agent else "p@x")
    made = commit(clone, path, text)
    upstream = Upstream(project, Ledger(project.ledger), settings.landing, settings.protected)
    pusher = Pusher("agent-01", "a@team.invalid", "agent-01.1", "worker") if agent else Pusher("Pat", "p@x", None)
    upstream.land_commit(pusher, made, clone)
    return made


def smuggle(root: Path, path: str, text: str, mode: str = "100644") -> str:
    """Main as if upstream's rules had a hole: a merge commit that holds ``path``, put there by hand."""
    bare = project_of(root).upstream
    index = {"GIT_INDEX_FILE": str(bare / "smuggled"), **os.environ}

    def plumb(*args: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["git", *args], cwd=bare, env=index, check=True, capture_output=True, text=True, input=stdin
        )
        return done.stdout.strip()

    blob = plumb("hash-object", "-w", "--stdin", stdin=text)
    plumb("read-tree", "main")
    plumb("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
    tree = plumb("write-tree")
    work = plumb("commit-tree", "-p", "main", "-m", "work", tree)
    merge = plumb("commit-tree", "-p", "main", "-p", work, "-m", "a landing", tree)
    plumb("update-ref", "refs/heads/main", merge)
    return merge


def pull(*args: str) -> Result:
    return CliRunner().invoke(main, ["pull", *args])


def refused(root: Path, *args: str) -> str:
    """Pull, and check that it refused on one line and that nothing at all changed."""
    before = run(root, "rev-parse", "HEAD"), run(root, "status", "--porcelain", "--ignored")
    result = pull(*args)
    assert result.exit_code == 2, result.output
    assert len(result.output.splitlines()) == 1
    assert before == (run(root, "rev-parse", "HEAD"), run(root, "status", "--porcelain", "--ignored"))
    return result.output


def test_nothing_landed(root: Path) -> None:
    assert pull().output == "master has all that landed\n"


def test_fast_forward(root: Path) -> None:
    land(root, "b.txt", "b\n")
    land(root, "c.txt", "c\n")
    assert worktree.behind(project_of(root)) == 2
    result = pull()
    assert result.exit_code == 0, result.output
    assert "2 landings into master by fast-forward: 2 files changed" in result.output
    assert (root / "c.txt").read_text() == "c\n"
    assert worktree.behind(project_of(root)) == 0
    assert run(root, "status", "--porcelain") == ""


def test_merge_is_the_persons_own(root: Path) -> None:
    land(root, "b.txt", "b\n")
    mine = commit(root, "mine.txt", "m\n")
    document = json.loads(pull("--json").output)
    assert (document["how"], document["branch"], document["old"], document["files"]) == ("merge", "master", mine, 1)
    assert len(document["landings"]) == 1
    assert run(root, "log", "-1", "--format=%an %s") == "Pat Merge the team's main (1 landing)"
    assert run(root, "rev-parse", "HEAD^1") == mine


def test_pull_after_git_clean(root: Path) -> None:
    land(root, "b.txt", "b\n")
    run(root, "clean", "-fdxq")
    assert pull().exit_code == 0


def test_never_into_a_dirty_tree(root: Path) -> None:
    land(root, "b.txt", "b\n")
    write(root, "a.txt", "changed")
    assert "changes are not committed: a.txt; commit or stash" in refused(root)
    run(root, "add", "a.txt")
    assert "a.txt" in refused(root)
    run(root, "reset", "-q", "--hard")
    write(root, "new.txt", "untracked is no dirt")
    assert pull().exit_code == 0


def test_half_done_merge_is_named(root: Path) -> None:
    run(root, "switch", "-qc", "side")
    commit(root, "a.txt", "side\n")
    run(root, "switch", "-q", "master")
    commit(root, "a.txt", "master\n")
    subprocess.run(["git", "merge", "side"], cwd=root, capture_output=True, check=False)
    assert "a merge is half-done here; finish it, or `git merge --abort`" in refused(root)


def test_conflict_leaves_everything_as_it_was(root: Path) -> None:
    land(root, "a.txt", "theirs\n")
    commit(root, "a.txt", "mine\n")
    said = refused(root)
    assert "conflict in a.txt; `git merge team/main` and resolve by hand" in said
    assert (root / "a.txt").read_text() == "mine\n"
    assert not (root / ".git" / "MERGE_HEAD").exists()


def test_merge_that_fails_half_way_is_taken_back(root: Path) -> None:
    land(root, "b.txt", "b\n")
    commit(root, "mine.txt", "m\n")
    hook = root / ".git" / "hooks" / "pre-merge-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'no merges on a \033[31mFriday' >&2\nexit 1\n")
    hook.chmod(0o755)
    said = refused(root)
    assert "no merges on a Friday" in said
    assert "\x1b" not in said
    assert not (root / ".git" / "MERGE_HEAD").exists()
    assert not (root / "b.txt").exists()


def test_no_identity_is_noticed_before_anything_moves(root: Path, tmp_path: Path) -> None:
    land(root, "b.txt", "b\n")
    commit(root, "mine.txt", "m\n")
    (tmp_path / ".gitconfig").write_text("")
    assert "git does not know who you are" in refused(root)


@pytest.mark.parametrize("ignored", [True, False])
def test_files_that_git_does_not_track_are_never_overwritten(root: Path, ignored: bool) -> None:
    if ignored:
        write(root, ".git/info/exclude", "/.team\n/agent_logs\nsecret*\nbuild\n")
    smuggle(root, "secret.env", "theirs")
    write(root, "secret.env", "mine")
    assert "would be overwritten: secret.env; move" in refused(root)
    assert (root / "secret.env").read_text() == "mine"
    (root / "secret.env").unlink()
    smuggle(root, "build/x", "theirs")
    write(root, "build", "a file where a directory should be")
    assert "would be overwritten: build;" in refused(root)
    (root / "build").unlink()
    (root / "build").symlink_to(root.parent)
    assert "would be overwritten: build;" in refused(root)
    (root / "build").unlink()
    assert pull().exit_code == 0


def test_ignored_files_below_a_directory_that_becomes_a_file(root: Path) -> None:
    commit(root, "d/x", "x")
    worktree.sync_up(project_of(root), Ledger(project_of(root).ledger), Settings())
    assert pull().exit_code == 0
    clone = clone_of(root)
    run(clone, "rm", "-q", "d/x")
    made = commit(clone, "d", "now a file")
    run(project_of(root).upstream, "fetch", "-q", str(clone), made)
    run(project_of(root).upstream, "update-ref", "refs/heads/main", made)
    write(root, ".git/info/exclude", "/.team\n/agent_logs\n*.log\n")
    write(root, "d/my.log", "mine")
    assert "would be overwritten: d/my.log;" in refused(root)
    assert (root / "d" / "my.log").read_text() == "mine"


@pytest.mark.parametrize("path", ["agent_logs", ".team", ".TEAM/hooks/x", "Agent_Logs", ".te\u200bam", "ａgent_logs/x"])
def test_names_of_teams_own_are_refused_in_any_form(root: Path, path: str) -> None:
    smuggle(root, path, "../../etc", "120000" if path == "agent_logs" else "100644")
    assert "a name of team's own" in refused(root)
    assert (root / "agent_logs").resolve() == project_of(root).logs


def test_protected_paths_are_looked_at_again(root: Path) -> None:
    smuggle(root, "roles/worker.md", "obey")
    second = smuggle(root, "Claude.md", "obey")
    said = refused(root)
    assert "agents changed protected paths:" in said
    assert "roles/worker.md" in said
    assert f"`team pull --accept-protected {second[:12]}`" in said
    assert pull("--accept-protected", second[:12]).exit_code == 0
    assert (root / "Claude.md").exists()


def test_accepting_covers_only_what_was_looked_at(root: Path) -> None:
    looked = smuggle(root, "roles/worker.md", "obey")
    smuggle(root, "roles/docs.md", "obey too")
    said = refused(root, "--accept-protected", looked)
    assert "roles/docs.md" in said
    assert "worker.md" not in said
    assert "no commit of the team's main" in refused(root, "--accept-protected", "--output=x")


def test_protected_paths_of_the_person_come_in(root: Path) -> None:
    land(root, "team.toml", "agents = 2\n", agent=False)
    assert pull().exit_code == 0
    assert (root / "team.toml").exists()


def test_more_protected_paths_from_the_persons_team_toml(root: Path) -> None:
    commit(root, "team.toml", 'protected = ["secrets/**"]\n')
    land(root, "secrets/a", "x")
    assert "secrets/a" in refused(root)


def test_hostile_subjects_are_cleaned(root: Path) -> None:
    land(root, "b.txt", "b\n")
    bare = project_of(root).upstream
    tree = run(bare, "rev-parse", "main^{tree}")
    evil = run(bare, "commit-tree", "-p", "main", "-m", "\x1b]0;owned\x07\x1b[2J[red]done", tree)
    run(bare, "update-ref", "refs/heads/main", evil)
    result = pull()
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert "[red]done" in result.output


def test_no_team_yet(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "init", "-q", "fresh")
    monkeypatch.chdir(tmp_path / "fresh")
    result = pull()
    assert (result.exit_code, result.output) == (2, "team: this project has no team yet; `team up` makes it\n")


@pytest.mark.parametrize("landed", [False, True])
def test_what_is_accepted_must_be_on_main(root: Path, landed: bool) -> None:
    if landed:
        land(root, "b.txt", "b\n")
    worktree.fetch(project_of(root))
    assert "zzz is no commit of the team's main" in refused(root, "--accept-protected", "zzz")


def test_taking_and_freeing_a_lock_is_no_landing(root: Path) -> None:
    land(root, "current_tasks/fix_it.txt", "mine\n")
    assert worktree.behind(project_of(root)) == 0
    land(root, "b.txt", "b\n")
    assert worktree.behind(project_of(root)) == 1
    run(root, "config", "grep.patternType", "fixed")
    result = pull()
    assert "1 landing into master by fast-forward: 2 files changed" in result.output, result.output
    assert "Claim" not in result.output
