"""The supervisor with sessions as plain processes: crashes between any two of its steps, and errors on its own side."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from team import worktree
from team.config import Budget, Settings
from team.errors import TeamError
from team.git import git
from team.ledger import Event, Kind, Ledger
from team.places import Project
from team.plan import Plan, Seat
from team.running import running_pid
from team.supervisor import Running, supervise
from team.view import describe

PERSON = {f"GIT_{who}_{what}": "Pat" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass
class Site:
    """A project, and runs of the team on it."""

    project: Project

    def plan(self, script: str, *roles: str, **changes: Any) -> Plan:
        seats = tuple(Seat(f"{'agent' if role == 'worker' else role}-01", role) for role in roles)
        plan = Plan(seats, Settings(), self.project.root, "command", "process", "", client_argv=("sh", "-c", script))
        return replace(plan, **{"sessions": 1, **changes})

    def run(self, plan: Plan, on_event: Callable[[Event], None] | None = None) -> str:
        return asyncio.run(asyncio.wait_for(supervise(self.project, plan, on_event=on_event), 60))

    def events(self, *kinds: Kind, **narrow: Any) -> list[Event]:
        with closing(Ledger(self.project.ledger)) as ledger:
            return list(ledger.events(*kinds, **narrow))

    def forget_after(self, event: Event) -> None:
        """Make the ledger as it was when ``event`` had just been written: a supervisor that died at that moment."""
        with closing(sqlite3.connect(self.project.ledger)) as db:
            db.executescript(f"DROP TRIGGER events_kept; DELETE FROM events WHERE id > {event.id};")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    short = Path(tempfile.mkdtemp(prefix="ts-", dir="/tmp"))
    for name in ("STATE_HOME", "CONFIG_HOME", "RUNTIME_DIR"):
        (short / name).mkdir(mode=0o700)
        monkeypatch.setenv(f"XDG_{name}", str(short / name))
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").write_text("# project\n")
    git("init", "-q", "-b", "main", at=root)
    git("add", "-A", at=root)
    git("commit", "-q", "-m", "Begin", at=root, env=PERSON)
    yield Site(worktree.open_project(root))
    for thread in threading.enumerate():
        if thread.name == "gate clean-up":  # what a check leaves is removed beside everything else
            thread.join()
    shutil.rmtree(short)


LEAVES = "cat >/dev/null; echo work >work.txt; exit 3"


@pytest.mark.parametrize("last", [Kind.SESSION_ENDING, Kind.RESCUE_SAVED, Kind.SESSION_ENDED])
def test_a_supervisor_that_died_while_it_ended_a_session_is_made_up_for(site: Site, last: Kind) -> None:
    site.run(site.plan(LEAVES, "worker"))
    [saved] = site.events(Kind.RESCUE_SAVED)
    site.forget_after(site.events(last)[0])
    site.run(site.plan(LEAVES))  # no seats: what is left is ended, no more
    [ended] = site.events(Kind.SESSION_ENDED)
    assert (ended.data["outcome"], ended.data["reason"], ended.data["exit"]) == ("failed", "exit 3", 3)
    assert [e.data["commit"] for e in site.events(Kind.RESCUE_SAVED)] == [saved.data["commit"]]
    assert len(site.events(Kind.SESSION_ENDING)) == len(site.events(Kind.SESSION_REMOVED)) == 1
    assert not list(site.project.doors.glob("*"))
    site.run(site.plan(LEAVES))
    assert len(site.events(Kind.SESSION_REMOVED)) == 1, "it was ended again"


def test_what_a_failed_setup_left_is_no_work(site: Site) -> None:
    settings = Settings.model_validate({"session": {"setup": "rm README.md; echo built >built.txt; exit 1"}})
    site.run(site.plan("true", "worker", settings=settings))
    [ended] = site.events(Kind.SESSION_ENDED)
    assert (ended.data["outcome"], ended.data["rescue"]) == ("failed", "empty")
    assert not site.events(Kind.RESCUE_SAVED)


def test_numbers_of_sessions_go_on_after_a_restart(site: Site) -> None:
    site.run(site.plan("true", "worker"))
    site.run(site.plan("true", "worker"))
    assert [e.session for e in site.events(Kind.SESSION_STARTING)] == ["agent-01.1", "agent-01.2"]


def test_a_closed_output_stops_the_team_like_a_closed_terminal(site: Site) -> None:
    def show(event: Event) -> None:
        if event.kind == Kind.SESSION_RUNNING:
            time.sleep(1)  # its work is done
            raise BrokenPipeError(32, "Broken pipe")

    settings = Settings.model_validate({"session": {"land_time": 0}})
    reason = site.run(site.plan("echo work >work.txt; sleep 60", "worker", settings=settings), show)
    assert reason == "its output was closed (Broken pipe)"
    [ended] = site.events(Kind.SESSION_ENDED)
    assert ended.data["outcome"] == "killed" and site.events(Kind.RESCUE_SAVED)


def test_until_idle_a_team_without_budget_stops_and_says_so(site: Site) -> None:
    plan = site.plan("true", "worker", "docs", spending=Budget(tokens=0), sessions=None, until_idle=True)
    assert site.run(plan) == "out of budget: budget of the team: 0 of 0 tokens spent"
    assert [e.data["reason"] for e in site.events(Kind.TEAM_IDLE)] == [
        "out of budget: budget of the team: 0 of 0 tokens spent"
    ]
    assert {e.data["seconds"] for e in site.events(Kind.SEAT_WAITING)} == {None}
    assert not site.events(Kind.SESSION_STARTING)


def test_an_error_of_ours_ends_the_team_but_not_before_the_work_is_safe(site: Site) -> None:
    (site.project.root / "roles").mkdir()
    (site.project.root / "roles" / "docs.md").write_text("Write {{what}}.\n")
    settings = Settings.model_validate({"session": {"land_time": 0}})
    with pytest.raises(TeamError, match=r"docs\.md: unknown variable"):
        site.run(site.plan("echo work >work.txt; sleep 60", "worker", "docs", settings=settings))
    assert [e.session for e in site.events(Kind.SESSION_REMOVED)] == ["agent-01.1"]
    assert site.events()[-1].kind == Kind.TEAM_STOPPED


def test_a_text_that_cannot_be_read_starts_nothing(site: Site) -> None:
    (site.project.root / "AGENT_PROMPT.md").write_text("")
    with pytest.raises(TeamError, match=r"AGENT_PROMPT\.md is empty"):
        site.run(site.plan("true", "worker"))
    assert site.events() == []


def test_a_session_is_told_of_the_last_one(site: Site) -> None:
    site.run(site.plan(LEAVES, "worker"))
    site.run(site.plan("cat", "worker"))
    told = Path(site.events(Kind.SESSION_STARTING)[-1].data["log"]).read_text()
    assert "| The last session of this seat failed: exit 3\n" in told
    assert "| Left behind by an earlier session: work of agent-01.1 that main does not have" in told
    site.run(site.plan("cat", "worker"))
    told = Path(site.events(Kind.SESSION_STARTING)[-1].data["log"]).read_text()
    assert "failed" not in told.split("You are agent-01")[-1] and "agent-01.1" not in told


def test_one_supervisor_a_project(site: Site) -> None:
    pids: list[int | None] = []
    again: list[BaseException] = []

    async def both() -> None:
        first = asyncio.create_task(supervise(site.project, site.plan("sleep 4", "worker")))
        await asyncio.sleep(1)
        pids.append(running_pid(site.project))
        try:
            await asyncio.to_thread(lambda: asyncio.run(supervise(site.project, site.plan("true", "worker"))))
        except Running as error:
            again.append(error)
        await first

    asyncio.run(both())
    assert pids == [os.getpid()]
    assert len(again) == 1 and f"already runs here (pid {os.getpid()})" in str(again[0])
    assert len(site.events(Kind.SESSION_STARTING)) == 1 and running_pid(site.project) is None


def test_nobody_waits_before_its_session_has_ended(site: Site) -> None:
    shown: list[tuple[str, str]] = []

    def show(event: Event) -> None:
        if event.kind in (Kind.SESSION_ENDED, Kind.SEAT_WAITING, Kind.TEAM_IDLE, Kind.TEAM_STOPPED):
            shown.append((event.agent or "team", event.kind))

    site.run(site.plan("echo work >work.txt", "worker", "docs", sessions=None, until_idle=True), show)
    for name in ("agent-01", "docs-01"):
        assert [kind for who, kind in shown if who == name] == [Kind.SESSION_ENDED, Kind.SEAT_WAITING]
    assert shown[-2:] == [("team", Kind.TEAM_IDLE), ("team", Kind.TEAM_STOPPED)]
    assert not site.project.doors.exists()


ASKS = """
import json, os, time, urllib.request
for _ in range(3):
    body = json.dumps({"model": "claude-opus-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})
    head = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    head["x-api-key"] = os.environ.get("ANTHROPIC_API_KEY") or os.environ["ANTHROPIC_AUTH_TOKEN"]
    try:
        url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
        urllib.request.urlopen(urllib.request.Request(url, body.encode(), head))
    except urllib.error.HTTPError:
        pass
time.sleep(1)
"""


def test_a_model_out_of_reach_is_told_once(site: Site) -> None:
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        plan = site.plan("", "worker", "docs", client_argv=(sys.executable, "-c", ASKS), model_url=url)
        lines: list[str] = []
        site.run(plan, lambda event: lines.append(describe(event) or ""))
    assert len(site.events(Kind.MODEL_REFUSED)) == 6
    [said] = [line for line in lines if "model" in line or "no answer" in line]
    assert said.startswith("team: ERROR no answer from anthropic: Cannot connect to host 127.0.0.1:")


LANDS = """
cat >/dev/null
n=${TEAM_SESSION##*.}
case $TEAM_AGENT in
    agent-*) echo "$n" >"work$n.txt"; git add -A; git commit -qm "Work $n"; git push -q ;;
    *) echo looked ;;
esac
"""


def test_a_role_works_when_there_is_enough_for_it_and_ends_with_the_last_who_could_bring_more(site: Site) -> None:
    settings = Settings.model_validate({"role": {"docs": {"every": "2 landings"}}})
    site.run(site.plan(LANDS, "worker", "docs", sessions=5, settings=settings))
    story = [
        "landing" if e.kind == Kind.LANDING_DONE else e.session
        for e in site.events(Kind.LANDING_DONE, Kind.SESSION_STARTING)
        if e.agent == "docs-01" or (e.kind == Kind.LANDING_DONE and e.data["kind"] == "work")
    ]
    began = [number for number, what in enumerate(story) if what != "landing"]
    between = [story[a:b].count("landing") for a, b in itertools.pairwise([*began, len(story)])]
    assert all(count >= 2 for count in between[:-1]) and between[-1] < 2, story
    waits = [e.data["reason"] for e in site.events(Kind.SEAT_WAITING, agent="docs-01")]
    assert waits and all(re.match(r"waits for \d landings? of others, by the schedule of docs", w) for w in waits), (
        waits
    )


def test_of_two_seats_of_a_role_one_works(site: Site) -> None:
    settings = Settings.model_validate({"role": {"docs": {"every": "1h"}}})
    plan = site.plan("cat >/dev/null", "docs", settings=settings, sessions=None, until_idle=True)
    site.run(replace(plan, seats=(Seat("docs-01", "docs"), Seat("docs-02", "docs"))))
    assert len(site.events(Kind.SESSION_STARTING)) == 1


def test_where_nothing_is_written_twice_dedup_costs_nothing(site: Site) -> None:
    assert site.run(site.plan("true", "dedup", sessions=None, until_idle=True)) == "idle"
    assert not site.events(Kind.SESSION_STARTING)
    [skipped] = site.events(Kind.ROLE_SKIPPED)
    assert describe(skipped) == "dedup-01: no session of dedup now: there is nothing to hand to it"


def test_a_landing_is_measured_by_the_role_s_benchmark(site: Site) -> None:
    (site.project.root / "pause.sh").write_text("sleep 0.3\n")
    git("add", "-A", at=site.project.root)
    git("commit", "-q", "-m", "Slow", at=site.project.root, env=PERSON)
    with closing(Ledger(site.project.ledger)) as ledger:
        worktree.sync_up(site.project, ledger, Settings())
    settings = Settings.model_validate({"role": {"performance": {"benchmark": "sh pause.sh"}}})
    script = "cat; echo true >pause.sh; git commit -qam 'Do not wait'; git push -q"
    site.run(site.plan(script, "performance", settings=settings))
    [measured] = site.events(Kind.ROLE_MEASURED)
    assert measured.data["role"] == "performance" and measured.data["subject"] == "Do not wait"
    assert measured.data["before"] >= 300 and measured.data["after"] < measured.data["before"]
    told = Path(site.events(Kind.SESSION_STARTING)[0].data["log"]).read_text()
    assert "# Handed to you: the benchmark" in told and "sh pause.sh" in told
