"""What two outputs may differ in without being different: addresses, times, temporary paths, the order of lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from team.errors import TeamError
from team.text import one_line

NO_STDERR = "no_stderr"
"""The built-in that leaves standard error out of the comparison: two implementations word their errors differently."""
DIGITS = 6

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
_PATH = re.compile(r"(?:/private)?(?:/var)?/(?:tmp|dev/shm|var/folders)/[^\s'\"`:;,()<>]+")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
_TIMES = re.compile(
    rf"\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK})?(?:Z|[ ]?[+-]\d\d:?\d\d)?"
    rf"|\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?[ ]+)?(?:(?:{_MONTHS})[ ]+\d{{1,2}}|\d{{1,2}}[ ]+(?:{_MONTHS}))\b"
    rf"(?:[ ,]+\d{{4}})?(?:[ ,]+{_CLOCK})?(?:[ ]+[A-Z]{{3,4}}\b)?(?:[ ]+\d{{4}}\b)?"
    rf"|\b{_CLOCK}\b"
    r"|\b\d+(?:\.\d+)?[ ]?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)\b"
    r"|\b1[5-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?\b"  # seconds, milli-, micro-, nanoseconds since 1970
)
_FLOAT = re.compile(r"(?<![\w.])[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?(?![\w.])")


def _sorted_lines(text: str) -> str:
    return "".join(f"{line}\n" for line in sorted(text.splitlines()))


def _rounded(digits: int) -> Callable[[str], str]:
    return lambda text: _FLOAT.sub(lambda found: f"{float(found[0]):.{digits}g}", text)


# In the order in which they are applied.
_BUILTIN: dict[str, Callable[[str], str]] = {
    "paths": lambda text: _PATH.sub("/tmp/PATH", text),
    "addresses": lambda text: _ADDRESS.sub("0xADDRESS", text),
    "times": lambda text: _TIMES.sub("TIME", text),
    "floats": _rounded(DIGITS),
    "sorted": _sorted_lines,
}


class Normaliser:
    """Makes of an output what is compared: first the user's replacements in their order, then the built-in ones."""

    def __init__(self, replace: Iterable[Sequence[str]] = (), builtin: Iterable[str] = ()) -> None:
        """``replace``: pairs of a regular expression (``^`` and ``$`` match at lines) and what comes in its place.
        ``builtin``: of ``paths``, ``addresses``, ``times``, ``floats`` (``floats:3`` for three significant digits,
        else six), ``sorted`` and ``no_stderr``.

        Raises TeamError for what is none of them.
        """
        self.builtin = frozenset(builtin)
        self._replace = [_compiled(pair) for pair in replace]
        steps = dict(map(_step, self.builtin - {NO_STDERR}))
        self._steps = [steps[name] for name in _BUILTIN if name in steps]

    @property
    def stderr(self) -> bool:
        """Whether standard error counts."""
        return NO_STDERR not in self.builtin

    def __call__(self, text: str) -> str:
        for pattern, instead in self._replace:
            text = pattern.sub(instead, text)
        for step in self._steps:
            text = step(text)
        return text


def suggest(used: Iterable[str], pairs: Sequence[tuple[str, str]]) -> str:
    """A setting by which the two texts of each pair become equal, where a built-in does it; else empty.

    ``used``: the built-ins that are on already.
    """
    on = {name.partition(":")[0] for name in used}
    off = [name for name in _BUILTIN if name not in on]
    # Sorting hides most, so it is tried last; all but that together before it.
    for names in [[name] for name in off if name != "sorted"] + [[n for n in off if n != "sorted"], ["sorted"], off]:
        normal = Normaliser(builtin=names)
        if names and all(normal(one) == normal(other) for one, other in pairs):
            words = ", ".join(f'"{name}"' for name in [*sorted(used), *names])
            return f"builtin = [{words}]"
    return ""


def _compiled(pair: Sequence[str]) -> tuple[re.Pattern[str], str]:
    if len(pair) != 2:
        raise TeamError("normalise: each entry is a pair [pattern, replacement]")
    pattern, instead = pair
    try:
        compiled = re.compile(pattern, re.M)
        compiled.sub(instead, "")
    except (re.error, IndexError) as error:
        raise TeamError(f"normalise: '{one_line(pattern, 60)}' with '{one_line(instead, 40)}': {error}") from None
    return compiled, instead


def _step(name: str) -> tuple[str, Callable[[str], str]]:
    kind, colon, digits = name.partition(":")
    if kind not in _BUILTIN or (colon and kind != "floats"):
        names = ", ".join([*_BUILTIN, NO_STDERR])
        raise TeamError(f"builtin: '{one_line(name, 40)}' is no normaliser; there are {names}")
    if not colon:
        return kind, _BUILTIN[kind]
    if not re.fullmatch(r"[1-9]|1\d", digits):
        raise TeamError(f"builtin: '{one_line(name, 40)}': after 'floats:' comes a number of digits from 1 to 19")
    return kind, _rounded(int(digits))
