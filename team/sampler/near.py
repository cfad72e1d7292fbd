"""Which cases are near the files that changed: by name, and by coverage data where there is some."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath

from team.sampler.cases import Case

_TEST_WORDS = re.compile(r"^(?:tests?|specs?)[_.-]|[_.-](?:tests?|specs?|unittests?)$|(?<=[a-z])(?:Tests?|Spec)$")
# So common that they say nothing.
_PLAIN = frozenset(
    ("", "__init__", "init", "main", "index", "mod", "lib", "utils", "util", "test", "tests", "conftest")
)


def near(cases: Sequence[Case], changed: Sequence[str], root: Path, most: int) -> list[Case]:
    """Up to ``most`` cases near ``changed`` (paths from the top ``root``): those whose own file changed first, then
    those whose file is named like a changed one, then those that run it by the coverage data."""
    files = set(changed)
    stems = {_stem(path) for path in changed} - _PLAIN
    found = [case for case in cases if case.file in files]
    found += [case for case in cases if case.file not in files and stems and _stem(case.file) in stems]
    if len(found) < most and changed:
        covering = _covering(root, files)
        taken = {case.name for case in found}
        found += [case for case in cases if case.name in covering and case.name not in taken]
    return found[:most]


def _stem(path: str) -> str:
    stem = PurePosixPath(path).name.split(".", 1)[0]
    return _TEST_WORDS.sub("", _TEST_WORDS.sub("", stem)).lower()


def _covering(root: Path, changed: set[str]) -> set[str]:
    """The cases that ran a line of a changed file, as pytest-cov notes it (``--cov-context=test``): a context is the
    case's name, with ``|run`` or the like behind it."""
    data = root / ".coverage"
    if not data.is_file():
        return set()
    try:
        with closing(sqlite3.connect(f"{data.absolute().as_uri()}?mode=ro", uri=True)) as db:
            ids = [row[0] for row in db.execute("SELECT id, path FROM file") if _is_one(row[1], root, changed)]
            marks = ",".join("?" * len(ids))
            rows = []
            for table in ("line_bits", "arc"):
                rows += db.execute(
                    f"SELECT DISTINCT context FROM context JOIN {table} ON context_id = context.id "
                    f"WHERE file_id IN ({marks})",
                    ids,
                ).fetchall()
            return {row[0].rpartition("|")[0] or row[0] for row in rows if isinstance(row[0], str)}
    except sqlite3.Error:  # another version's, or half-written: it is a hint only
        return set()


def _is_one(path: object, root: Path, changed: set[str]) -> bool:
    return isinstance(path, str) and path.removeprefix(f"{root}/") in changed
