"""Many scripts at once in one pool: each gives a job, waits for what came of it, and gives the next."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from team.oracle.compare_runs import Place, Steps
from team.sampler.process import Ended, Job, Pool


def run_all(scripts: Iterable[Callable[[Place], Steps]], places: list[Place]) -> None:
    """Run ``scripts``, as many at once as there are ``places``, each in a place that no other uses meanwhile."""
    feed = _Feed(iter(scripts), places)
    ended = Pool(len(places)).run(feed)
    with contextlib.closing(ended):  # type: ignore[type-var]
        for each in ended:
            feed.tell(each)


class _Feed(Iterator[Job]):
    """The jobs of scripts, each of which has a place of its own and waits for one job before it gives the next.

    Unlike other iterators it may have a next job after it had none: when one has ended. A pool takes it so.
    """

    def __init__(self, scripts: Iterator[Callable[[Place], Steps]], places: list[Place]) -> None:
        self._scripts = scripts
        self._free = list(places)
        self._running: dict[str, tuple[Place, Steps]] = {}
        self._ready: deque[Job] = deque()

    def __next__(self) -> Job:
        while not self._ready:
            if not self._free:
                raise StopIteration
            script = next(self._scripts)
            place = self._free.pop()
            self._go_on(place, script(place), None)
        return self._ready.popleft()

    def tell(self, ended: Ended) -> None:
        place, steps = self._running.pop(ended.key)
        self._go_on(place, steps, ended)

    def _go_on(self, place: Place, steps: Steps, ended: Ended | None) -> None:
        try:
            job = next(steps) if ended is None else steps.send(ended)
        except StopIteration:
            self._free.append(place)
            return
        self._running[job.key] = (place, steps)
        self._ready.append(job)
