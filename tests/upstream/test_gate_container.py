"""A check of the gate in a real container: the merged commit and nothing else of this machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import docker
import pytest

from team.config import Gate
from team.runtimes import Limits
from team.runtimes.docker import DockerRuntime
from team.upstream.check import Broken, ContainerChecker
from tests.upstream.conftest import Site

UID = os.getuid() or 1000
PROBE = """
set -e
test "$(id -u)" != 0
test ! -e /run/team
! env | grep -i -e token -e nonce -e key=
test "$(ls /sys/class/net)" = lo
! touch /upstream/x /gate/x 2>/dev/null
git log -1 --format=%s | grep 'For the gate'
test -f src/good.txt
echo '<testcase name="one"/><testcase name="two"><skipped/></testcase>' >junit.xml
"""


def made(site: Site, gate: Gate, image: str) -> ContainerChecker:
    return ContainerChecker(
        site.project, gate, DockerRuntime(), image, "echo set up >/workspace/up", UID, UID, Limits(memory=256 << 20)
    )


@pytest.mark.engine
def test_a_check_sees_the_merged_commit_and_no_way_out(site: Site, agent_image: str, engine: docker.APIClient) -> None:
    gate = Gate(check=PROBE + "! grep -rn BAD src && test -f up", junit="*.xml", wait=120)
    upstream = site.reopen(gate=gate)
    one, two = site.agent(1), site.agent(2)
    two.commit("before", src__other_DOT_txt="x\n", src__good_DOT_txt="good\n")
    with upstream.open_gate(made(site, gate, agent_image)).running():
        two.lands()
        one.commit("good", src__more_DOT_txt="more\n")
        one.lands()
        one.commit("bad", src__bad_DOT_txt="this is BAD\n")
        assert "src/bad.txt:1:this is BAD" in one.refused()
    for thread in threading.enumerate():
        if thread.name == "gate clean-up":
            thread.join(30)
    left = engine.containers(all=True, filters={"label": f"team.project={site.project.id}"})
    volumes = engine.volumes(filters={"label": f"team.project={site.project.id}"})["Volumes"]
    assert not left and not volumes


@pytest.mark.engine
def test_what_waits_survives_a_supervisor_that_ends_in_mid_check(site: Site, agent_image: str) -> None:
    gate = Gate(check="sleep 2", wait=0.5)
    upstream = site.reopen(gate=gate)
    one = site.agent(1)
    one.commit("good", src__good_DOT_txt="good\n")
    with upstream.open_gate(made(site, gate, agent_image)).running():
        assert "queued as 1, not landed yet" in one.refused()
    assert [w.number for w in site.upstream.waiting()] == [1]
    gate = Gate(check="sleep 2", wait=60)
    with site.reopen(gate=gate).open_gate(made(site, gate, agent_image)).running():
        one.lands()


@pytest.mark.engine
def test_a_check_that_cannot_run_is_no_verdict(site: Site, tmp_path: Path) -> None:
    site.project.gate.mkdir()
    checker = made(site, Gate(check="true"), "team-no-such-image:none")
    with pytest.raises(Broken, match="team image build"):
        checker.run(site.upstream.main(), "true", "1", threading.Event())
