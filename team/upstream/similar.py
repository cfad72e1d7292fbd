"""Whether two tasks are the same under different names, judged by words: how rare they are, and which name places.

Words that both names share speak for the same task, the more the rarer they are in this project's own tasks. What
speaks against it is what differs: two different directories of the tree, two members of a series (``f32``, ``f64``;
``task_0412``, ``task_0413``), opposites (``load``, ``store``), one word in the place of another in names that are
equal otherwise, or a rare word on either side where little but common words is shared.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import SequenceMatcher

WARN, REFUSE = 0.56, 0.87
"""From these likenesses on a claim is warned about, and refused."""
_STOP = frozenset(
    "a an and are as at be by for from in into is it its of on or so that the then this to too up via when where with "
    "not no all any some".split()
)
# What one does to a thing says little about which thing it is.
_DOING = frozenset(
    "add adjust allow change check clean cleanup complete correct create do enable enhance ensure extend finish fix "
    "get handle implement improve introduce make mend more new patch prevent refactor remove repair replace resolve "
    "review rework rewrite solve support sync update use work write wip again bug issue problem task comprehensive "
    "initial final proper properly v".split()
)
# Names that differ in two of these are two tasks.
_OPPOSITES = (
    "left right", "inner outer", "first last", "min max", "input output", "read write", "load save store", "get set",
    "add drop remove delete", "create delete destroy", "import export", "push pull", "upload download", "open close",
    "start stop", "enable disable", "encode decode", "encrypt decrypt", "compress decompress", "lock unlock",
    "login logout signup", "caller callee", "client server", "signed unsigned", "row column",
    "horizontal vertical", "source target",
)  # fmt: skip
_DOING_WEIGHT, _LETTER_WEIGHT, _PLACE_WEIGHT, _FILE_WEIGHT = 0.1, 0.35, 0.35, 0.6
_IN_PLACE_WEIGHT = 0.25
_SUFFIXES = ("ations", "ation", "izing", "ions", "ings", "ers", "ing", "ion", "ed", "er", "es", "s")
_WORD = re.compile(r"[a-z]+[0-9]*|[0-9]+[a-z]*")
_NUMBERED = re.compile(r"([a-z]*)([0-9]+)([a-z]*)\Z")


@dataclass(frozen=True)
class Named:
    """A task: its name, what its lock says, and the globs that it declares to change."""

    name: str
    text: str = ""
    scope: tuple[str, ...] = ()


@dataclass
class Vocabulary:
    """How often words occur in this project's tasks, and which of them name directories of its tree."""

    counts: Counter[str] = field(default_factory=Counter)
    names: int = 0
    places: frozenset[str] = frozenset()
    """Words that name directories."""
    files: frozenset[str] = frozenset()
    """Words that name several files."""

    @classmethod
    def of(cls, names: Iterable[str], paths: Iterable[str] = ()) -> Vocabulary:
        """From the names of all tasks known, and the paths of the tree."""
        made = cls()
        made.places, made.files = places_of(paths)
        for name in dict.fromkeys(names):
            made.add(name)
        return made

    def add(self, name: str) -> None:
        """Count the words of one more task."""
        self.names += 1
        self.counts.update(set(words(name)))

    def weight(self, word: str) -> float:
        """How much a word tells, from near 0 (in every task) to 1 (in no other)."""
        if word in _DOING:
            return _DOING_WEIGHT
        here = _PLACE_WEIGHT if word in self.places else _FILE_WEIGHT if word in self.files else 1.0
        here *= _LETTER_WEIGHT if len(word) == 1 else 1.0
        return self.rarity(word) * here

    def rarity(self, word: str) -> float:
        """How rare a word is in names, from near 0 to 1, whatever it means."""
        # As if ten more tasks without the word were known: few tasks do not make a word common.
        return max(0.05, math.log((self.names + 10) / max(1, self.counts[word])) / math.log(self.names + 10))


def words(text: str) -> list[str]:
    """The stems of the words in ``text``, without those that carry no meaning, in order."""
    return [stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP]


def stem(word: str) -> str:
    """``word`` without the ending of its plural or verb form; short and numbered words stay."""
    if word in _DOING or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 5:
        return word[:-3] + "y"
    if word.endswith("ss"):
        return word
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 4 - (suffix == "s"):
            short = word[: -len(suffix)]
            return short[:-1] if len(short) > 4 and short[-1] == short[-2] and short[-1] not in "ls" else short
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def places_of(paths: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Words that name directories of the tree, and words that name several of its files."""
    directories: set[str] = set()
    files: Counter[str] = Counter()
    for path in paths:
        *parts, name = path.split("/")
        for part in parts:
            directories.update(words(part))
        files.update(set(words(name.rsplit(".", 1)[0])))
    return frozenset(directories), frozenset(word for word, count in files.items() if count >= 2)


def likeness(first: Named, second: Named, vocabulary: Vocabulary) -> float:
    """From 0 (nothing in common) to 1 (the same)."""
    one, two = words(first.name), words(second.name)
    shared, left, right = _matched(one, two)
    if _series(left, right) or (_counted(one) == _counted(two) and _numbers(one) != _numbers(two)):
        return 0.0
    left, right = ([word for word in side if not _is_version(word)] for side in (left, right))
    weight = vocabulary.weight
    places_left, places_right = _places(left, vocabulary), _places(right, vocabulary)
    if (places_left and places_right) or _opposed(left, right):
        return 0.0
    common = sum(weight(word) for word in shared)
    only_left, only_right = sum(map(weight, left)), sum(map(weight, right))
    # A name may say more than another; it is what both say of their own that tells them apart.
    apart = min(only_left, only_right) + 0.25 * max(only_left, only_right)
    # One that stands alone may be general where the other is about one place.
    if places_left or places_right:
        apart += 0.25
    if replaced := _replaced(one, two):  # these tell apart in full, even where the words say little elsewhere
        less, more = sorted(map(vocabulary.rarity, replaced))
        apart = max(apart, less + 0.25 * more) + _IN_PLACE_WEIGHT
    score = common / (common + apart) if common else 0.0
    score = _with_texts(score, first, second, vocabulary)
    return score if _near(shared, left, right) else min(score, REFUSE - 0.01)


def _with_texts(score: float, first: Named, second: Named, vocabulary: Vocabulary) -> float:
    """What the locks say may tell alike names apart, or bring others together."""
    if first.scope and second.scope and not overlap(first.scope, second.scope):
        return score * 0.5
    told = [set(words(named.text)) - set(words(named.name)) - _DOING for named in (first, second)]
    if min(len(told[0]), len(told[1])) < 3:
        return score
    shared = sum(map(vocabulary.weight, told[0] & told[1]))
    least = min(sum(map(vocabulary.weight, told[0])), sum(map(vocabulary.weight, told[1])))
    return min(1.0, score + 0.3 * (shared / least - 0.25)) if score >= 0.3 else score


def overlap(first: Iterable[str], second: Iterable[str]) -> bool:
    """Whether two declared scopes (globs) may name the same file."""
    return any(_globs_meet(one, two) for one in first for two in second)


def _globs_meet(one: str, two: str) -> bool:
    if fnmatch.fnmatchcase(one, two) or fnmatch.fnmatchcase(two, one):
        return True
    fixed = [re.split(r"[*?\[]", glob, maxsplit=1)[0] for glob in (one, two)]
    wild = [len(f) < len(glob) for f, glob in zip(fixed, (one, two), strict=True)]
    return (wild[0] and fixed[1].startswith(fixed[0])) or (wild[1] and fixed[0].startswith(fixed[1]))


def _matched(one: list[str], two: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Words that both have, and those of each alone."""
    left, right = list(dict.fromkeys(one)), list(dict.fromkeys(two))
    shared = [word for word in left if word in right]
    left, right = [w for w in left if w not in shared], [w for w in right if w not in shared]
    for word in list(left):
        other = next((o for o in right if _akin(word, o)), None)
        if other is not None:
            left.remove(word)
            right.remove(other)
            shared.append(word)
    return shared, left, right


def _akin(one: str, two: str) -> bool:
    """Whether one word is short for the other, or misspelt."""
    if not (one.isalpha() and two.isalpha()) or (one, two) in _OPPOSED:
        return False
    short, long = sorted((one, two), key=len)
    if len(short) >= 4 and len(long) >= len(short) + 2 and long.startswith(short):  # not caller and callee
        return True
    return len(short) >= 6 and SequenceMatcher(None, short, long).ratio() >= 0.88


def _series(left: list[str], right: list[str]) -> bool:
    """Whether the words that differ are two members of a series: alike but for their numbers."""
    kinds = [{(m[1], m[3]): m[2] for word in side if (m := _NUMBERED.match(word))} for side in (left, right)]
    return any(kind in kinds[1] for kind in kinds[0])


def _opposed(left: list[str], right: list[str]) -> bool:
    """Whether the words that differ hold two opposites."""
    return any(a in left and b in right for a, b in _OPPOSED)


def _replaced(one: list[str], two: list[str]) -> tuple[str, str] | None:
    """The word in the one name that stands where another one stands in a name that is equal otherwise."""
    if len(one) != len(two):
        return None
    differ = [(a, b) for a, b in zip(one, two, strict=True) if a != b and not _akin(a, b)]
    return differ[0] if len(differ) == 1 and _tells([*differ[0]]) else None


def _near(shared: list[str], left: list[str], right: list[str]) -> bool:
    """Whether one name says all that the other says, and little more."""
    less, more = sorted((len(_tells(left)), len(_tells(right))))
    return less == 0 and 3 * more <= len(_tells(shared))


def _tells(side: list[str]) -> list[str]:
    """The words that tell which thing it is."""
    return [word for word in side if word not in _DOING and not _is_version(word)]


def _counted(side: list[str]) -> list[str]:
    """The words with every number left open: what all members of a series share."""
    return [re.sub(r"[0-9]+", "#", word) for word in side]


def _numbers(side: list[str]) -> list[str]:
    return [number for word in side for number in re.findall(r"[0-9]+", word)]


def _is_version(word: str) -> bool:
    """``v2``: where the other name has none, the same once more."""
    return re.fullmatch(r"v[0-9]{1,2}", word) is not None


def _places(side: list[str], vocabulary: Vocabulary) -> list[str]:
    return [word for word in side if word in vocabulary.places]


_OPPOSED = frozenset((stem(a), stem(b)) for group in map(str.split, _OPPOSITES) for a in group for b in group if a != b)
