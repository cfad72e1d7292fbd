"""Roles with a purpose, in containers: what they are handed, and what their landings brought."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from team.ledger import Kind
from team.plan import Seat

from ..handout.test_handout import PYTHON
from .conftest import Stage, Stages

pytestmark = pytest.mark.engine

SCRIPT = """
cat
case $TEAM_AGENT in
    performance-*) echo true >bench.sh; git commit -qam 'Do not wait'; git push -q ;;
    dedup-*) git rm -q b.py; git commit -qm 'One of them is enough'; git push -q ;;
    review-*) echo '# Wrong' >tasks/wrong.md; git add -A; git commit -qm 'File a ticket'; git push -q ;;
esac
"""


@pytest.fixture(scope="module")
def run(stages: Stages) -> Iterator[Stage]:
    """One session of each of three roles."""
    stage = stages({"a.py": PYTHON, "b.py": PYTHON, "bench.sh": "sleep 0.5\n"})
    roles = ("performance", "dedup", "review")
    plan = stage.plan(
        argv=("sh", "-c", SCRIPT), settings={"role": {"performance": {"benchmark": "sh bench.sh", "every": "1h"}}}
    )
    stage.run(replace(plan, seats=tuple(Seat(f"{role}-01", role) for role in roles)))
    yield stage


def test_each_is_handed_its_own(run: Stage) -> None:
    told = {role: "\n".join(run.printed(f"{role}-01.1")) for role in ("performance", "dedup", "review")}
    assert "# Handed to you: the benchmark" in told["performance"] and "sh bench.sh" in told["performance"]
    assert "`a.py`:2-13, `b.py`:2-13" in told["dedup"]
    assert "# Handed to you: landings that nobody reviewed" in told["review"]
    for text in told.values():
        assert text.count("# Handed to you") == 1


def test_the_host_measures_what_was_landed(run: Stage) -> None:
    [measured] = run.ledger(Kind.ROLE_MEASURED)
    assert measured.session == "performance-01.1" and measured.data["subject"] == "Do not wait"
    assert measured.data["before"] >= 500 and measured.data["after"] < measured.data["before"]
    for thread in threading.enumerate():
        if thread.name == "gate clean-up":  # nobody waits for it but the end of the process
            thread.join()
    assert not run.on_engine()


def test_what_each_brought_is_shown(run: Stage) -> None:
    rows = {row["role"]: row for row in json.loads(run.cli("ps", "--roles", "--json").stdout)["roles"]}
    assert rows["dedup"]["lines_removed"] == PYTHON.count("\n") and rows["dedup"]["due_after_landings"] <= 20
    assert rows["review"]["tickets_filed"] == 1 and rows["review"]["lines_added"] == 0
    assert rows["performance"]["landings_measured"] == 1 and rows["performance"]["ms_saved"] > 0
    shown = run.cli("ps", "--roles").stdout
    assert "13 lines fewer" in shown and "1 ticket filed" in shown and "% faster (" in shown
