"""What a search needs of the compiler wrapper ``team-cc``: its environment, and trees that follow an assignment.

A tree is a copy of the project with what was built in it. Several can share a cache, each with its own assignment.
The wrapper itself is cc_call.py and what that imports.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from team.errors import TeamError
from team.text import one_line

_WRAPPER = Path(__file__).resolve().parents[1] / "inside" / "bin" / "team-cc"


@dataclass(frozen=True)
class Failure:
    """A unit that a compiler could not compile when it last tried."""

    unit: str
    compiler: str
    """"reference" or "candidate"."""
    code: int
    """Exit code; 128 and a signal's number where one ended it."""
    message: str
    """What it said of it, on one line."""


def environment(
    root: Path,
    *,
    reference: str,
    candidate: str,
    assignment: Path,
    cache: Path,
    listing: Path | None = None,
    version: str = "",
) -> dict[str, str]:
    """What a build in ``root`` needs in its environment, so that ``CC=team-cc`` follows ``assignment``.

    ``reference`` and ``candidate`` are compilers with their arguments, quoted as for a shell; a relative path is the
    project's. ``listing``: a file that the name of every compiled unit is added to. ``version`` must change when a
    compiler does in a way that its own file does not show (a script that runs something else); what was made before
    is then made anew.
    """
    programs = cache / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    link = programs / "team-cc"
    if link.resolve() != _WRAPPER:
        link.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):  # another has just made it
            link.symlink_to(_WRAPPER)
    return {
        "PATH": f"{programs.absolute()}:{os.environ.get('PATH', os.defpath)}",
        "TEAM_PYTHON": sys.executable,  # what PATH has may be a script that looks for it, in a tenth of a second
        "TEAM_ORACLE_ROOT": str(root.absolute()),
        "TEAM_ORACLE_REFERENCE": reference,
        "TEAM_ORACLE_CANDIDATE": candidate,
        "TEAM_ORACLE_ASSIGNMENT": str(assignment.absolute()),
        "TEAM_ORACLE_CACHE": str(cache.absolute()),
        "TEAM_ORACLE_LISTING": str(listing.absolute()) if listing else "",
        "TEAM_ORACLE_VERSION": version,
        "CCACHE_DISABLE": "1",  # in front of team-cc it would keep one object for all assignments
    }


def assign(root: Path, cache: Path, assignment: Path, units: Collection[str]) -> None:
    """Turn ``units`` to the candidate and all others to the reference: the next build in ``root`` remakes what changes.

    ``assignment`` is the file that says so; it must hold what the tree was last built by, or not exist. TeamError
    for what cannot be a unit.
    """
    for unit in units:
        if not unit or "\n" in unit or "\0" in unit:
            raise TeamError(f"{unit!r} is no unit: a name is one line, like a source file's path in the project")
    sources, made = outdated(root, cache, read(assignment), units)
    for path in made:
        path.unlink(missing_ok=True)
    for path in sources:
        with contextlib.suppress(OSError):  # it is not there: no file, or the build will make it, or say so
            os.utime(path)
    temporary = assignment.with_name(f"{assignment.name}.{os.getpid()}")
    text = "".join(f"{unit}\n" for unit in sorted(units))
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    temporary.replace(assignment)


def outdated(root: Path, cache: Path, old: Collection[str], new: Collection[str]) -> tuple[list[Path], list[Path]]:
    """What a change of the assignment makes stale: source files to be touched, and files made of them to be removed.

    Both, since some builds look at times and others at contents, and since what make looks at (libtool's ``.lo``) is
    not always what the compiler wrote.
    """
    changed = set(old) ^ set(new)
    made = (root / output for unit, output in _records(cache) if unit in changed)
    own = [root / unit for unit in sorted(changed) if not unit.startswith("/") and ".." not in unit.split("/")]
    return own, sorted({path for path in made if path.exists()})


def compiled(cache: Path) -> set[str]:
    """Units that have been compiled, ever."""
    return {unit for unit, _ in _records(cache)}


def read(assignment: Path) -> list[str]:
    """The units that an assignment turns to the candidate; none where there is no such file."""
    try:
        text = assignment.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return []
    return [line for line in text.split("\n") if line]  # a name may hold what else ends a line


def units(root: Path, listing: Path) -> list[str]:
    """The units that a build has listed, in the order in which it came to them; those that are gone are left out."""
    return [unit for unit in dict.fromkeys(read(listing)) if (root / unit).exists()]


def failures(cache: Path, since: float = 0.0) -> list[Failure]:
    """What could not be compiled when it was last tried, after ``since`` (Unix time), by unit and compiler."""
    found = []
    for file in (cache / "failed").glob("*"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # it was mended meanwhile
            if file.stat().st_mtime < since:
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            unit, compiler, code, said = text.split("\n", 3)
            found.append(Failure(unit, compiler, int(code), _message(said.splitlines())))
    return sorted(found, key=lambda failure: (failure.unit, failure.compiler))


def _message(lines: list[str]) -> str:
    """The line that says most."""
    said: Iterable[str] = (line for line in lines if "error" in line.lower())
    return one_line(next(iter(said), lines[0] if lines else ""))


def _records(cache: Path) -> set[tuple[str, str]]:
    """Each unit with each file that was made of it."""
    pairs = (line.partition("\t") for line in read(cache / "made"))
    return {(unit, output) for unit, _, output in pairs if output}
