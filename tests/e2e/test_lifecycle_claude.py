"""The real Claude Code in real containers, led by a scripted model: a race for one lock, a conflict, and violence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from team import supervisor
from team.ledger import Kind
from team.rehearsal.model import ScriptedModel
from team.rehearsal.protocol import Edit, claim, edit, mark, pull, resolve
from team.rehearsal.script import ByAgent, Step, commands

from .conftest import Stage, Stages
from .lifecycle_kit import assert_gone, assert_sound, locks, reason, rescued_files, signal

pytestmark = pytest.mark.engine

TEST = "python3 -m py_compile src/app.py"
LINE = "    return 1\n"
# Winner and loser of the race write on the same line; the loser pushes when the winner's line is on main.
WAIT_WON = "until git --git-dir=/upstream cat-file -e main:tasks/go.md 2>/dev/null; do sleep 0.1; done"
KILL = "echo half >half.txt; /usr/bin/pkill -9 -f ."  # by its path: Claude Code guards the word `pkill`
# The next session may start while the last one is still being rescued; then its task is not free yet.
FREED = """\
while git --git-dir=/upstream cat-file -e main:current_tasks/kill_me.txt 2>/dev/null; do sleep 0.1; done
git pull -q --no-edit"""
WAIT_LOST = "until git --git-dir=/upstream show main:src/app.py | grep -q '# agent'; do sleep 0.1; done"


@dataclass(frozen=True)
class Racer:
    """Claims fix_one with the same bytes as everybody, else fix_two; then does it, and resolves what conflicts."""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        if not session.endswith(".1"):
            return Step("Nothing to do.")
        if turn == 0:
            return Step(commands=(claim("fix_one", "mine"),))
        found = mark(last_tool_result)
        word, task = (found.word, found.rest[0]) if found else ("", "")
        if word == "REFUSED":
            return Step(commands=(claim("fix_two", "mine"),))
        if word == "CLAIMED":
            wait = WAIT_WON if task == "fix_one" else WAIT_LOST
            work = edit((Edit("src/app.py", LINE, f"    # {agent}\n{LINE}"),))
            land = f"git rm -q tasks/{task}.md current_tasks/{task}.txt; git commit -qam 'Do {task}'; {wait}"
            return Step(commands=(f"{work}\n{land}\n{push(task)}",))
        if word == "NOT_LANDED":
            return Step(commands=(pull(task, TEST),))
        if word == "CONFLICT":
            return Step(commands=(resolve(task, f"Merge main into {task}", TEST),))
        return Step(f"Done: {word}")


def push(task: str) -> str:
    return f"git push 2>&1 && echo '== LANDED {task}' || echo '== NOT_LANDED {task}'"


SCRIPT = ByAgent(
    {
        "agent-03.1": commands(claim("kill_me", "mine", ticket=False), KILL),
        "agent-03.2": commands(FREED, claim("kill_me", "again", ticket=False), "git rm -q current_tasks/*; "
                               "git commit -qm 'Release kill_me'; git push 2>&1"),
        "agent-04.1": commands("echo kept >kept.txt", "rm -rf .git"),
    },
    Racer(),
)  # fmt: skip


@pytest.fixture(scope="module")
def ran(stages: Stages) -> Iterator[Stage]:
    """Four agents, two sessions each."""
    stage = stages()
    model = ScriptedModel(SCRIPT, gather=4, gather_seconds=60)

    async def beside(stage: Stage) -> None:
        await stage.until(lambda s: s.ledger(Kind.CLAIM, task="fix_two"))
        [lost] = stage.ledger(Kind.CLAIM, task="fix_two")
        # The loser has edited and committed by the time that its commands have begun to run.
        await stage.until(lambda s: [r for r in model.seen if r.get("session") == lost.session and r["turn"] >= 2])
        await signal(stage, "go")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "FAILED_FIRST", 0.5)
        patch.setattr(supervisor, "IDLE_FIRST", 0.5)
        stage.run(agents=4, client="claude-code", sessions=2, model=model, beside=beside, seconds=240)
    yield stage
    assert_gone(stage)
    assert_sound(stage)


def test_two_equal_locks_have_one_holder(ran: Stage) -> None:
    [first] = ran.ledger(Kind.CLAIM, task="fix_one")
    refused = [e for e in ran.ledger(Kind.PUSH_REFUSED) if "fix_one is held by" in e.data["reason"]]
    assert {first.session, *(e.session for e in refused)} == {"agent-01.1", "agent-02.1"}
    assert first.agent in refused[0].data["reason"], "the loser was not told who holds it"
    [second] = ran.ledger(Kind.CLAIM, task="fix_two")
    assert second.session == refused[0].session


def test_a_conflict_is_refused_and_resolved_by_the_agent(ran: Stage) -> None:
    [conflict] = [e for e in ran.ledger(Kind.PUSH_REFUSED) if e.data["rule"] == "conflict"]
    assert "src/app.py" in conflict.data["reason"]
    [second] = ran.ledger(Kind.CLAIM, task="fix_two")
    assert conflict.session == second.session
    app = ran.git("show", "main:src/app.py")
    assert "# agent-01" in app and "# agent-02" in app, "somebody's work was lost"
    assert not {"tasks/fix_one.md", "tasks/fix_two.md"} & set(ran.files())
    for session in ("agent-01.1", "agent-02.1"):
        assert reason(ran, session)[0] == "done", ran.log(session)


def test_killing_every_process_crashes_one_session_only(ran: Stage) -> None:
    assert reason(ran, "agent-03.1") == ("crashed", "killed by SIGKILL (exit 137)"), ran.log("agent-03.1")
    assert rescued_files(ran, "agent-03.1")["half.txt"] == "half\n"
    claims = ran.ledger(Kind.CLAIM, task="kill_me")
    assert [e.session for e in claims] == ["agent-03.1", "agent-03.2"], "the lock was not free for the next session"
    assert reason(ran, "agent-03.2")[0] == "done"


def test_a_deleted_repository_is_rescued(ran: Stage) -> None:
    assert reason(ran, "agent-04.1")[0] == "done"
    assert rescued_files(ran, "agent-04.1")["kept.txt"] == "kept\n"


def test_the_trail_tells_who_did_what(ran: Stage) -> None:
    assert locks(ran) == []
    story = ran.git("log", "--first-parent", "--format=%(trailers:key=Team-Session,valueonly,separator=) %s", "main")
    for task in ("fix_one", "fix_two"):
        [claimed] = ran.ledger(Kind.CLAIM, task=task)
        assert any(line.startswith(f"{claimed.session} ") and task in line for line in story.splitlines()), story
    assert "Release kill_me (agent-03): session agent-03.1 ended: crashed" in story


def test_the_real_client_tells_its_version(ran: Stage) -> None:
    versions = {e.data["version"] for e in ran.ledger(Kind.SESSION_VERSION)}
    assert len(versions) == 1 and versions.pop()[0].isdigit()
