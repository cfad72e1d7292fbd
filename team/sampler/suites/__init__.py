"""The suites that ``team test`` can run. One module a kind; all offer the functions of :class:`Suite`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from team.sampler.cases import CannotRun, Case, Choose, Options, Sink
from team.sampler.settings import KINDS, SuiteSettings, TestSettings


class Suite(Protocol):
    """A test suite of the project. Raises :class:`CannotRun` where it cannot be listed or run at all: a build that
    fails, a runner that is not installed, an error while tests are collected."""

    def list(self, options: Options) -> Sequence[Case]:
        """Every case, in the runner's order, without running any."""

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        """List the cases, call ``choose`` once with all of them, run what it returns, in as few processes as the
        runner allows, and tell ``sink`` exactly one result for each. Nothing that it started is left running."""


# The class of each kind, in the module of the kind's name.
_CLASSES = {
    "pytest": "Pytest",
    "cargo": "Cargo",
    "go": "Go",
    "ctest": "CTest",
    "junit": "JUnit",
    "tap": "Tap",
    "cases": "Cases",
}


def suite(root: Path, settings: SuiteSettings) -> Suite:
    """The suite of ``settings``, whose ``kind`` is set; ``root`` is the top of the work tree."""
    kind = settings.kind
    if kind not in _CLASSES:
        raise CannotRun(f"[test] kind = {kind!r} is not known; known: {', '.join(KINDS)}")
    made: Suite = getattr(importlib.import_module(f"{__name__}.{kind}"), _CLASSES[kind])(root, settings)
    return made


def detect(root: Path) -> str:
    """The kind of suite that the project's files speak of. Raises :class:`CannotRun` for none, or for several."""
    found = [kind for kind, there in _SIGNS.items() if there(root)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CannotRun(f"no tests found: name them in team.toml, [test] kind = one of {', '.join(KINDS)}")
    raise CannotRun(f"{' and '.join(found)} found: name one in team.toml, [test] kind, or each in a [test.suites.NAME]")


def known(root: Path, settings: TestSettings) -> bool:
    """Whether ``team test`` knows what to run in the work tree ``root``."""
    try:
        return all(one.kind or detect(root / one.directory) for one in settings.all().values())
    except (CannotRun, OSError):
        return False


def _has_pytest(root: Path) -> bool:
    if (root / "pytest.ini").exists() or (root / "conftest.py").exists():
        return True
    for name, sign in (("pyproject.toml", "[tool.pytest"), ("setup.cfg", "[tool:pytest]"), ("tox.ini", "[pytest]")):
        file = root / name
        if file.is_file() and sign in file.read_text("utf-8", "replace"):
            return True
    return any(any(root.glob(pattern)) for pattern in ("test_*.py", "test*/**/test_*.py", "test*/**/*_test.py"))


_SIGNS: dict[str, Callable[[Path], bool]] = {
    "pytest": _has_pytest,
    "cargo": lambda root: (root / "Cargo.toml").is_file(),
    "go": lambda root: (root / "go.mod").is_file(),
    "ctest": lambda root: (
        (root / "CMakeLists.txt").is_file()
        and "enable_testing" in (root / "CMakeLists.txt").read_text("utf-8", "replace")
    ),
    "tap": lambda root: any(root.glob("t/*.t")),
}
