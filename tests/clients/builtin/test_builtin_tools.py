"""The tools: a shell that lives on, output that fits, an editor that does not write over what it has not seen."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from team.clients.builtin import output
from team.clients.builtin.editor import Editor, Wrong
from team.clients.builtin.output import SHOWN, Spill
from team.clients.builtin.processes import run
from team.clients.builtin.shell import Shell
from team.clients.builtin.tools import Result, all_tools
from tests.runtimes.test_team_inside import way as way

from .conftest import PROGRAM, Session, calls, says


@pytest.fixture
def spill(tmp_path: Path) -> Spill:
    (tmp_path / "spill").mkdir()
    return Spill(tmp_path / "spill")


@pytest.fixture
def shell(spill: Spill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    shell = Shell(spill)
    yield shell
    shell.close()


def test_directory_variables_and_functions_stay(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("mkdir d; cd d; x='a b'; f() { echo \"f $1\"; }").text == ""
    assert shell.run('pwd; echo "$x"; f 1').text == f"{tmp_path}/d\na b\nf 1\n"


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("false", 1, ""),
        ("exit_code() { return 7; }; exit_code", 7, ""),
        ("printf 'no newline'", 0, "no newline"),
        ("echo out; echo err >&2; echo more", 0, "out\nerr\nmore\n"),
        ("cat", 0, ""),
        ("cat <<'E'\n$x `y` 'z'\nE", 0, "$x `y` 'z'\n"),
        ("echo 'a\nb' # no end", 0, "a\nb\n"),
        ("exec >/dev/null; echo lost", 0, ""),
        ("printf '\\033[31mred\\033[0m\\n10%%\\r50%%\\rdone\\n'", 0, "red\ndone\n"),
        ("printf 'naïve ✓\\n'", 0, "naïve ✓\n"),
    ],
)
def test_what_a_command_prints_and_how_it_ends(shell: Shell, command: str, code: int, text: str) -> None:
    ran = shell.run(command)
    assert (ran.code, ran.text) == (code, text)
    assert shell.run("true").code == 0


@pytest.mark.parametrize("command", ["exit 3", "exec true", "kill -9 $$", "set -e; false"])
def test_a_shell_that_ends_is_replaced(shell: Shell, command: str) -> None:
    ran = shell.run(f"echo before; {command}")
    assert ran.code is None and ran.text.startswith("before\n") and "the shell ended" in ran.text
    assert shell.run("echo after").text == "after\n"


def test_wrong_syntax_is_told_and_survived(shell: Shell) -> None:
    ran = shell.run("if true; then (")
    assert ran.code not in (0, None) and "syntax error" in ran.text
    assert shell.run("echo on").text == "on\n"


def test_a_background_command_does_not_block_and_stays(shell: Shell) -> None:
    assert shell.run("sleep 100 & echo started").text == "started\n"
    assert "sleep 100" in shell.run("jobs").text


def test_a_command_that_takes_too_long_is_ended_and_the_rest_stays(shell: Shell) -> None:
    shell.run("x=kept; sleep 100 &")
    ran = shell.run("echo begun; sh -c 'sleep 60; true'; true", seconds=0.5)
    assert ran.code is None and ran.text.startswith("begun\n") and "longer than 0.5 s" in ran.text
    assert shell.run("echo $x; jobs").text.startswith("kept\n[1]")


def test_a_shell_that_does_not_come_back_is_replaced(shell: Shell) -> None:
    ran = shell.run("x=lost; while :; do :; done", seconds=0.3)
    assert ran.code is None and "a new shell" in ran.text
    assert shell.run("echo [$x]").text == "[]\n"


def test_a_background_command_cannot_end_the_next_one_by_its_output(shell: Shell) -> None:
    shell.run("(sleep 0.2; echo late) &")
    assert shell.run("sleep 0.5; echo own").text == "late\nown\n"


def test_a_flood_does_not_hold_off_the_end(shell: Shell) -> None:
    now = itertools.count()
    shell._clock = lambda: next(now) / 10  # it always has more, however fast it is read
    assert "[ended: it took longer than 2 s" in shell.run("yes & yes & yes", 2).text


def test_long_output_is_cut_in_the_middle_and_kept_whole(shell: Shell) -> None:
    ran = shell.run("seq 1 100000")
    assert len(ran.text) < SHOWN + 300
    assert ran.text.startswith("1\n2\n") and ran.text.endswith("\n99999\n100000\n")
    path = ran.text.partition("see ")[2].split(" ")[0]
    assert Path(path).read_text() == "".join(f"{n}\n" for n in range(1, 100001))
    assert all(line.isdigit() or "cut here" in line for line in ran.text.strip().split("\n"))


def test_100_megabytes_are_bounded_on_disk_too(shell: Shell, spill: Spill) -> None:
    ran = shell.run("head -c 100000000 /dev/zero | tr '\\0' a; echo; echo end")
    assert "100000005 bytes in all" in ran.text and ran.text.endswith("\nend\n")
    assert len(ran.text) < SHOWN + 300
    assert sum(p.stat().st_size for p in spill.directory.iterdir()) < output.KEPT + 1000


@pytest.mark.parametrize("size", [1000, 1000_000])
def test_binary_output_is_named_not_shown(shell: Shell, size: int) -> None:
    ran = shell.run(f"head -c {size} /dev/urandom")
    assert ran.text.startswith(f"(binary output, {size} bytes; see ")
    assert Path(ran.text.split("see ")[1].rstrip(")")).stat().st_size == size


def test_old_files_go_when_there_are_too_many(spill: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FILES", 2500)
    paths = [spill.write("x" * 1000) for _ in range(4)]
    assert [p.exists() for p in paths] == [False, False, True, True]


def test_a_program_that_leaves_something_behind_is_not_waited_for(spill: Spill) -> None:
    code, text = run(["sh", "-c", "sleep 30 & echo $!; exit 4"], 20, spill)
    assert code == 4
    os.kill(int(text), signal.SIGKILL)


def test_a_program_that_takes_too_long_ends_with_all_that_it_started(spill: Spill) -> None:
    code, text = run(["sh", "-c", "sleep 30 & echo $!; wait"], 0.3, spill)
    assert code is None
    state = Path(f"/proc/{int(text)}/stat")
    while state.exists() and state.read_text().split()[2] not in "ZX":
        time.sleep(0.02)  # killed, but not gone yet
    assert not state.exists() or state.read_text().split()[2] in "ZX"
    assert run([shutil.which("true") or "true"], 5, spill) == (0, "")
    assert run(["/nonexistent"], 5, spill)[0] == 127


# -- the editor ---------------------------------------------------------------------------------------------------


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return Editor(tmp_path)


def test_views_files_and_directories(editor: Editor, tmp_path: Path) -> None:
    assert editor.view("a.txt") == "     1\tone\n     2\ttwo\n     3\tthree"
    assert editor.view("a.txt", 2, -1) == "     2\ttwo\n     3\tthree"
    (tmp_path / "d").mkdir()
    (tmp_path / "d/b.txt").touch()
    (tmp_path / ".hidden").touch()
    assert editor.view(".") == "a.txt\nd/\nd/b.txt"
    assert editor.view("d/b.txt") == "(d/b.txt is empty)"


def test_edits(editor: Editor, tmp_path: Path) -> None:
    assert "     2\tTWO" in editor.replace("a.txt", "two", "TWO")
    assert "     1\tzero" in editor.insert("a.txt", 0, "zero")
    editor.insert("a.txt", 4, "four\n")
    assert (tmp_path / "a.txt").read_text() == "zero\none\nTWO\nthree\nfour\n"
    assert editor.create("new/b.py", "x = 1\n") == "wrote new/b.py, 1 lines"
    editor.create("new/b.py", "x = 2\n")
    assert (tmp_path / "new/b.py").read_text() == "x = 2\n"


def test_line_ends_and_modes_stay(editor: Editor, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(b"#!/bin/sh\r\necho one\r\necho two")
    script.chmod(0o755)
    editor.replace("run.sh", "echo one\necho two", "echo 1\necho 2")
    editor.insert("run.sh", 3, "echo 3")
    assert script.read_bytes() == b"#!/bin/sh\r\necho 1\r\necho 2\r\necho 3\r\n"
    assert script.stat().st_mode & 0o777 == 0o755


def test_lines_are_counted_as_they_are_shown(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "page.c").write_text("a\n\fb\u2028c\rd\ne")
    assert editor.view("page.c").count("\n") == 2
    editor.insert("page.c", 2, "new")
    assert (tmp_path / "page.c").read_bytes().decode() == "a\n\fb\u2028c\rd\nnew\ne"


def test_a_file_that_became_huge_is_not_read(editor: Editor, tmp_path: Path) -> None:
    editor.view("a.txt")
    os.truncate(tmp_path / "a.txt", 1 << 40)
    with pytest.raises(Wrong, match="has changed"):
        editor.create("a.txt", "x")


def test_what_changed_underneath_is_not_written_over(editor: Editor, tmp_path: Path) -> None:
    editor.view("a.txt")
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    edits: list[Callable[[], object]] = [
        lambda: editor.replace("a.txt", "two", "2"),
        lambda: editor.insert("a.txt", 1, "x"),
        lambda: editor.create("a.txt", "all new"),
    ]
    for edit in edits:
        with pytest.raises(Wrong, match="has changed since you viewed it"):
            edit()
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\nfour\n"
    editor.view("a.txt")
    editor.replace("a.txt", "two", "2")


def test_says_why_it_does_not_edit(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "twice").write_text("x\nx\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    wrong: dict[str, Callable[[], object]] = {
        "not been viewed": lambda: editor.create("twice", "y"),
        "2 times": lambda: editor.replace("twice", "x", "y"),
        "is not in": lambda: editor.replace("a.txt", "nowhere", "y"),
        "old_str is empty": lambda: editor.replace("a.txt", "", "y"),
        "not UTF-8": lambda: editor.view("latin"),
        "no regular file": lambda: editor.view("pipe"),
        "no line 9": lambda: (editor.view("a.txt"), editor.insert("a.txt", 9, "y")),
        "no lines 5 to": lambda: editor.view("a.txt", 5, 6),
        "No such file": lambda: editor.view("missing"),
        "loop": lambda: editor.view("loop"),
        "expected the path": lambda: editor.view("a\0b"),
        "File exists": lambda: editor.create("a.txt/b", "y"),
    }
    for what, call in wrong.items():
        with pytest.raises(Wrong, match=what):
            call()


def test_a_long_file_is_shown_in_parts(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "long").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    shown = editor.view("long")
    assert len(shown) < SHOWN + 200 and "of 5000; view the rest with a view_range" in shown
    assert editor.view("long", 4999, -1) == "  4999\tline 4999\n  5000\tline 5000"


# -- by the model -------------------------------------------------------------------------------------------------


def test_calls_are_made_in_order_and_looks_side_by_side(session: Session, tmp_path: Path) -> None:
    create = {"_tool": "edit", "command": "create", "path": "a", "file_text": "1\n"}
    view = {"_tool": "edit", "command": "view", "path": "a"}
    ran = session(calls(create, view, view, {"command": "cat a; echo 2 >>a"}, view), says("Done."))
    shown = [r["content"] for r in ran.results]
    assert shown == ["wrote a, 1 lines", "     1\t1", "     1\t1", "1\n", "     1\t1\n     2\t2"]
    assert [r["tool_use_id"] for r in ran.results] == [
        c["id"] for c in ran.provider.requests[1]["messages"][1]["content"]
    ]


def test_the_policy_denies_and_a_person_who_cannot_be_asked_means_no(session: Session, tmp_path: Path) -> None:
    policy = """{"default": "allow", "rules": [
        {"verdict": "deny", "tool": "bash", "pattern": "*rm *", "note": "use git rm"},
        {"verdict": "ask", "tool": "edit", "pattern": "create *", "note": ""}]}"""
    made = {"_tool": "edit", "command": "create", "path": "a", "file_text": ""}
    ran = session(calls({"command": "rm -rf x"}, made, {"command": "echo fine"}), says("Done."), TEAM_POLICY=policy)
    denied, asked, fine = ran.results
    assert denied["is_error"] and "denies this call. use git rm" in denied["content"]
    assert asked["is_error"] and "cannot be asked" in asked["content"]
    assert fine["content"] == "fine\n" and not (tmp_path / "work/a").exists()


def test_the_same_call_again_and_again_is_told_and_then_ends_the_session(session: Session) -> None:
    ran = session(calls({"command": "cat nothing"}))
    assert len(ran.provider.bodies) == 4 and ran.reason.startswith("the same call of bash 4 times running")
    assert ["[team] That was the same call 3 times" in r["content"] for r in ran.results] == [False, False, True]
    ran = session(*[calls({"command": "sleep 0; git fetch"})] * 6, says("Done."))
    assert ran.reason == "Done.", "what waits for something may be repeated"


async def test_the_team_s_own_calls_are_tools(
    way: dict[str, str], spill: Spill, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in way.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{PROGRAM.parent}:{way['PATH']}")
    monkeypatch.setenv("TEAM_PYTHON", sys.executable)
    tools = {tool.name: tool for tool in all_tools(shell, Editor(tmp_path), spill)}

    async def call(name: str, **given: Any) -> Result:
        tool = tools[name]
        result: Result = await asyncio.to_thread(lambda: tool.do(tool.parse(given)))
        return result

    assert (await call("tasks")).text == "open fix_parser Fix the parser"
    claimed = await call("claim", task="fix_parser", scope=["src/**", "tests/**"], note="I'll mend it")
    assert not claimed.failed and claimed.text.startswith("you hold fix_parser")
    refused = await call("claim", task="other_thing")
    assert refused.failed and "you hold fix_parser" in refused.text
    assert "no tests" in (await call("test", cases=["-x"])).text.lower() or (await call("test")).failed
    released = await call("release", give_up="too hard for me")
    assert not released.failed, released
    with pytest.raises(Wrong, match="either"):
        await call("release", done=True, give_up="x")
    with pytest.raises(Wrong, match="name of a task"):
        await call("claim", task="--force")
