"""The two compilers behind ``team-cc``: which is meant, and running them.

Part of every call: nothing here may import what is slow to import.
"""

from __future__ import annotations

import os
import sys

from team.errors import TeamError
from team.oracle import cc_line as lines
from team.oracle import cc_objects as objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class Settings:
    """What the environment says."""

    def __init__(self) -> None:
        root = os.environ.get("TEAM_ORACLE_ROOT", "")
        if not os.path.isdir(root):
            raise TeamError(f"TEAM_ORACLE_ROOT is {root!r}: set it to the project's folder")
        self.files = objects.Files(os.path.realpath(root))
        self.commands = {name: _command(name, self.files.root) for name in ("reference", "candidate")}
        self.compiler("reference")
        self.listing = os.environ.get("TEAM_ORACLE_LISTING", "")
        self._chosen = b"\n"
        if path := os.environ.get("TEAM_ORACLE_ASSIGNMENT", ""):
            try:
                with open(path, "rb") as file:
                    self._chosen = b"\n" + file.read() + b"\n"
            except OSError as e:
                raise TeamError(f"TEAM_ORACLE_ASSIGNMENT is {path!r}: {e.strerror}; name the units' file") from None
        self.cache: objects.Cache | None = None
        if folder := os.environ.get("TEAM_ORACLE_CACHE", ""):
            try:
                self.cache = objects.Cache(os.path.abspath(folder), self.files)
            except OSError as e:
                raise TeamError(f"TEAM_ORACLE_CACHE is {folder!r}: {e.strerror}; name a folder to write to") from None

    def compiler(self, which: str) -> list[str]:
        """The words of the command ``which``."""
        words = self.commands[which]
        if not words:
            raise TeamError(f"TEAM_ORACLE_{which.upper()} is not set: set it to the {which} compiler, like 'gcc'")
        if any(os.path.basename(word) == "team-cc" for word in words):
            raise TeamError(
                f"TEAM_ORACLE_{which.upper()} is team-cc itself: set it to the {which} compiler, like 'gcc'"
            )
        return words

    def which(self, unit: str) -> str:
        """Whose turn ``unit`` is."""
        line = b"\n" + unit.encode("utf-8", "surrogateescape") + b"\n"
        return "candidate" if line in self._chosen else "reference"


def _command(name: str, root: str) -> list[str]:
    """A compiler's command from the environment. The program, and what it is given (``python3 tools/cc.py``), is the
    project's where it is a path that is not absolute, and there is such a file."""
    words = lines.split(os.environ.get(f"TEAM_ORACLE_{name.upper()}", ""))
    return [_own(word, root, n) for n, word in enumerate(words)]


def _own(word: str, root: str, n: int) -> str:
    path = os.path.join(root, word)
    if n == 0:
        return path if "/" in word else word
    # Some builds change the directory, so `sh cc` must name its file in full too.
    return path if ("/" in word or n == 1) and os.path.isfile(path) else word


def become_reference(settings: Settings, argv: list[str]) -> NoReturn:
    """Become the reference."""
    words = settings.compiler("reference")
    try:
        os.execvp(words[0], [*words, *argv])
    except OSError as e:
        raise not_started("reference", words, e) from None


def run(settings: Settings, which: str, words: list[str]) -> int:
    """Run a compiler with our own output and standard error; its exit code."""
    compiler = settings.compiler(which)
    return wait(which, compiler, [*compiler, *words], [])


def wait(which: str, compiler: list[str], argv: list[str], actions: list[tuple[Any, ...]]) -> int:
    """Run a program; its exit code, 128 and the signal's number where one ended it."""
    try:
        child = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions)
    except OSError as e:
        raise not_started(which, compiler, e) from None
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def not_started(which: str, compiler: list[str], error: OSError) -> TeamError:
    mend = f"set TEAM_ORACLE_{which.upper()} to a compiler"
    return TeamError(f"the {which} {compiler[0]!r} cannot be started: {error.strerror}; {mend}")


def say(text: str) -> None:
    show(f"team-cc: {text}\n".encode("utf-8", "surrogateescape"))


def show(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
