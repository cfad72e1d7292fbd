"""Every way in which an agent may push lands on main or says why not, and the next pull works."""

from __future__ import annotations

import pytest

from team.ledger import Kind
from tests.upstream.conftest import Site


@pytest.mark.parametrize(
    "args",
    [(), ("origin", "main"), ("origin", "HEAD"), ("origin", "HEAD:main"), ("-u", "origin", "main"), ("-f",),
     ("origin", "HEAD:refs/for/main"), ("origin", "+HEAD:main"), ("--atomic", "origin", "HEAD:main"), ("-q",)],
    ids=" ".join,
)  # fmt: skip
def test_lands_from_a_stale_clone_and_the_next_pull_works(site: Site, args: tuple[str, ...]) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("one", one="1\n")
    one.lands()
    head = two.commit("two", two="2\n")
    shown = two.lands(*args)
    if args != ("-q",):
        assert "remote: landed on main as " in shown
    two.pull()
    assert two.head() == site.upstream.main()
    assert {"one", "two"} <= set(site.files())
    assert site.git("rev-parse", "main^2") == head


def test_lands_from_a_detached_head_and_with_push_options(site: Site) -> None:
    one = site.agent(1)
    one.git("checkout", "-q", "--detach")
    one.commit("one", one="1\n")
    one.lands("-o", "anything")
    one.commit("two", two="1\n")
    one.lands("origin", "HEAD:main")
    one.git("fetch", "-q")
    one.git("merge", "-q", "origin/main")
    assert one.head() == site.upstream.main()


def test_a_landing_is_a_merge_with_trailers_and_keeps_the_agents_commit(site: Site) -> None:
    one = site.agent(1, "s-1")
    old = site.upstream.main()
    head = one.commit("Mend the thing\n\nmore", one="1\n")
    one.lands()
    assert site.git("log", "-1", "--format=%P", "main") == f"{old} {head}"
    assert site.git("log", "-1", "--format=%an <%ae>|%cn|%s", "main") == (
        "agent-01 <agent-01@team.invalid>|team|Land Mend the thing (agent-01)"
    )
    trailers = site.git("log", "-1", "--format=%(trailers)", "main")
    who = ["Team-Agent: agent-01", "Team-Role: worker", "Team-Session: s-1"]
    assert trailers.split("\n") == [*who, "Team-Kind: work", "Team-Landing: 1"]
    intent, done = site.events(Kind.LANDING_INTENT, Kind.LANDING_DONE)
    assert intent.data == done.data
    assert (done.data["old"], done.data["new"], done.data["pushed"]) == (old, site.upstream.main(), head)
    assert (done.data["kind"], done.data["paths"], done.data["merge"]) == ("work", 1, False)


def test_pushing_what_main_has_is_fine_and_lands_nothing(site: Site) -> None:
    one = site.agent(1)
    first = one.commit("one", one="1\n")
    one.lands()
    main = site.upstream.main()
    assert "nothing new" in one.lands()
    one.pull()
    one.lands("origin", f"{first}:refs/heads/main")
    one.lands("-f", "origin", "HEAD~1:main")
    assert site.upstream.main() == main


@pytest.mark.parametrize(
    "refspec",
    ["HEAD:refs/heads/other", "HEAD:refs/heads/refs/heads/main", "HEAD:refs/tags/v1", "HEAD:refs/replace/" + "1" * 40,
     "HEAD:refs/rescue/agent-01/s1", "HEAD:refs/team/x", "HEAD:refs/heads/Main"],
)  # fmt: skip
def test_any_other_ref_is_refused_with_the_command_that_works(site: Site, refspec: str) -> None:
    one = site.agent(1)
    main = site.upstream.main()
    one.commit("one", one="1\n")
    assert "`git push origin HEAD:refs/for/main` lands your commit on main" in " ".join(
        one.refused("origin", refspec).split()
    )
    assert site.rule() == "ref"
    assert site.upstream.main() == main
    assert site.git("for-each-ref", "--format=%(refname)") == "refs/heads/main"
    one.lands("origin", "HEAD:refs/for/main")


def test_a_second_ref_refuses_the_whole_push(site: Site) -> None:
    one = site.agent(1)
    main = site.upstream.main()
    one.commit("one", one="1\n")
    one.refused("origin", "HEAD:main", f"HEAD:refs/replace/{main}")
    assert site.rule() == "refs"
    assert site.upstream.main() == main
    one.refused("origin", *(f"HEAD:refs/heads/b{n}" for n in range(500)))
    assert site.rule() == "refs"


def test_main_is_never_deleted_or_rewound(site: Site) -> None:
    one = site.agent(1)
    first = site.upstream.main()
    one.commit("one", one="1\n")
    one.lands()
    main = site.upstream.main()
    one.refused("origin", ":main")
    one.refused("origin", ":refs/for/main")
    one.lands("-f", "origin", f"{first}:main")
    assert site.upstream.main() == main


def test_upstream_itself_refuses_a_push_that_goes_around(site: Site) -> None:
    one = site.agent(1)
    one.commit("one", one="1\n")
    one.git("config", "--unset", "remote.origin.receivepack")
    assert "git push team" in one.refused("origin", "HEAD:main")


def test_unrelated_history_is_refused(site: Site) -> None:
    one = site.agent(1)
    one.git("checkout", "-q", "--orphan", "new")
    one.commit("orphan", one="1\n")
    assert "nothing in common" in one.refused()
    assert site.rule() == "unrelated"


def test_a_conflict_names_the_files_and_the_mend_works(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("one", src__a_DOT_txt="one\n")
    one.lands()
    two.commit("two", src__a_DOT_txt="two\n", other="x")
    assert "conflicts with main in src/a.txt; `git pull`, resolve, commit, push again" in " ".join(
        two.refused().split()
    )
    assert site.rule() == "conflict"
    two.run("pull", "-q", "--no-edit")
    two.commit("both", src__a_DOT_txt="one\ntwo\n")
    two.lands()
    assert site.git("show", "main:src/a.txt") == "one\ntwo"


def test_a_clean_merge_joins_both_sides_of_one_file(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    text = "a\n" * 20
    one.commit("one", src__a_DOT_txt="first\n" + text)
    one.lands()
    two.commit("two", src__a_DOT_txt=text + "last\n")
    two.lands()
    assert site.git("show", "main:src/a.txt") == f"first\n{text}last"
    done = site.events(Kind.LANDING_DONE)[-1]
    assert done.data["merge"] is True
