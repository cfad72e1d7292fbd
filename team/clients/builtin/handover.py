"""The hand-over: a note in the repository, pushed, and what is not in main kept beside it as a patch.

All of it is plumbing on the side: the work tree, its index and half-done merges stay as they are, so that this also
works when the session is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from team.names import LOCK_DIR, TASK_DIR
from team.text import clean, one_line

HEADING = "## Handed over"
MOST_LINES, MOST_NOTE = 60, 8000
"""Of a note, in lines and characters."""
MOST_NOTES = 20
"""Notes that are kept, the newest; git has the others."""
MOST_PATCH = 200 << 10
"""Bytes of a patch; more is left to the rescue."""
_SECONDS = 150.0
"""Of one git call: a push may wait for a gate."""
_WAITS = re.compile(r"\b(?:queued|held) as \d")
"""What upstream says of a push that is not refused, but has not landed yet."""
_TRIES = 3
_PLAIN = "--binary --no-ext-diff --no-textconv --ignore-submodules=all --src-prefix=a/ --dst-prefix=b/".split()
"""A diff that can be applied, whatever the clone's settings are."""


class Failed(Exception):
    """A git call failed; the message is what it said."""


@dataclass(frozen=True)
class HandOver:
    """Hands over what the session in the clone ``root`` came to."""

    root: Path
    notes: str
    """Path of the notes in the repository."""
    session: str
    seconds: float = _SECONDS
    """Of each git call."""

    def write(self, note: str, task: str, with_patch: bool, only_with_patch: bool = False) -> str:
        """Push ``note`` on ``task`` to main, with the patch; what was done, in words.

        ``only_with_patch``: nothing at all where main has everything.
        """
        try:
            with tempfile.TemporaryDirectory() as aside:
                self._git("fetch", "--quiet", "origin", "main")
                patch = self._patch(Path(aside) / "index") if with_patch else b""
                if only_with_patch and not patch:
                    return "nothing to hand over: main has everything"
                if only_with_patch and patch == self._handed(task):
                    return f"nothing to hand over: all of it is in {_patch_path(task)}"
                if len(patch) > MOST_PATCH:
                    note = f"Changes of {len(patch) >> 10} KiB, too many to be kept here, are with a person.\n{note}"
                    patch = b""
                return self._push(Path(aside) / "index", note, task, patch)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            return f"the hand-over was not pushed: {one_line(str(error), 1000)}"

    def _patch(self, index: Path) -> bytes:
        """What the work tree has and main lacks, without locks, notes, and patches of this kind: one in the other
        would grow with each session, and could not be applied once it took the other's place."""
        env = {"GIT_INDEX_FILE": str(index)}
        with suppress(OSError):  # its own index knows which files are as they were; without it all are read
            shutil.copyfile(self.root / self._git("rev-parse", "--git-path", "index").decode().rstrip("\n"), index)
        self._git("read-tree", "--reset", "HEAD", env=env)
        try:
            self._git("add", "--all", "--ignore-errors", env=env)
        except Failed:  # a file that cannot be read, a repository in the work tree: at least what git knows
            with suppress(Failed):
                self._git("add", "--update", "--ignore-errors", env=env)
        tree = self._git("write-tree", env=env).decode().strip()
        fork = self._git("merge-base", "HEAD", "FETCH_HEAD").decode().strip()
        leave = [f":(exclude,top,literal){path}" for path in (LOCK_DIR, self.notes)]
        leave.append(f":(exclude,top,glob){_patch_path('*')}")
        return self._git("diff", *_PLAIN, fork, tree, "--", ":(top)", *leave)

    def _handed(self, task: str) -> bytes:
        """The patch that an earlier session left; empty where none did."""
        try:
            return self._git("show", f"FETCH_HEAD:{_patch_path(task)}")
        except Failed:
            return b""

    def _push(self, index: Path, note: str, task: str, patch: bytes) -> str:
        for left in reversed(range(_TRIES)):
            self._git("fetch", "--quiet", "origin", "main")
            try:
                commit = self._commit(index, note, task, patch)
                self._git("push", "--quiet", "origin", f"{commit}:refs/for/main")
                break
            except Failed as error:
                if _WAITS.search(str(error)):  # it outlives this session
                    return f"the hand-over waits: {one_line(str(error), 1000)}"
                if not left:
                    raise
                patch = b"" if left == 1 else patch  # a patch may hold what upstream refuses
        return f"handed over in {self.notes}" + (f", with {_patch_path(task)}" if patch else "")

    def _commit(self, index: Path, note: str, task: str, patch: bytes) -> str:
        """A commit on top of main that holds the note and the patch."""
        env = {"GIT_INDEX_FILE": str(index)}
        self._git("read-tree", "FETCH_HEAD", env=env)
        row = self._git("ls-tree", "FETCH_HEAD", self.notes)
        if row and not row.startswith(b"100"):
            raise Failed(f"{self.notes} is no regular file; name another one in [builtin] notes")
        old = self._git("show", f"FETCH_HEAD:{self.notes}").decode("utf-8", "replace") if row else ""
        files = {self.notes: with_note(old, entry(note, task, self.session, bool(patch))).encode()}
        if patch:
            files[_patch_path(task)] = patch
        for path, content in files.items():
            blob = self._git("hash-object", "-w", "--stdin", given=content).decode().strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=env)
        tree = self._git("write-tree", env=env).decode().strip()
        return self._git("commit-tree", tree, "-p", "FETCH_HEAD", "-m", f"Hand over {task}").decode().strip()

    def _git(self, *args: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", *args],
            cwd=self.root,
            env={**os.environ, **(env or {})},
            input=given,
            capture_output=True,
            timeout=self.seconds,
        )
        if done.returncode:
            raise Failed(f"git {args[0]}: {done.stderr.decode('utf-8', 'replace').strip()[-2000:]}")
        return done.stdout


def entry(note: str, task: str, session: str, patch: bool) -> str:
    """The note as a section of the notes."""
    lines = [line.rstrip() for line in clean(note).strip()[:MOST_NOTE].split("\n")][:MOST_LINES]
    # A heading of its own would end the section for whoever replaces it.
    lines = [re.sub(r"^#+\s*", "", line) for line in lines]
    if patch:
        path = _patch_path(task)
        lines += ["", f"Unfinished changes: `git apply -3 {path}`, then `git rm -f {path}`."]
    return "\n".join([f"### {task} ({session})", "", *lines, ""])


def with_note(notes: str, new: str) -> str:
    """``notes`` with the section ``new`` under the heading, in place of an older one of the same task."""
    title = new.split(" (", 1)[0]
    older = re.compile(rf"^{re.escape(title)} \(.*?(?=^#|\Z)", re.M | re.S)
    notes = older.sub("", notes)
    if not re.search(rf"^{re.escape(HEADING)}\s*$", notes, re.M):
        notes = f"{notes.rstrip()}\n\n{HEADING}\n" if notes.strip() else f"{HEADING}\n"
    before, heading, rest = re.split(rf"(^{re.escape(HEADING)}\s*?$\n?)", notes, maxsplit=1, flags=re.M)
    handed, tail = re.split(r"(?=^#{1,2} )|\Z", rest, maxsplit=1, flags=re.M)
    older_ones = re.split(r"(?=^### )", handed, flags=re.M)
    rest = ("".join(older_ones[:MOST_NOTES]) + tail).strip("\n")
    return f"{before}{heading.rstrip()}\n\n{new}" + (f"\n{rest}\n" if rest else "")


def _patch_path(task: str) -> str:
    return f"{TASK_DIR}/{task}.patch"
