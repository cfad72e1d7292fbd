"""Every way in which an agent may push, from inside a real container, with any names, and whatever the person's own
git configuration says: it lands on main or says why not, and the next ``git pull`` works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from team.git import git
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, by_agent, reason

pytestmark = pytest.mark.engine

FORMS = r"""
from=
form() {
    name=$1; shift
    echo "$name" >"form-$name.txt"; git add -A; git commit -qm "form $name"; head=$(git rev-parse HEAD)
    said=$("$@" 2>&1); code=$?
    git pull -q --no-edit $from >pulled 2>&1; pulled=$?
    landed=no; git merge-base --is-ancestor "$head" origin/main && landed=yes
    printf '%s\n' "$said" | sed "s/^/SAID $name /"
    echo "FORM $name $code $landed $pulled"
    [ "$pulled" = 0 ] || cat pulled
    rm pulled
}
form plain git push
form main git push origin main
form head git push origin HEAD
form head-main git push origin HEAD:main
form for-main git push origin HEAD:refs/for/main
form force git push --force
form lease git push --force-with-lease
form u-main git push -u origin main
form after-u git push
git checkout -q -b topic
form topic git push
form topic-name git push origin topic
form topic-u git push -u origin topic
form topic-head git push origin HEAD
form topic-for-main git push origin HEAD:refs/for/main
git checkout -q main; git merge -q --no-edit topic
form back git push
git checkout -q --detach; from='origin main'  # git itself wants to be told
form detached git push
form detached-main git push origin HEAD:main
form tag git push origin HEAD:refs/tags/v1
form all git push --all
form delete git push origin :main
form last git push origin HEAD:main
git fetch -q; git status --porcelain; git log --oneline -1 >/dev/null && echo intact
"""
LAND = ("plain", "main", "head", "head-main", "for-main", "force", "lease", "u-main", "after-u", "topic",
        "topic-for-main", "back", "detached", "detached-main", "last")  # fmt: skip
OTHERS = """
for i in $(seq 12); do
    echo $i >"other-$i.txt"; land "other $i" || echo refused
    git pull -q --no-edit || echo no pull
done
"""
NAMES = ["with space", " lead", "-dash", "--help", "new\nline", "tab\there", "ünïcödé/日本", 'quo"te', "back\\slash",
         "a:b", "*glob?", "$HOME", "#hash", "build/out.o", "dist/x.bin", "CON", "d/" + "x" * 200]  # fmt: skip
NAMED = f"""
python3 - <<'PY'
import os
for name in {NAMES!r}:
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "wb").write(name.encode())
PY
git add -A; git commit -qm 'Names ünd "quotes" -- \\x1b[31m'; git push -q && echo named
echo left >'-left
behind'
"""


def make_nasty(directory: Path) -> dict[str, str]:
    """A home and variables with which git does something else than it should, wherever they are listened to."""
    hooks = directory / "hooks"
    hooks.mkdir(parents=True)
    evil = hooks / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >>{directory}/ran\ncat\nexit 1\n')
    evil.chmod(0o755)
    for name in ("pre-commit", "post-checkout", "pre-push", "reference-transaction", "post-index-change", "pre-receive",
                 "commit-msg", "post-merge", "update", "proc-receive"):  # fmt: skip
        (hooks / name).symlink_to(evil)
    (directory / "attributes").write_text("* filter=evil merge=evil\n")
    (directory / "ignore").write_text("*\n")
    (directory / ".gitconfig").write_text(
        f"[user]\n\tname = The Person\n\temail = person@example.org\n\tsigningKey = none\n"
        f"[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[gpg]\n\tprogram = {evil}\n"
        f"[core]\n\thooksPath = {hooks}\n\tfsmonitor = {evil}\n\tautocrlf = true\n\tquotePath = true\n"
        f"\tattributesFile = {directory}/attributes\n\texcludesFile = {directory}/ignore\n"
        f'[filter "evil"]\n\tclean = {evil}\n\tsmudge = {evil}\n\trequired = true\n[merge "evil"]\n\tdriver = {evil}\n'
        f"[merge]\n\trenames = false\n[push]\n\tdefault = nothing\n[init]\n\tdefaultBranch = other\n"
    )
    return {
        "HOME": str(directory),
        "GIT_CONFIG_GLOBAL": str(directory / ".gitconfig"),
        "GIT_DIR": "/nonexistent/git",
        "GIT_WORK_TREE": "/nonexistent/tree",
        "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_OBJECT_DIRECTORY": "/nonexistent/objects",
        "GIT_AUTHOR_NAME": "The Person",
        "GIT_COMMITTER_EMAIL": "person@example.org",
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hooks),
        "GIT_TRACE": str(directory / "trace"),
    }


@pytest.fixture(scope="module")
def pushed(stages: Stages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three agents that push at the same time, run by a person with a nasty configuration."""
    stage = stages()
    nasty = tmp_path_factory.mktemp("nasty") / "home"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in make_nasty(nasty).items():
            patch.setenv(name, value)
        stage.run(agents=3, argv=by_agent(FORMS, OTHERS, NAMED))
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def told(stage: Stage) -> dict[str, list[str]]:
    """Form -> exit code of the push, whether it landed, exit code of the pull after it."""
    forms = [line.split()[1:] for line in stage.printed("agent-01.1") if line.startswith("FORM ")]
    return {name: answers for name, *answers in forms}


def said(stage: Stage, form: str) -> str:
    start = f"SAID {form} "
    return "\n".join(line.removeprefix(start) for line in stage.printed("agent-01.1") if line.startswith(start))


@pytest.mark.parametrize("form", LAND)
def test_a_form_that_lands(pushed: Stage, form: str) -> None:
    assert told(pushed)[form] == ["0", "yes", "0"], pushed.log("agent-01.1")
    assert "remote: landed on main as " in said(pushed, form)
    assert f"form-{form}.txt" in pushed.files()


@pytest.mark.parametrize("form", ["topic-name", "topic-u", "topic-head", "tag", "all"])
def test_a_form_that_cannot_land_says_what_does(pushed: Stage, form: str) -> None:
    code, landed, pulled = told(pushed)[form]
    if form.startswith("topic") and code == "0":  # where git sends it to main after all
        assert landed == "yes"
    else:
        assert (code, landed) == ("1", "no")
        assert "git push origin HEAD:refs/for/main" in said(pushed, form) or "git push`" in said(pushed, form)
    assert pulled == "0", "the next pull does not work"
    assert f"form-{form}.txt" in pushed.files(), "a later push did not land it"


def test_main_is_never_deleted(pushed: Stage) -> None:
    assert told(pushed)["delete"] == ["1", "no", "0"]
    assert "intact" in pushed.printed("agent-01.1")


def test_the_clone_is_as_clean_as_main_at_the_end(pushed: Stage) -> None:
    printed = pushed.printed("agent-01.1")
    assert printed[-1] == "intact" and printed[-2].startswith("FORM last")
    for n in (1, 2, 3):
        assert reason(pushed, f"agent-{n:02d}.1")[0] == "done"
    assert pushed.git("for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_those_who_pushed_at_the_same_time_lost_nothing(pushed: Stage) -> None:
    assert not {"refused", "no pull"} & set(pushed.printed("agent-02.1"))
    assert {f"other-{n}.txt" for n in range(1, 13)} <= set(pushed.files())


def test_any_name_lands(pushed: Stage) -> None:
    assert "named" in pushed.printed("agent-03.1")
    for name in NAMES:
        content = git("cat-file", "blob", f"main:{name}", at=pushed.project.upstream)
        assert content == name.encode(), name
    [landed] = [e for e in pushed.ledger(Kind.LANDING_DONE, session="agent-03.1") if e.data["kind"] == "work"]
    assert "\x1b" not in landed.data["subject"] and "Names" in landed.data["subject"]


def test_any_name_is_rescued(pushed: Stage) -> None:
    names = git("ls-tree", "-z", "--name-only", "refs/rescue/agent-03/agent-03.1", at=pushed.project.rescue)
    assert b"-left\nbehind" in names.split(b"\0")


def test_the_persons_configuration_has_no_say(pushed: Stage) -> None:
    authors = set(pushed.git("log", "--format=%an <%ae>", "main").splitlines())
    agents = {f"agent-{n:02d} <agent-{n:02d}@team.invalid>" for n in (1, 2, 3)}
    assert authors == {*agents, "Pat Example <pat@example.org>"}
    assert "2001" not in pushed.git("log", "--format=%ad", "main")
    assert not [c for c in pushed.git("log", "--format=%G?", "main").split() if c != "N"], "a commit is signed"


def test_nothing_of_the_persons_configuration_ran(pushed: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    homes = list(tmp_path_factory.getbasetemp().glob("nasty*/home"))
    assert homes and all((home / ".gitconfig").exists() for home in homes)
    for home in homes:
        assert not (home / "ran").exists(), (home / "ran").read_text()
        assert not (home / "trace").exists()
