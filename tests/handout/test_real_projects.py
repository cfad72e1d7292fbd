"""What dedup is handed on three projects of other people, in Python and C: copies that are there, and one more."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from team.config import Settings
from team.git import git, line
from team.handout import Context, hand_out
from team.ledger import Ledger

from ..sampler.real_suites import project

KNOWN = {
    # Two checks of a path's rights; the Bash and Fish completers; two string-to-double loops.
    "click==8.1.8": ("src/click/types.py", "src/click/shell_completion.py"),
    "jinja2==3.1.6": ("src/jinja2/environment.py", "src/jinja2/nativetypes.py"),
    "ujson==5.10.0": ("python/JSONtoObj.c", "python/objToJSON.c"),
}
COPIED = {
    "click==8.1.8": ("src/click/formatting.py", "def wrap_text", "class HelpFormatter"),
    "jinja2==3.1.6": ("src/jinja2/lexer.py", "def describe_token_expr", "def get_lexer"),
    "ujson==5.10.0": ("lib/ultrajsondec.c", "static FASTCALL_ATTR JSOBJ FASTCALL_MSVC decode_array", "decode_object("),
}
PLACE = re.compile(r"`([^`]+)`:(\d+)-(\d+)")


@pytest.mark.parametrize("requirement", KNOWN)
def test_what_is_handed_out_is_written_twice_and_a_new_copy_is_among_it(requirement: str, tmp_path: Path) -> None:
    root = project(requirement, tmp_path)
    copied, begin, end = COPIED[requirement]
    source = (root / copied).read_text()
    part = source[source.index(begin) : source.index(end, source.index(begin) + len(begin))]
    new = "src/own" + Path(copied).suffix
    (root / new).parent.mkdir(exist_ok=True)
    # What two agents do: the same, with names of their own.
    (root / new).write_text(
        "\n\n" + re.sub(r"\b(row|col|widths|rows|type|token|newObj|itemValue|len)\b", r"own_\1", part)
    )
    git("add", "-A", "-f", at=root)
    git("commit", "-q", "-m", "More", at=root)
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        base = line("rev-parse", "HEAD", at=root)
        found = hand_out("dedup", Context(root / ".git", base, ledger, Settings(), "dedup-01"))
    assert found is not None and 5 <= found.items <= 12
    rows = [row for row in found.text.splitlines() if PLACE.search(row)]
    for row in rows:
        first, second, *_ = (_words(root, *place) for place in PLACE.findall(row))
        assert (first & second).total() > 0.6 * min(first.total(), second.total()), row
    assert any(new in row and copied in row for row in rows)
    for path in KNOWN[requirement]:
        assert any(path in row for row in rows), path


def _words(root: Path, path: str, first: str, last: str) -> Counter[str]:
    """The words of these lines, comments included."""
    return Counter(re.findall(r"\w+|\S", "\n".join((root / path).read_text().splitlines()[int(first) - 1 : int(last)])))
