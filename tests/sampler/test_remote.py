"""The memory behind a real door: the same answers as the file itself, and no harm from what an agent sends."""

from __future__ import annotations

import asyncio
import base64
import gzip
import http.client
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from team.door import Door, Rights, Tenant
from team.door_client import UnixConnection
from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.sampler import remote
from team.sampler.cases import Outcome, Result
from team.sampler.host import MOST_NOTED, Tests
from team.sampler.memory import Compared, File, Run
from team.sampler.remote import Remote
from team.upstream.upstream import Upstream
from tests.upstream.conftest import make_source

RESULTS = [
    Result("good", Outcome.PASSED, 0.25),
    Result("a\nb::[\u00e9\udce4]", Outcome.FAILED, 1.5, "\x1b[31mno\u202e"),
    Result("slow", Outcome.TIMED_OUT, 300.0, "no end after 300 s"),
]
RUN = Run("agent-09", "", "c" * 40, "", "b" * 40, "landed", "10%", 30, 302.0, RESULTS)


@dataclass
class Open:
    """A door that stands open, in a thread of its own."""

    socket: Path
    tenant: Tenant
    tests: Tests
    ledger: Ledger

    @property
    def remote(self) -> Remote:
        return Remote({"TEAM_DOOR_SOCKET": str(self.socket), "TEAM_DOOR": "", "TEAM_TOKEN": "t"})


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Open]:
    project = Project(tmp_path / "source", "demo-1", tmp_path / "state")
    project.state.mkdir()
    source = make_source(project.root)
    Upstream.create(project, source.path, source.head())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    tenant = Tenant("agent-01", "agent-01@team.invalid", "worker", "agent-01.1", "t")
    with (
        tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as directory,
        closing(Ledger(project.ledger)) as ledger,
        closing(Tests(project.tests, ledger)) as tests,
        closing(Upstream(project, ledger)) as upstream,
    ):

        async def model(request: Any) -> Any:
            raise AssertionError("nobody asks a model here")

        def ask(what: str, body: bytes) -> dict[str, Any]:
            return tests.answer(what, body, "agent-01", "agent-01.1", "fix_one")

        made = Door(tenant, upstream, model, rooms={"test": ask})
        asyncio.run_coroutine_threadsafe(made.open(Path(directory)), loop).result(30)
        yield Open(Path(directory) / "door.sock", tenant, tests, ledger)
        asyncio.run_coroutine_threadsafe(made.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_through_the_door_as_from_the_file(door: Open, tmp_path: Path) -> None:
    names = [result.name for result in RESULTS] + [f"case {n}" for n in range(700)]
    with closing(File(tmp_path / "own.db")) as own:
        assert door.remote.record(RUN) == own.record(RUN)
        assert door.remote.look("", names, "") == own.look("", names, "agent-09")
        for name in names[:4]:
            ours = [(seen.outcome, seen.count, seen.clean) for seen in own.history("", name)]
            assert [(seen.outcome, seen.count, seen.clean) for seen in door.remote.history("", name)] == ours
        assert door.remote.flaky("") == own.flaky("") == []


def test_who_asks_is_known_from_the_door_and_the_ledger_hears_of_it(door: Open) -> None:
    door.remote.record(RUN)
    (event,) = door.ledger.events(Kind.TEST_RUN)
    assert (event.agent, event.session, event.task) == ("agent-01", "agent-01.1", "fix_one")
    assert event.data["ran"] == 3 and event.data["failed"] == event.data["unknown"] == 2
    assert all("\n" not in name for name in event.data["failing"])
    (seen,) = door.remote.history("", RESULTS[1].name)
    assert seen.agent == "agent-01" and seen.reason == "no"


def test_a_session_cannot_fill_the_ledger(door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("team.sampler.host.MOST_NOTED", 3)
    assert MOST_NOTED > 3
    for _ in range(6):
        door.remote.record(replace(RUN, results=RESULTS[:1]))
    assert len(list(door.ledger.events(Kind.TEST_RUN))) == 3
    assert door.remote.history("", "good")[0].count == 6


def test_an_ended_session_is_told_so(door: Open) -> None:
    door.tenant.rights = Rights.RESCUE
    with pytest.raises(OSError, match="this session is ending"):
        door.remote.record(RUN)


def test_where_nobody_answers_it_is_an_error_that_can_be_told(tmp_path: Path) -> None:
    for env in ({"TEAM_DOOR_SOCKET": str(tmp_path / "none"), "TEAM_DOOR": "http://127.0.0.1:9"}, {}):
        with pytest.raises(OSError, match=r"\w"):
            Remote(env).look("", ["a"], "agent-01")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["look", "record", "history", "flaky", "x"]), st.data())
def test_nonsense_is_refused_and_nothing_of_it_is_kept(
    tmp_path_factory: pytest.TempPathFactory, what: str, data: st.DataObject
) -> None:
    good = remote.as_json(RUN) | {"names": ["a"], "name": "a", "place": True}
    keys = st.sampled_from([*good, "results"])
    bad = good | {data.draw(keys): data.draw(json_values) for _ in range(data.draw(st.integers(0, 3)))}
    with closing(File(tmp_path_factory.mktemp("m") / "t.db")) as memory:
        try:
            remote.answer(memory, what, json.dumps(bad).encode(), "agent-01", "agent-01.1", "")
        except TeamError as error:
            assert "no question of `team test`" in str(error)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"suite": "", "names": [1]}', b'{"suite": "\\u202e"}'],
)
def test_what_is_no_json_of_ours(door: Open, body: bytes) -> None:
    connection = UnixConnection(str(door.socket))
    connection.request("POST", "/team/test/look", body)
    assert connection.getresponse().status == 400
    connection.close()


def test_questions_have_a_size(door: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("team.door.MOST_ASKED_BYTES", 1000)
    with pytest.raises(OSError, match="at most"):
        door.remote.look("", ["x" * 2000], "agent-01")
    connection = UnixConnection(str(door.socket))
    with pytest.raises(http.client.HTTPException):  # half a question
        connection.putrequest("POST", "/team/test/look")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        connection.sock.shutdown(1)
        connection.getresponse()
    connection.close()
    assert isinstance(door.remote.record(RUN), Compared)


def test_what_the_gate_left(door: Open, tmp_path: Path) -> None:
    run = replace(RUN, content="tree", base="", base_content="", results=RESULTS[:1])
    written = remote.Written(tmp_path / "left")
    assert written.look("", ["a", "b"], "gate").positions == written.look("", ["a", "b"], "gate").positions
    written.record(run)
    written.record(run)
    left = base64.b64encode(gzip.compress((tmp_path / "left").read_bytes()))
    assert door.tests.from_gate(left) == 1, "told twice, it is one test"
    (seen,) = door.remote.history("", "good")
    assert seen.agent == "gate" and not seen.landed, "a check that passes has not landed"
    with closing(File(door.tests._path)) as memory:
        memory.landed("another tree", "d" * 40)
        memory.landed("tree", "d" * 40)
    (seen,) = door.remote.history("", "good")
    assert seen.landed and seen.commit == "d" * 40
    bomb = base64.b64encode(gzip.compress(b"\0" * (remote.MOST_BYTES + 1000)))
    for nonsense in (b"", b"!", base64.b64encode(b"x"), base64.b64encode(gzip.compress(b"{}")), bomb):
        assert door.tests.from_gate(nonsense) is None
