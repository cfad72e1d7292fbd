"""``team oracle compare``: compare mode as a command, each kind of difference a task that can be claimed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from team.errors import TeamError
from team.oracle import trees
from team.oracle.compare import CompareSettings, compare
from team.oracle.compare_report import CompareReport, Group
from team.oracle.flow import Claim
from team.oracle.memory import Culprit
from team.oracle.settings import OracleSettings
from team.sampler.place import half_of_memory
from team.text import one_line

_SHOWN = 11
_KEPT = "compare.json"


def run(root: Path, settings: OracleSettings, claim: Claim | None, *, as_json: bool) -> int:
    """Compare, print, and with ``claim`` claim the first kind of difference that nobody works on. Exit code 1 where
    anything differs."""
    table = settings.compare
    if not table.reference or not table.candidate:
        raise TeamError("[oracle.compare] reference and candidate are not set: name both commands")
    place = root / settings.directory
    memory = trees.home(root) / _KEPT
    found = compare(
        place,
        CompareSettings(
            **vars(table),
            timeout=settings.timeout,
            memory=settings.memory or half_of_memory(),
            jobs=settings.jobs,
        ),
        lambda text: print(text, file=sys.stderr, flush=True),
        _known(memory),
    )
    memory.write_text(json.dumps([group.to_json() for group in found.groups]), "utf-8")
    examples = _examples(trees.home(root) / "examples", found)
    mine = _claim(found, claim) if claim is not None else None
    if as_json:
        document = found.to_json() | {"claimed": mine, "examples": {task: str(path) for task, path in examples.items()}}
        print(json.dumps(document))
    else:
        print("\n".join(_lines(found, mine, examples)))
    return 1 if found.groups else 0


def _claim(found: CompareReport, claim: Claim) -> str | None:
    """The task that is the caller's now."""
    for group in found.groups:
        if claim(Culprit((group.name,), one_line(group.signature, 150), group.task)):
            return group.task
    return None


def _known(memory: Path) -> Mapping[str, Group]:
    """The groups of the last comparison, so that they are not shrunk again."""
    try:
        groups = [Group.from_json(data) for data in json.loads(memory.read_text("utf-8"))]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {group.signature: group for group in groups}


def _examples(directory: Path, found: CompareReport) -> dict[str, Path]:
    """The smallest input of each kind, in a file of its own."""
    directory.mkdir(mode=0o700, exist_ok=True)
    written = {}
    for group in found.groups:
        path = directory / group.task
        path.write_bytes(group.example)
        written[group.task] = path
    return written


def _lines(found: CompareReport, mine: str | None, examples: Mapping[str, Path]) -> list[str]:
    lines = [one_line(line, 200) if not line.startswith("  ") else "  " + one_line(line, 198) for line in found.lines()]
    if len(lines) > _SHOWN:
        lines = [*lines[: _SHOWN - 1], f"and more: --json; {len(found.groups)} kinds in all"]
    if mine:
        lines.append(f"{mine} is yours; its smallest input is {examples[mine]}")
    elif found.groups:
        lines.append(f"the smallest input of each kind is in {next(iter(examples.values())).parent}")
    return lines
