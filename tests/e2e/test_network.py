"""A team whose project names hosts: the whole system, from ``[network]`` to the ledger."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from team import session
from team.gateway.egress import Egress, Found, getaddrinfo
from team.ledger import Event, Kind

from .conftest import Stage, Stages
from .own_registry import CRATE, HOST, MODULE, Registry

SCRIPT = """
env | grep -i _proxy= | sort
get() {
    python3 -c 'import sys, urllib.request as r
try: print("GOT", r.urlopen(sys.argv[1], timeout=10).status)
except OSError as e: print("GOT", e)' "$1"
}
get http://other.test/
printf 'CONNECT localhost:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' | socat -t 5 - TCP:127.0.0.1:8788 | head -n 1
git fetch && git push || echo "GIT FAILED"
"""


@pytest.mark.engine
def test_a_session_reaches_what_is_named_and_the_ledger_has_the_rest(stage: Stage) -> None:
    """The one host that is named is this machine: by its name it passes, by its address it does not."""
    stage.run(argv=("sh", "-c", SCRIPT), settings={"network": {"allow": ["localhost"]}})
    printed = stage.printed("agent-01.1")
    assert "GOT HTTP Error 403: not in [network] allow of team.toml" in printed
    assert any("403 its address is private or reserved" in line for line in printed)
    assert "GIT FAILED" not in printed  # the door is reached directly
    names = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"}
    url = "http://127.0.0.1:8788"
    assert {f"{name}={url}" for name in names} <= set(printed) and "NO_PROXY=127.0.0.1,localhost" in printed
    visits = {(e.data["host"], e.data["port"], e.session) for e in stage.ledger(Kind.EGRESS) if e.data["refused"]}
    assert visits == {("other.test", 80, "agent-01.1"), ("localhost", 443, "agent-01.1")}
    assert "the network refused other.test:80: not in [network] allow of team.toml" in stage.log("agent-01.1")
    assert stage.outcome("agent-01.1") == "done"


@pytest.mark.engine
def test_without_the_setting_there_is_no_proxy(stage: Stage) -> None:
    stage.run(argv=("sh", "-c", "env | grep -i proxy; ls /run/team; socat -u /dev/null TCP:127.0.0.1:8788 2>&1; true"))
    printed = " ".join(stage.printed("agent-01.1"))
    assert "proxy" not in printed and "Connection refused" in printed
    assert not stage.ledger(Kind.EGRESS)


# The two are not in the image: they come as Debian's packages, through the same proxy, by apt.
TOOLS = """
set -e
mkdir -p /tmp/apt/lists/partial /tmp/apt/archives/partial /tmp/root && cd /tmp
apt="-o Dir::State=/tmp/apt -o Dir::Cache=/tmp/apt -o Dir::State::status=/var/lib/dpkg/status"
apt-get $apt -o Acquire::Languages=none -qq update
needed() { apt-cache $apt depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \\
    --no-enhances "$1" | grep -Ex "$2" | sort -u; }
go=$(needed golang-go 'golang-[0-9.]+-go')
libraries=$(needed cargo 'lib(git2|ssh2|http-parser|llhttp|mbed).*')
apt-get $apt -qq download $go cargo $libraries
for deb in cargo_*.deb lib*.deb; do dpkg-deb -x $deb root; done
dpkg-deb --fsys-tarfile golang-*.deb | tar -x -C root --wildcards './usr/lib/go-*/bin/go'
export GOROOT="$(echo /tmp/root/usr/lib/go-*)" LD_LIBRARY_PATH="$(echo /tmp/root/usr/lib/*-linux-gnu)"
export PATH="$PATH:/tmp/root/usr/bin:$GOROOT/bin"
cd /workspace
"""
FETCH = """
export SSL_CERT_FILE=$PWD/ca.pem CARGO_HTTP_CAINFO=$PWD/ca.pem GIT_SSL_CAINFO=$PWD/ca.pem
GOPROXY=https://HOST/modules GONOSUMDB='*' go mod download -json MODULE@v1.0.0
CARGO_NET_GIT_FETCH_WITH_CLI=true CARGO_REGISTRIES_OWN_INDEX=https://HOST/index cargo vendor --quiet /tmp/vendored
ls /tmp/vendored
"""


def resolve(host: str, port: int) -> Sequence[Found]:
    """The registry's name is this machine's; others are as they are."""
    return getaddrinfo("127.0.0.1" if host == HOST else host, port)


@pytest.mark.engine
def test_apt_go_and_cargo_fetch_through_the_door(
    stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's own hosts by ``open``, a registry by its name; and each byte is in the ledger."""
    registry = Registry(tmp_path)
    manifest = '[package]\nname = "own"\nversion = "1.0.0"\n[dependencies]\n'
    manifest += f'{CRATE} = {{ version = "1", registry = "own" }}\n'
    authority = registry.authority.cert_pem.bytes()
    stage = stages({"ca.pem": authority, "Cargo.toml": manifest, "src/lib.rs": ""})
    monkeypatch.setattr(session, "Egress", functools.partial(Egress, resolve=resolve, acceptable=lambda address: True))
    with registry.serving() as port:
        script = TOOLS + FETCH.replace("HOST", f"{HOST}:{port}").replace("MODULE", MODULE)
        network = {"allow": [f"{HOST}:{port}"], "open": True}
        stage.run(argv=("sh", "-c", script), settings={"network": network})
    printed = stage.printed("agent-01.1")
    assert stage.outcome("agent-01.1") == "done", stage.log("agent-01.1")
    assert CRATE in printed and any(f'"Path": "{MODULE}"' in line for line in printed)
    assert f"/modules/{MODULE}/@v/v1.0.0.zip" in registry.asked and f"/crates/{CRATE}-1.0.0.crate" in registry.asked
    visits = stage.ledger(Kind.EGRESS)
    assert not [visit.data for visit in visits if visit.data["refused"]]
    of = totals(visits)
    own = of.pop((HOST, port))
    files = [*(tmp_path / "modules").rglob("v1.0.0.*"), *(tmp_path / "crates").iterdir()]
    assert own["connections"] >= 2 and own["received"] > sum(p.stat().st_size for p in files) and own["sent"] > 0
    assert sum(told["received"] for told in of.values()) > 10 << 20, "what apt fetched is not in the ledger"


def totals(visits: Sequence[Event]) -> dict[tuple[str, int], dict[str, int]]:
    """What passed, for each host and port."""
    found: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for visit in visits:
        for name in ("connections", "sent", "received"):
            found[visit.data["host"], visit.data["port"]][name] += visit.data[name]
    return found
