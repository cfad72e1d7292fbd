"""What each role brought, measured from landings on a real upstream."""

from __future__ import annotations

from pathlib import Path

from team.config import Settings
from team.ledger import Kind, New
from team.schedule import Wait
from team.worth import Worth, worth

from .handout.conftest import Past, past

__all__ = ["past"]


def land(past: Past, session: str, files: dict[str, str | None], kind: str = "work") -> None:
    old, new = past.head(), past.land(files)
    past.ledger.append(Kind.LANDING_DONE, agent="x", session=session, old=old, new=new, kind=kind, subject="Land x")


def start(past: Past, role: str) -> str:
    session = f"{role}-01.1"
    past.ledger.append(Kind.SESSION_STARTING, agent=f"{role}-01", session=session, n=1, role=role, base=past.head())
    return session


def rows(past: Past, **changes: object) -> dict[str, Worth]:
    found = worth(past.ledger, past.path, Settings.model_validate(changes), 5000.0, running=False)
    return {row.role: row for row in found}


def test_lines_documents_and_tickets_are_counted_from_what_landed(past: Past) -> None:
    past.land({"a.py": "1\n" * 30, "b.py": "1\n" * 30, "tasks/old.md": "old\n", "README.md": "x\n"})
    work, dedup, docs, review = (start(past, role) for role in ("worker", "dedup", "docs", "review"))
    land(past, dedup, {"b.py": "from a import b\n"})
    land(past, docs, {"README.md": "y\n", "docs/use.rst": "z\n"})
    land(past, review, {"tasks/new.md": "# New\n" * 9, "tasks/newer.md": "# Newer\n"})
    land(past, review, {"tasks/new.md": "# New\n"})
    land(past, work, {"c.py": "1\n" * 7, "tasks/old.md": None, "tasks/old.patch": "1\n" * 90, "x.bin": "a\0b"})
    found = rows(past)
    assert (found["dedup"].added, found["dedup"].removed) == (1, 30)
    assert found["dedup"].words() == "29 lines fewer"
    assert found["docs"].documents == 2 and "2 documents touched" in found["docs"].words()
    assert (found["review"].tickets, found["review"].added, found["review"].landings) == (2, 0, 2)
    assert found["review"].words() == "2 tickets filed"
    assert (found["worker"].added, found["worker"].tickets, found["worker"].sessions) == (7, 0, 1)


def test_time_saved_is_what_the_benchmark_told(past: Past) -> None:
    past.land({"a.py": "1\n"})
    start(past, "performance")
    for before, after in ((1000, 600), (600, 650)):
        told = {"role": "performance", "commit": "c" * 40, "subject": "x", "before": before, "after": after}
        past.ledger.append_all([New(Kind.ROLE_MEASURED, "performance-01", data=told)])
    row = rows(past)["performance"]
    assert (row.measured, row.saved) == (2, 350) and row.words() == "benchmark 22% faster (350 ms)"


def test_when_the_next_session_is_due(past: Past) -> None:
    past.land({"a.py": "1\n"})
    past.reviewed("docs")
    work = start(past, "worker")
    land(past, work, {"a.py": "2\n"})
    assert rows(past)["docs"].due == Wait(landings=14)
    assert rows(past, role={"docs": {"every": "1 landing"}})["docs"].due is None
    assert rows(past)["worker"].every == "" and rows(past)["worker"].json()["due_after_landings"] is None


def test_a_repository_that_is_gone_leaves_what_the_ledger_knows(past: Past, tmp_path: Path) -> None:
    past.land({"a.py": "1\n"})
    land(past, start(past, "docs"), {"README.md": "1\n"})
    empty = tmp_path / "empty"
    empty.mkdir()
    found = {row.role: row for row in worth(past.ledger, empty, Settings(), 0.0, running=False)}
    assert (found["docs"].landings, found["docs"].documents) == (1, 0)
