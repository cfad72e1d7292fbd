"""A crash at any point of a landing: a restart tells which side happened, and puts the other right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from team.ledger import Kind
from team.upstream import group
from team.upstream.quarantine import Quarantine
from team.upstream.repository import Repository
from tests.upstream.conftest import Site


class Crash(BaseException):
    """As if the process had been killed here."""


def crash_in(site: Site, monkeypatch: pytest.MonkeyPatch, where: object, name: str, *, after: bool) -> None:
    """Push, and be killed right before or after ``where.name``."""
    real = getattr(where, name)

    def stop(*args: object) -> None:
        if after:
            real(*args)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(where, name, stop)
        with pytest.raises(Crash):
            receive_like_a_process(site)


def receive_like_a_process(site: Site) -> None:
    """Land what the last clone has, in this thread, so that the crash is seen."""
    pusher = list(site.pushers.values())[-1]
    clone = site.base / list(site.pushers)[-1]
    head = (clone / ".git/refs/heads/main").read_text().strip()
    upstream = site.upstream
    with upstream._lander.quarantine() as quarantine:
        upstream._pack(clone, head, quarantine.path / "theirs")
        with (quarantine.path / "theirs").open("rb") as stream:
            upstream._receiver.take_pack(pusher, quarantine, stream)
        upstream._receiver.land(pusher, quarantine, head, lambda text: None)


@pytest.mark.parametrize(("where", "name", "after"), [(group, "publish", False), (Repository, "move_main", False)])
def test_before_main_moved_the_landing_is_dropped_and_may_come_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, where: object, name: str, after: bool
) -> None:
    one = site.agent(1)
    one.claim("fix_parser")
    crash_in(site, monkeypatch, where, name, after=after)
    assert [e.kind for e in site.ledger.events()] == ["landing.intent"]
    site.reopen().settle()
    assert [e.kind for e in site.ledger.events()] == ["landing.intent", "landing.dropped"]
    assert site.upstream.holder("fix_parser") is None
    one.lands()
    assert site.events(Kind.LANDING_DONE)[0].data["landing"] == 2
    assert site.upstream.holder("fix_parser") is not None


@pytest.mark.parametrize("restart", [True, False])
def test_after_main_moved_the_landing_is_recorded_with_its_claim(
    site: Site, monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    two, one = site.agent(2), site.agent(1)
    one.claim("fix_parser")
    crash_in(site, monkeypatch, Repository, "move_main", after=True)
    if restart:
        site.reopen().settle()
    else:  # another process may be the next to land
        two.commit("two", two="2")
        two.lands()
        two.git("reset", "-q", "--hard", "HEAD~1")
    assert [e.kind for e in site.ledger.events()][:3] == ["landing.intent", "landing.done", "claim"]
    claim = site.upstream.holder("fix_parser")
    assert claim is not None and claim.agent == "agent-01"
    two.claim("fix_parser")
    two.refused()
    assert "nothing new" in one.lands()


def test_settling_removes_what_a_crash_left(site: Site) -> None:
    stale = site.project.incoming / "0123"
    stale.mkdir(parents=True)
    lock = site.project.upstream / "refs/heads/main.lock"
    lock.write_text("")
    os.utime(lock, (1, 1))
    with site.upstream._lander.quarantine() as live:
        site.reopen().settle()
        assert live.path.exists()
    assert not stale.exists() and not lock.exists()
    one = site.agent(1)
    one.commit("one", one="1")
    one.lands()


def test_settling_frees_locks_that_nobody_holds_and_claims_without_a_lock(site: Site) -> None:
    site.git("config", "core.hooksPath", os.devnull)
    ann = site.person()
    ann.commit_paths("old locks", {"current_tasks/old.txt": "", "current_tasks/older.txt": ""})
    ann.git("push", "-q", str(site.project.upstream), "HEAD:main")
    site.ledger.append(Kind.CLAIM, agent="agent-09", session="s9", task="ghost", landing=0)
    site.reopen().settle()
    assert not [name for name in site.files() if name.endswith(".txt") and "current_tasks" in name]
    assert site.git("log", "-1", "--format=%s", "main") == "Release old, older (team): no session holds it"
    assert site.upstream.holder("ghost") is None
    assert site.upstream.held_by("s9") == []


def test_packing_upstream_keeps_every_object(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one = site.agent(1)
    for n in range(5):
        one.commit(f"c{n}", **{f"f{n}": f"{n}"})
        one.lands()
    assert site.upstream.maintain() is False
    ids = site.git("cat-file", "--batch-all-objects", "--batch-check")
    monkeypatch.setattr("team.upstream.repository._MANY_LOOSE", 0)
    assert site.upstream.maintain() is True
    assert site.git("cat-file", "--batch-all-objects", "--batch-check") == ids
    assert not list(site.project.upstream.glob("objects/??/*"))
    one.commit("after", after="x")
    one.lands()


def test_a_full_disk_is_an_answer_not_a_crash(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one = site.agent(1)
    one.commit("one", one="1")

    def full(self: Quarantine, wanted: object, into: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "migrate", full)
        assert "No space left on device" in one.refused()
    assert site.rule() == "error"
    one.lands()
    assert [e.kind for e in site.events(Kind.LANDING_DROPPED)] == ["landing.dropped"]


def test_a_session_that_ends_while_its_push_waits_does_not_land(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one = site.agent(1, "s-1")
    one.commit("one", one="1")
    main = site.upstream.main()
    real = Quarantine.migrate

    def end(self: Quarantine, wanted: list[str], into: Path) -> None:
        site.ended.add("s-1")
        real(self, wanted, into)

    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "migrate", end)
        assert "this session has ended" in one.refused()
    assert site.upstream.main() == main
    assert site.events(Kind.LANDING_DROPPED)[0].data["reason"] == "its session has ended"
