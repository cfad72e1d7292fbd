"""What sessions leave behind, in whatever state: rescued, released with the reason, and no trouble for the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import pytest

from team import supervisor
from team.git import git
from team.ledger import Kind

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, by_agent, ended, locks, reason, rescue_ref, rescued_files

pytestmark = pytest.mark.engine

# What every first session checks of its container, and every second one of how fresh it is.
FACTS = """
echo "uid $(id -u)"
echo "home $(ls -A $HOME | tr "\\n" " ")"
echo "$TEAM_AGENT" >$HOME/mine; echo "mine $(cat /home/*/mine | tr "\\n" " ")"
cat >prompt.txt
echo "prompt $(grep -c "session $TEAM_SESSION" prompt.txt)"
grep -m 1 'You are' prompt.txt >/tmp/line
echo "argv $(cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -cF -f /tmp/line)"
if [ "$n" = 2 ]; then
    echo "fresh $(git status --porcelain | tr '\\n' ' ')$(git log --oneline origin/main.. | wc -l)"
    grep -i -A1 -e 'earlier session' -e 'last session' prompt.txt | grep -v '^--'
    exit 0
fi
rm prompt.txt
"""
DIRTY = """
git config user.name Somebody; echo '*.log' >.gitignore; git add .gitignore; git commit -qm ignore
git checkout -qb side; echo side >app.txt; git commit -qam side; git checkout -q main
echo main >app.txt; git commit -qam main
git merge side >/dev/null 2>&1
echo staged >staged.txt; git add staged.txt; echo changed >staged.txt
echo untracked >"new file.txt"; mkdir -p deep/er; echo deep >deep/er/x; echo noise >noise.log
echo stash >>README.md
"""
SCRIPTS = by_agent(
    # Kills everything that it can, with a claim held and work not committed.
    f"""{FACTS} claim fix_one; echo half >half.txt; git add half.txt; echo more >>half.txt
    echo before; pkill -9 -f .; kill -9 -1; echo after""",
    # Deletes the repository, but not the files.
    f"{FACTS} echo kept >kept.txt; echo more >>README.md; git add kept.txt; rm -rf .git; exit 0",
    # Uses more memory than it may.
    f"{FACTS} claim fix_two; exec python3 -c 'x = bytearray(1 << 30); x[::4096] = b\"x\" * len(x[::4096])'",
    f"{FACTS} {DIRTY} exit 0",
    # Leaves nothing, with a hundred orphans on the way.
    f"""{FACTS} echo clean >clean.txt; land clean; git pull -q
    for i in $(seq 100); do (setsid true &); done; sleep 0.5
    echo "zombies $(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ')"
    """,
)


@pytest.fixture(scope="module")
def made() -> set[str]:
    """The sessions' containers that the engine made, by what comes after the project's id in their names."""
    return set()


@contextmanager
def noting(engine: docker.APIClient, stage: Stage, made: set[str]) -> Iterator[None]:
    """Add to ``made`` while the block runs. The engine itself remembers only its last few events."""
    filters = {"label": f"team.project={stage.project.id}", "type": "container", "event": "create"}
    stream = engine.events(filters=filters, decode=True)

    def note() -> None:
        for event in stream:
            made.add(event["Actor"]["Attributes"]["name"].removeprefix(f"team-{stage.project.id}-"))

    thread = threading.Thread(target=note, daemon=True)
    thread.start()
    yield
    stream.close()
    thread.join(10)


@pytest.fixture(scope="module")
def left(stages: Stages, engine: docker.APIClient, made: set[str]) -> Iterator[Stage]:
    """Five seats with two sessions each: the first leaves a mess behind, the second looks around."""
    stage = stages(files={"app.txt": "app\n"})
    with pytest.MonkeyPatch.context() as patch, noting(engine, stage, made):
        patch.setattr(supervisor, "FAILED_FIRST", 1.0)
        patch.setattr(supervisor, "IDLE_FIRST", 1.0)
        stage.run(agents=5, argv=SCRIPTS, sessions=2, settings={"session": {"memory": "200m"}})
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def releases(stage: Stage, session: str) -> list[tuple[str | None, str]]:
    return [(event.task, event.data["why"]) for event in stage.ledger(Kind.RELEASE, session=session)]


def test_killing_everything_in_the_container_is_a_crash_and_the_team_goes_on(left: Stage) -> None:
    assert reason(left, "agent-01.1") == ("crashed", "killed by SIGKILL (exit 137)")
    assert "before" in left.printed("agent-01.1") and "after" not in left.printed("agent-01.1")
    assert rescued_files(left, "agent-01.1")["half.txt"] == "half\nmore\n"
    ref = rescue_ref("agent-01.1")
    versions = git("log", "--format=%H", ref, "--", "half.txt", at=left.project.rescue).decode().split()
    contents = {git("show", f"{oid}:half.txt", at=left.project.rescue) for oid in versions}
    assert contents == {b"half\nmore\n", b"half\n"}, "what was in the index alone was lost"
    why = "session agent-01.1 ended: crashed (killed by SIGKILL (exit 137))"
    assert releases(left, "agent-01.1") == [("fix_one", why)]
    assert why in left.git("log", "--format=%B", "main")
    assert reason(left, "agent-01.2")[0] == "done"


def test_a_deleted_repository_is_rescued_with_its_files(left: Stage) -> None:
    assert reason(left, "agent-02.1")[0] == "done"
    files = rescued_files(left, "agent-02.1")
    assert files["kept.txt"] == "kept\n" and files["README.md"] == "# A project\nmore\n" and files["app.txt"] == "app\n"


def test_out_of_memory_is_told_as_such(left: Stage) -> None:
    outcome, why = reason(left, "agent-03.1")
    assert outcome == "crashed" and why.startswith("out of memory") and "[session] memory" in why
    assert [task for task, _ in releases(left, "agent-03.1")] == ["fix_two"]


def test_every_kind_of_unfinished_work_is_rescued(left: Stage) -> None:
    files = rescued_files(left, "agent-04.1")
    assert files["new file.txt"] == "untracked\n" and files["deep/er/x"] == "deep\n"
    assert files["staged.txt"] == "changed\n" and files["README.md"] == "# A project\nstash\n"
    assert "<<<<<<<" in files["app.txt"] and "side" in files["app.txt"] and "main" in files["app.txt"]
    assert "noise.log" not in files, "ignored files are no work"
    told = git("log", "--format=%s", rescue_ref("agent-04.1"), at=left.project.rescue).decode().splitlines()
    assert {"ignore", "side", "main"} <= set(told), "a commit was lost"
    note = git("log", "-1", "--format=%B", rescue_ref("agent-04.1"), at=left.project.rescue).decode()
    assert "MERGE_HEAD" in note
    assert not {"staged.txt", "new file.txt", ".gitignore"} & set(left.files()), "unfinished work landed"


def test_rescued_work_is_told_where_a_person_looks(left: Stage) -> None:
    for n in (1, 2, 4):
        [saved] = left.ledger(Kind.RESCUE_SAVED, session=f"agent-{n:02d}.1")
        assert ended(left, f"agent-{n:02d}.1").data["rescue"] == saved.data["commit"]
        assert saved.data["ref"] == rescue_ref(f"agent-{n:02d}.1")
        assert f"rescued as {saved.data['commit'][:12]}" in left.log(f"agent-{n:02d}.1")


def test_a_clean_session_needs_no_rescue(left: Stage, made: set[str]) -> None:
    assert reason(left, "agent-05.1")[0] == "done" and "clean.txt" in left.files()
    assert ended(left, "agent-05.1").data["rescue"] == "clean"
    assert "agent-05.1" in made and "agent-05.1-rescue" not in made
    assert "agent-04.1-rescue" in made


def test_an_init_reaps_orphans(left: Stage) -> None:
    assert "zombies 0" in left.printed("agent-05.1")


def test_no_lock_is_left(left: Stage) -> None:
    assert locks(left) == []


@pytest.mark.parametrize("n", range(1, 6))
def test_each_session_has_a_home_a_clone_and_a_prompt_of_its_own(left: Stage, n: int) -> None:
    uid = left.plan(agents=1, argv=("true",)).uid
    for session in (1, 2):
        printed = left.printed(f"agent-{n:02d}.{session}")
        assert f"uid {uid}" in printed and uid != 0
        assert "home .gitconfig .profile" in [line.strip() for line in printed]
        assert f"mine agent-{n:02d}" in [line.strip() for line in printed]
        assert "prompt 1" in printed, "the prompt is on standard input"
        assert "argv 0" in printed, "the prompt is in the arguments of a process"
    assert "fresh ?? prompt.txt 0" in left.printed(f"agent-{n:02d}.2")


def test_the_next_session_is_told_what_the_last_one_came_to(left: Stage) -> None:
    told = "\n".join(left.printed("agent-01.2"))
    assert "The last session of this seat failed: killed by SIGKILL" in told
    told = "\n".join(left.printed("agent-05.2"))
    assert "The last session of this seat" not in told
