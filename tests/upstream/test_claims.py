"""Who may take, change and give back a task; decided by path on main, whatever git would merge."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from team.config import Landing
from team.ledger import Kind
from tests.upstream.conftest import Clone, Site


def holds(site: Site, task: str) -> str | None:
    claim = site.upstream.holder(task)
    return claim.agent if claim else None


def test_claim_work_release(site: Site) -> None:
    one = site.agent(1, "s-1")
    one.claim("fix_parser", "notes\n")
    assert "remote: you hold fix_parser" in one.lands()
    assert holds(site, "fix_parser") == "agent-01"
    assert site.upstream.held_by("s-1") == ["fix_parser"]
    one.commit("Fix the parser", src__a_DOT_txt="fixed\n")
    one.lands()
    assert "Team-Task: fix_parser" in site.git("log", "-1", "--format=%(trailers)", "main")  # work on what is held
    one.claim("fix_parser", "more notes\n")  # the holder may write into its lock
    one.lands()
    one.commit_paths("Done", {"current_tasks/fix_parser.txt": None, "tasks/fix_parser.md": None})
    assert "remote: you released fix_parser" in one.lands()
    assert holds(site, "fix_parser") is None
    kinds = [e.data["kind"] for e in site.events(Kind.LANDING_DONE)]
    assert kinds == ["claim", "work", "work", "work"]
    subjects = site.git("log", "--first-parent", "--format=%s", "main").split("\n")
    assert subjects[-2] == "Claim fix_parser (agent-01)"
    assert "Team-Task: fix_parser" in site.git("log", "-1", "--format=%(trailers)", "main")
    claim, release = site.events(Kind.CLAIM, Kind.RELEASE)
    assert (claim.task, claim.agent, claim.session) == ("fix_parser", "agent-01", "s-1")
    assert (release.task, release.agent, release.data["by"]) == ("fix_parser", "agent-01", "agent-01")


@pytest.mark.parametrize("content", ["", "agent says hello\n"])
def test_a_byte_equal_lock_is_refused_although_git_merges_it(site: Site, content: str) -> None:
    one, two = site.agent(1), site.agent(2)
    one.claim("fix_parser", content)
    two.claim("fix_parser", content)
    one.lands()
    assert "fix_parser is held by agent-01 since 0 min" in two.refused()
    assert site.rule() == "held"
    two.pull()  # the same bytes merge cleanly, and still it is the other's
    two.refused()
    assert holds(site, "fix_parser") == "agent-01"


def test_adding_and_removing_a_held_lock_in_one_push_is_refused(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.claim("fix_parser")
    one.lands()
    two.claim("fix_parser")
    two.drop("fix_parser")
    two.refused()
    assert site.rule() == "held"


def test_a_whole_task_in_one_push_is_a_claim_and_a_release(site: Site) -> None:
    one = site.agent(1)
    one.claim("fix_parser")
    one.commit("work", src__a_DOT_txt="fixed\n")
    one.drop("fix_parser")
    one.lands()
    assert [e.kind for e in site.events(Kind.CLAIM, Kind.RELEASE)] == ["claim", "release"]
    assert holds(site, "fix_parser") is None


def test_one_live_claim_a_session(site: Site) -> None:
    one = site.agent(1)
    one.claim("fix_parser")
    one.lands()
    one.claim("fix_lexer")
    assert "you hold fix_parser, at most 1 at a time" in one.refused()
    assert site.rule() == "claims"
    one.git("reset", "-q", "--hard", "HEAD~1")
    one.drop("fix_parser")
    one.claim("fix_lexer")
    one.lands()
    assert (holds(site, "fix_parser"), holds(site, "fix_lexer")) == (None, "agent-01")
    two = site.agent(2)
    two.commit_paths("two", {"current_tasks/a.txt": "", "current_tasks/b.txt": ""})
    two.refused()
    site.reopen(Landing(claims=2))
    two.lands()


def test_only_the_holder_changes_or_removes_a_lock(site: Site) -> None:
    one = site.agent(1)
    one.claim("fix_parser", "mine\n")
    one.lands()
    two = site.agent(2)
    two.claim("fix_parser", "stolen\n")
    assert "only its holder changes or removes it" in two.refused()
    two.git("reset", "-q", "--hard", "origin/main")
    two.drop("fix_parser")
    two.refused()
    two.pull()  # the mend that the refusal names
    two.git("checkout", "origin/main", "--", "current_tasks/fix_parser.txt")
    two.commit("put back")
    two.lands()
    two.pull()
    two.git("mv", "current_tasks/fix_parser.txt", "current_tasks/other.txt")
    two.commit("moved")
    two.refused()
    two.git("reset", "-q", "--hard", "origin/main")
    two.commit_paths("ticket", {"tasks/fix_parser.md": None})
    assert "so its ticket stays" in two.refused()
    assert site.git("show", "main:current_tasks/fix_parser.txt") == "mine"


def test_a_merge_with_ours_does_not_release_anothers_lock(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.claim("fix_parser")
    one.lands()
    two.commit("two", two="2\n")
    two.git("fetch", "-q")
    two.git("merge", "-q", "-s", "ours", "-m", "ours", "origin/main")
    two.refused()
    assert site.rule() == "held"
    assert "current_tasks/fix_parser.txt" in site.files()
    two.git("checkout", "origin/main", "--", "current_tasks/fix_parser.txt")
    two.commit("put back")
    two.lands()
    assert holds(site, "fix_parser") == "agent-01"


def test_a_stale_claim_of_a_task_that_was_just_done_is_refused(site: Site) -> None:
    one, two, three = site.agent(1), site.agent(2), site.agent(3)
    one.claim("fix_parser")
    one.lands()
    one.commit_paths("Done", {"current_tasks/fix_parser.txt": None, "tasks/fix_parser.md": None})
    one.lands()
    two.claim("fix_parser")
    assert "fix_parser was finished by agent-01 0 min ago; `git pull`" in two.refused()
    assert site.rule() == "stale"
    site.source.git("pull", "-q", str(site.project.upstream), "main")
    three.pull()
    three.commit_paths("again", {"current_tasks/fix_parser.txt": ""})  # with open eyes it may be taken again
    three.lands()


def test_a_ticket_that_a_person_removed_is_not_claimed_from_a_stale_clone(site: Site) -> None:
    one, ann = site.agent(1), site.person()
    ann.commit_paths("not needed", {"tasks/fix_lexer.md": None})
    ann.lands()
    one.claim("fix_lexer")
    assert "finished since your last pull" in one.refused()


def test_only_good_names_lock_and_the_nearest_is_offered(site: Site) -> None:
    one = site.agent(1)
    offers = {
        "current_tasks/Fix_Parser.txt": "fix_parser",
        "current_tasks/fix parser .txt": "fix_parser",
        "current_tasks/fix\u200b_parser.txt": "fix_parser",
        "current_tasks/fix_рarser.txt": "fix_arser",
        "current_tasks/a\nb.txt": "a_b",
        "current_tasks/" + "x" * 200 + ".txt": "x" * 100,
        "current_tasks/sub/fix.txt": "sub_fix",
        "current_tasks/fix": "fix",
        "Current_Tasks/fix_parser.txt": "fix_parser",
        "current_tasks\u200d/fix_parser.txt": "fix_parser",
        "current_tasks/..x.txt": "x",
    }
    for path, offer in offers.items():
        one.commit_paths("claim", {path: ""})
        assert f"try current_tasks/{offer}.txt" in one.refused()
        assert site.rule() == "lock"
        one.git("reset", "-q", "--hard", "HEAD~1")


def test_a_lock_is_a_plain_file(site: Site) -> None:
    one = site.agent(1)
    blob = one.git("hash-object", "-w", "--stdin", stdin=b"../README.md")
    for mode, oid in (("120000", blob), ("100755", blob), ("160000", one.head())):
        one.git("update-index", "--add", "--cacheinfo", f"{mode},{oid},current_tasks/fix.txt")
        one.git("commit", "-q", "-m", "claim")
        one.refused()
        assert site.rule() == "lock"
        one.git("reset", "-q", "--hard", "HEAD~1")
    one.git("rm", "-q", "-r", "current_tasks")
    one.git("update-index", "--add", "--cacheinfo", f"120000,{blob},current_tasks")
    one.git("commit", "-q", "-m", "link")
    one.refused()
    assert site.rule() == "lock"


def test_the_host_releases_what_a_session_held_and_another_takes_it(site: Site) -> None:
    one = site.agent(1, "s-1")
    one.claim("fix_parser")
    one.lands()
    site.ended.add("s-1")
    one.commit("late", late="x")
    assert "this session has ended" in one.refused()
    assert site.upstream.release("s-1", "agent-01", "killed by a person") == ["fix_parser"]
    assert site.upstream.release("s-1", "agent-01", "again") == []
    assert holds(site, "fix_parser") is None
    assert site.git("log", "-1", "--format=%s", "main") == "Release fix_parser (agent-01): killed by a person"
    assert "current_tasks/.gitkeep" in site.files()
    event = site.events(Kind.RELEASE)[-1]
    assert (event.task, event.session, event.data["by"]) == ("fix_parser", "s-1", "team")
    two = site.agent(2)
    two.claim("fix_parser")
    two.lands()
    one.refused()
    assert holds(site, "fix_parser") == "agent-02"


def test_two_racers_with_byte_equal_locks_exactly_one_wins(site: Site) -> None:
    for turn in range(3):
        racers = [site.agent(n) for n in (1, 2, 3)]
        for racer in racers:
            racer.claim(f"race_{turn}", "same\n")
        with ThreadPoolExecutor(3) as pool:
            codes = sorted(done.returncode for done in pool.map(lambda r: r.push(), racers))
        assert codes == [0, 1, 1]
        winner = site.upstream.holder(f"race_{turn}")
        assert winner is not None


def test_disjoint_pushes_at_once_all_land(site: Site) -> None:
    agents = [site.agent(n) for n in range(1, 9)]
    start = threading.Barrier(len(agents))

    def work(agent: Clone) -> None:
        agent.claim(f"task_{agent.session}")
        start.wait()
        agent.lands()
        agent.commit_paths("work", {f"work/{agent.session}": "x\n"})
        agent.lands()
        agent.drop(f"task_{agent.session}")
        agent.lands()

    with ThreadPoolExecutor(len(agents)) as pool:
        list(pool.map(work, agents))
    assert {f"work/{a.session}" for a in agents} <= set(site.files())
    assert not [name for name in site.files() if name.startswith("current_tasks/") and name.endswith(".txt")]
    story = site.git("rev-list", "--first-parent", "--count", "main")
    assert int(story) == 1 + 3 * len(agents)
    numbers = [e.data["landing"] for e in site.events(Kind.LANDING_DONE)]
    assert numbers == list(range(1, 25))


def test_tasks_lists_what_is_held_and_what_is_open(site: Site) -> None:
    one = site.agent(1, "s-1")
    one.claim("fix_parser")
    one.lands()
    held, opened = site.upstream.tasks()
    assert (held.name, held.title, held.state, held.agent, held.session) == (
        "fix_parser", "Fix the parser", "held", "agent-01", "s-1",
    )  # fmt: skip
    assert (opened.name, opened.title, opened.state, opened.agent) == ("fix_lexer", "Fix the lexer", "open", None)
