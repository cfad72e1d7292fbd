"""``team ps --roles``: what each role brought, as text and as JSON."""

from __future__ import annotations

from pathlib import Path

from team.git import git, line
from team.ledger import Kind, Ledger
from team.places import Project

from .conftest import CommandLine


def land(project: Project, ledger: Ledger, role: str, files: dict[str, str], tree: Path) -> None:
    """A session of ``role`` lands ``files``."""
    at, session = project.upstream, f"{role}-01.1"
    old = line("rev-parse", "main", at=at)
    ledger.append(Kind.SESSION_STARTING, agent=f"{role}-01", session=session, n=1, role=role, base=old)
    for path, content in files.items():
        (tree / path).write_text(content)
    git("add", "-A", at=tree)
    git("commit", "-q", "-m", "work", at=tree)
    git("fetch", "-q", str(tree), "+HEAD:refs/heads/main", at=at)
    new = line("rev-parse", "main", at=at)
    ledger.append(Kind.LANDING_DONE, agent=f"{role}-01", session=session, old=old, new=new, kind="work", subject="Land")
    ledger.append(Kind.SESSION_ENDING, session=session, outcome="done", reason="", exit=0)


def test_before_the_first_session(team: CommandLine) -> None:
    assert "no role has had a session yet" in team("ps", "--roles").out
    assert team("ps", "--roles", "--json").json == {"roles": []}


def test_what_each_role_brought(team: CommandLine, root: Path, project: Project, ledger: Ledger) -> None:
    land(project, ledger, "docs", {"README.md": "# project\n\nMore.\n"}, root)
    land(project, ledger, "worker", {"a.py": "x = 1\n"}, root)
    ledger.append(
        Kind.MODEL_CALL, agent="docs-01", session="docs-01.1", role="docs", model="m", status=200, cost=0.25, output=5
    )
    shown = {row.split()[0]: row for row in team("ps", "--roles").out.splitlines()}
    assert list(shown) == ["ROLE", "worker", "docs"]
    for word in ("1", "$0.25", "after 14 landings", "2 lines more, 1 document touched"):
        assert word in shown["docs"]
    assert "1 line more" in shown["worker"]
    [worker, docs] = team("ps", "--roles", "--json").json["roles"]
    assert (docs["role"], docs["landings"], docs["lines_added"], docs["documents_touched"]) == ("docs", 1, 2, 1)
    assert (docs["every"], docs["due_after_landings"], docs["usd"]) == ("15 landings", 14, 0.25)
    assert (worker["lines_added"], worker["every"]) == (1, None)


def test_a_schedule_that_makes_no_sense_is_told(team: CommandLine, root: Path, project: Project) -> None:
    (root / "team.toml").write_text('[role.docs]\nevery = "often"\n')
    assert team.refused("ps", "--roles") == (
        "team.toml:2: role.docs.every: write a number of landings or a time, like '20 landings' or '2h'; it is 'often'"
    )
    (root / "team.toml").write_text('[role.dosc]\nevery = "2h"\n')
    assert "team.toml:1: role.dosc: unknown role 'dosc'; known: dedup, docs, " in team.refused("ps", "--roles")
    (root / "team.toml").write_text('[roles.docs]\nevery = "2h"\n')
    assert team.refused("ps", "--roles") == (
        "team.toml:1: roles: this is the list of seats; the settings of a role are [role.NAME]"
    )
