"""The real client as a plain process, before a provider that plays streams: those in ``streams/``, written from the
API's documentation of its events, byte for byte, and made-up ones."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from team.clients import Outcome
from team.clients.builtin import BuiltinReader
from team.clients.builtin.main import main
from team.rehearsal import messages

STREAMS = Path(__file__).parent / "streams"
PROGRAM = Path(__file__).parents[3] / "team/inside/bin/team-builtin"


@dataclass
class Reply:
    """What the provider says to one request."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """The connection ends before the answer does."""


def stream(name: str) -> Reply:
    """One of ``streams/``."""
    return Reply((STREAMS / f"{name}.sse").read_bytes(), cut=name == "cut")


def calls(*inputs: dict[str, Any], tool: str = "bash", text: str = "", tokens: int = 100) -> Reply:
    """An answer that calls a tool with each of ``inputs``; ``tokens`` is how much of the window is used."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for n, given in enumerate(inputs):
        id = f"toolu_{os.urandom(8).hex()}{n}"
        content.append({"type": "tool_use", "id": id, "name": given.get("_tool", tool), "input": _plain(given)})
    return _answer(content, "tool_use", tokens)


def says(text: str, tokens: int = 100) -> Reply:
    """An answer that ends the session."""
    return _answer([{"type": "text", "text": text}], "end_turn", tokens)


def refuses(status: int, kind: str, message: str, **headers: str) -> Reply:
    """An error."""
    told = {k.replace("_", "-"): v for k, v in headers.items()}
    return Reply(json.dumps(messages.error(kind, message)).encode(), status, told)


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key != "_tool"}


def _answer(content: list[dict[str, Any]], stop: str, tokens: int) -> Reply:
    usage = {"input_tokens": tokens, "output_tokens": 0}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
             "stop_reason": stop, "stop_sequence": None, "usage": usage}  # fmt: skip
    return Reply(b"".join(messages.encode(event) for event in messages.events(whole)))


class Provider(ThreadingHTTPServer):
    """Plays ``replies``, one a request; the last one for ever. Keeps the requests as they came."""

    daemon_threads = True

    def __init__(self, replies: list[Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies, self.bodies = replies, list[bytes]()
        self.asked = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.replies[min(len(self.server.bodies), len(self.server.replies)) - 1]
        self.server.asked.set()
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/event-stream" if reply.status == 200 else "application/json")
        self.send_header("Content-Length", str(len(reply.body) + 1000 * reply.cut))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass
class Ran:
    """One session and what came of it."""

    code: int
    events: list[dict[str, Any]]
    outcome: Outcome
    reason: str
    text: str
    """What the host's log shows."""
    provider: Provider

    @property
    def results(self) -> list[dict[str, Any]]:
        """What the tools returned, in order."""
        return [block for event in self.events if event["type"] == "tools" for block in event["content"]]

    @property
    def last_message(self) -> dict[str, Any]:
        """The last message of the last request."""
        message: dict[str, Any] = self.provider.requests[-1]["messages"][-1]
        return message


class Process:
    """The client as a process of its own: a fork of this one, since the SDK takes a second to import."""

    def __init__(self, work: Path, env: dict[str, str], place: Path, prompt: str) -> None:
        self._output, given = place / "printed", place / "prompt"
        given.write_text(prompt)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        try:  # in the child
            for fd, path, flags in ((0, given, os.O_RDONLY), (1, self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
                os.dup2(os.open(path, flags), fd)
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            os.chdir(work)
            os.environ.clear()
            os.environ.update(env)
            os._exit(main())
        finally:
            os._exit(70)

    def wait(self) -> int:
        """The exit code."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def printed(self) -> bytes:
        return self._output.read_bytes()


Session = Callable[..., Ran]
Beside = Callable[[Process, Provider], None]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """``session(stream("done"), prompt="...", NAME="value")``: run the client in ``tmp_path/work``."""
    providers: list[Provider] = []
    work = tmp_path / "work"
    work.mkdir()

    def run(*replies: Reply, prompt: str = "Do it.", beside: Beside | None = None, **env: str) -> Ran:
        provider = Provider(list(replies))
        providers.append(provider)
        threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True).start()
        process = Process(work, environment(provider.url, tmp_path, **env), tmp_path, prompt)
        if beside is not None:
            beside(process, provider)
        return judged(process.wait(), process.printed(), provider)

    yield run
    for provider in providers:
        provider.shutdown()
        provider.server_close()


def environment(url: str, tmp_path: Path, **env: str) -> dict[str, str]:
    """As a session has it."""
    return {
        "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "TEAM_PYTHON": sys.executable,
        "TEAM_DOOR_SOCKET": "",
        "TEAM_DOOR": "http://127.0.0.1:9",
        **{f"GIT_{who}_{what}": "a@b.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "token-of-the-session",
        **env,
    }


def judged(code: int, printed: bytes, provider: Provider) -> Ran:
    """What the host makes of the output."""
    reader = BuiltinReader()
    seen = [reader.feed(line) for line in printed.splitlines()]
    outcome, reason = reader.outcome(code, out_of_memory=False)
    events = [json.loads(line) for line in printed.splitlines()]
    text = "\n".join(s.text for s in seen if s.text)
    return Ran(code, events, outcome, reason, text, provider)
