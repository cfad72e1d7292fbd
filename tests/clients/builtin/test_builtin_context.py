"""What the conversation holds: a prefix that stays, trims that are rare, and the hand-over when it is full."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from team.clients import Outcome
from team.clients.builtin.conversation import Conversation, head
from team.clients.builtin.handover import HandOver, entry, with_note
from team.git import git, line

from .conftest import Process, Provider, Reply, Session, calls, says

HALF = '{"window": 10000}'
BEGIN = calls({"command": "true"})
TOO_LONG = Reply(b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}', 400)


@pytest.fixture
def repository(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare repository with a clone of it in ``work``, where the client runs; its main's commit is old."""
    for name, value in _who().items():
        monkeypatch.setenv(name, value)
    bare, work = tmp_path / "bare.git", tmp_path / "work"
    git("init", "-q", "--bare", "-b", "main", str(bare), at=tmp_path)
    git("init", "-q", "-b", "main", at=work)
    (work / "a.txt").write_text("one\n")
    (work / "NOTES.md").write_text("# Notes\n\nAll is well.\n")
    git("add", ".", at=work)
    git("commit", "-q", "-m", "Begin", at=work, env=_who())
    git("remote", "add", "origin", str(bare), at=work)
    git("push", "-q", "origin", "main", at=work)
    return bare


def _who() -> dict[str, str]:
    return {f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "Ann"), ("EMAIL", "a@b.invalid"))}


def pushed(bare: Path, path: str) -> str:
    return git("show", f"refs/for/main:{path}", at=bare).decode()


def test_each_turn_is_a_prefix_of_the_next_byte_for_byte(session: Session) -> None:
    turns = [calls({"command": f"seq {n} {40 * n}"}, {"command": "echo naïve \\\\ ✓"}, text=f"{n}") for n in range(30)]
    ran = session(*turns, says("Done."))
    bodies = ran.provider.bodies
    assert len(bodies) == 31 and ran.outcome is Outcome.DONE
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before.removesuffix(b"]}"))
    first = ran.provider.requests[0]
    assert first["cache_control"] == {"type": "ephemeral"} == first["system"][-1]["cache_control"]
    assert [t["name"] for t in first["tools"]] == ["bash", "edit", "claim", "release", "tasks", "test"]


def test_the_beginning_is_the_same_for_every_session(session: Session) -> None:
    one, two = (session(says("Done."), prompt=prompt).provider.bodies[0] for prompt in ("one", "two"))
    at = one.index(b'"messages":[')
    assert one[:at] == two[:at]


def test_old_results_are_trimmed_once_and_only_where_it_frees_much(session: Session) -> None:
    big = [calls({"command": f"seq {n} {n + 900}"}, tokens=1000 + 900 * n) for n in range(14)]
    ran = session(*big, calls({"command": "echo on"}, tokens=2000), says("Done."), TEAM_BUILTIN='{"window": 20000}')
    notes = [e["text"] for e in ran.events if e["type"] == "note"]
    assert notes == ["old tool results are trimmed to save room"]
    results = [b["content"] for m in ran.provider.requests[-1]["messages"][2::2] for b in m["content"]]
    left = [r for r in results if "left out here to save room" in r]
    assert left and results[: len(left)] == left, "the oldest go"
    path = left[1].rpartition(": ")[2]
    assert Path(path).read_text() == "".join(f"{n}\n" for n in range(1, 902))


def test_a_conversation_that_is_too_long_for_the_model_is_trimmed(session: Session) -> None:
    big = [calls({"command": f"seq {n} {n + 900}"}) for n in range(10)]
    ran = session(*big, TOO_LONG, says("Done."))
    assert ran.outcome is Outcome.DONE and len(ran.provider.bodies[-1]) < len(ran.provider.bodies[-2])


def test_more_room_is_asked_for_without_changing_anything_else() -> None:
    conversation = Conversation(head("m", 32_000, "s", [], {"thinking": {"type": "adaptive"}}))
    conversation.say("hi")
    assert conversation.body(64_000) == conversation.body().replace(b'"max_tokens":32000', b'"max_tokens":64000')


# -- the hand-over ------------------------------------------------------------------------------------------------


def test_when_full_the_model_writes_a_note_which_is_pushed_with_what_is_unfinished(
    session: Session, repository: Path
) -> None:
    ran = session(
        BEGIN,
        calls({"command": "echo two >> a.txt; echo new > b.txt"}, tokens=7600),
        calls({"command": "echo tidy up"}, tokens=7700),
        says("I did one.\n# Next\nDo two.", tokens=7800),
        TEAM_BUILTIN=HALF,
        TEAM_SESSION="agent-01.3",
        TEAM_AGENT="agent-01",
    )
    assert ran.outcome is Outcome.DONE and ran.reason.startswith("handed over: I did one.")
    asked = ran.provider.requests[2]["messages"][-1]["content"][0]["text"]
    assert "76% full" in asked and "NOTES.md" in asked
    notes = pushed(repository, "NOTES.md")
    assert notes.startswith(
        "# Notes\n\nAll is well.\n\n## Handed over\n\n### agent-01 (agent-01.3)\n\nI did one.\nNext"
    )
    patch = pushed(repository, "tasks/agent-01.patch")
    assert "+two" in patch and "b.txt" in patch
    assert "git apply -3 tasks/agent-01.patch" in notes
    assert line("rev-parse", "refs/for/main^", at=repository) == line("rev-parse", "main", at=repository)


def test_a_model_that_never_writes_its_note_is_not_waited_for(session: Session, repository: Path) -> None:
    turns = [calls({"command": f"echo {n}"}, text=f"step {n}", tokens=8000) for n in range(20)]
    ran = session(BEGIN, *turns, TEAM_BUILTIN=HALF)
    assert ran.outcome is Outcome.DONE and len(ran.provider.bodies) == 10
    assert "step 8" in pushed(repository, "NOTES.md")


def test_compaction_goes_on_from_the_note(session: Session, repository: Path) -> None:
    ran = session(
        BEGIN,
        calls({"command": "echo a >> a.txt"}, tokens=9000),
        says("One is done, two is next.", tokens=9000),
        calls({"command": "cat a.txt"}, tokens=500),
        says("All done."),
        TEAM_BUILTIN='{"window": 10000, "when_full": "compact"}',
    )
    assert (ran.outcome, ran.reason) == (Outcome.DONE, "All done.")
    (only,) = ran.provider.requests[3]["messages"]
    assert only["content"][0]["text"] == "Do it." and "One is done, two is next." in only["content"][1]["text"]
    assert ran.results[-1]["content"] == "one\na\n", "the work tree is as it was"
    assert "One is done" in pushed(repository, "NOTES.md")


def test_a_killed_session_hands_over_what_main_lacks(session: Session, repository: Path) -> None:
    def kill(process: Process, provider: Provider) -> None:
        while len(provider.bodies) < 2:
            provider.asked.wait(0.05)
        os.kill(process.pid, signal.SIGTERM)

    hangs = calls({"command": "sleep 100; echo two"}, text="I wait for the tests.")
    first = calls({"command": "echo two >> a.txt"})
    ran = session(first, hangs, beside=kill, TEAM_SESSION="agent-01.1", TEAM_AGENT="agent-01")
    assert ran.code == 143 and ran.outcome is Outcome.CRASHED
    assert "+two" in pushed(repository, "tasks/agent-01.patch")
    assert "ended from outside" in pushed(repository, "NOTES.md")


@pytest.mark.parametrize(
    ("options", "outcome", "reason"),
    [
        ('{"turns": 3}', Outcome.FAILED, "made 3 model calls"),
        ('{"tokens": 250}', Outcome.OUT_OF_BUDGET, "used 300 tokens"),
        ('{"seconds": 0.01}', Outcome.TIMED_OUT, "[builtin] seconds"),
    ],
)
def test_limits_end_the_session_and_what_is_unfinished_is_kept(
    session: Session, repository: Path, options: str, outcome: Outcome, reason: str
) -> None:
    turns = [calls({"command": f"echo {n} >> a.txt"}) for n in range(9)]
    ran = session(*turns, TEAM_BUILTIN=options)
    assert ran.outcome is outcome and reason in ran.reason
    assert "+0" in pushed(repository, "tasks/session.patch")


def test_no_command_outlasts_the_session(session: Session, repository: Path) -> None:
    ran = session(calls({"command": "echo begun; sleep 600"}), TEAM_BUILTIN='{"seconds": 1}')
    assert ran.outcome is Outcome.TIMED_OUT and "[ended: it took longer" in ran.results[0]["content"]


def test_nothing_is_handed_over_where_main_has_everything(session: Session, repository: Path) -> None:
    ran = session(calls({"command": "cat a.txt"}), TEAM_BUILTIN='{"turns": 1}')
    assert "main has everything" in ran.text
    assert not git("for-each-ref", "refs/for", at=repository)


@pytest.mark.parametrize("when_full", ["end", "compact"])
@pytest.mark.parametrize("reply", [calls({"command": "true"}, tokens=9000), TOO_LONG])
def test_a_prompt_that_fills_the_window_by_itself_is_a_failure_and_no_hand_over(
    session: Session, repository: Path, reply: Reply, when_full: str
) -> None:
    ran = session(reply, says("Note."), TEAM_BUILTIN=f'{{"window": 10000, "when_full": "{when_full}"}}')
    assert ran.outcome is Outcome.FAILED and ("window" in ran.reason or "too long" in ran.reason)
    assert not git("for-each-ref", "refs/for", at=repository), "else each session would land a note, for ever"


def test_a_patch_holds_no_patch_of_an_earlier_session(repository: Path, tmp_path: Path) -> None:
    work, sizes = tmp_path / "work", []
    (work / "a.txt").write_text("two\n")
    for number in range(3):
        with (work / "a.txt").open("a") as file:
            file.write(f"{number}\n")
        said = HandOver(work, "NOTES.md", f"agent-01.{number}").write("note", "fix_a", True, only_with_patch=True)
        assert said == "handed over in NOTES.md, with tasks/fix_a.patch"
        sizes.append(len(pushed(repository, "tasks/fix_a.patch")))
        git("update-ref", "refs/heads/main", "refs/for/main", at=repository)
        work = tmp_path / f"work{number}"
        git("clone", "-q", str(repository), str(work), at=tmp_path)
        git("apply", "-3", "tasks/fix_a.patch", at=work)
        git("rm", "-qf", "tasks/fix_a.patch", at=work)
    assert (work / "a.txt").read_text() == "two\n0\n1\n2\n"
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] == len("+1\n")
    said = HandOver(work, "NOTES.md", "agent-01.3").write("note", "fix_a", True, only_with_patch=True)
    assert said == "nothing to hand over: all of it is in tasks/fix_a.patch", "a session that did no more lands nothing"


def test_settings_of_the_clone_and_repositories_in_it_do_not_spoil_the_patch(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git("config", "diff.noprefix", "true", at=work)
    for name in ("empty", "full"):
        git("init", "-q", name, at=work)
    git("commit", "-q", "--allow-empty", "-m", "x", at=work / "full", env=_who())
    (work / "a.txt").write_text("two\n")
    HandOver(work, "NOTES.md", "agent-01.1").write("note", "fix_a", with_patch=True)
    patch = pushed(repository, "tasks/fix_a.patch")
    assert patch.startswith("diff --git a/a.txt b/a.txt\n") and patch.count("diff --git") == 1


def test_notes_that_are_a_link_stay_one(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "NOTES.md").unlink()
    (work / "NOTES.md").symlink_to("docs/notes.md")
    git("commit", "-qam", "Move the notes", at=work, env=_who())
    git("push", "-q", "origin", "main", at=work)
    said = HandOver(work, "NOTES.md", "agent-01.1").write("note", "fix_a", with_patch=True)
    assert said == "the hand-over was not pushed: NOTES.md is no regular file; name another one in [builtin] notes"


def test_only_the_newest_notes_stay(repository: Path) -> None:
    notes = "# Notes\n\n## Handed over\n\n## Other\n\nstays\n"
    for number in range(50):
        notes = with_note(notes, entry("x" * 99_999, f"task{number}", "x.1", patch=False))
    assert "### task49 " in notes and "### task0 " not in notes and notes.endswith("## Other\n\nstays\n")
    assert len(notes) < 200_000


def test_without_a_repository_a_hand_over_says_so_and_ends(session: Session) -> None:
    ran = session(BEGIN, calls({"command": "true"}, tokens=9000), says("Note."), TEAM_BUILTIN=HALF)
    assert ran.outcome is Outcome.DONE and "was not pushed: git fetch" in ran.text


def test_half_done_merges_and_large_changes_do_not_matter(repository: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    git("checkout", "-q", "-b", "other", at=work)
    (work / "a.txt").write_text("theirs\n")
    git("commit", "-qam", "theirs", at=work, env=_who())
    git("checkout", "-q", "main", at=work)
    (work / "a.txt").write_text("ours\n")
    git("commit", "-qam", "ours", at=work, env=_who())
    with pytest.raises(Exception, match="merge"):
        git("merge", "-q", "other", at=work, env=_who())
    (work / "huge.bin").write_bytes(os.urandom(400 << 10))
    before = git("status", "--porcelain", at=work)
    said = HandOver(work, "docs/NOTES.md", "agent-01.1").write("note", "fix_a", with_patch=True)
    assert said == "handed over in docs/NOTES.md", "a patch that large is left to the rescue"
    assert git("status", "--porcelain", at=work) == before
    notes = pushed(repository, "docs/NOTES.md")
    assert notes.startswith("## Handed over\n\n### fix_a (agent-01.1)\n\n") and notes.endswith("\nnote\n")
    assert "too many to be kept here" in notes


def test_a_newer_note_takes_the_place_of_the_older_one() -> None:
    notes = "# Notes\n\n## Handed over\n\n### a (x.1)\n\nold a\n\n### b (x.2)\n\nold b\n\n## Other\n\nstays\n"
    found = with_note(notes, entry("new a\n## no heading", "a", "x.3", patch=False))
    assert found.count("### a ") == 1 and "old a" not in found
    assert "### a (x.3)\n\nnew a\nno heading\n" in found
    assert "### b (x.2)\n\nold b\n" in found and found.endswith("## Other\n\nstays\n")
    assert with_note(found, entry("new a\n## no heading", "a", "x.3", patch=False)) == found


@pytest.mark.parametrize("words", ["queued as 3, not landed yet", "held as 4: a person decides"])
def test_a_hand_over_that_waits_at_upstream_is_not_pushed_again(repository: Path, tmp_path: Path, words: str) -> None:
    hook = repository / "hooks/pre-receive"
    hook.write_text(f"#!/bin/sh\necho pushed >>{tmp_path}/pushes\necho '{words}' >&2\nexit 1\n")
    hook.chmod(0o755)
    said = HandOver(tmp_path / "work", "NOTES.md", "agent-01.1").write("note", "fix_a", with_patch=True)
    assert said.startswith("the hand-over waits") and words in said
    assert (tmp_path / "pushes").read_text() == "pushed\n"


def test_a_patch_that_upstream_refuses_does_not_hold_up_the_note(repository: Path, tmp_path: Path) -> None:
    hook = repository / "hooks/update"
    hook.write_text('#!/bin/sh\nif git ls-tree -r --name-only "$3" | grep -q patch; then echo no patches; exit 1; fi\n')
    hook.chmod(0o755)
    (tmp_path / "work/a.txt").write_text("two\n")
    said = HandOver(tmp_path / "work", "NOTES.md", "agent-01.1").write("note", "fix_a", with_patch=True)
    assert said == "handed over in NOTES.md" and "note" in pushed(repository, "NOTES.md")
    assert "git apply" not in pushed(repository, "NOTES.md")
