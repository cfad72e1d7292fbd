"""The user's work tree: finding it, giving it a team, and landing what the person committed.

Git runs here as the person does: with their configuration, identity and hooks. See :mod:`team.git` for ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from team import places
from team.errors import TeamError
from team.git import git, without_hints
from team.ledger import Ledger
from team.names import TASK_DIR
from team.places import LOG_LINK, POINTER, Project
from team.text import one_line
from team.upstream.refusal import listed
from team.view import plural

if TYPE_CHECKING:
    from team.config import Settings

REMOTE = "team"
TRACKING = "refs/remotes/team/main"
"""Where the user's repository keeps what it last saw of upstream's main."""
LANDINGS = (
    "--first-parent",
    "--basic-regexp",
    "--invert-grep",
    "--grep=^Team-Kind: claim$",
    "--grep=^Team-Kind: release$",
)
"""What makes git log and rev-list show landings: the steps of main without those that only take or free a lock."""
_RECEIVER = "team.upstream.receive_pack"
_ID = re.compile(r"[a-z0-9-]+-[0-9a-f]{8}\n?\Z")

# Variables that would point git at another repository, index or configuration (git rev-parse --local-env-vars);
# they are set where team is called from a hook or an alias.
_LOCAL = frozenset(
    "GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_CONFIG_COUNT GIT_OBJECT_DIRECTORY GIT_DIR "
    "GIT_WORK_TREE GIT_IMPLICIT_WORK_TREE GIT_GRAFT_FILE GIT_INDEX_FILE GIT_NO_REPLACE_OBJECTS GIT_REPLACE_REF_BASE "
    "GIT_PREFIX GIT_SHALLOW_FILE GIT_COMMON_DIR GIT_INTERNAL_SUPER_PREFIX GIT_NAMESPACE".split()
)


@dataclass(frozen=True)
class Ran:
    """What a git command of the person's answered."""

    code: int
    out: bytes
    error: str

    @property
    def text(self) -> str:
        """The output without its last newline; paths keep their odd bytes."""
        return os.fsdecode(self.out).removesuffix("\n")


def user_git(at: Path, *args: str, ok: Sequence[int] = (0,)) -> Ran:
    """Run git in ``at`` as the person would: their configuration, identity, signing and hooks.

    Raises :class:`TeamError` with git's own words for an exit code not in ``ok``.
    """
    env = {k: v for k, v in os.environ.items() if k not in _LOCAL} | {"LC_ALL": "C.UTF-8", "GIT_EDITOR": "true"}
    # explicit: a bare repository that somebody committed below the work tree must not become "the repository"
    argv = ["git", "-c", "core.quotePath=false", "-c", "safe.bareRepository=explicit", "-c", "color.ui=false", *args]
    done = subprocess.run(argv, cwd=at, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    ran = Ran(done.returncode, done.stdout, without_hints(done.stderr.decode("utf-8", "replace")))
    if ran.code not in ok:
        raise TeamError(f"git {args[0]} failed: {one_line(ran.error.removeprefix('fatal: ')) or f'exit {ran.code}'}")
    return ran


def find_root(cwd: Path) -> Path:
    """The work tree that ``cwd`` is in; raises :class:`TeamError` where there is none.

    A submodule and a linked worktree are work trees of their own.
    """
    ran = user_git(cwd, "rev-parse", "--show-toplevel", ok=(0, 128))
    if "not a git repository" in ran.error:
        raise TeamError(f"{cwd} is not in a git repository; cd into one, or `git init` and commit first")
    if "must be run in a work tree" in ran.error or "cannot use bare repository" in ran.error:
        raise TeamError(f"{cwd} is in a bare repository or in .git; run team in a work tree (`git clone` makes one)")
    root = Path(ran.text) if ran.code == 0 else cwd
    if "dubious ownership" in ran.error or root.stat().st_uid != os.getuid():
        raise TeamError(f"{root} belongs to another user; run team as its owner, or chown it to you")
    if ran.code != 0:
        raise TeamError(f"git cannot read the repository at {cwd}: {one_line(ran.error)}")
    return root


def require_branch(root: Path) -> str:
    """The name of the branch that is checked out; raises :class:`TeamError` where the team cannot work from it:
    no commit, detached HEAD, a shallow or partial clone."""
    if user_git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", ok=(0, 1, 128)).code != 0:
        raise TeamError("the repository has no commits; `git add` your files and `git commit` first")
    head = user_git(root, "symbolic-ref", "--quiet", "--short", "HEAD", ok=(0, 1))
    if head.code != 0:
        raise TeamError("HEAD is detached; `git switch BRANCH` (or `git switch -c NEW-BRANCH`) first")
    if user_git(root, "rev-parse", "--is-shallow-repository").text == "true":
        raise TeamError("the repository is a shallow clone; `git fetch --unshallow` first")
    if (
        user_git(root, "config", "--get-regexp", r"^(extensions.partialclone|remote\..*\.promisor)$", ok=(0, 1)).code
        == 0
    ):
        raise TeamError("the repository is a partial clone, objects are missing; clone it again without --filter")
    return head.text


def require_state_outside(root: Path) -> None:
    """Raise :class:`TeamError` where the state would lie in the work tree: a `git clean -fdx` would take all of it."""
    home = places.state_home()
    if home.resolve().is_relative_to(root.resolve()):
        raise TeamError(f"the state would lie inside of the project, in {home}; set XDG_STATE_HOME to a place outside")


def existing_project(root: Path) -> Project | None:
    """The project of the work tree ``root``, or None where ``team up`` never ran.

    Where the pointer is gone (``git clean -fdx`` takes it), the remote ``team`` still tells. Raises
    :class:`TeamError` where its state is at another place than ``XDG_STATE_HOME`` says now.
    """
    found = places.find_project(root)
    if found is not None and (found.upstream / "HEAD").is_file():
        return found
    _refuse_other_state_home(root)
    state = _state_of_remote(root)
    if state is None or not (state / "project.json").is_file():
        return None
    recorded = _recorded_root(state)
    if recorded != root:
        if recorded is None or recorded.exists():
            return None
        places.write_project_file(state, root)
    return Project(root=root, id=state.name, state=state)


def _refuse_other_state_home(root: Path) -> None:
    state, now = _linked_state(root), places.state_home()
    if state is None or state.parent == now or _recorded_root(state) != root:
        return
    was = f"XDG_STATE_HOME={shlex.quote(str(state.parent.parent))}"
    move = f"mkdir -p {shlex.quote(str(now))} && mv {shlex.quote(str(state))} {shlex.quote(str(now))}/"
    raise TeamError(
        f"this project's state is {state}; set {was} as it was, or move the state: `{move}`; "
        f"`rm {LOG_LINK}` begins anew without it"
    )


def open_project(root: Path) -> Project:
    """The project of the work tree ``root``; the first use makes its state, upstream, pointer, link and remote.

    May be called by several at once and killed at any point: a half-made state is thrown away by the next call.
    Raises :class:`TeamError`, with nothing made, where a file or remote of the user's is in the way.
    """
    common = _git_path(root, "--git-common-dir")
    try:
        with FileLock(common / "team.lock", timeout=300):
            require_state_outside(root)
            _check_free(root)
            project = existing_project(root)
            if project is None:
                _refuse_second_worktree(root, common)
                require_branch(root)
                _discard_half_made(root)
                project = _make(root)
            _connect(project)
            return project
    except Timeout:
        raise TeamError("another `team` has been setting up this project for 5 minutes; end it first") from None


def sync_up(project: Project, ledger: Ledger, settings: Settings) -> list[str]:
    """Land the person's commits that main lacks, and return lines worth telling before agents start.

    Raises :class:`TeamError` for a dirty tree, and where main has moved so that these commits do not merge.
    """
    root = project.root
    branch = require_branch(root)
    require_clean(root)
    fetch(project)
    notes = []
    ahead = int(user_git(root, "rev-list", "--count", "HEAD", f"^{TRACKING}").text)
    if ahead:
        _land_head(project, ledger, settings)
        fetch(project)
        notes.append(f"landed {plural(ahead, 'commit')} of yours from {branch}")
    waiting = behind(project) - bool(ahead)
    if waiting > 0:
        notes.append(f"{plural(waiting, 'landing')} not in {branch} yet; `team pull` brings them")
    return notes + unseen(root)


def _land_head(project: Project, ledger: Ledger, settings: Settings) -> None:
    from team.upstream.pusher import Pusher
    from team.upstream.upstream import Upstream

    root = project.root
    name, email = require_identity(root)
    merged_tree(root, "HEAD", TRACKING)  # upstream would refuse a conflict too, but in the words for agents
    upstream = Upstream(project, ledger, settings.landing, settings.protected)
    try:
        upstream.land_commit(Pusher(name, email, None), commit_of(root, "HEAD"), root)
    finally:
        upstream.close()


def behind(project: Project) -> int:
    """How many landings of upstream's main the checked-out branch lacks. Writes nothing."""
    main = git("rev-parse", "--verify", "refs/heads/main", at=project.upstream).decode().strip()
    from team.upstream.quarantine import quoted

    borrowed = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted(project.upstream / "objects")}
    head = git("rev-parse", "--verify", "--quiet", "HEAD", at=project.root, ok=(0, 1)).decode().strip()
    exclude = [f"^{head}"] if head else []
    out = git("rev-list", "--count", *LANDINGS, main, *exclude, "--", at=project.root, env=borrowed)
    return int(out)


def fetch(project: Project) -> None:
    """Bring upstream's main to ``refs/remotes/team/main`` of the user's repository, checking what comes in."""
    user_git(
        project.root,
        *("-c", "protocol.file.allow=always", "-c", "fetch.fsckObjects=true"),
        *("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"),
        *(str(project.upstream), f"+refs/heads/main:{TRACKING}"),
    )


def commit_of(root: Path, revision: str) -> str:
    """The id of the commit that ``revision`` names; raises :class:`TeamError` where it names none."""
    return user_git(root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").text


def is_ancestor(root: Path, older: str, newer: str) -> bool:
    """Whether ``older`` is reachable from ``newer`` in the user's repository."""
    return user_git(root, "merge-base", "--is-ancestor", older, newer, ok=(0, 1)).code == 0


def merged_tree(root: Path, mine: str, main: str) -> str:
    """The tree of the merge of two commits, made without touching the work tree.

    Raises :class:`TeamError` for a conflict, naming the files, and for histories that have nothing in common.
    """
    if is_ancestor(root, mine, main):
        return user_git(root, "rev-parse", f"{main}^{{tree}}").text
    if user_git(root, "merge-base", mine, main, ok=(0, 1)).code != 0:
        mend = "`git merge --allow-unrelated-histories team/main` if that is meant"
        raise TeamError(f"your branch and the team's main share no history; {mend}")
    ran = user_git(root, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", mine, main, ok=(0, 1))
    tree, *files = [os.fsdecode(part) for part in ran.out.split(b"\0") if part]
    if ran.code != 0:
        raise conflict(files)
    return tree


def conflict(files: Sequence[str]) -> TeamError:
    """What to do about ``files`` that do not merge."""
    shown = listed(list(dict.fromkeys(files)), 3)
    return TeamError(f"your branch and the team's main conflict in {shown}; `git merge team/main` and resolve by hand")


def require_clean(root: Path) -> None:
    """Raise :class:`TeamError` unless no tracked file is changed and no merge or rebase is half-done."""
    for name, mend in _UNFINISHED.items():
        if _git_path(root, "--git-path", name).exists():
            raise TeamError(f"a {mend} is half-done here; finish it, or `git {mend} --abort`")
    status = user_git(
        root, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"
    )
    changed = [os.fsdecode(entry[3:]) for entry in status.out.split(b"\0") if entry]
    if changed:
        raise TeamError(f"changes are not committed: {listed(changed, 3)}; commit or stash them first")


_UNFINISHED = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}


def require_identity(root: Path) -> tuple[str, str]:
    """The person's name and address as git has them; raises :class:`TeamError` where they are not set."""
    ran = user_git(root, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT", ok=(0, 1, 128))
    match = re.match(r"(.*) <(.*)> \d+ [+-]\d+\Z", ran.text)
    if ran.code != 0 or match is None:
        mend = "`git config user.name 'Your Name'` and `git config user.email you@example.com` first"
        raise TeamError(f"git does not know who you are; {mend}")
    return match[1], match[2]


def _git_path(root: Path, *args: str) -> Path:
    return root / user_git(root, "rev-parse", *args).text


def _config(root: Path, key: str) -> str | None:
    ran = user_git(root, "config", "--local", "--null", "--get", key, ok=(0, 1))
    return ran.text.removesuffix("\0") if ran.code == 0 else None


def _state_of_remote(root: Path) -> Path | None:
    """The state directory that the remote ``team`` of this repository points to, where it is one of ours."""
    state = Path(_config(root, f"remote.{REMOTE}.url") or "/").parent
    return state if state.parent == places.state_home() else None


def _recorded_root(state: Path) -> Path | None:
    try:
        return Path(json.loads((state / "project.json").read_text("utf-8"))["root"])
    except (OSError, ValueError, KeyError):
        return None


def _check_free(root: Path) -> None:
    """Raise :class:`TeamError` where something of the user's has a name that team needs."""
    pointer, link = root / POINTER, root / LOG_LINK
    if pointer.is_symlink() or pointer.exists():
        ours = pointer.is_file() and not pointer.is_symlink() and pointer.stat().st_size < 100
        content = pointer.read_text("utf-8", "replace") if ours else "?"
        if content == "":
            pointer.unlink()  # killed between creating and writing it
        elif not _ID.match(content):
            raise TeamError(f"{pointer} is not team's; rename it, team keeps a pointer to its state there")
    if (link.is_symlink() or link.exists()) and _linked_state(root) is None and not _has_tests_alone(link):
        raise TeamError(f"{link} is not team's; rename it, team keeps a link to its logs there")
    url = _config(root, f"remote.{REMOTE}.url")
    if url is not None and _RECEIVER not in (_config(root, f"remote.{REMOTE}.receivepack") or ""):
        raise TeamError("the repository has a remote called team already; `git remote rename team OTHER-NAME` first")


def _has_tests_alone(directory: Path) -> bool:
    """Whether this is what ``team test`` makes before there is a team: a directory of its logs, and nothing else."""
    if directory.is_symlink() or not directory.is_dir():
        return False
    return [path.name for path in directory.iterdir()] == ["tests"]


def _linked_state(root: Path) -> Path | None:
    """The state whose logs the link in the work tree leads to, wherever it is; None where that is no link of ours."""
    link = root / LOG_LINK
    target = link.readlink() if link.is_symlink() else Path()
    state = target.parent
    ours = target.name == "logs" and state.parent.name == places.state_home().name and _ID.match(state.name)
    return state if ours else None


def _refuse_second_worktree(root: Path, common: Path) -> None:
    """Linked worktrees share one repository, so one remote ``team``: the first that ran ``up`` has the team.

    A copy of a work tree carries that remote too, but is a repository of its own: it gets its own team.
    """
    state = _state_of_remote(root)
    other = _recorded_root(state) if state is not None else None
    if other is None or other == root or not other.is_dir():
        return
    try:
        theirs = _git_path(other, "--git-common-dir")
    except TeamError:
        return
    if theirs.resolve() == common.resolve():
        raise TeamError(f"the team of this repository works from its worktree {other}; run team there")


def _discard_half_made(root: Path) -> None:
    """Remove states of ``root`` that a killed first use left behind: nothing points to them, and nothing has happened
    in them. The caller holds the lock of this repository."""
    home = places.state_home()
    for state in home.iterdir() if home.is_dir() else ():
        if not (state / "ledger.db").exists() and _recorded_root(state) == root:
            shutil.rmtree(state)


def _make(root: Path) -> Project:
    from team.upstream.upstream import Upstream

    head = commit_of(root, "HEAD")
    project = places.new_project(root)
    try:
        project.logs.mkdir(mode=0o700)
        Upstream.create(project, root, head)
    except BaseException:
        shutil.rmtree(project.state, ignore_errors=True)
        raise
    return project


def _take_over(directory: Path, project: Project) -> None:
    """Bring the logs of ``team test`` to the others, and remove their directory."""
    if not (project.logs / "tests").exists():
        shutil.move(directory / "tests", project.logs / "tests")
    else:
        for path in (directory / "tests").iterdir():
            if not (project.logs / "tests" / path.name).exists():
                shutil.move(path, project.logs / "tests" / path.name)
        shutil.rmtree(directory / "tests")
    directory.rmdir()


def _take_memory(project: Project) -> None:
    """What ``team test`` and ``team oracle`` knew before there was a team becomes the team's."""
    here = _git_path(project.root, "--git-common-dir") / "team"
    for ours in (project.tests, project.oracle):
        theirs = here / ours.name
        if not theirs.is_file() or ours.exists():
            continue
        with (
            contextlib.suppress(sqlite3.Error),  # not worth a team that cannot start
            contextlib.closing(sqlite3.connect(theirs)) as old,
            contextlib.closing(sqlite3.connect(ours)) as new,
        ):
            old.backup(new)


def _connect(project: Project) -> None:
    """Make, or mend, what the work tree holds of team; each step may have been done before."""
    root = project.root
    _exclude(root)
    project.logs.mkdir(mode=0o700, exist_ok=True)
    link = root / LOG_LINK
    if not link.is_symlink() or link.readlink() != project.logs:
        if _has_tests_alone(link):
            _take_over(link, project)
        link.unlink(missing_ok=True)
        link.symlink_to(project.logs)
    _take_memory(project)
    # -P: without it python would import from the directory that git runs in, which agents wrote
    receiver = f"{shlex.quote(sys.executable)} -P -m {_RECEIVER}"
    remote = {
        "receivepack": receiver,  # first: from here on the remote is known to be ours
        "fetch": f"+refs/heads/main:{TRACKING}",
        "push": "HEAD:refs/for/main",
        "tagOpt": "--no-tags",
        "url": str(project.upstream),
    }
    for key, value in remote.items():
        if _config(root, f"remote.{REMOTE}.{key}") != value:
            user_git(root, "config", "--local", "--replace-all", f"remote.{REMOTE}.{key}", value)
    pointer = root / POINTER
    if not pointer.is_file() or pointer.read_text("utf-8").strip() != project.id:
        pointer.write_text(project.id + "\n", "utf-8")


def _exclude(root: Path) -> None:
    """Keep pointer and link out of ``git status`` and ``git add``, without touching a file that is committed."""
    path = _git_path(root, "--git-path", "info/exclude")
    path.parent.mkdir(exist_ok=True)
    present = path.read_bytes() if path.exists() else b""
    missing = [e for e in (f"/{POINTER}", f"/{LOG_LINK}") if os.fsencode(e) not in present.splitlines()]
    if missing:
        start = "" if not present or present.endswith(b"\n") else "\n"
        with path.open("ab") as file:
            file.write((start + "".join(f"{entry}\n" for entry in missing)).encode())


def unseen(root: Path) -> list[str]:
    """What agents will not see although it is in the work tree: untracked files, submodules, LFS content."""
    notes = []
    out = user_git(root, "status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all").out
    untracked = [os.fsdecode(entry[3:]) for entry in out.split(b"\0") if entry.startswith(b"?? ")]
    if untracked:
        # those that change what the team does come first
        untracked.sort(key=lambda p: not p.startswith((f"{TASK_DIR}/", "team.toml", "AGENT_PROMPT.md", "roles/")))
        notes.append(f"agents see only what is committed; not committed: {listed(untracked, 3)}")
    tree = user_git(root, "ls-files", "-z", "--stage").out
    links = [os.fsdecode(e.split(b"\t", 1)[1]) for e in tree.split(b"\0") if e.startswith(b"160000 ")]
    if links:
        notes.append(f"submodules are empty directories for agents: {listed(links, 3)}")
    if (root / ".gitattributes").is_file() and b"filter=lfs" in (root / ".gitattributes").read_bytes():
        notes.append("files in Git LFS are pointers for agents, not their content")
    return notes
