"""``team cost``, from a ledger as a run leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from team.ledger import Kind, Ledger

from .conftest import CommandLine

MODEL = "claude-sonnet-5"


@pytest.fixture
def run(ledger: Ledger) -> None:
    """Two agents, one finished task, a call under a plan, and one whose end is not known."""

    def call(n: int, agent: str, **data: Any) -> None:
        who: dict[str, Any] = {"agent": agent, "session": f"{agent}.1", "task": data.pop("task", None)}
        facts: dict[str, Any] = {"call": n, "role": "worker", "model": MODEL, "billed": True, "status": 200, "cost": 0}
        ledger.append(Kind.MODEL_RESERVED, **who, **facts)
        ledger.append(Kind.MODEL_CALL, **who, **(facts | data))

    call(1, "agent-01", task="parser", input=1200, output=300, cache_write=40, cache_read=50_000, cost=0.25)
    call(2, "agent-02", input=10, output=5, cost=0.75, billed=False)
    call(3, "agent-02", input=1, output=1, cost=0.01, booked=0.51, unknown=True)
    ledger.append(Kind.CLAIM, agent="agent-01", session="agent-01.1", task="parser")
    ledger.append(Kind.LANDING_DONE, agent="agent-01", session="agent-01.1", kind="work")
    ledger.append(Kind.RELEASE, agent="agent-01", session="agent-01.1", task="parser", pushed="abc")


def test_before_the_first_call(team: CommandLine) -> None:
    assert team("cost").out == "no model was called yet; `team up` starts the team\n"
    document = team("cost", "--json").json
    assert (document["rows"], document["total"]["calls"], document["first_try_rate"]) == ([], 0, None)


def test_a_table_for_people(team: CommandLine, run: None) -> None:
    lines = team("cost").out.splitlines()
    assert lines[0].split() == "AGENT CALLS INPUT OUTPUT CACHE WRITE CACHE READ BILLED LIST PRICE".split()
    assert lines[1].split() == "agent-02 2 11 6 0 0 $0.01 $0.75".split()
    assert lines[2].split() == "agent-01 1 1.2k 300 40 50k $0.25 $0".split()
    assert lines[3].split() == "all 3 1.21k 306 40 50k $0.26 $0.75".split()
    assert lines[4] == "1 call broke off before the provider told all tokens: up to $0.50 more, booked as reserved"
    assert lines[-2] == "1 landing by agents: 51.6k tokens each"
    assert lines[-1] == "1 finished task: $0.25 and 51.5k tokens each, 100% at the first try, 1 try a task on average"


@pytest.mark.parametrize("by", ["agent", "role", "task", "model", "day", "session"])
def test_one_json_document_by_whatever_is_asked(team: CommandLine, run: None, by: str) -> None:
    document = team("cost", "--by", by, "--json").json
    assert sum(row["tokens"] for row in document["rows"]) == document["total"]["tokens"] == 51_557
    assert all(row[by] for row in document["rows"])
    assert (document["total"]["billed_usd"], document["total"]["list_price_usd"]) == (0.26, 0.75)
    assert (document["total"]["unknown_calls"], document["total"]["unknown_usd"]) == (1, 0.5)
    assert (document["landed_commits"], document["tries_per_task"], document["cost_per_task_usd"]) == (1, 1.0, 0.25)


def test_reconcile_says_equal_or_where_not_and_exits_so(team: CommandLine, run: None, tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(f"model,input,output,cache_write,cache_read\n{MODEL},1211,306,40,50000\n")
    equal = team("cost", "--reconcile", str(file))
    assert (equal.code, equal.out.splitlines()[0]) == (0, "equal to the token: 4 counts over 3 calls")
    assert "of 1 call the ledger knows no end" in equal.out
    file.write_text(f"model,input,output,cache_write,cache_read\n{MODEL},1211,1306,40,50000\n")
    differs = team("cost", "--reconcile", str(file))
    assert (differs.code, differs.err) == (1, "")
    assert differs.out.splitlines()[1].split() == ["(all)", MODEL, "output", "306", "1,306", "+1,000"]
    document = team("cost", "--reconcile", str(file), "--json")
    assert (document.code, document.json["equal"], document.json["unknown_calls"]) == (1, False, 1)
    assert [row["difference"] for row in document.json["rows"]] == [0, 1000, 0, 0]


def test_bad_input_gets_one_line(team: CommandLine, run: None, tmp_path: Path) -> None:
    assert "no-such.csv cannot be read" in team.refused("cost", "--reconcile", str(tmp_path / "no-such.csv"))
    assert "'weather' is not one of 'agent'" in team.refused("cost", "--by", "weather")
