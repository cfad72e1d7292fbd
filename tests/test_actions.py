"""Actions that wait for a person: a real ledger, and the real door of a session over its socket."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from team.actions import DENIED, MOST_ASKED, MOST_BYTES, MOST_SHOWN, MOST_WAITING, Actions
from team.door import Door, Rights, Tenant
from team.door_client import DoorClient
from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.upstream.upstream import Upstream

WHO = ("agent-01", "agent-01.1", "fix_parser")


class Site:
    """A ledger, with a supervisor's view of it and a person's, each over a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = Ledger(path)
        self.actions = Actions(self.ledger)
        self.person = Actions(Ledger(path))

    def ask(self, command: str = "npm publish", session: str = "agent-01.1", **more: Any) -> dict[str, Any]:
        question = {"tool": "bash", "input": {"command": command}, **more}
        return self.actions.answer("ask", json.dumps(question).encode(), "agent-01", session, "fix_parser")

    def state(self, id: str = "a1", session: str = "agent-01.1") -> dict[str, Any]:
        return self.actions.answer("state", json.dumps({"id": id}).encode(), "agent-01", session, None)

    def ends(self, session: str = "agent-01.1") -> None:
        self.ledger.append(Kind.SESSION_ENDING, agent="agent-01", session=session, outcome="done", reason="", exit=0)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "ledger.db")


def test_what_is_asked_waits_until_a_person_decides(site: Site) -> None:
    assert site.ask(note="it is public") == {"id": "a1", "state": "waiting", "note": ""}
    assert site.ask("rm -rf x") == {"id": "a2", "state": "waiting", "note": ""}
    first, second = site.person.waiting()
    assert (first.id, first.agent, first.task, first.line) == ("a1", "agent-01", "fix_parser", "bash: npm publish")
    assert (first.reason, second.text) == ("it is public", "rm -rf x")
    site.person.approve("a1", "Pat", "once")
    site.person.deny("a2", "Pat", "use\ngit \x1b[31mclean")
    assert site.state("a1") == {"id": "a1", "state": "allowed", "note": "once"}
    assert site.state("a2") == {"id": "a2", "state": "denied", "note": "use git clean"}
    assert site.person.waiting() == []


def test_a_denial_without_a_note_has_one(site: Site) -> None:
    site.ask()
    site.person.deny("a1", "Pat")
    assert site.state()["note"] == DENIED


def test_the_same_question_again_is_the_same_action_until_it_is_decided(site: Site) -> None:
    assert site.ask()["id"] == site.ask()["id"] == "a1"
    site.person.approve("a1", "Pat")
    assert site.ask()["id"] == "a2", "what was allowed is one call"


def test_only_its_session_hears_of_an_action(site: Site) -> None:
    site.ask()
    for id, session in (("a1", "agent-02.1"), ("a2", "agent-01.1"), ("../a1", "agent-01.1")):
        with pytest.raises(TeamError, match="no such action"):
            site.state(id, session)


def test_a_verdict_outlives_the_supervisor(site: Site) -> None:
    site.ask()
    site.ledger.close()
    site.person.approve("a1", "Pat")
    site.ledger = Ledger(site.path)
    site.actions = Actions(site.ledger)
    assert site.state()["state"] == "allowed"
    assert site.ask("other")["id"] == "a2", "numbers go on"


def test_the_end_of_a_session_drops_what_it_waits_for(site: Site) -> None:
    site.ask()
    site.ask(session="agent-02.1")
    site.ends()
    assert [action.id for action in site.person.waiting()] == ["a2"]
    with pytest.raises(TeamError, match=r"action a1 was dropped: session agent-01\.1 has ended"):
        site.person.approve("a1", "Pat")
    assert site.ask("too late")["state"] == "dropped"
    assert [action.id for action in site.person.waiting()] == ["a2"]


def test_the_first_word_counts(site: Site) -> None:
    site.ask()
    other = Actions(Ledger(site.path))
    other.waiting()
    site.person.deny("a1", "Pat", "no")
    with pytest.raises(TeamError, match="action a1 is denied already, by Pat: no"):
        other.approve("a1", "Sam")
    with pytest.raises(TeamError, match=r"no action a9 is held; held: none"):
        other.approve("a9", "Sam")


def test_a_word_that_comes_between_the_look_and_the_decision_is_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask()
    found = site.person.find("a1")

    def meanwhile(id: str) -> Any:
        site.ends()
        return found

    monkeypatch.setattr(site.person, "find", meanwhile)
    with pytest.raises(TeamError, match="was dropped"):
        site.person.approve("a1", "Pat")
    assert site.actions.waiting() == []


def test_a_person_sees_everything_that_is_decided(site: Site) -> None:
    site.ask("echo \x1b[2Ja\u202eb\ud800\n\tc")
    [action] = site.person.waiting()
    assert action.text == "echo \\u{1b}[2Ja\\u{202e}b\\u{d800}\n\tc"
    assert "\n" not in action.line and action.line.endswith(" ↵ c"), "no command hides behind another's line"
    answer = site.actions.answer("ask", b'{"tool": "edit", "input": {"path": "a", "n": 1}}', *WHO)
    assert site.person.find(answer["id"]).text == '{\n "n": 1,\n "path": "a"\n}'
    with pytest.raises(TeamError, match="too many for a person to judge"):
        site.ask("x" * (MOST_SHOWN + 1))


def test_a_session_asks_so_often_and_no_more(site: Site) -> None:
    for n in range(MOST_WAITING):
        site.ask(str(n))
    with pytest.raises(TeamError, match=r"8 actions of this session wait .* already"):
        site.ask("one more")
    assert site.ask("0")["id"] == "a1"
    assert site.ask("other", session="agent-02.1")["state"] == "waiting"


def test_a_session_asks_so_often_in_all(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ASKED == 200
    monkeypatch.setattr("team.actions.MOST_ASKED", 2)
    for n in range(2):
        site.person.deny(site.ask(str(n))["id"], "Pat")
    with pytest.raises(TeamError, match="has asked 2 times; no more"):
        site.ask("again")


@pytest.mark.parametrize(
    ("what", "body", "words"),
    [
        ("ask", b"{", "expected a question in JSON"),
        ("ask", b"[" * 30_000, "expected a question in JSON"),
        ("ask", b"[]", "expected a question in JSON"),
        ("ask", b" " * (MOST_BYTES + 1), "bytes at most"),
        ("ask", b"{}", "needs 'tool'"),
        ("ask", b'{"tool": "a b", "input": {}}', "needs 'tool'"),
        ("ask", b'{"tool": "bash", "input": "ls"}', "needs 'input'"),
        ("ask", b'{"tool": "bash", "input": {}, "note": 1}', "needs 'input'"),
        ("ask", b'{"tool": "b", "input": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}", ""),
        ("state", b"{}", "no such action"),
        ("state", b'{"id": ["a1"]}', "no such action"),
        ("allow", b'{"id": "a1"}', "know 'ask' and 'state', not 'allow'"),
    ],
)
def test_nonsense_is_answered_in_one_line(site: Site, what: str, body: bytes, words: str) -> None:
    try:
        site.actions.answer(what, body, *WHO)
    except TeamError as error:
        assert words in str(error) and "\n" not in str(error)
    else:
        assert not words


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "source", "demo-1", tmp_path / "state")


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as short:  # a socket's path is short
        yield Path(short)


async def test_over_the_door_also_through_a_restart(project: Project, directory: Path) -> None:
    client = DoorClient({"TEAM_DOOR_SOCKET": str(directory / "door.sock")})

    async def ask(path: str, question: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(client.ask, path, question)

    async def supervised(talk: Any) -> Tenant:
        with closing(Ledger(project.ledger)) as ledger, closing(Upstream(project, ledger)) as upstream:
            actions = Actions(ledger)
            tenant = Tenant("agent-01", "agent-01@team.invalid", "worker", "agent-01.1", "token")
            rooms = {"action": lambda what, body: actions.answer(what, body, "agent-01", "agent-01.1", None)}
            door = Door(tenant, upstream, None, rooms=rooms)  # type: ignore[arg-type]
            await door.open(directory)
            before = tenant.touched
            await talk(tenant)
            assert tenant.touched > before, "a session that waits is not silent"
            await door.close()
        return tenant

    async def first(tenant: Tenant) -> None:
        held = await ask("/team/action/ask", {"tool": "bash", "input": {"command": "npm publish"}})
        assert held == {"id": "a1", "state": "waiting", "note": ""}
        assert (await ask("/team/action/state", {"id": "a1"}))["state"] == "waiting"
        with pytest.raises(OSError, match="no such action"):
            await ask("/team/action/state", {"id": "a2"})

    async def second(tenant: Tenant) -> None:
        assert await ask("/team/action/state", {"id": "a1"}) == {"id": "a1", "state": "allowed", "note": "go"}
        tenant.rights = Rights.RESCUE
        with pytest.raises(OSError, match="this session is ending"):
            await ask("/team/action/state", {"id": "a1"})

    await supervised(first)
    with closing(Ledger(project.ledger)) as ledger:
        Actions(ledger).approve("a1", "Pat", "go")
    await supervised(second)
