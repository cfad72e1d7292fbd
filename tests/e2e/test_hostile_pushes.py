"""A hostile agent at upstream: whatever it pushes, main, claims and other people's screens stay what they should be."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from team.git import git, line
from team.ledger import Kind
from tests.e2e.conftest import PERSON, Stage, Stages

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
# The victim holds fix_two from the first to the last push of the attacker, and then gives it back itself.
VICTIM = """
printf 'mine\\n' > current_tasks/fix_two.txt
git add -A && git commit -qm 'Claim fix_two' && git push -q 2>&1
for i in $(seq 2700); do git --git-dir=/upstream cat-file -e main:done.txt 2>/dev/null && break; sleep 0.1; done
git pull -q --no-rebase --no-edit && git rm -q current_tasks/fix_two.txt tasks/fix_two.md &&
git commit -qm 'Fix two' && git push -q 2>&1 && echo 'ATTACK victim "released"'
"""
ATTACKER = """
until git --git-dir=/upstream cat-file -e main:current_tasks/fix_two.txt 2>/dev/null; do sleep 0.1; done
python3 -m tests.e2e.hostile_pushes "$0" 2>&1
git fetch -q && git reset -q --hard origin/main
echo done > done.txt && git add done.txt && git commit -qm Done && git push -q 2>&1
"""
AGENTS = f"case $TEAM_AGENT in agent-01) {ATTACKER};; *) {VICTIM};; esac"
LANDING = {"max_file": "1m", "max_entries": 2000, "max_commits": 20, "max_inflated": "64m", "max_push": "16m"}


@dataclass
class Pushes:
    """One run, and what its attacker was told."""

    stage: Stage
    said: dict[str, Any]


@pytest.fixture(scope="module")
def pushes(stages: Stages) -> Pushes:
    files = {f"tests/e2e/{n}.py": (HERE / f"{n}.py").read_text() for n in ("hostile_kit", "hostile_pushes")}
    files["vendor/.mcp.json"] = "{}\n"

    def stash(root: Path) -> None:
        (root / "README.md").write_text("stashed, and nobody's business\n")
        git("stash", "push", "-q", at=root, env=PERSON)

    stage = stages(files, stash)
    given = {"foreign": line("rev-parse", "stash:README.md", at=stage.root)}
    settings = {"landing": LANDING, "session": {"max_time": 280.0}}
    stage.run(agents=2, argv=("sh", "-c", AGENTS, json.dumps(given)), settings=settings)
    return Pushes(stage, stage.attacks("agent-01.1"))


def accepted(results: dict[str, Any]) -> list[str]:
    """The pushes that were not refused with a reason; raises where something else than a push came back."""
    return [name for name, result in results.items() if not is_refused(*result)]


def is_refused(code: int, said: str) -> bool:
    """Whether git (by its exit code) or the door (by its answer) says so."""
    if code < 100:
        return code != 0 and ("[remote rejected]" in said or "fatal:" in said)
    return (code == 200 and ("ng " in said or "ERR " in said) and "landed" not in said) or code in (400, 403, 413, 415)


def hidden(text: str) -> set[str]:
    """Characters that a terminal obeys, or that hide or reorder what a person reads."""
    return {ascii(c) for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def test_main_neither_goes_back_nor_away(pushes: Pushes) -> None:
    said = pushes.said["rewind_main"]
    assert set(said) == {"force", "plus", "lease", "root", "by hand"}
    assert set(accepted(said)) <= {"force", "plus", "lease", "by hand"}, "main has that commit: there is nothing to do"
    assert "nothing new: main has this commit" in said["by hand"][1]
    assert len(pushes.said["delete_main"]) == 4 and accepted(pushes.said["delete_main"]) == []
    stage = pushes.stage
    story = stage.git("rev-list", "--first-parent", "refs/heads/main").split()
    landed = [e.data["new"] for e in stage.ledger(Kind.LANDING_DONE)]
    assert story[::-1][1:] == landed, "every commit of the story is a landing, in order, and none is missing"


def test_no_other_ref_can_be_made(pushes: Pushes) -> None:
    assert len(pushes.said["other_refs"]) == 14 and accepted(pushes.said["other_refs"]) == []
    assert len(pushes.said["refs_by_hand"]) == 11 and accepted(pushes.said["refs_by_hand"]) == []
    many = pushes.said["many_refs"]
    assert len(many) == 7 and accepted(many) in ([], ["all"]), "--all is main alone here, and up to date"
    assert pushes.said["refs_now"] == ["HEAD", "refs/heads/main"]
    assert pushes.stage.git("for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_a_refused_secret_cannot_be_read_in_upstream(pushes: Pushes) -> None:
    said = pushes.said["secret"]
    assert accepted({name: said[name] for name in ("one", "gone")}) == []
    assert "private key" in said["one"][1] and "private key" in said["gone"][1]
    assert said["main"] == 0 and said["read"] != 0 and said["files"] == [] and said["listed"] is False
    assert "MIIE" not in said["text"]


def test_objects_that_a_commit_does_not_need_do_not_come_in(pushes: Pushes) -> None:
    said = pushes.said["stowaway"]
    assert said["gone"] != 0
    assert is_refused(*said["foreign"]), "an object that lies elsewhere on the host is missing"


def test_anothers_lock_cannot_be_taken_changed_or_removed(pushes: Pushes) -> None:
    said = pushes.said["others_lock"]
    # Taken away by one commit and put back by the next changes nothing on main, and is no claim.
    assert len(said) == 12 and accepted(said) == ["remove and claim"]
    claims = [(e.task, e.agent) for e in pushes.stage.ledger(Kind.CLAIM)]
    assert ("fix_two", "agent-02") in claims and ("fix_two", "agent-01") not in claims
    assert pushes.stage.attacks("agent-02.1") == {"victim": "released"}
    releases = [(e.task, e.agent, e.data["by"]) for e in pushes.stage.ledger(Kind.RELEASE)]
    assert ("fix_two", "agent-02", "agent-02") in releases


def test_ten_locks_at_once_are_refused(pushes: Pushes) -> None:
    assert len(pushes.said["ten_locks"]) == 2 and accepted(pushes.said["ten_locks"]) == []


def test_twins_of_a_lock_are_refused(pushes: Pushes) -> None:
    assert len(pushes.said["twins"]) == 22 and accepted(pushes.said["twins"]) == []
    assert all("is no lock" in said for _, said in pushes.said["twins"].values())


def test_nothing_can_take_the_place_of_what_team_keeps_in_the_work_tree(pushes: Pushes) -> None:
    assert len(pushes.said["reserved_paths"]) == 14 and accepted(pushes.said["reserved_paths"]) == []
    assert all("belongs to team itself" in said for _, said in pushes.said["reserved_paths"].values())


def test_broken_trees_are_refused(pushes: Pushes) -> None:
    assert len(pushes.said["broken_trees"]) == 16 and accepted(pushes.said["broken_trees"]) == []


def test_what_later_sessions_would_obey_is_for_a_person_to_change(pushes: Pushes) -> None:
    said = pushes.said["protected_paths"]
    assert len(said) >= 40 and accepted(said) == []
    told = ("only a person may change", "is not what git makes of its parents in .mcp.json")  # smuggled in by a merge
    assert [text for _, text in said.values() if not any(words in text for words in told)] == []


def test_nobody_commits_as_another(pushes: Pushes) -> None:
    assert len(pushes.said["as_another"]) == 4 and accepted(pushes.said["as_another"]) == []
    assert pushes.said["as_author"][0] == 0, "an author may be anybody; who landed it is told by upstream"
    stage = pushes.stage
    for path in ("forged.txt", "subject.txt"):
        commit = stage.git("log", "-1", "--first-parent", "--format=%H", "refs/heads/main", "--", path).strip()
        lines = stage.git("log", "-1", "--format=%B", commit).splitlines()
        assert [text for text in lines if text.startswith(("Team-Agent:", "Team-Session:"))] == [
            "Team-Agent: agent-01",
            "Team-Session: agent-01.1",
        ]
    forged = next(e for e in stage.ledger(Kind.LANDING_DONE) if "Innocent" in e.data["subject"])
    assert (forged.agent, forged.session) == ("agent-01", "agent-01.1")


def test_bombs_do_not_go_off(pushes: Pushes) -> None:
    for name, count in (("tree_bomb", 3), ("too_large", 3), ("garbage", 7)):
        assert len(pushes.said[name]) == count and accepted(pushes.said[name]) == [], name
    bomb = dict(pushes.said["blob_bomb"])
    assert bomb.pop("bytes") < 5 << 20
    assert set(bomb) == {"honest", "lying", "delta"} and accepted(bomb) == []
    assert "max_inflated" in bomb["honest"][1] and "longer than it says" in bomb["lying"][1]


def test_nothing_but_honest_files_is_on_main(pushes: Pushes) -> None:
    stage = pushes.stage
    new = {"subject.txt", "forged.txt", "stow.txt", "longsubject.txt", "done.txt", "tasks/evil.md", "tasks/evil2.md"}
    new |= {"src/p\u009b31m\u202egnp", "src/c\u202e\u200b.txt"}
    begin = stage.git("rev-list", "--max-parents=0", "refs/heads/main").strip()
    assert set(stage.files()) - set(stage.files(begin)) == new
    assert set(stage.files(begin)) - set(stage.files()) == {"tasks/fix_two.md"}
    assert pushes.said["mode_bits"] == {"writable": []}


def test_no_text_of_an_agent_reaches_a_terminal_raw(pushes: Pushes) -> None:
    stage = pushes.stage
    refused = {"path", "name", "conflict", "lock name", "ref"}
    assert set(pushes.said["text"]) - set(accepted(pushes.said["text"])) == refused
    texts = {
        "log": stage.log("agent-01.1"),
        "other log": stage.log("agent-02.1"),
        "ledger": json.dumps([[e.kind, e.task, e.data] for e in stage.ledger()], ensure_ascii=False),
        "story": stage.git("log", "--first-parent", "--format=%an %ae %cn %ce %B", "refs/heads/main"),
    }
    for verb in ("ps", "tasks", "logs", "logs --session agent-01.1", "logs -n 500 agent-01"):
        texts[verb] = stage.cli(*verb.split()).stdout
    for verb in ("ps --json", "tasks --json", "logs --json"):
        lines = stage.cli(*verb.split()).stdout.splitlines()
        texts[verb] = json.dumps([json.loads(text) for text in lines], ensure_ascii=False)
    assert {name: hidden(text) for name, text in texts.items() if hidden(text)} == {}
    for name in ("log", "ledger", "story", "tasks", "logs", "tasks --json", "logs --json"):
        assert "all is lost" in texts[name] or "evil" in texts[name], f"{name} would show it"


def test_an_agent_cannot_fake_a_line_of_ours(pushes: Pushes) -> None:
    lines = pushes.stage.log("agent-01.1").splitlines()
    fakes = [text for text in lines if "ERROR fake" in text]
    assert len(fakes) >= 4 and all(text.startswith("| ") for text in fakes)
    ours = [text for text in lines if not text.startswith("| ")]
    assert ours and all(re.match(r"\d\d:\d\d:\d\d ", text) for text in ours)


def test_the_person_can_pull_after_all_this(pushes: Pushes) -> None:
    stage = pushes.stage
    pointer, hooks = (stage.root / ".team").read_text(), sorted((stage.root / ".git/hooks").iterdir())
    done = stage.cli("pull")
    assert hidden(done.stdout + done.stderr) == set()
    assert (stage.root / "done.txt").read_text() == "done\n"
    assert (stage.root / ".team").read_text() == pointer and (stage.root / "agent_logs").is_symlink()
    assert (stage.root / "agent_logs").resolve() == stage.project.logs
    assert sorted((stage.root / ".git/hooks").iterdir()) == hooks


def test_both_sessions_end_and_leave_nothing(pushes: Pushes) -> None:
    assert pushes.stage.outcome("agent-01.1") == pushes.stage.outcome("agent-02.1") == "done"
    assert pushes.stage.on_engine() == []
