"""What jobs may do to the pool that runs them, and what the pool then does to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from team.sampler import keeper
from team.sampler.process import Ended, Job, Pool


@pytest.fixture
def mark() -> str:
    """A word for the command line of what a job leaves behind, so that it can be looked for."""
    return f"left-{uuid.uuid4().hex}"


def shell(key: str, command: str, cwd: Path, **bounds: object) -> Job:
    return Job(key, ["sh", "-c", command], cwd, **bounds)  # type: ignore[arg-type]


def one(command: str, cwd: Path, **bounds: object) -> Ended:
    (ended,) = Pool().run([shell("it", command, cwd, **bounds)])
    return ended


def running(mark: str) -> list[str]:
    """Command lines with ``mark`` of processes that live."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line and file.parent.name != str(os.getpid()):
            found.append(line)
    return found


def sleeper(mark: str) -> str:
    """A process that lives for ever and can be found by ``mark``."""
    return f"python3 -c 'import time; time.sleep(1000)' {mark}"


def test_code_output_and_time_are_told(tmp_path: Path) -> None:
    ended = one("pwd; echo bad >&2; exit 3", tmp_path)
    assert (ended.key, ended.code, ended.why) == ("it", 3, "")
    assert ended.output.decode() == f"{tmp_path}\nbad\n"
    assert ended.printed == len(ended.output)
    assert ended.seconds > 0


def test_a_signal_is_a_negative_code(tmp_path: Path) -> None:
    assert one("kill -SEGV $$", tmp_path).code == -signal.SIGSEGV


def test_standard_error_can_be_kept_apart(tmp_path: Path) -> None:
    ended = one("echo out; echo err >&2", tmp_path, merge=False)
    assert (ended.output, ended.errors) == (b"out\n", b"err\n")


def test_environment_goes_on_top_of_ours_and_standard_input_is_empty(tmp_path: Path) -> None:
    ended = one('cat; echo "$IT $HOME"', tmp_path, env={"IT": "is"})
    assert ended.output.decode() == f"is {os.environ['HOME']}\n"


def test_what_our_interpreter_ignores_a_job_does_not(tmp_path: Path) -> None:
    ended = one("grep SigIgn /proc/self/status", tmp_path)
    assert int(ended.output.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_what_cannot_be_started_is_told_as_a_shell_would(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    (tmp_path / "script").write_text("echo by sh\n")
    (tmp_path / "script").chmod(0o755)
    jobs = [
        Job("none", ["no-such-program"], tmp_path),
        Job("data", ["./data"], tmp_path),
        Job("nowhere", ["true"], tmp_path / "nowhere"),
        Job("nul", ["true", "a\0b"], tmp_path),
        Job("script", ["./script"], tmp_path),
    ]
    ended = {each.key: each for each in Pool().run(jobs)}
    assert [ended[key].code for key in ("none", "data", "nowhere", "nul", "script")] == [127, 126, 127, 126, 0]
    assert b"no-such-program" in ended["none"].output
    assert ended["script"].output == b"by sh\n"


def test_output_is_bounded_and_says_so(tmp_path: Path) -> None:
    ended = one("echo begin; head -c 1000000000 /dev/zero; echo end", tmp_path, output=1000)
    assert ended.printed == 1_000_000_010
    assert ended.output.startswith(b"begin\n\0") and ended.output.endswith(b"\0end\n")
    assert b"[... 999999010 bytes left out ...]" in ended.output
    assert len(ended.output) < 1100


def test_output_that_is_no_text_comes_as_it_is(tmp_path: Path) -> None:
    assert one(r"printf 'a\377\000b'", tmp_path).output == b"a\xff\0b"


def test_what_hangs_is_killed_with_all_that_it_started(tmp_path: Path, mark: str) -> None:
    ended = one(f"{sleeper(mark)} & echo begun; {sleeper(mark)}", tmp_path, seconds=0.5)
    assert (ended.why, ended.code, ended.output) == ("timed out", -signal.SIGKILL, b"begun\n")
    assert not running(mark)


def test_what_ignores_every_signal_and_prints_without_end_is_killed(tmp_path: Path) -> None:
    assert one("trap '' TERM INT HUP; while :; do echo y; done", tmp_path, seconds=0.3).why == "timed out"


def test_what_forks_and_leaves_does_not_live_on(tmp_path: Path, mark: str) -> None:
    daemon = (
        f"import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(1000) # {mark}"
    )
    ended = one(f'python3 -c "{daemon}"; setsid -f {sleeper(mark)}; echo left', tmp_path)
    assert (ended.code, ended.why, ended.output) == (0, "", b"left\n")
    assert not running(mark)


def test_a_fork_bomb_ends(tmp_path: Path, mark: str) -> None:
    bomb = f'for i in 1 2; do [ "$1" -lt 4 ] && sh "$0" $(($1 + 1)) {mark} & done; sleep 1000'
    (tmp_path / "bomb").write_text(bomb)
    ended = one(f"sh ./bomb 0 {mark}", tmp_path, seconds=1)
    assert ended.why == "timed out"
    assert not running(mark)


@pytest.mark.parametrize("blow", ["-9", "-STOP"])
def test_what_kills_or_stops_its_parent_is_lost_and_the_rest_still_runs(tmp_path: Path, mark: str, blow: str) -> None:
    jobs = [
        shell("before", "echo 1", tmp_path),
        shell("killer", f"{sleeper(mark)} & setsid -f {sleeper(mark)}; kill {blow} $PPID; sleep 1000", tmp_path),
        *(shell(f"after {n}", f"echo {n}", tmp_path) for n in range(5)),
    ]
    ended = list(Pool(ahead=2).run(jobs))
    assert [each.key for each in ended] == [job.key for job in jobs]
    assert [each.why for each in ended] == ["", "lost", "", "", "", "", ""]
    assert not running(mark)


def test_a_parent_is_not_moved_by_other_signals(tmp_path: Path) -> None:
    assert one("kill $PPID; kill -INT $PPID; kill -HUP $PPID; kill 0", tmp_path).code == -signal.SIGTERM


def test_what_holds_too_much_memory_is_killed(tmp_path: Path, mark: str) -> None:
    # In a child, and in a session of its own: it counts all the same.
    hog = f"import time; held = b'x' * (256 << 20); time.sleep(1000) # {mark}"
    ended = one(f'setsid python3 -c "{hog}" & wait', tmp_path, memory=128 << 20, seconds=60)
    assert ended.why == "memory"
    assert not running(mark)


def test_memory_that_forks_share_counts_once(tmp_path: Path) -> None:
    sharing = "import os, time; x = b'x' * (64 << 20); [os.fork() or (time.sleep(0.5), os._exit(0)) for _ in 'abc']"
    ended = one(f'python3 -c "{sharing}; time.sleep(0.5)"', tmp_path, memory=160 << 20)
    assert (ended.code, ended.why) == (0, "")


def test_output_comes_while_the_job_runs_and_a_tick_may_kill_it(tmp_path: Path) -> None:
    heard: list[tuple[str, bytes]] = []

    def tick(pool: Pool) -> None:
        if (tmp_path / "heard").exists():
            pool.kill("it", "heard enough")

    def hear(key: str, data: bytes) -> None:
        heard.append((key, data))
        (tmp_path / "heard").touch()

    (ended,) = Pool(on_output=hear, on_tick=tick).run([shell("it", "echo now; exec sleep 1000", tmp_path)])
    assert heard == [("it", b"now\n")]
    assert (ended.why, ended.output) == ("heard enough", b"now\n")


def test_jobs_are_pulled_when_there_is_room(tmp_path: Path) -> None:
    done: list[str] = []

    def jobs() -> Iterator[Job]:
        for n in range(4):
            assert len(done) == n
            yield shell(str(n), "true", tmp_path)

    for ended in Pool().run(jobs()):
        done.append(ended.key)
    assert done == ["0", "1", "2", "3"]


def test_workers_run_at_once_and_results_come_as_jobs_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # each end waits for the other to open it
    jobs = [shell("reader", "cat pipe; sleep 0.2", tmp_path), shell("writer", "echo hello > pipe", tmp_path)]
    ended = list(Pool(2).run(jobs))
    assert [(each.key, each.output) for each in ended] == [("writer", b""), ("reader", b"hello\n")]


def test_when_the_caller_stops_early_nothing_is_left(tmp_path: Path, mark: str) -> None:
    results = Pool(2).run([shell("first", "true", tmp_path), shell("second", sleeper(mark), tmp_path)])
    assert next(results).key == "first"
    results.close()  # type: ignore[attr-defined]
    assert not running(mark)


def test_children_of_the_caller_are_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as own:
        assert one("kill -9 $PPID", tmp_path).why == "lost"
        assert own.poll() is None
        own.kill()


def test_nothing_is_left_when_the_caller_is_killed(tmp_path: Path, mark: str) -> None:
    program = f"""
from pathlib import Path
from team.sampler.process import Job, Pool
command = '''setsid -f {sleeper(mark)}; touch begun; {sleeper(mark)}'''
list(Pool(2).run(Job(str(n), ["sh", "-c", command], Path({str(tmp_path)!r})) for n in range(3)))
"""
    caller = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    wait(lambda: (tmp_path / "begun").exists() and len(running(mark)) >= 4)
    caller.kill()
    caller.wait()
    wait(lambda: not running(mark))


def test_processes_are_found_where_the_kernel_does_not_list_children(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"], start_new_session=True) as own:
        wait(lambda: len(keeper.below([own.pid])) == 3)
        listed = keeper.children(own.pid), keeper.below([own.pid])
        monkeypatch.setattr(keeper, "_LISTED", False)
        assert (keeper.children(own.pid), keeper.below([own.pid])) == listed
        os.killpg(own.pid, signal.SIGKILL)


def wait(until: Callable[[], bool]) -> None:
    """For what another process does in its own time."""
    for _ in range(600):
        if until():
            return
        time.sleep(0.05)
    raise AssertionError("waited for 30 s")
