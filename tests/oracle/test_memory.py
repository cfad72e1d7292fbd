"""What a session may tell the host of verdicts and culprits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from team.errors import TeamError
from team.oracle import memory
from team.oracle.memory import Culprit, File


def ask(kept: File, what: str, **question: Any) -> dict[str, Any]:
    return memory.answer(kept, what, json.dumps({"setting": "s", **question}).encode(), "agent-01")[0]


def test_the_task_of_a_culprit_is_the_hosts_to_say(tmp_path: Path) -> None:
    kept = File(tmp_path / "oracle.db")
    ask(kept, "add", units=["b.c", "a.c", "a.c"], reason="no\x1b[2J", task="fix_innocent", agent="agent-02")
    (found,) = kept.culprits("s")
    assert (found.units, found.task, found.agent) == (("a.c", "b.c"), "fix_a.c", "agent-01")
    assert "\x1b" not in found.reason


@pytest.mark.parametrize(
    "question",
    [
        {"units": []},
        {"units": [str(n) for n in range(1001)]},
        {"units": ["x" * 1001]},
        {"units": ["\ud800"]},
        {"units": "a.c"},
        {"units": [["a.c"]]},
        {},
    ],
)
def test_no_culprit_at_all(tmp_path: Path, question: dict[str, Any]) -> None:
    kept = File(tmp_path / "oracle.db")
    with pytest.raises(TeamError, match="no question"):
        ask(kept, "add", reason="", **question)
    assert kept.culprits("s") == []


@pytest.mark.parametrize(
    "row",
    [["fails", "", 1, 0], ["fails", "", "nan", 1], ["fails", "", 1e300, 1], ["well", "", 1, 1], ["fails", "", 1], 7],
)
def test_no_verdict_at_all(tmp_path: Path, row: object) -> None:
    kept = File(tmp_path / "oracle.db")
    with pytest.raises(TeamError, match="no question"):
        ask(kept, "record", known={"k": row, "l": ["fails", "", 1, 1]})
    assert kept.look("s", ["k", "l"]) == {}


def test_culprits_do_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_CULPRITS", 5)
    kept = File(tmp_path / "oracle.db", clock=iter(range(100)).__next__)
    for n in range(9):
        kept.add(str(n), Culprit((f"{n}.c",), "", f"fix_{n}.c"))
    assert [n for n in range(9) if kept.culprits(str(n))] == [4, 5, 6, 7, 8]
