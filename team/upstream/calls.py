"""``team claim``, ``team release`` and ``team tasks`` as sessions ask for them at their door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from team.errors import TeamError
from team.names import LOCK_DIR, TASK_DIR, lock_path, nearest_task_name, task_path, task_problem
from team.text import one_line
from team.upstream.claims import Claim
from team.upstream.group import Ground, Group, Job, Step
from team.upstream.landing import Verdict, edit
from team.upstream.objects import REGULAR, TREE, Change, Entry
from team.upstream.pusher import Pusher
from team.upstream.refusal import Refused, age, listed
from team.upstream.tasks import Task, Tasks

_MOST_SHOWN = 200
_AWAY = "`git pull` brings the lock into your clone"


class Calls:
    """Answers the calls; every change goes through the group, as a push does."""

    def __init__(self, group: Group, tasks: Tasks, most: int, clock: Callable[[], float]) -> None:
        self._group, self._tasks, self._most, self._clock = group, tasks, most, clock

    def claim(self, pusher: Pusher, asked: Mapping[str, str]) -> str:
        """Take a task. Raises :class:`TeamError` for a bad name, :class:`Refused` by the rules."""
        task = _task(asked)
        text = one_line(asked.get("note", ""), 300)
        if scope := one_line(asked.get("scope", ""), 200):
            text = f"{text} [{scope}]".strip()
        job = TakeTask(pusher, task, text, self._most, force=asked.get("force") == "1")
        landed = self._group.land(job)
        if landed is None:
            return f"you hold {task} already\n"
        return "".join(f"{line}\n" for line in [f"you hold {task}; {_AWAY}", *landed.notes])

    def release(self, pusher: Pusher, asked: Mapping[str, str]) -> str:
        """Give a task back, finished or not."""
        claims = self._group.claims
        claims.sync()
        held = claims.held_by(pusher.session or "")
        if not asked.get("task") and len(held) != 1:
            raise TeamError(f"you hold {listed(held)}; name the one to release" if held else "you hold no task")
        task = _task(asked) if asked.get("task") else held[0]
        done, reason = asked.get("done") == "1", one_line(asked.get("reason", ""), 300)
        landed = self._group.land(FreeTask(pusher, task, done=done, reason=reason))
        notes = landed.notes if landed is not None else ()
        word = f"{task} is done and free" if done else f"{task} is free again"
        return "".join(f"{line}\n" for line in [f"{word}; `git pull` takes its lock out of your clone", *notes])

    def tasks(self, session: str) -> str:
        """One line a task: state, name, holder or title."""
        now, lines = self._clock(), [f"note: {note}" for note in self._group.claims.lost_by(session)]
        tasks = self._tasks.all()
        lines += [_line(task, session, now) for task in tasks[:_MOST_SHOWN]]
        if len(tasks) > _MOST_SHOWN:
            lines.append(f"and {len(tasks) - _MOST_SHOWN} more; `ls {TASK_DIR} {LOCK_DIR}` after `git pull`")
        return "".join(f"{line}\n" for line in lines or ["no tasks are written down; find the obvious next thing"])


class TakeTask(Job):
    """A claim."""

    def __init__(self, pusher: Pusher, task: str, text: str, most: int, *, force: bool) -> None:
        super().__init__(pusher)
        self.task, self.text, self._most, self._force = task, text, most, force

    def step(self, ground: Ground) -> Step | None:
        """The commit that adds the lock; None where the session holds the task already."""
        claims, task, session = ground.claims, self.task, self.pusher.session or ""
        holder, held, now = claims.holder(task), claims.held_by(session), ground.lander.now()
        if task in held:
            return None
        if holder is not None:
            raise _taken(holder, now)
        if len(held) >= self._most:
            raise Refused("claims", f"you hold {listed(held)}, at most {self._most} at a time; `team release` first")
        released = claims.released(task)
        ticket = ground.desk.store.find(ground.main.tree, task_path(task).encode())
        if released is not None and released.done and ticket is None and not self._force:
            ago = age(now - released.at)
            raise Refused(
                "stale",
                f"{task} was finished by {released.agent} {ago} ago; pick another, or `--force` to redo it",
            )
        lock = Entry(REGULAR, ground.desk.write("blob", f"{self.pusher.name}: {self.text}\n".encode()))
        verdict = _verdict(ground, {task: lock}, claims=[task])
        verdict.texts[task] = self.text
        ground.lander.check_claims(self.pusher, verdict, claims, force=self._force)
        subject = f"Claim {task} ({one_line(self.pusher.name, 60)})"
        return Step(verdict, subject, f"by {self.pusher.name}")


@dataclass(frozen=True)
class _Files:
    """What a release takes away."""

    task: str
    done: bool

    def paths(self) -> dict[bytes, Entry | None]:
        files: dict[bytes, Entry | None] = {lock_path(self.task).encode(): None}
        return files | ({task_path(self.task).encode(): None} if self.done else {})


class FreeTask(Job):
    """A release by the holder."""

    def __init__(self, pusher: Pusher, task: str, *, done: bool, reason: str) -> None:
        super().__init__(pusher)
        self.task, self.done, self.reason = task, done, reason

    def step(self, ground: Ground) -> Step | None:
        """The commit that takes the lock away, and the ticket with it where the task is done."""
        claims, task = ground.claims, self.task
        holder = claims.holder(task)
        if holder is None or holder.session != self.pusher.session:
            whose = "nobody holds it" if holder is None else f"it is held by {holder.agent}"
            raise Refused("held", f"{task} is not yours to release: {whose}")
        tree = edit(ground.desk, ground.main.tree, _Files(task, self.done).paths())
        verdict = Verdict(tree, 1, [], {task: (holder.agent, holder.session)}, "release", False)
        verdict.done = [task] if self.done else []
        how = "finished" if self.done else f"gave up: {self.reason}" if self.reason else "released"
        subject = f"Release {task} ({one_line(self.pusher.name, 60)}): {one_line(how, 120)}"
        return Step(verdict, subject, how if self.reason or self.done else f"by {self.pusher.name}")


def _verdict(ground: Ground, locks: Mapping[str, Entry], claims: list[str]) -> Verdict:
    store, main = ground.desk.store, ground.main.tree
    there = store.find(main, LOCK_DIR.encode())
    if there is not None and there.mode != TREE:
        raise Refused("lock", f"{LOCK_DIR} is no directory on main; remove it there and push, then claim")
    files: dict[bytes, Entry | None] = {lock_path(task).encode(): entry for task, entry in locks.items()}
    tree = edit(ground.desk, main, files)
    changes = [Change(path, store.find(main, path), entry) for path, entry in files.items()]
    ground.lander.check_paths(changes)
    return Verdict(tree, len(changes), claims, {}, "claim", False)


def _task(asked: Mapping[str, str]) -> str:
    name = asked.get("task", "")
    if problem := task_problem(name):
        raise TeamError(f"{one_line(name, 60)!r} is no task name: {problem}; try {nearest_task_name(name)!r}")
    return name


def _taken(holder: Claim, now: float) -> Refused:
    since = age(now - holder.since)
    return Refused("held", f"{holder.task} is held by {holder.agent} since {since}; `team tasks` shows what is open")


def _line(task: Task, session: str, now: float) -> str:
    state, rest = task.state, task.title
    if task.agent is not None:
        since = age(now - (task.since or now))
        mine = task.session == session
        state, rest = ("yours" if mine else "held"), f"{task.agent}, {since}{': ' if rest else ''}{rest}"
    if task.push:
        rest = f"{rest} [{task.push}]"
    if task.state == "blocked":
        rest = f"after {len(task.strikes)} failed sessions, the last: {task.strikes[-1]}"
    return one_line(f"{state} {task.name} {rest}", 300)
