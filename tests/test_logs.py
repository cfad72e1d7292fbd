"""Logs of sessions: what an agent prints can never look like a line of ours, and nothing grows without bound."""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team import logs
from team.config import Logs
from team.errors import TeamError
from team.logs import AgentLog, Follower

KEY = 'sk-ant-"0123456789abcdef'
AT_NOON = time.mktime((2026, 1, 1, 12, 0, 0, 0, 0, -1))


def make(directory: Path, n: int = 1, limits: Logs | None = None, secrets: tuple[str, ...] = ()) -> AgentLog:
    return AgentLog(directory, "0123456789abcdef", n, limits or Logs(), secrets, lambda: AT_NOON)


def test_a_log_reads_well(tmp_path: Path) -> None:
    log = make(tmp_path / "agent-01", 7)
    log.team("session started")
    log.agent("> Bash: ls\n  README.md")
    log.error("the client says:\n  no")
    log.raw(b'{"type":"result"}\r')
    log.raw(b"no event")
    log.close()
    assert log.path == tmp_path / "agent-01" / "agent_01234567_7.log"
    assert log.path.read_text() == (
        "12:00:00 session started\n| > Bash: ls\n|   README.md\n12:00:00 ERROR the client says: no\n"
    )
    assert log.path.with_suffix(".jsonl").read_text() == '{"type":"result"}\n'
    assert log.path.stat().st_mode & 0o777 == 0o600


_NASTY = st.text(
    alphabet=st.sampled_from("ab|: \n\r\v\f\x1c\x85\u2028\u2029\u200b\x1b[]0m1;\x07\x9b\udc80"), max_size=60
)


@given(st.lists(st.text(max_size=60) | _NASTY, max_size=5))
def test_an_agents_line_never_looks_like_ours(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = make(Path(directory))
        for text in texts:
            log.agent(text + "\n12:00:00 ERROR fake")
        log.close()
        data = log.path.read_bytes()
    for line in data.decode("utf-8").splitlines():  # splits at every character that some tool takes for a line end
        assert line.startswith("| ")
    assert b"\x1b" not in data
    assert b"\r" not in data


@given(_NASTY)
def test_our_lines_stay_one_line_each(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = make(Path(directory))
        log.team(text)
        log.error(text)
        log.close()
        lines = log.path.read_text("utf-8").splitlines()
    assert len(lines) == 2
    assert all(re.match(r"12:00:00 ", line) for line in lines)


@pytest.mark.parametrize(
    "spelling",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        "sk-ant-%220123456789abcdef",
        KEY[:5] + "\u200b" + KEY[5:],
        *(base64.b64encode(b"user:"[:n] + KEY.encode()).decode() for n in (3, 4, 5)),
    ],
)
def test_secrets_are_masked_however_they_are_spelt(tmp_path: Path, spelling: str) -> None:
    log = make(tmp_path, secrets=(KEY,))
    log.agent(f"key={spelling} end")
    log.team(f"key={spelling} end")
    log.error(f"key={spelling} end")
    log.raw(json.dumps({"text": f"key={spelling} end"}, ensure_ascii=False).encode())
    log.close()
    written = log.path.read_text() + log.path.with_suffix(".jsonl").read_text()
    assert written.count("[masked]") == 4
    assert "0123456789abcdef" not in written
    assert spelling[4:-4] not in written


def test_the_beginning_of_a_secret_that_was_cut_is_masked(tmp_path: Path) -> None:
    log = make(tmp_path, secrets=(KEY,))
    log.agent(f"x {KEY[:12]}…")
    log.close()
    assert log.path.read_text() == "| x [masked]…\n"


def test_a_big_log_is_rotated_and_says_so(tmp_path: Path) -> None:
    log = make(tmp_path, limits=Logs(max_file=8192))
    for i in range(400):
        log.agent(f"{i:04d} {'x' * 90}")
        log.raw(json.dumps({"n": i, "x": "x" * 90}).encode())
    log.close()
    before = log.path.with_name(log.path.name + ".1")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        name + end for name in (log.path.name, log.path.with_suffix(".jsonl").name) for end in ("", ".1")
    )
    assert before.stat().st_size <= 8192
    assert log.path.stat().st_size <= 8192
    first = log.path.read_text().split("\n")[0]
    assert first.startswith("12:00:00 log rotated")
    assert before.name in first
    assert logs.tail(log.path, 1)[0].startswith("| 0399 ")
    assert json.loads(list(make(tmp_path).raw_lines())[-1])["n"] == 399


def test_a_line_over_the_limit_is_cut_but_stays_a_line(tmp_path: Path) -> None:
    log = make(tmp_path, limits=Logs(max_file=4096))
    log.agent("x" * 10_000)
    log.team("next")
    log.close()
    assert logs.tail(log.path, 1) == ["12:00:00 next"]
    assert log.path.with_name(log.path.name + ".1").read_text().endswith("x\n")


def test_old_sessions_make_room_but_never_the_current_one(tmp_path: Path) -> None:
    for n in (1, 2, 10):
        log = make(tmp_path, n)
        log.agent("x" * 3000)
        log.raw(b'{"x":"' + b"x" * 3000 + b'"}')
        log.close()
    (tmp_path / "notes.txt").write_text("x" * 100_000)
    log = make(tmp_path, 11, Logs(max_agent=7000))
    assert [p.name for p in logs.session_logs(tmp_path)] == ["agent_01234567_10.log", "agent_01234567_11.log"]
    assert (tmp_path / "notes.txt").exists()
    log.agent("x" * 20_000)
    make(tmp_path, 12, Logs(max_agent=0))
    assert [p.name for p in logs.session_logs(tmp_path)] == ["agent_01234567_12.log"]


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent_01234567_1.log").symlink_to(target)
    with pytest.raises(TeamError, match="cannot write the log"):
        make(tmp_path / "logs")
    assert target.read_text() == "precious"


def test_a_full_disk_loses_lines_and_says_so_but_stops_nothing(tmp_path: Path) -> None:
    log = make(tmp_path)
    full = os.open("/dev/full", os.O_WRONLY)
    disk = os.dup(log._text._fd)
    os.dup2(full, log._text._fd)
    log.agent("lost")
    log.team("lost too")
    os.dup2(disk, log._text._fd)
    log.team("kept")
    log.close()
    assert log.path.read_text() == "12:00:00 ERROR 2 entries of this log could not be written\n12:00:00 kept\n"


def test_nothing_is_written_after_close(tmp_path: Path) -> None:
    log = make(tmp_path)
    log.team("last")
    log.close()
    log.close()
    log.team("too late")
    assert log.path.read_text() == "12:00:00 last\n"


def test_an_adopted_session_goes_on_in_the_same_log(tmp_path: Path) -> None:
    assert make(tmp_path).written_at() == 0
    log = make(tmp_path)
    log.raw(b'{"n":1}')
    log.close()
    os.utime(log.path.with_suffix(".jsonl"), (1000, 2_000_000_000))
    again = make(tmp_path)
    again.team("adopted")
    assert again.written_at() == 2_000_000_000
    assert list(again.raw_lines()) == [b'{"n":1}']
    assert again.path == log.path


def test_threads_never_tear_each_others_lines(tmp_path: Path) -> None:
    log = make(tmp_path, limits=Logs(max_file=1 << 16))

    def write(say: Callable[[str], None]) -> None:
        for _ in range(300):
            say("y" * 100)

    threads = [threading.Thread(target=write, args=(say,)) for say in (log.agent, log.team, log.error)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    for line in log.path.read_text().splitlines()[1:]:
        assert re.fullmatch(r"(\| |12:00:00 (ERROR )?)y{100}|12:00:00 log rotated.*", line)


@pytest.mark.parametrize("n", [0, 1, 3, 1000, 10_000])
def test_tail_gives_the_last_lines(tmp_path: Path, n: int) -> None:
    lines = [f"{i} {'é' * 30}" for i in range(5000)]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    assert logs.tail(path, n) == (lines[-n:] if n else [])


def test_tail_of_nothing_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert logs.tail(tmp_path / "empty", 5) == logs.tail(tmp_path / "none", 5) == []


def test_last_line_is_of_the_newest_session(tmp_path: Path) -> None:
    assert logs.last_line(tmp_path) == ""
    make(tmp_path, 9).agent("nine")
    ten = make(tmp_path, 10)
    assert logs.last_line(tmp_path) == ""
    ten.agent("x" * 10_000 + "\n> Bash: make test\n\n")
    assert logs.last_line(tmp_path) == "> Bash: make test"


def test_a_follower_crosses_sessions_agents_and_rotations(tmp_path: Path) -> None:
    limits = Logs(max_file=4096)
    one = make(tmp_path / "agent-01", 1, limits)
    one.team("old")
    follower = Follower(tmp_path)
    assert list(follower.poll()) == []
    one.agent("new")
    assert list(follower.poll()) == [("agent-01", "| new")]
    make(tmp_path / "agent-01", 2).team("next session")
    make(tmp_path / "review-01", 1).team("another seat")
    assert list(follower.poll()) == [
        ("agent-01", "12:00:00 next session"),
        ("review-01", "12:00:00 another seat"),
    ]
    one.agent("a" * 3000)
    one.agent("b" * 3000)
    lines = [line for _, line in follower.poll()]
    assert [line[:3] for line in lines] == ["| a", "12:", "| b"]
    assert list(follower.poll()) == []


def test_a_follower_of_one_agent_and_from_the_beginning(tmp_path: Path) -> None:
    for n in range(1, 7):
        make(tmp_path / "agent-01", n).team(f"session {n}")
    make(tmp_path / "agent-02").team("other")
    lines = [line for _, line in Follower(tmp_path, ["agent-01"], begin=True).poll()]
    assert lines == [f"12:00:00 session {n}" for n in range(1, 7)]


def test_a_line_that_is_not_whole_yet_waits(tmp_path: Path) -> None:
    log = make(tmp_path / "agent-01")
    follower = Follower(tmp_path)
    with log.path.open("a") as file:
        file.write("| half")
        file.flush()
        assert list(follower.poll()) == []
        file.write(" whole\n")
        file.flush()
    assert list(follower.poll()) == [("agent-01", "| half whole")]
