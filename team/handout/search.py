"""Finds what a role is handed, in a process of its own: what agents wrote may be made to be slow, or to fill memory.

``python -m team.handout.search`` reads a request as JSON and answers ``{"text", "items"}``, or ``{}`` for nothing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from team import git
from team.handout import docs, duplicates, render, tree

SECONDS = 20.0
"""After so long it answers with what it has."""
_MEMORY = 1 << 30
"""Bytes."""
_SOURCE, _DOCUMENTS = 24 << 20, 8 << 20
"""Bytes that are read in all."""
_WINDOW = 500
"""Landings that are looked at."""
_LANDINGS = 40
_DIFF, _DIFFS = 8 << 10, 48 << 10
"""Characters of one diff, and of all."""
_SHOWN = 12
_DATA = frozenset(
    ".md .rst .adoc .txt .json .csv .tsv .svg .lock .map .po .pot .snap .ipynb .pyi .html .xml .yaml .yml .toml .cfg "
    ".ini .sum .css .1".split()
)


@dataclass(frozen=True)
class Request:
    """What is to be found."""

    role: str
    upstream: str
    base: str
    since: str = ""
    """The commit of main that the role's last session started from."""
    benchmark: str = ""
    measured: tuple[str, ...] = ()
    """What earlier landings brought, in words."""

    def json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


Found = tuple[str, int] | None
"""Text and number of items."""


def dedup(request: Request, late: Callable[[], bool]) -> Found:
    at = Path(request.upstream)
    source = [f for f in tree.files(at, request.base) if PurePosixPath(f.path).suffix.lower() not in _DATA]
    newest: dict[str, int] = {}
    for number, landing in enumerate(tree.landings(at, request.base, _WINDOW)):
        for path in landing.paths:
            newest.setdefault(path, number)
    source.sort(key=lambda f: (newest.get(f.path, _WINDOW), f.path))
    partial = sum(f.size for f in source if f.size <= tree.MOST_FILE) > _SOURCE
    texts = ((file.path, text) for file, text in tree.texts(at, source, _SOURCE))
    found = duplicates.find(texts, late, _SHOWN)
    return (render.duplicates(found, partial or late()), len(found)) if found else None


def documents(request: Request, late: Callable[[], bool]) -> Found:
    at = Path(request.upstream)
    files = tree.files(at, request.base)
    landings = tree.landings(at, request.base, _WINDOW)
    texts = tree.texts(at, (f for f in files if docs.is_document(f.path)), _DOCUMENTS)
    found = docs.stale(((f.path, text) for f, text in texts if not late()), landings, files)[:_SHOWN]
    return (render.docs(found, len(landings)), len(found)) if found else None


def review(request: Request, late: Callable[[], bool]) -> Found:
    at = Path(request.upstream)
    since = _known(at, request.since, request.base)
    # Without an earlier session there is no end to what nobody reviewed: the last ten are a beginning.
    every = tree.landings(at, request.base, _WINDOW if since else 10, since)[::-1]
    every = [landing for landing in every if any(not p.startswith("tasks/") for p in landing.paths)]
    shown = every[:_LANDINGS]
    diffs: list[str] = []
    left = _DIFFS
    for landing in shown:
        if late() or left < _DIFF // 4:
            break
        diffs.append(_diff(at, landing.commit, min(_DIFF, left)))
        left -= len(diffs[-1])
    if not every:
        return None
    return render.review(shown, diffs, len(every), since, request.base), len(every)


def _known(at: Path, since: str, base: str) -> str:
    """``since`` where main has it; a person may have begun it anew."""
    try:
        return since if since and git.is_ancestor(at, since, base) else ""
    except git.GitError:
        return ""


def _diff(at: Path, commit: str, most: int) -> str:
    """What a landing changed, at most ``most`` characters; git itself says of binary files only that they differ."""
    try:
        raw = git.git(
            "show", "--first-parent", "--diff-merges=first-parent", "--format=", "--stat=100,80,20", "--patch",
            "--no-ext-diff", "--no-textconv", "--no-color", commit, "--", ".", ":(exclude)current_tasks",
            at=at, seconds=5, output=4 << 20,
        )  # fmt: skip
    except git.GitLimit:
        return "(too large to show)"
    lines = (line if len(line) <= 500 else f"{line[:500]}…" for line in raw.decode("utf-8", "replace").splitlines())
    text = "\n".join(lines)
    return text if len(text) <= most else f"{text[:most]}\n… (cut; the rest is in `git show`)"


def performance(request: Request, late: Callable[[], bool]) -> Found:
    if not request.benchmark:
        return None
    return render.benchmark(request.benchmark, request.measured), 1


def quality(request: Request, late: Callable[[], bool]) -> Found:
    at = Path(request.upstream)
    files = {f.path: f.size for f in tree.files(at, request.base)}
    source = {p: s for p, s in files.items() if PurePosixPath(p).suffix and PurePosixPath(p).suffix not in _DATA}
    languages: Counter[str] = Counter()
    for path, size in source.items():
        languages[PurePosixPath(path).suffix] += size
    changes = Counter(p for lan in tree.landings(at, request.base, _WINDOW) for p in lan.paths if p in source)
    hot = sorted(((p, source[p], count) for p, count in changes.items()), key=lambda h: (-h[1] * h[2], h[0]))[:_SHOWN]
    return (render.quality(languages.most_common(), hot), len(hot)) if hot else None


FINDERS: dict[str, Callable[[Request, Callable[[], bool]], Found]] = {
    "dedup": dedup,
    "docs": documents,
    "review": review,
    "performance": performance,
    "quality": quality,
}


def main() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    request = Request(**json.load(sys.stdin))
    end = time.monotonic() + SECONDS
    found = FINDERS[request.role](request, lambda: time.monotonic() > end)
    print(json.dumps({} if found is None else {"text": found[0], "items": found[1]}))


if __name__ == "__main__":
    main()
