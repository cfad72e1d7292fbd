"""What a comparison established, for people, for machines and for the next comparison."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from team.text import one_line


@dataclass(frozen=True)
class Group:
    """All inputs on which reference and candidate differ in the same way; probably one bug, so one task."""

    signature: str
    task: str
    count: int
    inputs: tuple[str, ...]
    """Some of them."""
    name: str
    """Of the one that the example comes from."""
    size: int
    """Its bytes."""
    example: bytes
    """The smallest input known that shows the difference; empty where that is over 8 MiB (or an empty input does)."""
    minimal: bool
    """No character can be left out of the example; else the bounds ended the search, or it was not tried."""
    checks: int
    """Smaller inputs tried."""
    excerpt: str
    """The first lines that differ on the example."""

    def to_json(self) -> dict[str, Any]:
        """For :meth:`from_json`."""
        return asdict(self) | {"inputs": [*self.inputs], "example": base64.b64encode(self.example).decode()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Group:
        """What :meth:`to_json` made. Raises ValueError, KeyError or TypeError for anything else."""
        return cls(**data | {"inputs": tuple(data["inputs"]), "example": base64.b64decode(data["example"])})


@dataclass(frozen=True)
class Broken:
    """An input that says nothing of the candidate."""

    name: str
    why: str


@dataclass(frozen=True)
class CompareReport:
    """What came of all inputs."""

    groups: tuple[Group, ...]
    """The most frequent first."""
    total: int
    """Inputs."""
    same: int
    """Inputs on which nothing differs."""
    broken: tuple[Broken, ...]
    """Inputs on which the reference crashes, does not end or cannot be run."""
    flaky: tuple[Broken, ...]
    """Inputs on which two runs of the reference differ; ``why`` names the setting that may mend it."""
    cut: int
    """Inputs with more output than is compared whole."""
    failed: int
    """Inputs on which the reference exits with an error of its own, which then is what the candidate must do."""

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self) | {
            "groups": [group.to_json() for group in self.groups],
            "broken": [asdict(each) for each in self.broken],
            "flaky": [asdict(each) for each in self.flaky],
        }

    def lines(self) -> Iterator[str]:
        """For a person: few."""
        differing = sum(group.count for group in self.groups)
        if not self.groups and self.same:
            yield f"no difference on {self.same} of {_inputs(self.total)}"
        elif self.groups:
            yield f"{differing} of {_inputs(self.total)} differ (kinds: {len(self.groups)}), {self.same} do not"
        for group in self.groups:
            yield f"{group.task}  ({_inputs(group.count)}, e.g. {one_line(group.name, 60)})"
            yield f"  {one_line(group.signature, 160)}"
            yield from (f"  {line}" for line in group.excerpt.splitlines())
        yield from _few("the reference says nothing on", self.broken)
        yield from _few("the reference is flaky on", self.flaky)
        if self.failed == self.total:
            yield "the reference exits with an error on every input: is its command right?"
        if self.cut:
            yield f"{_inputs(self.cut)} with output over 1 MiB: the first and last 512 KiB and the length are compared"


def _few(what: str, inputs: tuple[Broken, ...]) -> Iterator[str]:
    if inputs:
        reasons = list(dict.fromkeys(one_line(each.why, 160) for each in inputs))
        yield f"{what} {_inputs(len(inputs))}, e.g. {one_line(inputs[0].name, 60)}: {reasons[0]}"
        yield from (f"  also: {reason}" for reason in reasons[1:3])


def _inputs(count: int) -> str:
    return f"{count} input{'s' * (count != 1)}"
