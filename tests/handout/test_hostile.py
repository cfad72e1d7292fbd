"""Content made to be slow, to fill memory or to be taken for something: a hand-out comes all the same, or none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from .conftest import Past
from .test_handout import PYTHON

K = 1 << 10
FILES: Mapping[str, str | bytes] = {
    "quotes.py": '"' * (100 * K) + "\n",
    "open.c": "/* \n" * (50 * K),
    "slashes.py": ('"' + "\\" * 1500 + "\n") * 100,
    "same.py": "a = b\n" * (30 * K),
    "same2.py": "a = b\n" * (30 * K),
    "period.py": "def f(a, b): return g(a)[b] + h(b, 1)\n" * (4 * K),
    "period2.py": "def f(a, b): return g(a)[b] + h(b, 1)\n" * (4 * K),
    "binary.py": bytes(range(256)) * 500,
    "latin.py": b"x = '\xe9\xff'\n" * 500,
    "minified.js": "var a=1;" * (20 * K),
    "huge.py": "x = 1\n" * (200 * K),
    "unique.py": "\n".join(f"v{n} = w{n} + {n}" for n in range(8 * K)),
    "deep/" * 30 + "x.py": "y = 1\n",
    "docs/names.md": "x.py " * (40 * K),
}


@pytest.mark.parametrize("role", ["dedup", "docs", "review", "quality"])
def test_hostile_files_cost_little_and_hide_nothing(past: Past, role: str) -> None:
    past.land({"a.py": PYTHON, "b.py": "X = 1\n" + PYTHON, "README.md": "a.py"})
    past.land({"a.py": "Y = 1\n" + PYTHON})
    past.land(FILES)
    told = past.told(role)
    assert len(told) < 64 << 10
    if role == "dedup":
        assert "`a.py`:1-14, `b.py`:1-14" in told
        assert "stopped" not in told


def test_a_hundred_thousand_files(past: Past) -> None:
    twice = {"a.py": PYTHON, "b.py": PYTHON, "README.md": "a.py\n"}
    past.land({f"d{n % 300}/f{n}.py": f"x = {n % 50}\n" for n in range(100_000)} | twice)
    past.land({"a.py": PYTHON + "\nX = 1\n"})
    assert "`a.py`:2-13, `b.py`:2-13" in past.told("dedup")
    assert "`a.py` (1)" in past.told("docs")
    assert "+X = 1" in past.told("review")
    assert "`a.py`" in past.told("quality")
