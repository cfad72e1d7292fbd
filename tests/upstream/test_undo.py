"""What others landed is not taken back in passing: by a merge that is none, or by a tree from before."""

from __future__ import annotations

from tests.upstream.conftest import Clone, Site


def behind(site: Site) -> tuple[Clone, Clone]:
    """One agent landed a change of b and a new file; the other has not pulled yet."""
    one, two = site.agent(1), site.agent(2)
    one.commit_paths("Change b", {"src/b.txt": "better\n", "src/new.txt": "new\n"})
    one.lands()
    return one, two


def test_a_merge_with_ours_is_refused_with_the_files(site: Site) -> None:
    _, two = behind(site)
    two.commit("mine", src__a_DOT_txt="mine\n")
    two.git("fetch", "-q")
    two.git("merge", "-q", "-s", "ours", "-m", "merge", "origin/main")
    said = two.refused()
    assert "src/b.txt" in said and "src/new.txt" in said, said
    assert site.rule() == "undo"


def test_a_real_merge_and_a_fix_in_a_commit_of_its_own_land(site: Site) -> None:
    _, two = behind(site)
    two.commit("mine", src__a_DOT_txt="mine\n")
    two.pull()
    two.commit("Mend what the merge broke", src__b_DOT_txt="better, and mended\n")
    two.lands()


def test_a_change_inside_a_clean_merge_is_refused(site: Site) -> None:
    _, two = behind(site)
    two.commit("mine", src__a_DOT_txt="mine\n")
    two.git("fetch", "-q")
    two.git("merge", "-q", "--no-commit", "origin/main")
    (two.path / "src/b.txt").write_text("smuggled\n")
    two.git("commit", "-qam", "merge")
    assert "src/b.txt" in two.refused()


def test_a_resolved_conflict_lands_but_drops_nothing_beside_it(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("one", src__a_DOT_txt="one\n", src__b_DOT_txt="better\n")
    one.lands()
    two.commit("two", src__a_DOT_txt="two\n")
    two.run("pull", "-q", "--no-edit")
    (two.path / "src/a.txt").write_text("one\ntwo\n")
    two.git("add", "-A")
    two.git("commit", "-q", "-m", "merge")
    good = two.head()
    two.git("checkout", "HEAD~1", "--", "src/b.txt")
    two.git("commit", "-q", "--amend", "-m", "merge")
    assert "src/b.txt" in two.refused()
    two.git("reset", "-q", "--hard", good)
    two.lands()


def test_a_stale_tree_on_the_new_main_is_refused(site: Site) -> None:
    _, two = behind(site)
    two.commit("mine", src__a_DOT_txt="mine\n")
    two.git("fetch", "-q")
    two.git("reset", "-q", "--soft", "origin/main")
    two.git("commit", "-q", "-m", "mine, again")
    said = two.refused()
    assert "src/b.txt" in said and site.rule() == "undo", said
    two.git("checkout", "origin/main", "--", "src/b.txt", "src/new.txt")
    two.git("commit", "-q", "-m", "put back")
    two.lands()


def test_a_stale_tree_that_only_lacks_new_files_is_refused(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("Add", src__new_DOT_txt="new\n", src__more_DOT_txt="more\n")
    one.lands()
    two.git("fetch", "-q")
    two.commit("mine", src__a_DOT_txt="mine\n")
    two.git("reset", "-q", "--soft", "origin/main")
    two.git("commit", "-q", "-m", "mine, again")
    assert "src/new.txt" in two.refused()


def test_to_delete_or_rename_an_old_file_is_work(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("Add", src__new_DOT_txt="new\n")
    one.lands()
    two.pull()
    two.git("mv", "src/new.txt", "src/moved.txt")
    two.git("commit", "-q", "-m", "Rename")
    two.lands()
    one.pull()
    one.commit("Delete", src__b_DOT_txt=None)
    one.lands()


def test_an_honest_revert_lands(site: Site) -> None:
    one, two = behind(site)
    two.pull()
    two.git("revert", "--no-edit", one.head())
    two.lands()
    one.pull()
    one.git("revert", "--no-edit", "HEAD^2")  # and the revert of the revert
    one.lands()


def test_a_revert_that_names_something_else_is_refused(site: Site) -> None:
    _, two = behind(site)
    start = two.git("rev-parse", "HEAD")
    two.pull()
    two.git("checkout", start, "--", "src/b.txt")
    two.git("commit", "-q", "-m", f"Back to {start}")
    two.refused()
    two.git("commit", "-q", "--amend", "-m", f"Undo {two.git('rev-parse', 'HEAD~1')[:9]}, it was wrong")
    two.lands()


def test_a_session_may_take_back_its_own(site: Site) -> None:
    one = site.agent(1)
    one.commit("try", src__a_DOT_txt="tried\n")
    one.lands()
    one.commit("no", src__a_DOT_txt="a\n" * 20)
    one.lands()


def test_an_octopus_is_what_git_makes_of_it_or_refused(site: Site) -> None:
    one = site.agent(1)
    start = one.head()
    for name in ("x", "y"):
        one.git("checkout", "-q", "-b", name, start)
        one.commit(name, **{f"src__{name}_DOT_txt": name})
    one.git("checkout", "-q", "main")
    one.commit("z", src__z_DOT_txt="z")
    one.git("merge", "-q", "-m", "octopus", "x", "y")
    assert len(one.git("show", "-s", "--format=%P").split()) == 3
    good = one.head()
    one.git("rm", "-q", "src/x.txt")
    one.git("commit", "-q", "--amend", "-m", "octopus")
    assert "src/x.txt" in one.refused()
    one.git("reset", "-q", "--hard", good)
    one.lands()


def test_a_person_may(site: Site) -> None:
    behind(site)
    ann = site.person()
    ann.git("checkout", "HEAD~1", "--", "src/b.txt")
    ann.git("commit", "-q", "-m", "back")
    ann.lands("origin", "HEAD:main")


def test_a_stale_file_under_a_new_name_takes_back_as_much(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("edit", src__a_DOT_txt="EDIT\n" + "a\n" * 20)
    one.lands()
    two.git("mv", "src/a.txt", "src/moved.txt")
    two.git("commit", "-q", "-m", "mv")
    two.git("fetch", "-q")
    two.git("reset", "-q", "--soft", "origin/main")
    two.git("commit", "-q", "-m", "work")
    assert "src/a.txt" in two.refused() and site.rule() == "undo"
    two.git("reset", "-q", "--hard", "origin/main")
    two.git("mv", "src/a.txt", "src/moved.txt")
    two.git("commit", "-q", "-m", "mv")
    two.lands()


def test_a_stale_file_that_is_executable_now_takes_back_as_much(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    one.commit("edit", src__a_DOT_txt="EDIT\n" + "a\n" * 20)
    one.lands()
    two.git("fetch", "-q")
    two.git("reset", "-q", "--soft", "origin/main")
    (two.path / "src/a.txt").chmod(0o755)
    two.git("commit", "-q", "-a", "-m", "work")
    assert "src/a.txt" in two.refused() and site.rule() == "undo"
