"""``[test]`` of team.toml: how the project's tests are found and run. Read in containers too: no pydantic."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from team.errors import TeamError, WrongSetting
from team.units import parse_size, parse_span

KINDS = ("pytest", "cargo", "go", "ctest", "junit", "tap", "cases")
FILE = "team.toml"
MOST_JOBS = 256
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
VARIABLE = "TEAM_TEST_SETTINGS"
"""Environment variable with ``[test]`` as JSON: the person's own, which the clone need not hold."""


@dataclass(frozen=True)
class SuiteSettings:
    """One suite: ``[test]`` itself, or ``[test.suites.NAME]``."""

    kind: str = ""
    """``pytest``, ``cargo``, ``go``, ``ctest``, ``junit``, ``tap`` or ``cases``; detected where empty."""
    run: str = ""
    """How the runner is called, as a shell command: ``python -m pytest -p no:randomly``, ``cargo test --workspace``,
    ``go test -tags integration``, ``ctest --test-dir build``. For ``cases`` and ``tap`` the command of one case, with
    ``{file}``, ``{stem}`` (its name without directory and suffix) and ``{dir}``; for ``junit`` the whole producer,
    with ``{cases}`` where it can be told which to run (``{cases:SEP}``: with SEP between the names)."""
    build: str = ""
    """Shell command that runs first, each time."""
    directory: str = ""
    """Where the commands run, relative to the top of the work tree; globs are relative to it too."""
    files: tuple[str, ...] = ()
    """Globs of the files that are cases (``cases``, ``tap``)."""
    results: str = ""
    """Glob of the JUnit files that the producer writes (``junit``)."""
    list: str = ""
    """Shell command that prints the names of all cases, one a line (``junit``)."""
    expect: str = ""
    """File with the standard output that a case must print, like ``{dir}/{stem}.expected`` (``cases``)."""
    exit: int = 0
    """The exit code that a case must have (``cases``)."""
    timeout: float = 300.0
    """Seconds that one case may take; for ``junit``, how long its producer may print nothing."""
    memory: int | None = None
    """Bytes that one case may hold resident, with all that it starts; without one, half of what the machine or the
    container has."""
    jobs: int = 1
    """Cases at once."""


@dataclass(frozen=True)
class TestSettings(SuiteSettings):
    """All of ``[test]``."""

    command: str = ""
    """Shell command that agents are told to run for all tests; exit code 0 means that all passed."""
    suites: Mapping[str, SuiteSettings] = field(default_factory=dict)
    """Several suites, by name; what one does not set is as in ``[test]`` itself."""

    __test__ = False  # not a test, whatever pytest thinks of its name

    def all(self) -> dict[str, SuiteSettings]:
        """The suites by name; the only one has the empty name."""
        return dict(self.suites) or {"": self}


def load(root: Path, env: Mapping[str, str]) -> TestSettings:
    """``[test]`` as the environment or the work tree ``root`` has it, or the defaults. Raises :class:`TeamError`
    that names the key."""
    try:
        if text := env.get(VARIABLE):
            return parse_test(json.loads(text))
        text = (root / FILE).read_text("utf-8")
        table = tomllib.loads(text).get("test", {})
        return parse_test(table)
    except FileNotFoundError:
        return TestSettings()
    except WrongSetting as error:
        raise TeamError(f"{FILE}: {'.'.join(('test', *error.path))}: {error}") from None
    except (OSError, ValueError) as error:
        raise TeamError(f"{FILE}: {error}") from None
    except RecursionError:
        raise TeamError(f"{FILE}: nested too deeply") from None


def environment(settings: TestSettings) -> dict[str, str]:
    """What makes ``team test`` in a container know ``settings``."""
    if settings == TestSettings():
        return {}
    env = {VARIABLE: json.dumps(_given(asdict(settings)))}
    return env | ({"TEAM_TEST": settings.command} if settings.command else {})


def _given(table: dict[str, Any]) -> dict[str, Any]:
    """``table`` without what is not set, which has no form in it."""
    found = {key: _given(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in found.items() if value is not None}


def parse_test(table: object) -> TestSettings:
    """The settings in ``table``. Raises :class:`WrongSetting`."""
    if isinstance(table, TestSettings):
        return table
    if not isinstance(table, Mapping):
        raise WrongSetting((), "expected a table [test]")
    rest = {key: value for key, value in table.items() if key not in ("command", "suites")}
    command = _checked("command", str, table.get("command", ""), ("command",))
    own = _suite(rest, {}, ())
    suites = table.get("suites", {})
    if not isinstance(suites, Mapping) or not all(isinstance(value, Mapping) for value in suites.values()):
        raise WrongSetting(("suites",), "expected tables [test.suites.NAME]")
    for name in suites:
        if not _NAME.match(name):
            raise WrongSetting(("suites", name), "a suite's name has letters, digits, - and _, at most 40")
    parsed = {name: _suite(value, rest, ("suites", name)) for name, value in suites.items()}
    return TestSettings(**vars(own), command=command, suites=parsed)


def _suite(table: Mapping[str, object], defaults: Mapping[str, object], where: tuple[str, ...]) -> SuiteSettings:
    known = {item.name: item for item in fields(SuiteSettings)}
    values: dict[str, Any] = {}
    for key, value in {**defaults, **table}.items():
        if key not in known:
            near = difflib.get_close_matches(key, [*known, "command", "suites"], 1, 0.6)
            also = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join([*known, 'command', 'suites'])}"
            raise WrongSetting((*where, key), f"unknown key; {also}")
        default = known[key].default
        assert default is not MISSING
        values[key] = _checked(key, type(default), value, (*where, key))
    found = SuiteSettings(**values)
    if found.kind and found.kind not in KINDS:
        raise WrongSetting((*where, "kind"), f"{found.kind!r} is not known; known: {', '.join(KINDS)}")
    place = PurePosixPath(found.directory)
    if place.is_absolute() or ".." in place.parts:
        raise WrongSetting((*where, "directory"), "expected a path inside the project")
    return found


def _checked(key: str, wanted: type, value: object, where: tuple[str, ...]) -> Any:
    """``value`` as the field ``key`` has it."""
    try:
        if key == "timeout":
            value = parse_span(value)
        elif key == "memory":
            value = parse_size(value)
    except ValueError as error:
        raise WrongSetting(where, str(error)) from None
    if key in ("timeout", "memory", "jobs"):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise WrongSetting(where, "expected a number above 0")
        if key == "jobs" and value not in range(1, MOST_JOBS + 1):
            raise WrongSetting(where, f"expected a whole number from 1 to {MOST_JOBS}")
        return float(value) if key == "timeout" else math.ceil(value)
    if wanted is tuple:
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise WrongSetting(where, "expected globs, like ['tests/*.c']")
        return tuple(found)
    if key == "exit" and value not in range(256):
        raise WrongSetting(where, "expected an exit code, from 0 to 255")
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise WrongSetting(where, f"expected {'a string' if wanted is str else 'a whole number'}")
    return value
