"""The docker runtime against the real engine."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from team.errors import TeamError
from team.runtimes import EngineLost, Gone, Limits
from team.runtimes.docker import DockerRuntime
from team.runtimes.lines import LINE_MAX

from .conftest import UID, Bench, Door

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("uid", [1000, 1234])
def test_any_uid_owns_its_clone_and_home(bench: Bench, door: Door, uid: int) -> None:
    ended = bench.run(
        "id -u; git log --oneline | wc -l; touch new ~/x && git status --short; cat >/tmp/p; cat /tmp/p",
        uid=uid,
        gid=uid,
    )
    assert ended.code == 0, ended.text
    assert ended.lines == [str(uid).encode(), b"3", b"?? new", "the prompt, with ünïcode".encode()]


def test_nothing_but_the_door_can_be_reached(bench: Bench) -> None:
    ended = bench.run(
        "cat /proc/net/dev | tail -n +3 | cut -d: -f1; tail -n +2 /proc/net/route;"
        "git ls-remote http://192.0.2.1/ 2>&1 | head -1; getent hosts example.com || echo no name"
    )
    assert ended.text.split("\n")[0].strip() == "lo"
    assert "no name" in ended.text
    assert "unreachable" in ended.text.lower() or "failed to connect" in ended.text.lower()


def test_nothing_of_the_host_can_be_written(bench: Bench) -> None:
    ended = bench.run("for d in /upstream /run/team /opt/team; do touch $d/x 2>&1; done; ls -a /run/team")
    assert ended.text.count("Read-only file system") == 3


def test_no_privileges(bench: Bench) -> None:
    ended = bench.run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status; ulimit -c")
    assert ended.lines == [
        *(f"Cap{kind}:\t0000000000000000".encode() for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")),
        b"NoNewPrivs:\t1",
        b"0",
    ]


def test_a_fork_bomb_stays_within_the_limit(bench: Bench) -> None:
    ended = bench.run(
        "python3 -c 'import os\nn = 0\ntry:\n  while n < 400:\n    n += 1\n    os.fork() or os.pause()\n"
        "except (OSError, AttributeError) as e: print(n < 128, e)'; exit 7"
    )
    assert b"True [Errno 11] Resource temporarily unavailable" in ended.lines


def test_out_of_memory_is_told_from_a_kill(bench: Bench) -> None:
    eaten = bench.run("python3 -c 'x = b\"x\" * (1 << 30)'")
    killed = bench.run("kill -9 $$", **vars_of(bench.fresh()))
    assert (eaten.code, eaten.out_of_memory) == (137, True)
    assert (killed.code, killed.out_of_memory) == (137, False)


def test_a_client_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    id = bench.start("trap '' TERM; echo up; while :; do sleep 0.1; done")
    await_line(bench, id, b"up")
    began = time.monotonic()
    bench.runtime.stop(id, 1)
    exit = bench.runtime.wait(id, 5)
    assert exit is not None
    assert exit.code == 137
    assert time.monotonic() - began < 5


def test_sigterm_reaches_the_client(bench: Bench, door: Door) -> None:
    id = bench.start("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.1; done")
    await_line(bench, id, b"up")
    bench.runtime.stop(id, 20)
    ended = bench.finish(id)
    assert (ended.code, ended.lines[-1]) == (5, b"bye")
    assert door.heard[-1][0] == "/team/left"


def test_kill_everything_ends_the_container_at_once(bench: Bench) -> None:
    began = time.monotonic()
    ended = bench.run("pkill -9 -f .; sleep 30")
    assert ended.code == 137
    assert time.monotonic() - began < 10


def test_a_grandchild_that_holds_the_output_does_not_hold_the_session(bench: Bench) -> None:
    began = time.monotonic()
    ended = bench.run("setsid sleep 60 & echo done")
    assert (ended.code, ended.lines) == (0, [b"done"])
    assert time.monotonic() - began < 10


def test_interrupts_work_in_what_the_client_starts(bench: Bench) -> None:
    ended = bench.run(
        "python3 -c 'import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)'"
    )
    assert ended.lines == [b"True"]


def test_the_relay_comes_back_when_an_agent_kills_it(bench: Bench) -> None:
    ended = bench.run("pkill socat; sleep 0.6; git ls-remote http://127.0.0.1:8787/git/upstream main | wc -l")
    assert ended.lines == [b"1"]


def test_lines_of_any_kind(bench: Bench) -> None:
    ended = bench.run(
        'python3 -c \'import sys; w = sys.stdout.buffer.write; w(b"a" * 3_000_000 + b"\\n"); w(b"\\xff\\x00\\n\\n");'
        'w(b"no newline")\''
    )
    assert len(ended.lines[0]) == LINE_MAX
    assert ended.lines[1:] == ["\ufffd\0".encode(), b"", b"no newline"]


def test_halves_of_lines_on_both_streams_do_not_mix(bench: Bench) -> None:
    ended = bench.run("printf one; sleep 0.2; printf two >&2; sleep 0.2; printf ' uno\\n'; sleep 0.2; echo ' due' >&2")
    assert sorted(ended.lines) == [b"one uno", b"two due"]


def test_an_adopting_supervisor_reads_what_it_has_not_seen(bench: Bench) -> None:
    id = bench.start("echo old; sleep 1.5; echo new")
    await_line(bench, id, b"old")
    time.sleep(0.5)
    lines: list[bytes] = []
    bench.runtime.follow(id, lines.append, since=time.time())
    assert lines == [b"new"]


def test_wait_gives_up_after_its_time(bench: Bench) -> None:
    id = bench.start("sleep 30")
    began = time.monotonic()
    assert bench.runtime.wait(id, 0.3) is None
    assert time.monotonic() - began < 2


def test_what_is_gone_is_told(bench: Bench) -> None:
    id = bench.start("sleep 30")
    ended = threading.Thread(target=_follow, args=(bench, id))
    ended.start()
    bench.runtime.remove(id)
    bench.runtime.remove(id)
    bench.runtime.stop(id, 1)
    bench.runtime.stop(id, 0)
    with pytest.raises(Gone):
        bench.runtime.wait(id, 1)
    with pytest.raises(Gone):
        bench.runtime.follow(id, print)
    bench.runtime.remove_volume("team-test-never-made")
    ended.join(10)
    assert not ended.is_alive()


def test_a_lost_engine_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    lost = DockerRuntime()
    with pytest.raises(EngineLost):
        lost.found("x")
    with pytest.raises(TeamError, match=r"no Docker engine answers at unix://.*systemctl start docker"):
        lost.check("x")


def test_an_engine_lost_in_mid_wait(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = bench.start("echo up; sleep 30")
    with through_a_relay(tmp_path / "relay") as cut:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay")
        other, up, problems = DockerRuntime(), threading.Event(), list[BaseException]()

        def lose(call: Callable[[], object]) -> None:
            try:
                call()
            except EngineLost as e:
                problems.append(e)

        calls = (lambda: other.wait(id), lambda: other.follow(id, lambda _: up.set()))
        threads = [threading.Thread(target=lose, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        assert up.wait(10)
        cut()
        for thread in threads:
            thread.join(10)
        assert len(problems) == 2
    assert bench.runtime.wait(id, 0.1) is None


def test_check_names_the_mend(bench: Bench) -> None:
    bench.runtime.check(bench.spec.image)
    with pytest.raises(TeamError, match="team image build"):
        bench.runtime.check("team-no-such-image:1")
    with pytest.raises(TeamError, match="team image build"):
        bench.runtime.create(replace(bench.spec, image="team-no-such-image:1", argv=("true",)))
    with pytest.raises(TeamError, match="cannot see a directory"):
        bench.runtime.create(replace(bench.spec, upstream=Path("/no/such/upstream"), argv=("true",)))


def test_found_and_replaced(bench: Bench) -> None:
    id = bench.start("sleep 30")
    (found,) = bench.runtime.found(bench.spec.project)
    assert (found.id, found.name, found.session) == (id, bench.spec.name, bench.spec.session)
    assert found.running
    assert found.entry == "entry"
    again = bench.start("sleep 30", workspace=f"{bench.spec.workspace}-2")
    (found,) = bench.runtime.found(bench.spec.project)
    assert found.id == again != id


def test_disk_sees_the_work_tree_and_the_layer(bench: Bench) -> None:
    id = bench.start("head -c 50000000 /dev/zero >big; head -c 20000000 /dev/zero >/tmp/big; echo up; sleep 30")
    await_line(bench, id, b"up")
    used = bench.runtime.disk(bench.spec.project)
    assert 70_000_000 < used[bench.spec.session] < 75_000_000


def test_a_cache_is_kept_and_owned(bench: Bench) -> None:
    caches = {
        "/home/agent/.cache/pip": f"{bench.spec.workspace}-cache",
        "/opt/deep/cache": f"{bench.spec.workspace}-c2",
    }
    first = bench.run(
        "stat -c %u ~/.cache ~/.cache/pip /opt/deep/cache; echo kept >~/.cache/pip/f; touch ~/.cache/other",
        caches=caches,
    )
    assert (first.code, first.lines) == (0, [str(UID).encode()] * 3)
    second = bench.run("cat ~/.cache/pip/f", caches=caches, **vars_of(bench.fresh()))
    assert second.lines == [b"kept"]


def test_describe_is_what_is_created(bench: Bench, engine: docker.APIClient) -> None:
    id = bench.start("sleep 30")
    said = json.loads(json.dumps(bench.runtime.describe(replace(bench.spec, argv=("sh", "-c", "sleep 30")))))
    made = engine.inspect_container(id)
    assert made["Config"]["Labels"].items() >= said["Labels"].items()
    for key in ("NetworkMode", "Init", "CapDrop", "SecurityOpt", "Memory", "MemorySwap", "PidsLimit", "LogConfig"):
        assert made["HostConfig"][key] == said["HostConfig"][key], key
    assert made["Config"]["Cmd"] == ["sh", "-c", "sleep 30"]


def test_limits_reach_the_container(bench: Bench, engine: docker.APIClient) -> None:
    id = bench.start("sleep 30", limits=Limits(memory=1 << 28, pids=99, cpus=0.5))
    host = engine.inspect_container(id)["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"], host["NanoCpus"]) == (
        1 << 28,
        1 << 28,
        99,
        500_000_000,
    )


@contextlib.contextmanager
def through_a_relay(path: Path) -> Iterator[Callable[[], None]]:
    """A socket that leads to the engine until the function that this yields is called."""
    server, ends = socket.socket(socket.AF_UNIX), list[socket.socket]()
    server.bind(str(path))
    server.listen()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, far = server.accept()[0], socket.socket(socket.AF_UNIX)
                far.connect("/var/run/docker.sock")
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    def cut() -> None:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=serve, daemon=True).start()
    yield cut
    for end in ends:
        end.close()


def _follow(bench: Bench, id: str) -> None:
    with contextlib.suppress(Gone):
        bench.runtime.follow(id, print)


def vars_of(spec: object) -> dict[str, object]:
    """The fields of another session's spec, as changes."""
    return {key: getattr(spec, key) for key in ("name", "session", "workspace", "env")}


def await_line(bench: Bench, id: str, line: bytes) -> None:
    """Block until the session printed ``line``."""
    seen = threading.Event()
    thread = threading.Thread(
        target=bench.runtime.follow, args=(id, lambda got: seen.set() if got == line else None), daemon=True
    )
    thread.start()
    assert seen.wait(15)
