"""What a gate costs that finds bad pushes among good ones.

``python -m benchmarks.gate [--pushes 16] [--bad 2] [--seconds 5] [--runtime docker|process] [--json]``

Agents push at once, some of them what the check refuses; the check takes ``seconds``. Real pushes, real merges, and
each check in a container of its own. ``check_times`` is the wall time from the first push to the last verdict, in
units of one check's length.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

from team.config import Gate, Image
from team.images import ensure
from team.ledger import Ledger
from team.names import agent_email
from team.places import Project
from team.runtimes import Limits, runtime
from team.upstream.check import ContainerChecker
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream

# Stands in for the door: joins git's pipes to a socket, and says first who pushes.
RELAY = """
import os, socket, sys, threading
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b"\\n")
def up():
    while data := os.read(0, 65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536): os.write(1, data)
"""


def git(at: Path, *args: str, name: str = "A Person", email: str = "person@example.org") -> int:
    who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
    env = os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *args], cwd=at, env=env, capture_output=True).returncode


def clone(base: Path, project: Project, address: Path, number: int, *, bad: bool) -> Path:
    """A clone with one commit that touches a file of its own."""
    name, at = f"agent-{number:02d}", base / f"clone-{number}"
    git(base, "clone", "--quiet", "--shared", str(project.upstream), str(at))
    git(at, "config", "remote.origin.receivepack", f"{sys.executable} -SE {base / 'relay.py'} {address} {name} #")
    (at / f"work_{number}.txt").write_text("BAD\n" if bad else "good\n")
    git(at, "add", "-A")
    git(at, "commit", "--quiet", "-m", f"Work {number}", name=name, email=agent_email(name))
    return at


def measure(base: Path, pushes: int, bad: set[int], seconds: float, where: str) -> dict[str, object]:
    """One run; ``bad`` are the numbers of the pushes that the check must refuse."""
    source = base / "source"
    source.mkdir()
    git(source, "init", "--quiet", "-b", "main")
    (source / "README.md").write_text("hello\n")
    git(source, "add", "-A")
    git(source, "commit", "--quiet", "-m", "Begin")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True).stdout.strip()
    project = Project(source, f"bench-{os.getpid()}", base / "state")
    Upstream.create(project, source, commit)
    ledger = Ledger(project.ledger)
    gate = Gate(check=f"sleep {seconds:g}; ! grep -rn BAD .", wait=600)
    upstream = Upstream(project, ledger, gate=gate)
    pushers = {
        name: Pusher(name, agent_email(name), f"{name}.1", "worker")
        for name in (f"agent-{n:02d}" for n in range(1, pushes + 1))
    }

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            pusher = pushers[self.rfile.readline().decode().strip()]
            self.connection.sendall(upstream.advertise(pusher))
            upstream.receive(pusher, cast(BinaryIO, self.rfile), self.connection.sendall)

    address = base / "s"
    (base / "relay.py").write_text(RELAY)
    server = socketserver.ThreadingUnixStreamServer(str(address), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    image = "" if where == "process" else ensure("agent", Image(), source, say=print)
    uid = os.getuid() or 1000
    checker = ContainerChecker(project, gate, runtime(where), image, "", uid, uid, Limits(memory=256 << 20))
    clones = [clone(base, project, address, n, bad=n in bad) for n in range(1, pushes + 1)]

    def push(at: Path) -> bool:
        return git(at, "push", "--quiet", "origin", "HEAD:refs/for/main") == 0

    with ThreadPoolExecutor(pushes) as pool, upstream.open_gate(checker).running():
        began = time.monotonic()
        landed = list(pool.map(push, clones))
        took = time.monotonic() - began
    server.shutdown()
    upstream.close()
    ledger.close()
    return {
        "pushes": pushes,
        "bad": sorted(bad),
        "check_s": seconds,
        "wall_s": round(took, 1),
        "check_times": round(took / seconds, 2),
        "refused_right": all(not landed[n - 1] for n in bad),
        "landed_right": all(landed[n - 1] for n in range(1, pushes + 1) if n not in bad),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pushes", type=int, default=16)
    parser.add_argument("--bad", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runtime", choices=("docker", "process"), default="docker")
    parser.add_argument("--seed", type=int, default=None, help="Which pushes are bad; chance where not given.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bad = set(random.Random(options.seed).sample(range(1, options.pushes + 1), options.bad))
    with tempfile.TemporaryDirectory(prefix="g-") as base:
        result = measure(Path(base), options.pushes, bad, options.seconds, options.runtime)
    if options.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        print(f"{key:14} {value}")


if __name__ == "__main__":
    main()
