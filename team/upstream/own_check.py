"""A task's own check: a lock with a line ``check: COMMAND`` lands only when that fails before and passes after."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from team import git
from team.config import Gate
from team.names import lock_path, task_path
from team.upstream.check import Checker, Result
from team.upstream.queue import Waiting
from team.upstream.repository import Repository
from team.upstream.shelf import Shelf
from team.upstream.tamper import is_test

_LINE = re.compile(r"^[ \t]*check:[ \t]*(\S.{0,1000}?)[ \t]*$", re.M)
_MOST_LOCK = 1 << 16


@dataclass(frozen=True)
class Wrong:
    """Why a push does not do what its task's check asks for."""

    reason: str
    lines: tuple[str, ...]
    log: str


class OwnChecks:
    """Judges pushes that finish a task whose lock names a check. Remembers what it found out."""

    def __init__(self, shelf: Shelf, repository: Repository, checker: Checker, settings: Gate) -> None:
        self._shelf, self._repository, self._checker, self._settings = shelf, repository, checker, settings
        self._right: set[int] = set()
        self.flaky: dict[int, str] = {}
        """Pushes whose own check said one thing and then the other on the same commit, with the log of the first."""

    def judge(self, push: Waiting, main: str, on: str, tree: str, stop: threading.Event) -> Wrong | None:
        """None where ``tree`` (the push merged on ``on``) may land as far as its task's own check is concerned."""
        if not self._settings.check_new or push.session is None or push.number in self._right:
            return None
        wrong = None
        for task in push.tasks:
            command = self._command(task, main)
            if command is not None and self._finishes(task, tree):
                wrong = wrong or self._run(push, command, main, tree, stop)
        if wrong is None:
            self._right.add(push.number)
        return wrong

    def _command(self, task: str, main: str) -> str | None:
        store = self._repository.store
        entry = store.find(store.commit(main).tree, lock_path(task).encode())
        if entry is None:
            return None
        match = _LINE.search(store.read(entry.oid, "blob", _MOST_LOCK).decode("utf-8", "replace"))
        return match[1] if match else None

    def _finishes(self, task: str, tree: str) -> bool:
        """Whether the task's lock and ticket are gone; to give up is to remove the lock alone."""
        out = git.git(
            "ls-tree", "--name-only", tree, "--", lock_path(task), task_path(task),
            at=self._shelf.path, env=self._shelf.env,
        )  # fmt: skip
        return not out.strip()

    def _run(self, push: Waiting, command: str, main: str, tree: str, stop: threading.Event) -> Wrong | None:
        before = self._with_tests(main, tree)
        after = self._commit(tree, main)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self._checker.run, before, command, f"{push.number}-before", stop)
            second = pool.submit(self._checker.run, after, command, f"{push.number}-after", stop)
            was, now = first.result(), second.result()
        wrong = _wrong(command, was, now)
        if wrong is None:
            return None
        # Once more, in case it is flaky: only what went wrong.
        if was.ok:
            was = self._checker.run(before, command, f"{push.number}-before", stop)
        if not now.ok:
            now = self._checker.run(after, command, f"{push.number}-after", stop)
        again = _wrong(command, was, now)
        if again is None:
            self.flaky[push.number] = wrong.log
        return again

    def _with_tests(self, main: str, tree: str) -> str:
        """Main with the tests of the push: a check that is new must fail for what it tests, not for being absent."""
        raw = git.git("diff-tree", "-r", "-z", "--no-renames", main, tree, at=self._shelf.path, env=self._shelf.env)
        parts = raw.split(b"\0")
        lines = []
        for head, path in zip(parts[::2], parts[1::2], strict=False):
            _, mode, _, oid, _ = head.lstrip(b":").split(b" ", 4)
            if is_test(path):
                lines.append(mode + b" " + oid + b"\t" + path)
        if not lines:
            return main
        index = {"GIT_INDEX_FILE": str(self._shelf.path / "own_check.index"), **self._shelf.env}
        git.git("read-tree", main, at=self._shelf.path, env=index)
        git.git("update-index", "-z", "--index-info", at=self._shelf.path, env=index, stdin=b"\0".join(lines) + b"\0")
        return self._commit(git.line("write-tree", at=self._shelf.path, env=index), main)

    def _commit(self, tree: str, parent: str) -> str:
        return git.line(
            "commit-tree", tree, "-p", parent, "-m", "For the gate", at=self._shelf.path, env=self._shelf.env
        )


def _wrong(command: str, was: Result, now: Result) -> Wrong | None:
    if not now.ok:
        return Wrong(
            f"the task's own check fails: {now.reason} (`{command}`, named in its lock); log {now.log}",
            now.lines, now.log,
        )  # fmt: skip
    if was.ok:
        return Wrong(
            f"the task's own check passes without this push too (`{command}`, named in its lock) and proves nothing; "
            f"write one that fails before and passes after; log {was.log}",
            (), was.log,
        )  # fmt: skip
    return None
