"""The crowd's project is the same everywhere, its script leads through a task, and its checks see what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.crowd_checks import Evidence
from benchmarks.crowd_project import MARKER, CrowdScript, Ticket, make, tickets
from team.git import git, line
from tests.upstream.conftest import Clone, Site
from tests.upstream.conftest import site as site

FILES = {f"pkg/m{n}.py": b"".join(b"x%d = %d\n" % (k, n) for k in range(30)) for n in range(6)}


def test_the_project_is_the_same_everywhere(tmp_path: Path) -> None:
    made = tickets(FILES, 8)
    for name in ("one", "two"):
        make(tmp_path / name, FILES, made, commits=40)
    one, two = (line("rev-parse", "main", at=tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert line("rev-list", "--count", "main", at=tmp_path / "one") == "40"
    assert all((tmp_path / "one" / path).read_bytes() == data for path, data in FILES.items())
    assert len(list((tmp_path / "one" / "tasks").iterdir())) == 8


def test_two_of_four_tickets_end_the_same_file_and_two_share_another() -> None:
    one, two, three, four = tickets(FILES, 4).values()
    assert one == two
    assert (three.path, three.top, four.top) == (four.path, True, False)


def test_the_script_wants_the_first_ones_and_ends_when_none_is_open() -> None:
    script = CrowdScript(tickets(FILES, 8), agents=4)
    assert "# Claim note_000" in script.next("agent-01", "agent-01.1", 1, "== OPEN note_0001 note_0002", "").commands[0]
    assert not script.next("agent-01", "agent-01.1", 1, "== OPEN", "").commands
    assert not script.next("agent-01", "agent-01.1", 2, "killed", "").commands


@pytest.fixture
def ticket(site: Site) -> dict[str, Ticket]:
    """A person wrote ``note_0000``, and a file for it."""
    site.person().commit_paths("Ticket", {"tasks/note_0000.md": "# Note\n", "pkg.py": "x = 1\n"})
    Clone(site.base / "person", "Ann", "ann@example.org").lands()
    return {"note_0000": Ticket("pkg.py", top=False)}


def evidence(site: Site, made: dict[str, Ticket]) -> Evidence:
    return Evidence(site.project, site.ledger, line("rev-parse", "main", at=site.project.upstream), made)


def test_a_task_that_one_session_did_is_fine(site: Site, ticket: dict[str, Ticket]) -> None:
    found = evidence(site, ticket)
    one = site.agent(1, "agent-01.1")
    one.claim("note_0000")
    one.lands()
    work = {"pkg.py": f"x = 1\n{MARKER}note_0000 by agent-01.1\n", "tasks/note_0000.md": None}
    said = f"PUSHED {one.commit_paths('Note', {**work, 'current_tasks/note_0000.txt': None})} 12\\n"
    said += one.lands()
    (site.project.logs / "agent-01").mkdir(parents=True)
    (site.project.logs / "agent-01" / "agent_x_1.jsonl").write_text(said)
    figures = found.pushes() | found.tasks() | found.claims() | found.repository()
    assert (figures["pushed_ok"], figures["landings_told"], figures["tasks_landed"]) == (1, 1, 1)
    assert not found.details
    assert not [name for name, value in figures.items() if name.startswith("bad_") and value]


def test_what_was_promised_and_is_not_there_is_told(site: Site, ticket: dict[str, Ticket]) -> None:
    found = evidence(site, ticket)
    one = site.agent(1, "agent-01.1")
    one.claim("note_0000")
    one.lands()
    lost = one.commit("lost", pkg_DOT_py="x = 2\n")
    (site.project.logs / "agent-01").mkdir(parents=True)
    (site.project.logs / "agent-01" / "agent_x_1.jsonl").write_text(
        f"PUSHED {lost} 9\\nremote: landed on main as {lost[:10]} (landing 77)\\n"
    )
    figures = found.pushes() | found.tasks() | found.claims()
    assert figures["bad_pushed_not_in_main"] == figures["bad_told_not_in_main"] == 1
    assert figures["bad_open"] == figures["bad_locks_left"] == figures["bad_held_left"] == 1
    assert f"pushed, not in main: {lost}" in found.details


def test_work_by_somebody_who_held_nothing_is_told(site: Site, ticket: dict[str, Ticket]) -> None:
    found = evidence(site, ticket)
    person = site.person()
    lines = "".join(f"{MARKER}note_0000 by agent-0{n}.1\n" for n in (1, 2))
    person.commit_paths("Both did it", {"pkg.py": lines, "tasks/note_0000.md": None})
    person.lands()
    figures = found.tasks() | found.story()
    assert figures["bad_landed_twice"] == figures["bad_without_names"] == 1
    git("update-ref", "refs/heads/main", found.base, at=site.project.upstream)
    assert evidence(site, ticket).story()["bad_ledger_disagrees"] == 1
