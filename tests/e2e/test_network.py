"""A team whose project names hosts: the whole system, from ``[network]`` to the ledger."""

from __future__ import annotations

import pytest

from team.ledger import Kind

from .conftest import Stage

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
