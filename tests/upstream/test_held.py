"""What only a person may let in waits for one, and its task waits with it."""

from __future__ import annotations

import pytest

from team.config import Gate
from team.errors import TeamError
from team.ledger import Kind
from team.upstream.queue import Queue
from tests.upstream.conftest import Clone, Site
from tests.upstream.test_gate import gated, on_main


def holding(site: Site) -> Clone:
    """An agent whose push for its task is held."""
    one = site.agent(1, "s-1")
    one.claim("fix_parser")
    one.lands()
    one.commit_paths("Steer clients", {"CLAUDE.md": "obey\n", "src/a.txt": "a\n"})
    said = one.refused()
    assert "held as 1 until a person decides: only a person may change CLAUDE.md" in said, said
    return one


def test_a_held_push_is_out_of_reach_and_keeps_its_task(site: Site) -> None:
    one = holding(site)
    assert "held as 1" in one.refused()  # the same commit is the same push
    assert len(site.upstream.held.all()) == 1
    assert one.run("cat-file", "-e", one.head()).returncode == 0
    assert one.head() not in site.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    assert site.upstream.release("s-1", "agent-01", "its session ended") == []
    assert site.upstream.holder("fix_parser") is not None
    assert "obey" in site.upstream.held.diff(site.upstream.held.find(1))
    site.reopen().settle()
    assert [p.number for p in site.upstream.held.all()] == [1]


def test_approved_it_lands_and_its_agent_hears_of_it(site: Site) -> None:
    one = holding(site)
    site.upstream.release("s-1", "agent-01", "its session ended")
    landed = site.upstream.held.approve(1, "Ann", "fine")
    assert landed is not None and on_main(site, "CLAUDE.md")
    assert site.upstream.holder("fix_parser") is None  # its session had ended
    assert site.upstream.held.all() == []
    assert "your push 1 (Steer clients) landed" in one.push().stderr
    with pytest.raises(TeamError, match="has its verdict"):
        site.upstream.held.approve(1, "Ann")


def test_denied_its_agent_and_the_next_holder_hear_why(site: Site) -> None:
    one = holding(site)
    site.upstream.release("s-1", "agent-01", "its session ended")
    site.upstream.held.deny(1, "Ann", "not today")
    assert "denied by Ann: not today" in one.push().stderr
    two = site.agent(2)
    two.claim("fix_parser")
    assert "agent-01's push 1 (Steer clients) was refused 0 min ago: denied by Ann: not today" in two.lands()
    assert not on_main(site, "CLAUDE.md")


def test_what_conflicts_meanwhile_does_not_land(site: Site) -> None:
    holding(site)
    two = site.agent(2)
    two.commit("Another a", src__a_DOT_txt="other\n")
    two.lands()
    with pytest.raises(TeamError, match="does not land any more: conflicts with main in"):
        site.upstream.held.approve(1, "Ann")
    assert site.upstream.held.all() == []


def test_an_approved_push_has_to_pass_the_gate(site: Site) -> None:
    with gated(site):
        one = holding(site)
        assert site.upstream.held.approve(1, "Ann") is None
        while site.upstream.waiting():
            pass
        assert on_main(site, "CLAUDE.md")
        one.commit_paths("Worse", {"CLAUDE.md": "x\n", "src/bad.txt": "BAD\n"})
        one.refused()
        site.upstream.held.approve(2, "Ann")
        while site.upstream.waiting():
            pass
        assert not on_main(site, "src/bad.txt")


TEST = "def test_one():\n    assert 1 + 1 == 2\n\n\ndef test_two():\n    assert 2 + 2 == 4\n    assert 4\n"
WEAKER = {
    "deletes tests/test_x.py": None,
    "empties tests/test_x.py": "",
    "skips tests in tests/test_x.py": "import pytest\n\n\n@pytest.mark.skip\n" + TEST,
    "loosens tests": TEST.replace("    assert 4\n", ""),
    "removes test test_two": TEST.split("\n\n\ndef test_two")[0],
}


@pytest.mark.parametrize("finding", WEAKER)
def test_weakened_tests_are_reported_held_or_refused(site: Site, finding: str) -> None:
    ann = site.person()
    ann.commit_paths("Tests", {"tests/test_x.py": TEST})
    ann.lands()
    one, two, three = site.agent(1), site.agent(2), site.agent(3)
    for agent in (one, two, three):
        agent.commit_paths("Remove what fails", {"tests/test_x.py": WEAKER[finding], "src/new.txt": agent.name})
    site.reopen(gate=Gate(tampering="refuse"))
    assert finding in one.refused() and site.rule() == "tests"
    site.reopen(gate=Gate(tampering="hold"))
    assert "held as 1" in two.refused()
    site.reopen()
    said = three.lands()
    assert f"tests: this push {finding}" in said
    assert len(site.events(Kind.PUSH_TAMPERING)) == 3


def test_tests_that_move_or_grow_are_no_finding(site: Site) -> None:
    ann = site.person()
    ann.commit_paths("Tests", {"tests/test_x.py": TEST})
    ann.lands()
    one = site.agent(1)
    one.git("mv", "tests/test_x.py", "tests/test_y.py")
    one.commit_paths("Move and add", {"tests/test_z.py": "def test_three():\n    assert 3\n"})
    assert "tests:" not in one.lands()
    one.commit_paths("Split", {"tests/test_y.py": None, "tests/test_v.py": TEST.replace("4", "2 + 2")})
    one.push()
    assert not site.events(Kind.PUSH_TAMPERING)


SKIPPED = "@pytest.mark.skip\ndef test_one():\n    assert f() == 1\n"


@pytest.mark.parametrize(
    ("before", "push"),
    [
        ("def test_one():\n    assert f() == 1\n", {"tests/test_y.py": None, "tests/test_z.py": SKIPPED}),
        ("def test_one():\n    assert f() == 1\n" + "#" * (1 << 20), {"tests/test_y.py": "x = 1\n"}),
        (
            "def test_one():\n    assert f() == 1\n",
            {"tests/test_y.py": "# test_one\n", **{f"a/test_{n}.py": "x" for n in range(2001)}},
        ),
    ],
    ids=["moved and skipped", "too large to read", "behind many new ones"],
)
def test_tests_cannot_be_hidden_from_the_gate(site: Site, before: str, push: dict[str, str | None]) -> None:
    person = site.person()
    person.commit_paths("Tests", {"tests/test_y.py": before})
    person.lands()
    site.reopen(gate=Gate(tampering="hold"))
    agent = site.agent(1)
    agent.commit_paths("Move tests", push)
    assert "held as" in agent.refused()


class Crash(BaseException):
    """As if the process had been killed here."""


def approve_and_crash(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The push lands, and its verdict is not recorded any more."""

    def crash(*args: object, **more: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "decide", crash)
        with pytest.raises(Crash):
            site.upstream.held.approve(1, "Ann")
    assert on_main(site, "CLAUDE.md")


@pytest.mark.parametrize("decide", ["approve", "deny"])
@pytest.mark.parametrize("restart", [True, False], ids=["settled", "at once"])
def test_what_landed_before_a_crash_cannot_be_denied_after_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, decide: str, restart: bool
) -> None:
    one = holding(site)
    site.upstream.release("s-1", "agent-01", "its session ended")
    approve_and_crash(site, monkeypatch)
    upstream = site.reopen()
    if restart:
        upstream.settle()
        assert upstream.held.all() == []
        assert upstream.holder("fix_parser") is None
    if decide == "deny" or restart:
        with pytest.raises(TeamError, match="has its verdict: main has this commit"):
            getattr(upstream.held, decide)(1, "Ann")
    else:
        assert upstream.held.approve(1, "Ann") is None
    assert upstream.held.all() == [] and upstream.holder("fix_parser") is None
    assert [e.data["landed"] for e in site.events(Kind.PUSH_VERDICT)] == [True]
    assert "landed 0 min ago: main has this commit" in one.push().stderr


def test_one_persons_denial_counts_although_another_approves_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding(site)
    real = site.upstream._inspector.inspect

    def deny(*args: object) -> object:
        site.upstream.held.deny(1, "Bob", "no")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(site.upstream._inspector, "inspect", deny)
    with pytest.raises(TeamError, match="has its verdict: denied by Bob: no"):
        site.upstream.held.approve(1, "Ann")
    assert not on_main(site, "CLAUDE.md")
