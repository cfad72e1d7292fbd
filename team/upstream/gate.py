"""The gate: checks waiting pushes together on the merged result, finds the guilty, lands the rest.

States of a queued push: waiting -> in a batch -> landed, or refused, or (main moved) waiting again. A batch is a
chain: main, with the first push merged, with the second, and so on; what is checked is a prefix of it. Where the
whole chain is green it lands. Where it is red, the shortest red prefix is searched for, several prefixes at once; all
before its last push land as they were checked, that last push is checked once more beside the next batch, and refused
when it is red again. So first come is first served, and of two that only fail together the later one is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from filelock import FileLock, Timeout

from team import git
from team.config import Gate as Settings
from team.errors import TeamError
from team.ledger import Kind
from team.places import Project
from team.runtimes import EngineLost
from team.text import one_line
from team.upstream import protected
from team.upstream.admission import Admission, queued_ref
from team.upstream.check import Broken, Checker, Result, Stopped
from team.upstream.inspection import Inspector
from team.upstream.landing import Landed, Lander, Verdict
from team.upstream.objects import TREE, Entry, Tree
from team.upstream.own_check import OwnChecks
from team.upstream.paths import fold, shown
from team.upstream.queue import QUEUED, Queue, Waiting
from team.upstream.refusal import Refused, listed
from team.upstream.repository import Repository
from team.upstream.shelf import Shelf

_IDLE_SECONDS = 0.25
_BROKEN_SECONDS = 10.0
_GATHER_SECONDS = 2.0
_MERGE_SECONDS = 30.0
_IDENTS = "author team <team@team.invalid> {when} +0000\ncommitter team <team@team.invalid> {when} +0000"


@dataclass(frozen=True)
class Link:
    """A push and the commit that has it, and all before it in the batch, merged into main."""

    push: Waiting
    commit: str
    tree: str


@dataclass(frozen=True)
class Suspect:
    """The last push of the shortest red prefix: red once, to be checked once more."""

    link: Link
    first: Result


class Moved(Exception):
    """Main is no longer what the push was checked on."""


class Gate:
    """Runs the checks of one upstream. One at a time: whoever holds ``project.gate_lock``."""

    def __init__(
        self,
        project: Project,
        settings: Settings,
        repository: Repository,
        lander: Lander,
        inspector: Inspector,
        admission: Admission,
        checker: Checker,
        *,
        after: Callable[[Waiting], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``after`` is called for each push that got its verdict."""
        self._project, self._settings, self._repository = project, settings, repository
        self._lander, self._inspector, self._admission, self._checker = lander, inspector, admission, checker
        self._queue: Queue = admission.queue
        self._shelf: Shelf = admission.shelf
        self._after, self._clock = after, clock
        self._stop = threading.Event()
        self._suspect: Suspect | None = None
        self._took = 5.0
        """Seconds of the last check."""
        self._green: Tree | None = None
        """What was checked of main when it was last known to be green."""
        self._own = OwnChecks(self._shelf, repository, checker, settings)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Check whatever waits, in a thread of its own, until left. Checks under way then are ended, not judged."""
        thread = threading.Thread(target=self._run, name="gate", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)

    def _run(self) -> None:
        lock = FileLock(self._project.gate_lock)
        while not self._stop.is_set():
            try:
                with lock.acquire(timeout=0.5):
                    self._work()
            except Timeout:
                continue

    def _work(self) -> None:
        busy = False
        while not self._stop.is_set():
            try:
                if not busy:
                    self._gather()
                busy = self.round()
            except Stopped:
                continue
            except (Broken, EngineLost, TeamError, git.GitError, OSError) as e:
                reason = f"the gate cannot check: {one_line(str(e), 300)}"
                self._admission.ledger.append(Kind.ERROR, reason=reason)
                self._stage(self._queue.waiting(QUEUED), one_line(reason, 160))
                self._stop.wait(_BROKEN_SECONDS)
                continue
            if not busy:
                self._stop.wait(_IDLE_SECONDS)

    def _gather(self) -> None:
        """Wait a moment for more where something came: who is left out of a batch waits for a whole check more."""
        count, began = 0, time.monotonic()
        while time.monotonic() - began < min(_GATHER_SECONDS, self._took / 10):
            self._queue.sync()
            if (now := len(self._queue.waiting(QUEUED))) == count:
                return
            count = now
            self._stop.wait(_IDLE_SECONDS)

    # -- one round --------------------------------------------------------------------------------------------

    def round(self) -> bool:
        """Check what waits now, once; returns whether there was anything. Raises :class:`Broken`."""
        self._queue.sync()
        suspect, self._suspect = self._suspect, None
        waiting = self._queue.waiting(QUEUED)
        if suspect is not None and self._queue.find(suspect.link.push.number) is None:
            suspect = None
        others = [w for w in waiting if suspect is None or w.number != suspect.link.push.number]
        if not waiting:
            self._tidy()
            return False
        chain = self._chain(others[: self._settings.batch])
        points = [len(chain)] if chain else []
        if suspect is not None:  # a bad push is known of: spend the other places on finding the next one
            points = sorted({*points, *_spread(0, len(chain), self._settings.parallel - 2)})
        beside, results = self._check(chain, points, suspect)
        if suspect is not None and self._retried(suspect, *beside):
            return True
        green, red = 0, len(chain) + 1
        green, red = _narrow(results, green, red)
        while red <= len(chain) and red - green > 1:
            _, more = self._check(chain, _spread(green, red, self._settings.parallel), None)
            results |= more
            green, red = _narrow(results, green, red)
        landed = self._land(chain[:green], results.get(green))
        if red <= len(chain) and landed:
            self._suspect = Suspect(chain[red - 1], results[red])
        return True

    def _tell_flaky(self, push: Waiting, log: str) -> None:
        self._admission.ledger.append(
            Kind.GATE_FLAKY, agent=push.agent, session=push.session, number=push.number, log=log
        )

    def _retried(self, suspect: Suspect, again: Result, main: Result | None = None) -> bool:
        """The second check of a suspect. Returns whether it was green, so that main has moved under the others."""
        push = suspect.link.push
        if again.ok:
            self._tell_flaky(push, suspect.first.log)
            self._land([suspect.link], again, flaky=suspect.first.log)
            return True
        if main is not None and not main.ok:
            reason = f"{again.reason}, but main fails it without this push too, so mend that first; log {again.log}"
        else:
            reason = f"{again.reason} on the merge with main, twice; log {again.log}"
        self._refuse(push, reason, again.lines, again.log)
        return False

    # -- the chain --------------------------------------------------------------------------------------------

    def _chain(self, pushes: Sequence[Waiting]) -> list[Link]:
        """Main with each push merged after the other. A push that conflicts with main is refused; one that only
        conflicts with those before it waits for them."""
        main = self._repository.main()
        chain: list[Link] = []
        on = main
        for push in pushes:
            if self._shelf.is_in(push.commit, main):
                # It landed, and a crash kept its verdict from being recorded: no check may refuse it any more.
                self._decide(push, landed=True, reason="main has this commit")
                continue
            try:
                tree, conflicts = self._merge(on, push.commit)
                if conflicts and on != main:
                    _, conflicts = self._merge(main, push.commit)
                    if not conflicts:
                        self._stage([push], "waits for a push before it that it conflicts with")
                        continue
            except git.GitError as e:  # gone, or no end to it: nobody else's push may wait for that
                self._refuse(push, f"it cannot be merged with main ({one_line(e.stderr, 200)}); push again", ())
                continue
            if conflicts:
                files = listed([shown(name) for name in conflicts])
                pull = push.pusher().pull
                self._refuse(push, f"conflicts with main in {files}; {pull}, resolve, commit, push again", ())
                continue
            wrong = self._own.judge(push, main, on, tree, self._stop)
            if wrong is not None:
                self._refuse(push, wrong.reason, wrong.lines, wrong.log)
                continue
            on = self._commit(tree, on, push.commit)
            chain.append(Link(push, on, tree))
        return chain

    def _merge(self, ours: str, theirs: str) -> tuple[str, list[bytes]]:
        code, out = git.git_status(
            "-c", "merge.renameLimit=1000",
            "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs,
            at=self._shelf.path, env=self._shelf.env, seconds=_MERGE_SECONDS, ok=(0, 1),
        )  # fmt: skip
        tree, *names = out.split(b"\0")
        conflicts = [name for name in names if name] if code else []
        if code and not conflicts:  # git's way to say that there is no such commit
            raise git.GitError(["merge-tree"], code, "its objects are gone")
        return tree.decode().strip(), conflicts

    def _commit(self, tree: str, ours: str, theirs: str) -> str:
        idents = _IDENTS.format(when=int(self._clock()))
        text = f"tree {tree}\nparent {ours}\nparent {theirs}\n{idents}\n\nFor the gate\n"
        return git.line(
            "hash-object", "-t", "commit", "-w", "--stdin",
            at=self._shelf.path, env=self._shelf.env, stdin=text.encode(),
        )  # fmt: skip

    # -- checks -----------------------------------------------------------------------------------------------

    def _check(
        self, chain: Sequence[Link], points: Sequence[int], suspect: Suspect | None
    ) -> tuple[list[Result], dict[int, Result]]:
        """Check these prefixes, and beside them the suspect once more, and main itself where it may be the cause.

        Prefixes that no longer matter are ended.
        """
        results: dict[int, Result] = {}
        beside: list[Future[Result]] = []
        stops = {point: threading.Event() for point in points}
        self._stage([link.push for link in chain], _doing(len(chain), len(points)))
        with ThreadPoolExecutor(len(points) + 2) as pool:
            jobs = {pool.submit(self._run_check, chain[:p], stops[p]): p for p in points}
            if suspect is not None:
                self._stage([suspect.link.push], "the check failed; once more, in case it is flaky")
                beside.append(pool.submit(self._run_check, [suspect.link], self._stop))
                if not self._main_is_green():
                    beside.append(pool.submit(self._run_main))
            try:
                for job in as_completed(jobs):
                    point = jobs[job]
                    try:
                        result = job.result()
                    except Stopped:
                        if self._stop.is_set():
                            raise
                        continue
                    results[point] = result
                    for other, stop in stops.items():
                        if (other > point) if not result.ok else (other < point):
                            stop.set()
            except BaseException:
                for stop in stops.values():
                    stop.set()
                raise
            return [job.result() for job in beside], results

    def _main_is_green(self) -> bool:
        main = self._repository.store.commit(self._repository.main()).tree
        return self._green is not None and self._green == self._tested_part(self._tree(main))

    def _run_main(self) -> Result:
        main = self._repository.main()
        result = self._checker.run(main, self._settings.check, "main", self._stop)
        if result.ok:
            self._green = self._tested_part(self._tree(main))
        return result

    def _run_check(self, links: Sequence[Link], stop: threading.Event) -> Result:
        link = links[-1]
        both = _Either(stop, self._stop)
        result = self._counted(links, self._checker.run(link.commit, self._settings.check, str(link.push.number), both))
        self._took = result.seconds
        self._admission.ledger.append(
            Kind.GATE_RUN, pushes=[item.push.number for item in links], commit=link.commit, ok=result.ok,
            reason=result.reason, seconds=result.seconds, tests=result.tests, log=result.log,
        )  # fmt: skip
        return result

    def _counted(self, links: Sequence[Link], result: Result) -> Result:
        """A green check that ran no test, or fewer than before, is red, but for what a person has looked at."""
        if not result.ok or result.tests is None or any(i.push.approved or i.push.session is None for i in links):
            return result
        before = self._queue.tests()
        if result.tests > 0 and result.tests >= before:
            return result
        why = "the check ran no test"
        if result.tests:
            why = f"the check ran {result.tests} tests, {before} before; fewer may land by the person's own push only"
        return Result(False, why, result.seconds, result.tests, result.lines, result.log)

    # -- verdicts ---------------------------------------------------------------------------------------------

    def _land(self, links: Sequence[Link], result: Result | None, *, flaky: str = "") -> bool:
        """Land what was checked, in order; False where main had moved, so that the rest has to wait once more."""
        for link in links:
            try:
                landed = self._land_one(link)
            except Moved:
                return False
            except Refused as e:
                self._refuse(link.push, e.reason, ())
                continue
            self._green = self._tested_part(self._tree(link.tree))
            tests = result.tests if result else None
            own = self._own.flaky.pop(link.push.number, "")
            if own:
                self._tell_flaky(link.push, own)
            more = {"tests": tests, "log": result.log if result else "", "flaky": flaky or own}
            if landed is None:
                self._decide(link.push, landed=True, reason="main has this commit", **more)
                continue
            self._decide(
                link.push, landed=True, reason=f"landed on main as {landed.commit[:10]} (landing {landed.number})",
                landing=landed.number, old=landed.old, commit=landed.commit, claims=list(landed.claims),
                releases=list(landed.releases), notes=list(landed.notes), **more,
            )  # fmt: skip
        return True

    def _land_one(self, link: Link) -> Landed | None:
        pusher = link.push.pusher()
        with self._lander.quarantine() as quarantine:
            self._shelf.fill(quarantine, link.push.commit)
            push = self._inspector.inspect(pusher, quarantine, link.push.commit)
            push.force = link.push.force

            def admit(allowed: Verdict) -> None:
                if pusher.session is not None and not link.push.approved:
                    self._check_protected(allowed)
                if self._tested_part(quarantine.store.tree(allowed.tree)) != self._tested_part(self._tree(link.tree)):
                    raise Moved

            return self._lander.land(pusher, push, quarantine, admit) if push.commits else None

    def _check_protected(self, allowed: Verdict) -> None:
        """What changed nothing protected when it was queued may do so now: where main put that back meanwhile."""
        if paths := protected.touched([shown(c.path) for c in allowed.changes], self._admission.globs):
            raise Refused(
                "protected", f"on main as it is now this would change {listed(paths, 3)}; `git pull`, and push again"
            )

    def _tree(self, oid: str) -> Tree:
        out = git.git("ls-tree", "-z", oid, at=self._shelf.path, env=self._shelf.env)
        entries = (line.partition(b"\t") for line in out.split(b"\0") if line)
        return {name: Entry(head.split()[0].lstrip(b"0"), head.split()[2].decode()) for head, _, name in entries}

    def _tested_part(self, tree: Tree) -> Tree:
        """All but locks and tickets, which land without waiting for a check."""
        return {
            name: entry
            for name, entry in tree.items()
            if entry.mode != TREE or fold(name.decode("utf-8", "replace")) not in ("current_tasks", "tasks")
        }

    def _refuse(self, push: Waiting, reason: str, lines: Sequence[str], log: str = "") -> None:
        self._admission.ledger.append(
            Kind.PUSH_REFUSED, agent=push.agent, session=push.session, ref="refs/for/main", reason=reason, rule="gate"
        )
        self._decide(push, landed=False, reason=reason, lines=list(lines), log=log)

    def _decide(self, push: Waiting, **verdict: object) -> None:
        self._queue.decide(push, **verdict)  # type: ignore[arg-type]
        self._admission.stages.pop(push.number, None)
        self._shelf.drop(queued_ref(push.number))
        self._after(push)

    def _stage(self, pushes: Sequence[Waiting], text: str) -> None:
        for push in pushes:
            self._admission.stages[push.number] = text

    def _tidy(self) -> None:
        """Nobody waits: what was merged for checks can go."""
        if not self._shelf.path.exists():
            return
        with self._lander.turn.taken():
            self._queue.sync()
            if not self._queue.waiting(QUEUED):
                self._shelf.clear()


class _Either(threading.Event):
    """Set when it is set itself or when another one is."""

    def __init__(self, *others: threading.Event) -> None:
        super().__init__()
        self._others = others

    def is_set(self) -> bool:
        return super().is_set() or any(other.is_set() for other in self._others)


def _spread(low: int, high: int, count: int) -> list[int]:
    """Up to ``count`` whole numbers between ``low`` and ``high``, evenly spread, both ends left out."""
    inside = high - low - 1
    count = min(count, inside)
    return sorted({low + (inside + 1) * n // (count + 1) or low + 1 for n in range(1, count + 1)}) if count > 0 else []


def _narrow(results: dict[int, Result], green: int, red: int) -> tuple[int, int]:
    """The shortest prefix known to be red, and the longest green one before it."""
    red = min([red, *(point for point, result in results.items() if not result.ok)])
    green = max([green, *(point for point, result in results.items() if result.ok and point < red)])
    return green, red


def _doing(count: int, checks: int) -> str:
    what = "the check runs on the merge with main" if count == 1 else f"the check runs on {count} pushes together"
    return what if checks <= 1 else f"the batch of {count} is red; {checks} checks look for the guilty push"
