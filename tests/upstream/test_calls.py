"""``team claim``, ``team release`` and ``team tasks``: what a session asks at its door, with real git beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from team.errors import TeamError
from team.ledger import Kind
from team.upstream.quarantine import publish
from team.upstream.refusal import Refused
from tests.upstream.conftest import Clone, Site


def claim(site: Site, clone: Clone, task: str, **asked: str) -> str:
    assert clone.session is not None
    return site.upstream.claim(site.pushers[clone.session], {"task": task, **asked})


def release(site: Site, clone: Clone, **asked: str) -> str:
    assert clone.session is not None
    return site.upstream.give_back(site.pushers[clone.session], asked)


def test_a_claim_puts_the_lock_on_main_with_its_text_and_trailers(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    answer = claim(site, one, "fix_parser", note="mend the loop", scope="src/parser/**")
    assert answer.startswith("you hold fix_parser; `git pull`")
    assert site.git("show", "main:current_tasks/fix_parser.txt") == "agent-01: mend the loop [src/parser/**]"
    message = site.git("log", "-1", "--format=%an %cn%n%B", "main")
    assert message.startswith("agent-01 team\nClaim fix_parser (agent-01)")
    assert "Team-Session: s1" in message and "Team-Task: fix_parser" in message
    assert "already" in claim(site, one, "fix_parser")
    with pytest.raises(Refused, match="held by agent-01 since 0 min"):
        claim(site, two, "fix_parser")
    assert site.rule() == "held"
    two.claim("fix_parser")
    assert "held by agent-01" in two.refused()
    one.pull()
    assert (one.path / "current_tasks/fix_parser.txt").exists()


def test_release_done_takes_lock_and_ticket_and_giving_up_only_the_lock(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "fix_parser")
    one.commit("work before the pull", parser="mended")
    one.lands()
    assert "done and free" in release(site, one, done="1")
    assert "tasks/fix_parser.md" not in site.files() and "current_tasks/fix_parser.txt" not in site.files()
    one.pull()
    with pytest.raises(Refused, match="was finished by agent-01"):
        claim(site, two, "fix_parser")
    assert "you hold" in claim(site, two, "fix_parser", force="1")
    release(site, two)
    claim(site, two, "fix_lexer")
    assert "free again" in release(site, two, task="fix_lexer", reason="too\x1b[31m hard")
    assert "tasks/fix_lexer.md" in site.files() and "current_tasks/fix_lexer.txt" not in site.files()
    assert site.git("log", "-1", "--format=%s", "main").endswith("gave up: too hard")
    assert site.events(Kind.RELEASE)[-1].data["why"] == "gave up: too hard"


def test_bad_calls_are_told_the_mend(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    for bad in ("", "../x", "Fix Parser", "a" * 101, "x.lock", "fix\nparser"):
        with pytest.raises(TeamError, match="no task name"):
            claim(site, one, bad)
    with pytest.raises(TeamError, match="you hold no task"):
        release(site, one)
    with pytest.raises(Refused, match="nobody holds it"):
        release(site, one, task="fix_parser")
    claim(site, one, "fix_parser")
    with pytest.raises(Refused, match="at most 1 at a time"):
        claim(site, one, "fix_lexer")
    with pytest.raises(Refused, match="held by agent-01"):
        release(site, two, task="fix_parser")
    site.ended.add("s1")
    with pytest.raises(Refused, match="has ended"):
        release(site, one)


def test_tasks_are_listed_from_the_session_s_own_side(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "fix_parser")
    assert "yours fix_parser agent-01, 0 min: Fix the parser" in site.upstream.overview("s1")
    mine = site.upstream.overview("s2").splitlines()
    assert mine == ["held fix_parser agent-01, 0 min: Fix the parser", "open fix_lexer Fix the lexer"]
    assert two.session == "s2"


def test_who_lost_its_lock_is_told(site: Site) -> None:
    one, ann = site.agent(1), site.person()
    claim(site, one, "fix_parser")
    ann.pull()
    ann.drop("fix_parser")
    ann.lands()
    assert "fix_parser is not yours any more: released by Ann" in site.upstream.overview("s1")
    one.commit("work", x="x")
    assert "fix_parser is not yours any more: released by Ann" in one.lands()


def test_what_waits_together_lands_in_one_turn_each_with_a_commit_of_its_own(site: Site) -> None:
    clones = [site.agent(n) for n in range(1, 9)]
    answers: list[str] = []
    turn = site.upstream._lander.turn
    pushing = clones[6]
    pushing.claim("by_push")

    def ask(n: int, task: str) -> None:
        try:
            answers.append(claim(site, clones[n], task))
        except Refused as error:
            answers.append(error.reason)

    with turn.taken():
        threads = [threading.Thread(target=ask, args=(n, f"area{n}_work")) for n in range(5)]
        threads.append(threading.Thread(target=ask, args=(5, "area0_work")))
        threads.append(threading.Thread(target=lambda: answers.append(pushing.lands())))
        for thread in threads:
            thread.start()
        while len(site.upstream._receiver.group._waiting) < len(threads):
            pass
    for thread in threads:
        thread.join()
    assert sum("you hold" in answer for answer in answers) == 6
    assert sum("is held by" in answer for answer in answers) == 1
    subjects = site.git("log", "--first-parent", "--format=%s", "main").splitlines()
    assert sum(subject.startswith("Claim ") for subject in subjects) == 6
    kinds = [e.kind for e in site.ledger.events()]
    assert kinds[:6] == ["landing.intent"] * 6, "one group has all its intents before its landings"
    assert len(site.events(Kind.LANDING_DONE)) == 6


def test_a_session_that_ends_in_the_middle_of_a_group_takes_nobody_with_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    clones, answers = [site.agent(n) for n in range(1, 4)], {}

    def end(moves: list[tuple[Path, Path]]) -> None:
        site.ended.add("s2")
        publish(moves)

    monkeypatch.setattr("team.upstream.group.publish", end)

    def ask(n: int) -> None:
        try:
            answers[n] = claim(site, clones[n], f"part{n}_of_it")
        except Refused as error:
            answers[n] = error.reason

    with site.upstream._lander.turn.taken():
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        while len(site.upstream._receiver.group._waiting) < 3:
            pass
    for thread in threads:
        thread.join()
    assert "has ended" in answers[1]
    assert "you hold" in answers[0] and "you hold" in answers[2]
    assert site.upstream.held_by("s2") == []
    assert sorted(f for f in site.files() if "part" in f) == [f"current_tasks/part{n}_of_it.txt" for n in (0, 2)]
    assert {e.data["landing"] for e in site.events(Kind.LANDING_DROPPED)} == {1, 2, 3}


def test_a_task_on_which_three_sessions_failed_is_refused_with_the_last_error(site: Site) -> None:
    for n in range(1, 4):
        clone = site.agent(1, f"agent-01.{n}")
        claim(site, clone, "fix_parser")
        site.ledger.append(
            Kind.SESSION_ENDING,
            agent="agent-01",
            session=clone.session,
            outcome="stalled",
            reason=f"silent {n}",
            exit=1,
        )
        site.upstream.release(clone.session or "", "agent-01", "ended")
    two = site.agent(2)
    two.claim("fix_parser")
    assert "blocked: 3 sessions failed on it, the last: agent-01.3 stalled: silent 3" in two.refused()
    with pytest.raises(Refused, match="team unblock fix_parser"):
        claim(site, two, "fix_parser")
    assert "blocked fix_parser after 3 failed sessions" in site.upstream.overview("s4")
    site.upstream.unblock("fix_parser")
    assert "you hold fix_parser" in two.lands()


def test_the_next_holder_is_told_what_an_earlier_session_left_behind(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "fix_parser")
    site.ledger.append(Kind.SESSION_ENDING, agent="agent-01", session="s1", outcome="killed", reason="x", exit=1)
    site.ledger.append(Kind.RESCUE_SAVED, agent="agent-01", session="s1", commit="c", summary="2 files (a, b)")
    site.upstream.release("s1", "agent-01", "ended")
    left = "session s1 left work on fix_parser that main does not have: 2 files (a, b)"
    assert left in site.upstream.left_behind()[0]
    assert left in claim(site, two, "fix_parser")
    assert site.upstream.left_behind() == []
    release(site, two, done="1")
    assert left not in claim(site, two, "fix_parser", force="1")


def test_an_ending_session_neither_claims_nor_releases(site: Site) -> None:
    one = site.agent(1)
    claim(site, one, "fix_parser")
    site.ending(one)
    with pytest.raises(Refused, match="this session is ending"):
        claim(site, one, "fix_lexer")
    with pytest.raises(Refused, match="this session is ending"):
        release(site, one, done="1")
    assert [e.data["rule"] for e in site.events(Kind.PUSH_REFUSED)] == ["ended", "ended"]
    assert site.upstream.held_by(one.session or "") == ["fix_parser"]
