"""A hostile agent in its container: no network, no root, no other session, no key, no more model than allowed."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from team.git import git
from team.ledger import Kind
from team.plan import Key
from team.rehearsal.model import ScriptedModel, key_name
from team.rehearsal.script import commands
from tests.e2e.conftest import PERSON, Stage, Stages

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
KEY = "sk-fake-0123456789-of-this-test-abcdefgh"
SECRET = "hunter2hunter2"
PUSH = "/git/upstream/git-receive-pack"
# The victim holds a task, leaves work behind, and lives until the attacker has ended.
VICTIM = """
printf 'mine\\n' > current_tasks/fix_two.txt
git add -A && git commit -qm 'Claim fix_two' && git push -q 2>&1
echo left behind > note.txt
for i in $(seq 2000); do git --git-dir=/upstream cat-file -e main:done.txt 2>/dev/null && break; sleep 0.1; done
"""
ATTACKER = """
python3 -m tests.e2e.hostile_cage "$0"
git fetch -q && git reset -q --hard origin/main
echo done > done.txt && git add done.txt && git commit -qm Done && git push -q 2>&1
"""
AGENTS = f"case $TEAM_AGENT in agent-01) {ATTACKER};; *) {VICTIM};; esac"


def private_repository(root: Path) -> None:
    """What a user's repository has beside the branch: none of it is the agents' business."""
    git("tag", "v1", at=root)
    git("tag", "-a", "v2", "-m", "second", at=root, env=PERSON)
    git("remote", "add", "origin", f"https://pat:{SECRET}@git.example.org/pat/project.git", at=root)
    git("config", "alias.steal", f"!echo {SECRET}", at=root)
    (root / ".git/hooks/pre-receive").write_text(f"#!/bin/sh\necho {SECRET}\n")
    git("switch", "-q", "-c", "private", at=root)
    (root / "private.txt").write_text(f"{SECRET}\n")
    git("add", "private.txt", at=root)
    git("commit", "-q", "-m", f"private {SECRET}", at=root, env=PERSON)
    git("tag", "private-tag", at=root)
    git("notes", "add", "-m", SECRET, "main", at=root, env=PERSON)
    git("update-ref", "refs/remotes/origin/main", "private", at=root)
    git("switch", "-q", "main", at=root)
    (root / "README.md").write_text(f"{SECRET}\n")
    git("stash", "push", "-q", "-m", SECRET, at=root, env=PERSON)


@dataclass
class Cage:
    """One run: a hostile agent, its victim, what the host saw meanwhile."""

    stage: Stage
    model: ScriptedModel
    said: dict[str, Any]
    listener: Listener
    inspected: dict[str, str] = field(default_factory=dict)
    """Session -> its container as the engine describes it."""
    tokens: dict[str, str] = field(default_factory=dict)
    late: dict[str, bytes] = field(default_factory=dict)
    """What a kept connection answered after the session had ended."""
    logged: list[str] = field(default_factory=list)
    """What would have been printed on the person's screen by way of logging."""

    async def beside(self, stage: Stage) -> None:
        """Look at the containers, try one session's token at another's door, and keep connections past the end."""
        await stage.until(lambda s: len([e for e in s.events if e.kind == Kind.SESSION_RUNNING]) == 2)
        for event in [e for e in stage.events if e.kind == Kind.SESSION_CREATED]:
            found = await asyncio.to_thread(stage.engine.inspect_container, event.data["container"])
            self.inspected[event.session or ""] = json.dumps(found)
        doors = {s: stage.project.door(s) for s in ("agent-01.1", "agent-02.1")}
        self.tokens = {session: (door / "token").read_text() for session, door in doors.items()}
        victim, attacker = self.tokens["agent-02.1"], self.tokens["agent-01.1"]
        links = [await Link.open(doors["agent-02.1"] / "door.sock") for _ in range(3)]
        self.late["own token"] = await links[0].ask("GET", "/v1/models", victim)
        self.late["other's token"] = await links[0].ask("GET", "/v1/models", attacker)
        for link in links:
            await link.ask("HEAD", "/", victim)
        await stage.until(lambda s: any(e.kind == Kind.SESSION_ENDING and e.session == "agent-02.1" for e in s.events))
        self.late["model while ending"] = await links[0].ask("GET", "/v1/models", victim)
        self.late["push while ending"] = await links[1].ask(
            "POST", "/git/upstream/git-receive-pack", victim, push(stage)
        )
        await stage.until(lambda s: any(e.kind == Kind.SESSION_ENDED and e.session == "agent-02.1" for e in s.events))
        self.late["model after the end"] = await links[2].ask("GET", "/v1/models", victim)
        self.late["push after the end"] = await links[0].ask("POST", PUSH, victim, push(stage))


def push(stage: Stage) -> bytes:
    """A push that would delete main; no session may, and one that has ended is not even asked what it wants."""
    text = f"{stage.main()} {'0' * 40} refs/for/main\0 report-status\n".encode()
    return f"{len(text) + 4:04x}".encode() + text + b"0000"


@dataclass
class Link:
    """A connection to a door that is kept alive, from the host's side of the socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @staticmethod
    async def open(path: Path) -> Link:
        return Link(*await asyncio.open_unix_connection(str(path)))

    async def ask(self, method: str, path: str, token: str, body: bytes = b"") -> bytes:
        """One request; everything that comes back within a second, ``closed`` where the connection is."""
        head = f"{method} {path} HTTP/1.1\r\nHost: door\r\nx-api-key: {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            self.writer.write(head.encode() + body)
            await self.writer.drain()
            answer = await asyncio.wait_for(self.reader.read(1 << 16), 5)
            with suppress(TimeoutError):
                while more := await asyncio.wait_for(self.reader.read(1 << 16), 0.1):
                    answer += more
        except ConnectionError:
            return b"closed"
        return answer or b"closed"


class Listener:
    """A service of the host on all of its addresses, that counts who comes."""

    def __init__(self) -> None:
        self.server = socket.create_server(("", 0))
        self.port = self.server.getsockname()[1]
        self.visits = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self.server.accept()
                self.visits += 1
                link.close()

    def close(self) -> None:
        self.server.close()


class Screen(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def addresses() -> list[str]:
    """The host's own addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        with suppress(OSError):
            link.connect(("192.0.2.1", 9))
        found = {link.getsockname()[0], "172.17.0.1"}
    return sorted(str(a) for a in found if not str(a).startswith(("127.", "0.")))


@pytest.fixture(scope="module")
def cage(stages: Stages) -> Iterator[Cage]:
    files = {f"tests/e2e/{n}.py": (HERE / f"{n}.py").read_text() for n in ("hostile_kit", "hostile_cage")}
    stage = stages(files, private_repository)
    listener = Listener()
    model = ScriptedModel(commands())
    paths = [str(stage.root), str(stage.project.state), str(stage.project.doors), "/var/lib/docker"]
    given = {"port": listener.port, "hosts": addresses(), "yek": KEY[::-1], "paths": paths}
    made = Cage(stage, model, {}, listener)
    screen = Screen(made.logged)
    logging.getLogger().addHandler(screen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        argv = ("sh", "-c", AGENTS, json.dumps(given))
        settings = {"session": {"pids": 256, "max_time": 200.0}}
        stage.run(agents=2, argv=argv, key=Key(KEY), settings=settings, model=model, beside=made.beside)
    logging.getLogger().removeHandler(screen)
    made.said = stage.attacks("agent-01.1")
    yield made
    listener.close()


def test_no_network_of_any_kind_can_be_reached(cage: Cage) -> None:
    assert cage.said["interfaces"] == ["lo"]
    reached = cage.said["networks_v4"] | cage.said["networks_v6"]
    assert len(reached) >= 12 and "done" not in reached.values()
    assert f"127.0.0.1:{cage.listener.port}" in reached
    assert set(cage.said["names"].values()) <= {"gaierror -3", "gaierror -2", "ENETUNREACH"}
    assert cage.said["raw_sockets"] == {"packet": "EPERM", "icmp": "EPERM"}
    assert cage.said["listeners"] == {"tcp": [8787], "unix": []}
    assert cage.listener.visits == 0
    for host in ("127.0.0.1", *addresses()):
        socket.create_connection((host, cage.listener.port), 5).close()  # it was there to be reached


def test_the_engine_is_out_of_reach(cage: Cage) -> None:
    assert cage.said["socket_files"] == ["/run/team/door.sock"]


def test_there_is_no_way_to_root(cage: Cage) -> None:
    rights = cage.said["rights"]
    assert rights["uid"] != 0 and rights["gid"] != 0 and 0 not in rights["groups"]
    assert {rights[name] for name in rights if name.startswith("Cap")} == {"0000000000000000"}
    assert rights["NoNewPrivs"] == "1" and rights["Seccomp"] == "2"
    setuid = cage.said["setuid_binaries"]
    assert setuid["found"] > 0 and setuid["mount"][0] != 0 and setuid["chsh"] != 0
    assert set(cage.said["system_calls"].values()) == {"EPERM"} and len(cage.said["system_calls"]) == 10


def test_kernel_and_devices_are_closed(cage: Cage) -> None:
    found = dict(cage.said["kernel_files"])
    assert found.pop("devices") == []
    assert len(found) >= 9 and set(found.values()) <= {"EACCES", "ENOENT", "EROFS", "EPERM"}


def test_what_is_mounted_from_the_host_cannot_be_written(cage: Cage) -> None:
    found = cage.said["read_only_mounts"]
    assert len(found) == 16 and set(found.values()) <= {"EROFS", "EACCES"}
    assert found["hook"] == found["unlink socket"] == found["rename socket"] == "EROFS"
    assert not (cage.stage.project.upstream / "hooks/post-receive").exists()
    files = {"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/usr/sbin/docker-init"}
    assert set(cage.said["mounts"]) - files == {"/", "/opt/team", "/run/team", "/upstream", "/workspace"}


def test_other_sessions_and_the_host_cannot_be_seen(cage: Cage) -> None:
    assert cage.said["others"] == {"processes": [], "files": [], "host paths": ["ENOENT"] * 4}


def test_the_key_is_nowhere_in_the_container(cage: Cage) -> None:
    found = cage.said["the_key"]
    assert found["token"] == ["proc"] and found["code"] == ["workspace"], "else the search found nothing at all"
    assert found["looked"] > 1000 and found["key"] == found["key64"] == []


def test_the_key_is_nowhere_on_the_host_but_at_the_provider(cage: Cage) -> None:
    assert set(cage.inspected) == {"agent-01.1", "agent-02.1"}
    for session, text in cage.inspected.items():
        assert cage.tokens[session] in text and KEY not in text
    files = [p for top in (cage.stage.project.state, cage.stage.root) for p in top.rglob("*") if p.is_file()]
    assert any(p.name == "ledger.db" for p in files) and any(p.suffix == ".log" for p in files)
    assert [p for p in files if KEY.encode() in p.read_bytes()] == []
    assert set(cage.model.keys) == {key_name(KEY)} or cage.model.keys == {}
    assert {r["headers"]["x-api-key"] for r in cage.model.seen} == {key_name(KEY)}


def test_only_allowed_calls_reach_the_provider(cage: Cage) -> None:
    assert cage.said["model_allowed"] == {"models": 200, "messages": 200}
    paths = dict(cage.said["model_paths"])
    assert paths.pop("POST /v1/messages#/../files") in (400, 403), "a fragment is no part of a request"
    assert len(paths) >= 38 and set(paths.values()) <= {400, 403, 404, 405}
    headers = cage.said["model_headers"]
    assert headers["smuggled"] == headers["split"] == headers["garbage"] == 400 and headers["pipelined"] == 1
    seen = [(r["method"], r["path"]) for r in cage.model.seen]
    assert set(seen) <= {("GET", "/v1/models"), ("POST", "/v1/messages?beta=true"), ("POST", "/v1/messages")}
    assert seen.count(("POST", "/v1/messages")) <= 1
    hosts = {r["headers"]["Host"] for r in cage.model.seen}
    assert len(hosts) == 1 and hosts.pop().startswith("127.0.0.1:")


def test_a_door_knows_no_token_but_its_own(cage: Cage) -> None:
    assert cage.said["model_without_token"] == {"none": 401, "wrong": 401, "claimed": 401}
    assert cage.late["own token"].startswith(b"HTTP/1.1 200 ")
    assert cage.late["other's token"].startswith(b"HTTP/1.1 401 ")
    doors = cage.said["other_doors"]
    assert len(doors) == 8 and set(doors.values()) <= {403, 404}


def test_a_kept_connection_has_no_rights_after_the_session(cage: Cage) -> None:
    assert cage.late["model while ending"].startswith(b"HTTP/1.1 403 ")
    assert b"ng refs/for/main this session is ending" in cage.late["push while ending"]
    for what in ("model after the end", "push after the end"):
        assert cage.late[what] == b"closed" or cage.late[what].startswith(b"HTTP/1.1 403 ")
    assert cage.stage.ledger(Kind.RESCUE_SAVED, session="agent-02.1"), "its rescue had the right it needs"


def test_what_the_agent_sends_is_not_printed_on_the_screen(cage: Cage) -> None:
    assert cage.logged == []


def test_nothing_private_of_the_users_repository_is_in_upstream(cage: Cage) -> None:
    stage = cage.stage
    refs = stage.git("for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/main", "refs/tags/v1", "refs/tags/v2"]
    objects = stage.git("cat-file", "--batch-all-objects", "--batch-check").splitlines()
    private = [
        git("rev-parse", name, at=stage.root).decode().strip() for name in ("private", "stash", "private:private.txt")
    ]
    assert objects and not any(oid in line for oid in private for line in objects)
    files = [p for p in stage.project.upstream.rglob("*") if p.is_file()]
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []
    contents = stage.git("cat-file", "--batch-all-objects", "--batch", "--unordered")
    assert "def one()" in contents and SECRET not in contents


def test_the_sessions_end_and_leave_nothing(cage: Cage) -> None:
    assert cage.stage.outcome("agent-01.1") == cage.stage.outcome("agent-02.1") == "done"
    assert cage.stage.on_engine() == []
    assert "done.txt" in cage.stage.files()
