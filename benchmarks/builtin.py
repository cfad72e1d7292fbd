"""What the built-in client costs by itself: a real process before a scripted provider that caches as the API does.

``python -m benchmarks.builtin [--json]``

- ``turn_overhead_ms``: from the last byte of an answer to the next request, whole, with a command that does nothing in
  between: taking the answer apart, the policy, the shell, the transcript, the request. Median of a session's turns.
- ``turn_overhead_ms_p95``: the same, all but the slowest twentieth.
- ``rss_mb``: the most that the process had resident, in MB, at the end of the session.
- ``cache_read_share``: of all input tokens of the session, those that the provider reads from its cache, which begins
  empty. It holds prefixes that end at a mark, looks back 20 blocks from each, and takes 4 bytes for a token.
- ``start_seconds``: from the start of the process to its first request, most of which is the SDK's import.

The session has 30 turns, each with two calls: a command that prints 2 kB, and one that does nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from team.prompt import packaged_prompt
from team.rehearsal import messages

PROGRAM = Path(__file__).parents[1] / "team/inside/bin/team-builtin"
LOOK_BACK = 20
"""Blocks before a mark in which the provider looks for what it has."""
LEAST = 1024
"""Tokens of the shortest prefix that is kept."""


class Cache:
    """The provider's cache: prefixes by what they hold."""

    def __init__(self) -> None:
        self._kept: set[bytes] = set()

    def usage(self, body: dict[str, Any]) -> messages.Usage:
        """What a request costs, and keep what it marks."""
        blocks = list(_blocks(body))
        sizes, digests, digest, total = [0], [b""], hashlib.sha256(), 0
        for text, _ in blocks:
            digest.update(text)
            total += len(text)
            sizes.append(total // 4)
            digests.append(digest.digest())
        marks = [n + 1 for n, (_, marked) in enumerate(blocks) if marked]
        if body.get("cache_control"):
            marks.append(len(blocks))
        looked = {n for mark in marks for n in range(max(1, mark - LOOK_BACK), mark + 1)}
        read = max((sizes[n] for n in looked if digests[n] in self._kept), default=0)
        kept = [n for n in marks if sizes[n] >= LEAST]
        self._kept.update(digests[n] for n in kept)
        written = max((sizes[n] for n in kept), default=read) - read
        return messages.Usage(sizes[-1] - read - written, 50, written, read)


def _blocks(body: dict[str, Any]) -> Any:
    """Tools, system and messages in order, each block with whether it is marked."""
    for tool in body["tools"]:
        yield _text(tool), "cache_control" in tool
    for block in body["system"]:
        yield _text(block), "cache_control" in block
    for message in body["messages"]:
        for block in message["content"]:
            yield message["role"].encode() + _text(block), "cache_control" in block


def _text(block: dict[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in block.items() if k != "cache_control"}).encode()


class Provider(ThreadingHTTPServer):
    """Plays a session of ``turns`` turns, and takes the time."""

    daemon_threads = True

    def __init__(self, turns: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.turns, self.cache, self.spent = turns, Cache(), list[messages.Usage]()
        self.gaps: list[float] = []
        """Seconds from each answer to the next request."""
        self.first = 0.0
        """When the first request came."""
        self.answered = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.resident = 0.0

    def answer(self, body: dict[str, Any]) -> bytes:
        """The events of the next answer."""
        turn, spent = len(self.spent), self.cache.usage(body)
        self.spent.append(spent)
        said: list[dict[str, Any]] = [{"type": "text", "text": f"Step {turn}: I look at the next part."}]
        if turn < self.turns:
            for n, command in enumerate((f"printf '%0*d\\n' 2000 {turn}", "true")):
                given = {"command": f"{command} # {turn}"}
                said.append({"type": "tool_use", "id": f"toolu_{turn:03}{n}", "name": "bash", "input": given})
        elif self.process is not None:
            self.resident = most_resident(self.process.pid)
        whole = messages.message(body, said, spent)
        return b"".join(messages.encode(event) for event in messages.events(whole))


class _Handler(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        now, server = time.perf_counter(), self.server
        if server.spent:
            server.gaps.append(now - server.answered)
        else:
            server.first = now
        data = server.answer(json.loads(raw))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        server.answered = time.perf_counter()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def most_resident(pid: int) -> float:
    """MB that the process ``pid`` had resident at most."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def measure(turns: int) -> dict[str, float]:
    """One session of so many turns."""
    provider = Provider(turns)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="team-benchmark-") as place:
        env = {
            **os.environ,
            "HOME": place,
            "TMPDIR": place,
            "TEAM_PYTHON": sys.executable,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{provider.server_address[1]}",
            "ANTHROPIC_API_KEY": "worth-nothing",
        }
        began = time.perf_counter()
        pipe = subprocess.PIPE
        process = subprocess.Popen([str(PROGRAM)], cwd=place, env=env, stdin=pipe, stdout=pipe)
        provider.process = process
        printed, _ = process.communicate(packaged_prompt().encode())
    provider.shutdown()
    provider.server_close()
    result = json.loads(printed.splitlines()[-1])
    if result.get("outcome") != "done" or len(provider.gaps) != turns:
        raise SystemExit(f"the session did not end well: {result}")
    total = sum(provider.spent, messages.Usage())
    went_in = total.input_tokens + total.cache_creation_input_tokens + total.cache_read_input_tokens
    gaps = sorted(1000 * gap for gap in provider.gaps)
    return {
        "turn_overhead_ms": round(statistics.median(gaps), 2),
        "turn_overhead_ms_p95": round(gaps[min(len(gaps) - 1, len(gaps) * 95 // 100)], 2),
        "rss_mb": round(provider.resident, 1),
        "cache_read_share": round(total.cache_read_input_tokens / went_in, 4),
        "start_seconds": round(provider.first - began, 2),
        "turns": turns,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    result = measure(options.turns)
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:22} {value}")


if __name__ == "__main__":
    main()
