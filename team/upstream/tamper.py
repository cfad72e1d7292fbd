"""Tests that a push deletes, skips, empties or loosens: what an agent may do to turn a check green (HAZARDS 24).

Read from the files alone, without running anything. It finds what is done in the open; it proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from team.upstream.objects import GITLINK, SYMLINK, Change, Entry, Missing, Store
from team.upstream.paths import shown

_MOST_BYTES = 1 << 20
_MOST_FILES = 2_000
_TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?)/"
    r"|(?:^|/)(?:test_[^/]*|[^/]*_tests?\.[^/]+|[^/]*[._-](?:test|spec)\.[^/]+|[^/]*Tests?\.(?:java|kt|cs|swift|scala)|"
    r"conftest\.py)$"
)
_CODE = re.compile(r"\.(?:py|go|rs|[cm]?[jt]sx?|java|kt|cs|swift|scala|rb|cc|cpp|cxx|c)\Z")
_TEST = re.compile(
    rb"^[ \t]*(?:async[ \t]+)?def[ \t]+(test\w*)"  # Python
    rb"|^[ \t]*func[ \t]+(Test\w+|Benchmark\w+|Fuzz\w+)[ \t]*\("  # Go
    rb"|#\[(?:\w+::)?test\][^{]{0,300}?fn[ \t]+(\w+)"  # Rust
    rb"|^[ \t]*(?:it|test|specify)(?:\.\w+)?[ \t]*\([ \t]*['\"`]([^'\"`\n]{1,200})"  # JavaScript, Ruby-like
    rb"|@Test\b[^{]{0,300}?\b(\w+)[ \t]*\("  # Java, Kotlin
    rb"|^[ \t]*TEST(?:_F|_P)?[ \t]*\(([^)\n]{1,200})\)",  # C++
    re.M,
)
_SKIP = re.compile(
    rb"@(?:pytest\.mark\.(?:skip|skipif|xfail)|unittest\.(?:skip\w*|expectedFailure)|Disabled|Ignore)\b"
    rb"|\bpytest\.(?:skip|xfail|importorskip)\b|\bself\.skipTest\b|\bpytestmark\b|\b[tb]\.Skip(?:f|Now)?\b|#\[ignore"
    rb"|\b(?:it|test|describe|context)\.(?:skip|todo|only)\b|\b(?:xit|xdescribe|xtest|fit|fdescribe)[ \t]*\("
    rb"|\bcollect_ignore\w*\b|\bGTEST_SKIP\b|\bDISABLED_",
)
_ASSERT = re.compile(
    rb"\bassert\w*\b[!(\s]|\bexpect\w*[ \t]*\(|\bself\.(?:assert\w+|fail)\b|\bt\.(?:Error|Fatal|Fail)\w*\b"
    rb"|\brequire\.\w+\(|\bpytest\.raises\b|\bshould\b|\b(?:EXPECT|ASSERT)_\w+"
)
_VOID = re.compile(
    rb"\bassert[ \t]+(?:True|1)\b|\bassert!\([ \t]*true|\bexpect\([ \t]*true[ \t]*\)|\bassertTrue\([ \t]*[Tt]rue"
)


@dataclass
class _Side:
    """All changed test files, before or after."""

    tests: set[bytes] = field(default_factory=set)
    skips: int = 0
    asserts: int = 0

    def add(self, data: bytes) -> None:
        self.tests |= _tests(data)
        self.skips += len(_SKIP.findall(data))
        self.asserts += len(_ASSERT.findall(data)) - len(_VOID.findall(data))


def findings(changes: Iterable[Change], store: Store) -> list[str]:
    """What was done to tests, one line each; empty for nothing. Tests that move to another file are no finding."""
    changed = [c for c in changes if _TEST_PATH.search(shown(c.path))]
    changed.sort(key=lambda c: c.old is None)  # what is new can hide others, but takes nothing away
    before, after = _Side(), _Side()
    found: list[str] = []
    if sum(c.old is not None for c in changed) > _MOST_FILES:
        found.append(f"changes more than {_MOST_FILES} test files, which is too much to look at")
    del changed[_MOST_FILES:]
    deleted: dict[str, set[bytes]] = {}
    new_blobs = {c.new.oid for c in changed if c.new is not None}
    for change in changed:
        old, new = _read(store, change.old), _read(store, change.new)
        before.add(old)
        after.add(new)
        name = shown(change.path)
        if _is_large(store, change.old) and _CODE.search(name):
            found.append(f"changes {name}, which is too large to look at")
            continue
        if change.old is None or not old.strip():
            continue
        if change.new is None and change.old.oid not in new_blobs:
            deleted[name] = _tests(old)
        elif change.new is not None and not new.strip():
            found.append(f"empties {name}")
        elif change.new is not None and _skips(new) > _skips(old):
            found.append(f"skips tests in {name}")
    found += [f"deletes {name}" for name, tests in deleted.items() if tests - after.tests]
    if deleted and after.skips > before.skips and not any(f.startswith("skips") for f in found):
        found.append("skips tests in the files that they move to")
    gone = sorted(before.tests - after.tests)
    renamed = len(after.tests - before.tests)
    if len(gone) > renamed:
        names = ", ".join(shown(name) for name in gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
        found.append(f"removes {'test' if len(gone) == 1 else 'tests'} {names}")
    elif after.asserts < before.asserts and not any(f.startswith(("deletes", "empties")) for f in found):
        found.append(f"loosens tests: {before.asserts - after.asserts} assertions fewer in the files it changes")
    return found


def _tests(data: bytes) -> set[bytes]:
    return {next(name for name in match.groups() if name) for match in _TEST.finditer(data)}


def _skips(data: bytes) -> int:
    return len(_SKIP.findall(data))


def _read(store: Store, entry: Entry | None) -> bytes:
    if entry is None or entry.mode in (GITLINK, SYMLINK):
        return b""
    try:
        return store.read(entry.oid, "blob", _MOST_BYTES)
    except Missing:
        return b""


def _is_large(store: Store, entry: Entry | None) -> bool:
    if entry is None or entry.mode == GITLINK:
        return False
    info = store.info(entry.oid)
    return info is not None and info[1] > _MOST_BYTES


def is_test(path: bytes) -> bool:
    """Whether ``path`` is where tests are kept, by the usual names."""
    return _TEST_PATH.search(shown(path)) is not None
