"""A project with an upstream that real ``git push`` reaches, without HTTP and containers."""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from team.config import Gate, Landing
from team.ledger import Event, Kind, Ledger
from team.names import agent_email
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream

# Stands in for receive-pack: joins git's pipes to a socket of the test, and says first who pushes.
RELAY = """
import os, socket, sys, threading
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b"\\n")
def up():
    while data := os.read(0, 65536):
        try: s.sendall(data)
        except OSError: break
    try: s.shutdown(socket.SHUT_WR)
    except OSError: pass
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536): os.write(1, data)
"""


def environment(name: str = "Ann", email: str = "ann@example.org") -> dict[str, str]:
    """What a git of the tests sees: an identity, and nothing of the machine's own settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
        "GIT_TERMINAL_PROMPT": "0",
    }


@dataclass
class Clone:
    """A work tree, and who works in it."""

    path: Path
    name: str
    email: str
    session: str | None = None

    def run(self, *args: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
        """Run git here; its exit code is the caller's matter."""
        done = subprocess.run(
            ["git", *args], cwd=self.path, env=environment(self.name, self.email), input=stdin, capture_output=True
        )
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def git(self, *args: str, stdin: bytes | None = None) -> str:
        """Run git here; it must succeed."""
        done = self.run(*args, stdin=stdin)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout.strip()

    def commit(self, message: str = "work", **files: str | bytes | None) -> str:
        """Write (or remove, for None) files whose names have ``__`` for a slash and ``_DOT_`` for a dot."""
        return self.commit_paths(message, {k.replace("__", "/").replace("_DOT_", "."): v for k, v in files.items()})

    def commit_paths(self, message: str, files: Mapping[str, str | bytes | None]) -> str:
        for name, content in files.items():
            path = self.path / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def claim(self, task: str, note: str = "") -> str:
        return self.commit_paths(f"Claim {task}", {f"current_tasks/{task}.txt": note})

    def drop(self, task: str) -> str:
        return self.commit_paths(f"Release {task}", {f"current_tasks/{task}.txt": None})

    def head(self) -> str:
        return self.git("rev-parse", "HEAD")

    def push(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run("push", *args)

    def lands(self, *args: str) -> str:
        """Push; it must land. Returns what git printed."""
        done = self.push(*args)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def refused(self, *args: str) -> str:
        """Push; it must be refused. Returns what git printed."""
        done = self.push(*args)
        assert done.returncode != 0, done.stderr
        return done.stderr

    def pull(self) -> None:
        self.git("pull", "-q", "--no-edit")


@dataclass
class Site:
    """A project with upstream, ledger and a server for pushes."""

    base: Path
    project: Project
    source: Clone
    ledger: Ledger
    upstream: Upstream
    address: Path
    landing: Landing = field(default_factory=Landing)
    pushers: dict[str, Pusher] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def agent(self, number: int, session: str | None = None) -> Clone:
        """A fresh clone for a session of agent ``number``."""
        name = f"agent-{number:02d}"
        session = session or f"s{len(self.pushers) + 1}"
        pusher = Pusher(name, agent_email(name), session, "worker", alive=lambda: session not in self.ended)
        return self.clone(pusher, session)

    def person(self) -> Clone:
        return self.clone(Pusher("Ann", "ann@example.org", None), "person")

    def clone(self, pusher: Pusher, key: str) -> Clone:
        self.pushers[key] = pusher
        clone = Clone(self.base / key, pusher.name, pusher.email, pusher.session)
        shutil.rmtree(clone.path, ignore_errors=True)
        clone.path.mkdir()
        url = str(self.project.upstream)
        clone.git("clone", "-q", "--shared", url, ".")
        relay = self.base / "relay.py"
        clone.git("config", "remote.origin.receivepack", f"{sys.executable} -SE {relay} {self.address} {key} #")
        clone.git("config", "remote.origin.push", "HEAD:refs/for/main")
        clone.git("config", "pull.rebase", "false")
        return clone

    def ending(self, clone: Clone) -> None:
        """From now on the session of ``clone`` is ending."""
        key = clone.session or "person"
        self.pushers[key] = replace(self.pushers[key], ending=True)

    def reopen(
        self, landing: Landing | None = None, protected: tuple[str, ...] = (), gate: Gate | None = None
    ) -> Upstream:
        """Upstream as a restarted supervisor sees it."""
        self.upstream.close()
        self.upstream = Upstream(self.project, self.ledger, landing or self.landing, protected, gate=gate or Gate())
        return self.upstream

    def git(self, *args: str) -> str:
        """Run git in upstream."""
        return Clone(self.project.upstream, "x", "x@x").git(*args)

    def files(self) -> list[str]:
        return [name for name in self.git("ls-tree", "-r", "-z", "--name-only", "main").split("\0") if name]

    def events(self, *kinds: Kind) -> list[Event]:
        return list(self.ledger.events(*kinds))

    def rule(self) -> str:
        """The rule by which the last push was refused."""
        event = self.ledger.last(Kind.PUSH_REFUSED)
        assert event is not None
        return str(event.data["rule"])

    def serve(self, who: str, stream: BinaryIO, connection: socket.socket) -> None:
        pusher = self.pushers[who]
        connection.sendall(self.upstream.advertise(pusher))
        self.upstream.receive(pusher, stream, connection.sendall)


def make_source(path: Path, files: dict[str, str] | None = None) -> Clone:
    """A user's repository with one commit."""
    path.mkdir()
    source = Clone(path, "Ann", "ann@example.org")
    source.git("init", "-q", "-b", "main", ".")
    source.commit_paths("Start", files or {"README.md": "hello\n", "src/a.txt": "a\n" * 20, "src/b.txt": "b\n" * 20})
    return source


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    project = Project(tmp_path / "source", "demo-1", tmp_path / "state")
    tickets = {"README.md": "hello\n", "src/a.txt": "a\n" * 20, "src/b.txt": "b\n" * 20}
    tickets |= {"tasks/fix_parser.md": "# Fix the parser\n", "tasks/fix_lexer.md": "Fix the lexer\n"}
    source = make_source(project.root, {**tickets, "current_tasks/.gitkeep": ""})
    Upstream.create(project, source.path, source.head())
    ledger = Ledger(project.ledger)
    short = Path(tempfile.mkdtemp(prefix="t-"))
    made = Site(tmp_path, project, source, ledger, Upstream(project, ledger), short / "s")
    (tmp_path / "relay.py").write_text(RELAY)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            who = self.rfile.readline().decode().strip()
            made.serve(who, cast(BinaryIO, self.rfile), self.connection)

    server = socketserver.ThreadingUnixStreamServer(str(made.address), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()
    made.upstream.close()
    findings = Clone(project.upstream, "x", "x@x").run("fsck", "--strict", "--full", "--no-dangling")
    assert findings.returncode == 0 and not findings.stdout, findings.stdout + findings.stderr
    assert not list(project.incoming.glob("*")), "a quarantine was left behind"
    ledger.close()
    shutil.rmtree(short)
