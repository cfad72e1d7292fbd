"""Looks, for a new claim, at what is held and what was finished lately, under whatever name."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from dataclasses import dataclass

from team.text import one_line
from team.upstream.claims import Claim, Claims, Released
from team.upstream.objects import TREE, Missing, Store
from team.upstream.refusal import Refused, age
from team.upstream.similar import REFUSE, WARN, Named, Vocabulary, likeness, places_of, words

FORCE = "`git push -o force-claim` or `team claim --force`"
_LATELY = 2 * 3600.0
"""Seconds for which a finished task speaks against one like it."""
_MOST_PATHS, _MOST_COMPARED, _REFRESH = 20_000, 50, 300.0


@dataclass(frozen=True)
class Kin:
    """A task like the one that is claimed."""

    likeness: float
    task: str
    agent: str
    ago: str
    held: bool

    def __str__(self) -> str:
        if self.held:
            return f"{self.task}, held by {self.agent} since {self.ago}"
        return f"{self.task}, finished by {self.agent} {self.ago} ago"


class Alike:
    """Knows the words of all tasks so far, and of the tree of main."""

    def __init__(self, store: Store) -> None:
        self._store, self._vocabulary = store, Vocabulary()
        self._names: OrderedDict[str, None] = OrderedDict()
        self._by_word: dict[str, dict[str, None]] = defaultdict(dict)
        self._read = float("-inf")

    def check(self, task: str, text: str, tree: str, claims: Claims, now: float, *, force: bool) -> list[str]:
        """What the claimer should know of tasks like ``task``. Raises :class:`Refused` for the same one, without
        ``force``."""
        self._look(tree)
        self._learn(task)
        kin = self._nearest(task, text, claims, now)
        if kin is None or kin.likeness < WARN:
            return []
        if kin.likeness >= REFUSE and not force:
            raise Refused(
                "similar", f"{task} looks like the same task as {kin}; pick another, or {FORCE} if it really differs"
            )
        word = "forced:" if kin.likeness >= REFUSE else "warning:"
        return [f"{word} {task} may be the same task as {kin}; look, and release it if so"]

    def _nearest(self, task: str, text: str, claims: Claims, now: float) -> Kin | None:
        mine, best = _named(task, text), None
        for other in self._candidates(task, claims, now):
            holder = claims.holder(other)
            known: Claim | Released | None = holder or claims.released(other)
            if known is None:
                continue
            score = likeness(mine, _named(other, known.text), self._vocabulary)
            if best is None or score > best.likeness:
                at = holder.since if holder is not None else known.at if isinstance(known, Released) else now
                best = Kin(score, other, known.agent, age(now - at), holder is not None)
        return best

    def _candidates(self, task: str, claims: Claims, now: float) -> list[str]:
        """Tasks held, or finished lately, that share a word which is not in most tasks."""
        found: dict[str, None] = {}
        mine = sorted(set(words(task)), key=lambda word: len(self._by_word[word]))
        for word in mine:
            for other in reversed(self._by_word[word]):
                if len(found) >= _MOST_COMPARED:
                    return list(found)
                if other != task and other not in found and _counts(other, claims, now):
                    found[other] = None
            if len(self._by_word[word]) > 10 * _MOST_COMPARED:
                break
        return list(found)

    def _learn(self, task: str) -> None:
        if task in self._names:
            return
        self._names[task] = None
        self._vocabulary.add(task)
        for word in set(words(task)):
            self._by_word[word][task] = None

    def learn_all(self, claims: Claims) -> None:
        """Take in the names of all tasks that were ever claimed."""
        for task in claims.names():
            self._learn(task)

    def _look(self, tree: str) -> None:
        """Read the tree's paths now and then: its directories hardly change."""
        if time.monotonic() - self._read < _REFRESH:
            return
        self._read = time.monotonic()
        paths: list[str] = []
        _walk(self._store, tree, "", paths)
        self._vocabulary.places, self._vocabulary.files = places_of(paths)


def _counts(task: str, claims: Claims, now: float) -> bool:
    if claims.holder(task) is not None:
        return True
    released = claims.released(task)
    return released is not None and released.done and now - released.at < _LATELY


def _named(task: str, text: str) -> Named:
    """The name with the lock's text; a scope stands in brackets at its end, as ``team claim`` writes it."""
    said, _, scope = text.removesuffix("]").rpartition(" [") if text.endswith("]") else (text, "", "")
    return Named(task, one_line(said, 300), tuple(scope.split()))


def _walk(store: Store, tree: str, prefix: str, paths: list[str]) -> None:
    try:
        entries = store.tree(tree)
    except Missing:
        return
    for name, entry in entries.items():
        if len(paths) >= _MOST_PATHS:
            return
        path = prefix + name.decode("utf-8", "replace")
        if path in ("current_tasks", "tasks"):
            continue
        if entry.mode == TREE:
            _walk(store, entry.oid, path + "/", paths)
        else:
            paths.append(path)
