"""What a session's container really is, told from inside: ``doctor`` runs this text there with ``python3 -c``.

Standard library only, and nothing newer than Python 3.7: the image under test may be old. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

MOUNTS = ("/upstream", "/workspace", "/run/team", "/opt/team")


def status_fields() -> dict[str, str]:
    """Name -> value of /proc/self/status: the kernel's own word on rights."""
    pairs = (line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}


def output(*argv: str) -> str:
    """The first line that a program prints, or the reason why it did not run."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"error: {error}"
    first = done.stdout.decode("utf-8", "replace").strip().split("\n")[0]
    return first if done.returncode == 0 else f"error: exit {done.returncode}: {first}"


def mount_options(path: str) -> str | None:
    """``ro`` or ``rw`` for the mount at ``path``, None where nothing is mounted."""
    found = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[4] == path:
            found = "ro" if "ro" in fields[5].split(",") else "rw"
    return found


def writable(path: str) -> bool:
    """Whether a file can really be made in ``path``."""
    probe = Path(path) / ".team-probe"
    try:
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def reaches(family: int, address: tuple[str, int]) -> bool:
    """Whether a connection to ``address`` leaves the container; a refusal by somebody outside counts as leaving."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(2)
            sock.connect(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def resolves(name: str) -> bool:
    """Whether a name can be looked up."""
    try:
        socket.getaddrinfo(name, 443)
    except OSError:
        return False
    return True


def memory_limit() -> int | None:
    """Bytes that this container may use, as its cgroup (v2 or v1) says; None without a limit."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def report(program: str, option: str) -> dict[str, Any]:
    """Everything that ``doctor`` judges; ``option`` makes the client ``program`` tell its version."""
    status = status_fields()
    links = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line]
    return {
        "python": list(sys.version_info[:3]),
        "git": output("git", "--version"),
        "socat": shutil.which("socat") is not None,
        "client": shutil.which(program),
        "version": output(program, option) if option else "",
        "uid": os.getuid(),
        "gid": os.getgid(),
        "home": writable(os.environ.get("HOME", "/nonexistent")),
        "capabilities": [status.get(k, "?") for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
        "no_new_privs": status.get("NoNewPrivs", "?"),
        "mounts": {path: mount_options(path) for path in MOUNTS},
        "writable": {path: writable(path) for path in (*MOUNTS, "/etc", "/usr")},
        "engine_socket": any(Path(path).exists() for path in ("/var/run/docker.sock", "/run/docker.sock")),
        "links": links,
        "reaches": {
            "IPv4": reaches(socket.AF_INET, ("1.1.1.1", 443)) or reaches(socket.AF_INET, ("172.17.0.1", 22)),
            "IPv6": reaches(socket.AF_INET6, ("2606:4700:4700::1111", 443)),
            "metadata address": reaches(socket.AF_INET, ("169.254.169.254", 80)),
            "DNS": resolves("example.com"),
        },
        "memory": memory_limit(),
    }


if __name__ == "__main__":
    print(json.dumps(report(*sys.argv[1:])))
