"""Remembers which cases pytest found: to collect a big suite costs more than to run a sample of it.

What is remembered holds as long as nothing changed of what was read while it was collected: each file that was opened
or imported, each directory that was listed, where packages are installed, and the environment. When in doubt there is
nothing to remember, and everything is collected again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from team import git

# Come and go by themselves, and no test depends on them.
_NOISE = re.compile(
    r"(^|/)(__pycache__|\.pytest_cache|\.hypothesis|\.mypy_cache|\.ruff_cache|agent_logs|\.coverage[^/]*|[^/]*\.pyc)(/|$)"
)
_VOLATILE = re.compile(r"(TEAM_|SSH_|TMUX|PYTEST_CURRENT_TEST$|PWD$|OLDPWD$|SHLVL$|_$|TERM|COLUMNS$|LINES$|WINDOWID$)")


class Listings:
    """The one listing that is remembered for a suite, in the git directory of its work tree."""

    def __init__(self, place: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        """``place``: where pytest runs; ``command``: how it is called."""
        kept = sorted(item for item in env.items() if not _VOLATILE.match(item[0]))
        self._key = _digest(json.dumps([str(place), list(command), kept]))
        self._file: Path | None = None
        with contextlib.suppress(git.GitError, OSError):
            folder = Path(git.line("rev-parse", "--path-format=absolute", "--git-path", "team", at=place))
            self._file = folder / f"pytest-{_digest(json.dumps([str(place), list(command)]))[:12]}.json"

    @property
    def possible(self) -> bool:
        """Whether there is a place to remember anything."""
        return self._file is not None

    def load(self) -> list[tuple[str, str]] | None:
        """Name and file of each case, where they are known for sure."""
        known = self._read()
        if not known or not known["trusted"] or known["facts"] != _look(known["facts"]):
            return None
        return [(name, path) for name, path in known["cases"]]

    def save(self, cases: Sequence[Sequence[str]], seen: Mapping[str, Any]) -> None:
        """Remember a listing; ``seen`` is what it depends on, by the plugin's recorder."""
        if self._file is None:
            return
        if seen["doubt"]:
            self._file.unlink(missing_ok=True)
            return
        read = {path: "" for path in seen["read"] if not _NOISE.search(path)}
        listed = {path: "" for path in seen["listed"] if not _NOISE.search(path)}
        facts = _look({"read": read, "listed": listed})
        if _changed_since(seen["since"], read, listed):
            self._file.unlink(missing_ok=True)
            return
        before = self._read()
        # Names that are others each time, though nothing changed, must not be narrowed.
        trusted = not before or before["facts"] != facts or before["cases"] == cases
        self._write({"key": self._key, "trusted": trusted, "facts": facts, "cases": cases})

    def distrust(self) -> None:
        """Something was not where it should be: collect everything next time."""
        known = self._read()
        if known:
            self._write({**known, "trusted": False})

    def _read(self) -> dict[str, Any] | None:
        try:
            assert self._file is not None
            known = json.loads(self._file.read_bytes())
            return known if isinstance(known, dict) and known["key"] == self._key and known["cases"] else None
        except (OSError, ValueError, KeyError, AssertionError):
            return None

    def _write(self, known: Mapping[str, Any]) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._file.parent, prefix=".pytest-", delete=False) as file:
                json.dump(known, file)
            Path(file.name).replace(self._file)


def _look(facts: Mapping[str, Any]) -> dict[str, Any]:
    """How the files and directories named in ``facts`` are now."""
    return {
        "read": {path: _state(path) for path in facts["read"]},
        "listed": {path: _digest("/".join(_names(path))) for path in facts["listed"]},
    }


def _state(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - hot
    except (OSError, ValueError):
        return ""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"


def _names(path: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(path) if not _NOISE.search(name))  # noqa: PTH208 - hot
    except (OSError, ValueError):
        return []


def _changed_since(since: float, read: Mapping[str, str], listed: Mapping[str, str]) -> bool:
    """Whether something changed while it was looked at."""
    paths = {*read, *(f"{path}/{name}" for path in listed for name in _names(path))}
    for path in paths.difference(listed):
        with contextlib.suppress(OSError, ValueError):
            if os.lstat(path).st_ctime >= since:
                return True
    return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
