"""``[oracle]`` of team.toml: what is mixed, how it is built and checked. Read in containers too: no pydantic."""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from team.errors import TeamError, WrongSetting
from team.units import parse_size, parse_span

FILE = "team.toml"
VARIABLE = "TEAM_ORACLE_SETTINGS"
"""Environment variable with ``[oracle]`` as JSON: the person's own, which the clone need not hold."""


@dataclass(frozen=True)
class CompareTable:
    """``[oracle.compare]``: two programs that must do the same."""

    reference: str = ""
    """Shell command of the known-good program; ``{input}`` is the input file."""
    candidate: str = ""
    inputs: tuple[str, ...] = ()
    """Globs of input files."""
    generate: str = ""
    """Shell command that prints an input; ``{seed}`` is a number."""
    count: int = 100
    """Inputs that are generated."""
    stdin: bool = False
    """Whether the programs read the input from standard input."""
    normalise: tuple[tuple[str, str], ...] = ()
    """Pairs of a regular expression and what takes the place of what it finds, on both outputs."""
    builtin: tuple[str, ...] = ()
    """Normalisers by name: ``paths``, ``addresses``, ``times``, ``floats:N``, ``sorted``, ``no_stderr``."""
    files: tuple[str, ...] = ()
    """Globs of files that the programs write, compared too."""


@dataclass(frozen=True)
class OracleSettings:
    """All of ``[oracle]``."""

    units: tuple[str, ...] = ()
    """Globs of the files that are units."""
    list: str = ""
    """Shell command that prints the units, one a line; in place of ``units``."""
    build: str = ""
    """Shell command that builds. The units of the candidate are in the file ``$TEAM_ORACLE_ASSIGNMENT``, one a line;
    all others are the reference's. ``team-cc`` as compiler goes by it."""
    check: str = ""
    """Shell command; exit code 0: right, 125: cannot be told, anything else: wrong."""
    reference: str = ""
    """For ``team-cc``: the compiler that is known to be good, like ``gcc``."""
    candidate: str = ""
    """For ``team-cc``: the compiler that is looked at."""
    version: str = ""
    """Shell command that prints what results depend on beside the tree and the compilers' own files."""
    directory: str = ""
    """Where the commands run, relative to the top of the work tree; units are relative to it too."""
    timeout: float = 600.0
    """Seconds of one build, and of one check."""
    memory: int | None = None
    """Bytes that a build or check may hold resident; without one, half of what the machine or the container has."""
    jobs: int = 1
    """Builds at once, each in a copy of the work tree."""
    flaky: float = 0.0
    """How often a check is wrong by chance: 0.2 for one in five. Then it is repeated until the result is sure."""
    confidence: float = 0.99
    """Of the whole result, where checks are flaky."""
    compare: CompareTable = CompareTable()


def load(root: Path, env: Mapping[str, str]) -> OracleSettings:
    """``[oracle]`` as the environment or the work tree ``root`` has it, or the defaults. Raises :class:`TeamError`
    that names the key."""
    try:
        if text := env.get(VARIABLE):
            return parse_oracle(json.loads(text))
        return parse_oracle(tomllib.loads((root / FILE).read_text("utf-8")).get("oracle", {}))
    except FileNotFoundError:
        return OracleSettings()
    except WrongSetting as error:
        raise TeamError(f"{FILE}: {'.'.join(('oracle', *error.path))}: {error}") from None
    except (OSError, ValueError) as error:
        raise TeamError(f"{FILE}: {error}") from None


def environment(settings: OracleSettings) -> dict[str, str]:
    """What makes ``team oracle`` in a container know ``settings``."""
    if settings == OracleSettings():
        return {}
    given = {key: value for key, value in asdict(settings).items() if value is not None}
    return {VARIABLE: json.dumps(given)}


def parse_oracle(table: object) -> OracleSettings:
    """The settings in ``table``. Raises :class:`WrongSetting`."""
    if isinstance(table, OracleSettings):
        return table
    if not isinstance(table, Mapping):
        raise WrongSetting((), "expected a table [oracle]")
    compare = table.get("compare", {})
    if not isinstance(compare, Mapping):
        raise WrongSetting(("compare",), "expected a table [oracle.compare]")
    own = {key: value for key, value in table.items() if key != "compare"}
    found = OracleSettings(
        **_table(OracleSettings, own, ()), compare=CompareTable(**_table(CompareTable, compare, ("compare",)))
    )
    place = PurePosixPath(found.directory)
    if place.is_absolute() or ".." in place.parts:
        raise WrongSetting(("directory",), "expected a path inside the project")
    if found.units and found.list:
        raise WrongSetting(("list",), "set units or list, not both")
    return found


def _table(kind: type, table: Mapping[str, object], where: tuple[str, ...]) -> dict[str, Any]:
    known = {item.name: item for item in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.6)
            also = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
            raise WrongSetting((*where, key), f"unknown key; {also}")
        default = known[key].default
        assert default is not MISSING
        values[key] = _checked(key, default, value, (*where, key))
    return values


def _checked(key: str, default: object, value: object, where: tuple[str, ...]) -> Any:
    """``value`` as the field ``key`` has it."""
    try:
        value = parse_span(value) if key == "timeout" else parse_size(value) if key == "memory" else value
    except ValueError as error:
        raise WrongSetting(where, str(error)) from None
    if key == "normalise":
        if not isinstance(value, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in value
        ):
            raise WrongSetting(where, "expected pairs, like [['0x[0-9a-f]+', 'ADDRESS']]")
        return tuple((pair[0], pair[1]) for pair in value)
    if isinstance(default, tuple):
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            raise WrongSetting(where, "expected a list of strings")
        return tuple(texts)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise WrongSetting(where, "expected true or false")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise WrongSetting(where, "expected a string")
        return value
    return _number(key, value, where)


_RANGES = {
    "flaky": (0.0, 0.45),
    "confidence": (0.5, 0.999999),
    "jobs": (1, 256),
    "count": (1, 10_000_000),
    "memory": (1, 1 << 60),
}


def _number(key: str, value: object, where: tuple[str, ...]) -> float | int:
    low, high = _RANGES.get(key, (1e-9, math.inf))
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < math.inf or value > high:
        limits = f"from {low:g} to {high:g}" if key in _RANGES else "above 0"
        raise WrongSetting(where, f"expected a number {limits}")
    return float(value) if key in ("timeout", "flaky", "confidence") else int(value)
