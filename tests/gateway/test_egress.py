"""The proxy at the door: real sockets and origins on loopback, real package managers in containers without network."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import docker
import pip
import pytest

from team import launch
from team.config import Network, Settings, UserSettings
from team.containers import proxy_env
from team.errors import TeamError
from team.gateway import egress
from team.gateway.egress import Bounds, Egress, Found, Visit
from team.gateway.hosts import Rule, Rules, is_public, within
from team.places import Project
from team.plan import Plan, Seat
from team.runtimes.docker import INSIDE

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def resolved(*addresses: str) -> egress.Resolve:
    """A resolver that knows these addresses and no others."""

    def resolve(host: str, port: int) -> list[Found]:
        families = [socket.AF_INET6 if ":" in a else socket.AF_INET for a in addresses]
        return [(f, socket.SOCK_STREAM, 6, "", (a, port)) for f, a in zip(families, addresses, strict=True)]

    return resolve


def never(host: str, port: int) -> list[Found]:
    raise AssertionError(f"{host} was resolved")


def loopback(address: str) -> bool:
    return address == "127.0.0.1"


@dataclass
class Proxy:
    """A proxy with its record, and what a session does with it."""

    egress: Egress
    directory: Path
    visits: list[Visit] = field(default_factory=list)
    alive: bool = True

    async def connect(self) -> Stream:
        return await asyncio.open_unix_connection(str(self.directory / egress.SOCKET))

    async def ask(self, request: bytes) -> bytes:
        """All that the proxy answers to ``request``."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer

    async def tunnel(self, host: str, port: int) -> Stream:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        return reader, writer

    async def refused(self, target: str) -> str:
        """The status line with which CONNECT ``target`` is refused."""
        answer = await self.ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        line = answer.split(b"\r\n")[0].decode()
        assert line.startswith("HTTP/1.1 ") and " 200 " not in line
        return line.removeprefix("HTTP/1.1 ")

    async def told(self) -> list[Visit]:
        """Everything that the record was told by the end."""
        await self.egress.close()
        return self.visits


def door_directory() -> Path:
    """A short one: it holds a socket."""
    directory = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    directory.chmod(0o755)
    return directory


@contextlib.asynccontextmanager
async def proxy(
    *allow: str,
    everything: bool = False,
    bounds: Bounds | None = None,
    resolve: egress.Resolve = resolved("127.0.0.1"),  # noqa: B008 - a constant
    acceptable: Callable[[str], bool] = loopback,
) -> AsyncIterator[Proxy]:
    async def record(visits: Sequence[Visit]) -> None:
        made.visits.extend(visits)

    rules = Rules.of(Network(allow=allow, open=everything))
    directory = door_directory()
    opened = Egress(
        rules, record, lambda: made.alive, bounds=bounds or Bounds(), resolve=resolve, acceptable=acceptable
    )
    made = Proxy(opened, directory)
    await opened.open(directory)
    try:
        yield made
    finally:
        await opened.close()
        shutil.rmtree(directory)


@contextlib.asynccontextmanager
async def origin(answer: Callable[[Stream], object] | None = None) -> AsyncIterator[int]:
    """A server on loopback; without ``answer`` it echoes until the end of input."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            if answer is not None:
                await answer((reader, writer))  # type: ignore[misc]
            else:
                while data := await reader.read(1 << 16):
                    writer.write(data)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


# -- rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    "10.1.2.3 172.16.0.1 192.168.1.1 127.0.0.1 127.8.8.8 0.0.0.0 169.254.169.254 100.64.0.1 100.100.100.200 224.0.0.1 "
    "239.1.1.1 240.0.0.1 255.255.255.255 192.0.0.192 198.18.0.1 203.0.113.1 168.63.129.16 :: ::1 ::7f00:1 "
    "::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 fe80::1 fe80::1%eth0 fec0::1 fc00::1 fd00:ec2::254 ff02::1 "
    "64:ff9b::a9fe:a9fe 64:ff9b:1::1 2001:0:1::1 2001:db8::1 2002:7f00:1::1 3fff::1 not-an-address".split(),
)
def test_no_rule_opens_these_addresses(address: str) -> None:
    assert not is_public(address)


def test_public_addresses_are_public_but_for_this_hosts_own() -> None:
    assert is_public("8.8.8.8") and is_public("2606:4700::1111")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("8.8.8.8", 53))
        assert not is_public(probe.getsockname()[0])


@pytest.mark.parametrize(
    ("rule", "yes", "no"),
    [
        ("example.org", ["example.org:443", "example.org:80"], ["example.org:8443", "a.example.org:443", "org:443"]),
        ("*.example.org", ["a.example.org:443", "a.b.example.org:80"], ["example.org:443", "badexample.org:443"]),
        ("example.org:8443", ["example.org:8443"], ["example.org:443", "example.org:80"]),
    ],
)
def test_a_rule_allows_its_host_and_ports(rule: str, yes: list[str], no: list[str]) -> None:
    rules = Rules.of(Network(allow=(rule,)))
    for target in yes + no:
        host, _, port = target.partition(":")
        assert rules.allows(host, int(port)) is (target in yes), target
    assert rules and not Rules.of(Network())


@pytest.mark.parametrize(
    "bad", ["https://example.org", "example.org/x", "*", "*.org", "a b", "", "x:0", "x:70000", "-x"]
)
def test_a_host_that_is_none_is_refused_with_the_mend(bad: str) -> None:
    with pytest.raises(ValueError, match="a host is a name without scheme or path, like"):
        Network(allow=(bad,))


def test_the_persons_own_configuration_is_a_bound() -> None:
    bound = Network(allow=("*.example.org", "other.org:8443"))
    for good in ("a.example.org", "*.a.example.org", "*.example.org", "a.example.org:443", "other.org:8443"):
        assert within(Network(allow=(good,)), bound).allow == (good,)
    for bad in ("example.org", "a.example.org:22", "other.org", "*.org.uk"):
        with pytest.raises(TeamError, match=r"network\.allow.*add it there, or leave it out here"):
            within(Network(allow=(bad,)), bound)
    with pytest.raises(TeamError, match=r"network\.open"):
        within(Network(open=True), bound)
    assert within(Network(open=True), Network(open=True)).open
    assert Rule.parse("a.org").covers(Rule.parse("a.org:80"))


# -- the proxy ----------------------------------------------------------------------------------------------------


async def test_a_tunnel_carries_bytes_both_ways_and_counts_them() -> None:
    async with origin() as port, proxy(f"Example.org:{port}") as made:
        reader, writer = await made.tunnel("EXAMPLE.org.", port)
        sent = bytes(range(256)) * 4096
        writer.write(sent)
        writer.write_eof()  # the origin still answers what came before
        assert await reader.read() == sent
        writer.close()
        [visit] = await made.told()
    assert (visit.host, visit.port, visit.refused, visit.connections) == ("example.org", port, "", 1)
    assert (visit.sent, visit.received) == (len(sent), len(sent)) and visit.seconds > 0


async def test_plain_http_is_passed_on_without_what_concerns_the_proxy() -> None:
    seen: list[bytes] = []

    async def answer(stream: Stream) -> None:
        seen.append(await stream[0].readuntil(b"\r\n\r\n") + await stream[0].readexactly(5))
        stream[1].write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")

    async with origin(answer) as port, proxy(f"example.org:{port}") as made:
        got = await made.ask(
            f"POST http://example.org:{port}/pool/a?b=c#d HTTP/1.1\r\nHost: elsewhere\r\nX-Kept: Yes\r\n"
            "Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello".encode()
        )
        assert got.endswith(b"\r\n\r\nhi")
    assert seen == [
        f"POST /pool/a?b=c HTTP/1.1\r\nHost: example.org:{port}\r\nX-Kept: Yes\r\nContent-Length: 5\r\n"
        "Connection: close\r\n\r\nhello".encode()
    ]


async def test_a_host_that_is_not_named_is_refused_and_never_resolved() -> None:
    async with proxy("example.org", resolve=never) as made:
        for target in ("other.org:443", "example.org:22", "sub.example.org:443", "127.0.0.1:443"):
            assert await made.refused(target) == "403 not in [network] allow of team.toml"
        answer = await made.ask(b"GET http://leak.other.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        visits = await made.told()
    assert {(v.host, v.port, v.connections) for v in visits} >= {("other.org", 443, 1), ("leak.other.org", 80, 1)}
    assert all(v.refused and not v.sent and not v.received for v in visits)


async def test_a_named_host_with_a_private_address_is_refused() -> None:
    async with origin() as port, proxy(f"example.org:{port}", acceptable=is_public) as made:
        assert await made.refused(f"example.org:{port}") == "403 its address is private or reserved"
        [visit] = await made.told()
    assert (visit.host, visit.refused) == ("example.org", "its address is private or reserved")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "0x7f000001", "2130706433", "127.1", "[::ffff:127.0.0.1]", "localhost"]
)
async def test_open_does_not_reach_this_host_by_any_spelling(host: str) -> None:
    async with proxy(everything=True, resolve=egress.getaddrinfo, acceptable=is_public) as made:
        assert await made.refused(f"{host}:80") == "403 its address is private or reserved"


async def test_the_connection_goes_to_an_address_that_was_checked() -> None:
    """A name server that answers something else the second time is never asked a second time."""
    answers = [["127.0.0.1", "127.0.0.2"], ["127.0.0.2"]]

    def rebinding(host: str, port: int) -> Sequence[Found]:
        return resolved(*answers.pop(0))(host, port)

    async with origin() as port, proxy(f"example.org:{port}", resolve=rebinding) as made:
        reader, writer = await made.tunnel("example.org", port)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
    assert len(answers) == 1


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"GET https://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"GET http://user:pw@example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"CONNECT example.org HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"CONNECT example.org:99999 HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"CONNECT ex\xc3\xa4mple.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"GET http://example.org/ HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40_000,
    ],
)
async def test_what_is_no_request_gets_a_clear_error(request_: bytes) -> None:
    async with proxy("example.org", resolve=never) as made:
        status = (await made.ask(request_)).split(b" ")[1]
        assert status in (b"400", b"431")


async def test_names_that_do_not_resolve_and_hosts_that_do_not_answer() -> None:
    def unknown(host: str, port: int) -> list[Found]:
        raise socket.gaierror("unknown")

    def slow(host: str, port: int) -> list[Found]:
        time.sleep(0.5)
        return []

    async with proxy("example.org", resolve=unknown) as made:
        assert await made.refused("example.org:443") == "502 its name cannot be resolved"
    async with proxy("example.org", resolve=slow, bounds=Bounds(connect_seconds=0.1)) as made:
        assert await made.refused("example.org:443") == "504 it does not answer"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with proxy(f"example.org:{port}") as made:
            assert await made.refused(f"example.org:{port}") == "502 it cannot be reached"


async def test_bounds_of_one_door() -> None:
    bounds = Bounds(connections=2, idle_seconds=0.3, head_seconds=0.2)
    async with origin() as port, proxy(f"example.org:{port}", bounds=bounds) as made:
        one, two = await made.tunnel("example.org", port), await made.tunnel("example.org", port)
        assert await made.refused(f"example.org:{port}") == "503 too many connections at this proxy"
        assert await asyncio.wait_for(one[0].read(), 5) == b""  # idle too long: cut
        assert await asyncio.wait_for(two[0].read(), 5) == b""
        assert (await made.ask(b"CONNECT exam")).startswith(b"HTTP/1.1 408 ")
    async with proxy("example.org", bounds=Bounds(burst=3, per_second=0.01)) as made:
        answers = [await made.refused("other.org:443") for _ in range(5)]
        assert [a[:3] for a in answers] == ["403"] * 3 + ["503"] * 2


async def test_the_record_stays_small_whatever_a_session_asks_for() -> None:
    async with proxy("example.org", resolve=never, bounds=Bounds(names=5)) as made:
        for n in range(30):
            await made.refused(f"host-{n}.org:443")
        visits = await made.told()
    assert len(visits) == 6 and sum(v.connections for v in visits) == 30
    assert [v.connections for v in visits if v.host == "(other hosts)"] == [25]


async def test_what_passed_is_told_while_a_tunnel_is_open() -> None:
    async with origin() as port, proxy(f"example.org:{port}", bounds=Bounds(flush_seconds=0.05)) as made:
        reader, writer = await made.tunnel("example.org", port)
        for _ in range(2):
            writer.write(b"x" * 100)
            await reader.readexactly(100)
            await asyncio.sleep(0.2)
        assert sum(v.sent for v in made.visits) == 200
        writer.close()
        visits = await made.told()
    assert (sum(v.connections for v in visits), sum(v.received for v in visits)) == (1, 200)


async def test_a_session_that_ended_has_no_network() -> None:
    async with origin() as port, proxy(f"example.org:{port}") as made:
        reader, writer = await made.tunnel("example.org", port)
        made.alive = False
        assert await made.refused(f"example.org:{port}") == "403 this session has ended"
        await made.egress.close()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        with pytest.raises(OSError):
            await made.connect()
        writer.close()


# -- what a person sees --------------------------------------------------------------------------------------------


def opening(tmp_path: Path, runtime: str = "docker", **network: Any) -> list[str]:
    """The first lines of ``up`` that are about the network."""
    plan = Plan(
        seats=(Seat("agent-01", "worker"),),
        settings=Settings(network=Network(**network)),
        tree=tmp_path,
        client="command",
        runtime=runtime,
        image="image",
    )
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    lines = launch.opening(Project(tmp_path, "demo", tmp_path / "state"), plan)
    return [line for line in lines if "network" in line]


def test_the_first_lines_name_the_hosts_and_show_open_in_red(tmp_path: Path) -> None:
    [limits] = opening(tmp_path)
    assert "no network" in limits
    assert opening(tmp_path, allow=("example.org", "*.example.org")) == ["network  2 hosts: example.org, *.example.org"]
    [red] = opening(tmp_path, open=True, allow=("example.org:22",))
    assert red.startswith("\x1b[31m") and "OPEN: agents reach every public host" in red and "example.org:22" in red
    assert "no network" not in " ".join(opening(tmp_path, runtime="process", open=True))


def test_more_than_the_persons_own_configuration_allows_is_refused(tmp_path: Path) -> None:
    user = UserSettings(network=Network(allow=("example.org",)))
    settings = Settings(network=Network(allow=("other.org",)))
    with pytest.raises(TeamError, match=r"does not allow other\.org; add it there, or leave it out here"):
        launch.make_plan(tmp_path, settings, user, launch.Wishes(argv=("true",)), {})


# -- in containers without network ---------------------------------------------------------------------------------

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass
class Box:
    """Starts containers behind a proxy, as a session's: the scripts of `team/inside` and a mounted door directory."""

    engine: docker.APIClient
    image: str
    tools: Path

    def __call__(self, directory: Path | None, script: str) -> str:
        """What ``script`` prints in a container without network, at whose door is the proxy in ``directory``."""
        binds = [f"{INSIDE}:/opt/team:ro", f"{self.tools}:/tools:ro"]
        if directory is not None:
            binds.append(f"{directory}:/run/team:ro")
        if CERTIFICATES.exists():  # as `image.ca` would bring them
            binds.append(f"{CERTIFICATES}:{CERTIFICATES}:ro")
        env = proxy_env("http://127.0.0.1:8788") | {"HOME": "/tmp", "PYTHONPATH": "/tools"}
        wait = ":" if directory is None else "socat -u /dev/null TCP:127.0.0.1:8788,retry=100,interval=0.05"
        made = self.engine.create_container(
            self.image,
            ["sh", "-c", f". /opt/team/door.sh; open_relay; {wait}; {{ {script}\n}} 2>&1"],
            user="1000:1000",
            working_dir="/tmp",
            environment=env if directory is not None else {},
            host_config=self.engine.create_host_config(network_mode="none", binds=binds),
        )
        try:
            self.engine.start(made["Id"])
            self.engine.wait(made["Id"], timeout=240)
            return bytes(self.engine.logs(made["Id"])).decode("utf-8", "replace")
        finally:
            self.engine.remove_container(made["Id"], force=True, v=True)


@pytest.fixture
def box(engine: docker.APIClient, agent_image: str, tmp_path: Path) -> Iterator[Box]:
    """The package managers that the image lacks come in as files of this machine."""
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copytree(Path(pip.__file__).parent, tools / "pip")
    node, npm = shutil.which("node"), Path("/usr/lib/node_modules/npm")
    if node and npm.exists():
        shutil.copy(Path(node).resolve(), tools / "node")
        shutil.copytree(npm, tools / "npm", symlinks=True)
    yield Box(engine, agent_image, tools)


FETCH = (
    "python3 -c 'import sys, urllib.request as r\ntry: print(r.urlopen(sys.argv[1], timeout=10).read().decode())\n"
    "except OSError as e: print(e)' "
)


@pytest.mark.engine
async def test_a_container_reaches_a_named_host_and_nothing_else(box: Box) -> None:
    async def answer(stream: Stream) -> None:
        await stream[0].readuntil(b"\r\n\r\n")
        stream[1].write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    async with origin(answer) as port, proxy(f"example.test:{port}") as made:
        url = f"http://example.test:{port}/"
        said = await asyncio.to_thread(
            box,
            made.directory,
            f"{FETCH} {url}; {FETCH} http://other.test/; unset HTTP_PROXY http_proxy ALL_PROXY all_proxy\n"
            f"{FETCH} {url}\n"
            f"{FETCH} http://127.0.0.1:{port}/; touch /run/team/x; ls /sys/class/net",
        )
        visits = await made.told()
    named, other, direct, own, writable, *interfaces = said.splitlines()
    assert (named, other) == ("hello", "HTTP Error 403: not in [network] allow of team.toml")
    assert "urlopen error" in direct and "Connection refused" in own
    assert "Read-only file system" in writable or "Permission denied" in writable
    assert interfaces == ["lo"]
    assert {(v.host, bool(v.refused)) for v in visits} == {("example.test", False), ("other.test", True)}


@pytest.mark.engine
async def test_a_container_does_not_reach_the_host(box: Box) -> None:
    async with origin() as port, proxy(f"localhost:{port}", resolve=egress.getaddrinfo, acceptable=is_public) as made:
        request = f"CONNECT localhost:{port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
        tunnel = f"printf '{request}' | socat -t 5 - TCP:127.0.0.1:8788 | head -n 1"
        said = await asyncio.to_thread(box, made.directory, tunnel)
    assert said.strip() == "HTTP/1.1 403 its address is private or reserved"


@pytest.mark.engine
async def test_pip_takes_a_package_from_a_named_index(box: Box, tmp_path: Path) -> None:
    """An index of our own: works on machines that reach no registry."""
    wheel = make_wheel(tmp_path, "team_probe")

    async def answer(stream: Stream) -> None:
        asked = await stream[0].readuntil(b"\r\n\r\n")
        kind, body = b"text/html", f'<a href="/files/{wheel.name}">{wheel.name}</a>'.encode()
        if b"/files/" in asked:
            kind, body = b"application/octet-stream", wheel.read_bytes()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        stream[1].write(head % (kind, len(body)) + body)

    async with origin(answer) as port, proxy(f"index.test:{port}") as made:
        index = f"--index-url http://index.test:{port}/simple --trusted-host index.test"
        install = f"python3 -m pip install --quiet --target /tmp/site {index} team_probe"
        said = await asyncio.to_thread(
            box,
            made.directory,
            f"{install} && PYTHONPATH=/tmp/site python3 -c 'import team_probe; print(team_probe.here)'",
        )
        [visit] = await made.told()
    assert said.strip().endswith("yes"), said
    assert (visit.host, visit.connections) == ("index.test", 2) and visit.received > wheel.stat().st_size


def make_wheel(directory: Path, name: str) -> Path:
    wheel = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}.py", "here = 'yes'\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel


@dataclass(frozen=True)
class Manager:
    """A package manager as this machine has it set up."""

    urls: tuple[str, ...]
    """What it goes to, by its own configuration."""
    script: str
    """Fetches one small package."""
    fetched: str
    """A shell pattern of the file that is there then."""


@pytest.mark.engine
async def test_package_managers_reach_their_own_registries_through_the_proxy(box: Box) -> None:
    """Those of pip, npm and apt that this machine reaches at all; the hosts are what their configuration says."""
    managers = [m for m in await asyncio.to_thread(_managers, box) if all(map(_answers, m.urls))]
    for manager in managers:
        hosts = {urlsplit(url).hostname or "" for url in manager.urls}
        async with proxy(*hosts, resolve=egress.getaddrinfo, acceptable=lambda a: not a.startswith("127.")) as made:
            script = f"{{ {manager.script}; }} >/tmp/log 2>&1; ls {manager.fetched} || tail -n 20 /tmp/log"
            said = await asyncio.to_thread(box, made.directory, script)
            visits = await made.told()
        print(manager.script.split()[0], sorted(hosts), said.strip())
        assert "No such file" not in said, said
        assert {v.host for v in visits if v.received} == hosts and not [v for v in visits if v.refused]
    print(f"tried: {len(managers)} package managers")


def _managers(box: Box) -> list[Manager]:
    found = []
    if index := _said(sys.executable, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"):
        configured = _said(sys.executable, "-m", "pip", "config", "get", "global.index-url") or index
        page = f"{configured.rstrip('/')}/six/"
        urls = (page, *_first_link(page))
        script = f"python3 -m pip download --quiet --no-deps --no-cache-dir --index-url {configured} -d /tmp/got six"
        found.append(Manager(urls, script, "/tmp/got/six*"))
    if (registry := _said("npm", "config", "get", "registry")) and (box.tools / "npm").exists():
        npm = "/tools/node /tools/npm/bin/npm-cli.js"
        script = f"{npm} pack --silent --registry {registry} is-number"
        found.append(Manager((f"{registry.rstrip('/')}/is-number",), script, "/tmp/is-number*"))
    apt = "apt-get -o Dir::State=/tmp/state -o Dir::Cache=/tmp/cache -o Dir::State::status=/var/lib/dpkg/status"
    made = "mkdir -p /tmp/state/lists/partial /tmp/cache/archives/partial"
    if sites := re.findall(r"^'(http[^']+)'", box(None, f"{made}; {apt} --print-uris update"), re.M):
        found.append(Manager(tuple(sites), f"{made}; {apt} update; {apt} download hello", "/tmp/hello*.deb"))
    return found


def _first_link(page: str) -> list[str]:
    """Where an index keeps its files: often another host."""
    try:
        with urllib.request.urlopen(page, timeout=20) as answer:
            link = re.search(r'href="([^"#]+)', answer.read().decode())
    except OSError:
        return []
    return [urljoin(page, link[1])] if link else []


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _said(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""
