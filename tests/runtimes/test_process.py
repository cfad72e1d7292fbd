"""The process runtime: the same functions, with nothing but this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from team.errors import TeamError
from team.git import line
from team.runtimes import Gone
from team.runtimes.process import ProcessRuntime

from .conftest import TOKEN, Bench, Door, spec_for


@pytest.fixture
def processes(tmp_path: Path, upstream: Path, door: Door) -> Iterator[Bench]:
    """Sessions as processes, in a root of their own."""
    spec = spec_for(upstream, door, "")
    env = {**spec.env, "TEAM_DOOR": f"http://127.0.0.1:{door.port}", "TEAM_TOKEN": TOKEN}
    bench = Bench(ProcessRuntime(tmp_path / "root"), replace(spec, env=env))
    yield bench
    bench.clear()
    assert not list((tmp_path / "root").glob("*/*"))


def test_a_session_clones_works_and_lands(processes: Bench, door: Door, upstream: Path) -> None:
    ended = processes.run("cat >prompt; git add prompt; git commit -qm work && git push -q && git pull -q; exit 4")
    assert (ended.code, ended.text) == (4, "")
    assert line("show", "refs/for/main:prompt", at=upstream) == "the prompt, with ünïcode"
    assert [path for path, _ in door.heard] == ["/team/ready", "/team/left"]
    assert door.tokens == {f"Bearer {TOKEN}"}


def test_nothing_of_the_users_configuration_leaks_in(processes: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    ended = processes.run('echo "[${ANTHROPIC_API_KEY:-}]"; git config user.name || echo none')
    assert ended.lines == [b"[]", b"none"]


def test_a_client_that_ignores_sigterm_is_killed_with_its_children(processes: Bench) -> None:
    id = processes.start("trap '' TERM; setsid sleep 61.5 & echo up; while :; do sleep 0.1; done")
    assert processes.runtime.wait(id, 1) is None
    began = time.monotonic()
    processes.runtime.stop(id, 0.5)
    exit = processes.runtime.wait(id, 5)
    assert exit is not None
    assert exit.code == 137
    assert time.monotonic() - began < 5
    assert not alive("61.5")


def test_a_grandchild_does_not_hold_the_session(processes: Bench) -> None:
    began = time.monotonic()
    ended = processes.run("setsid sleep 62.5 & echo done")
    assert (ended.code, ended.lines) == (0, [b"done"])
    assert time.monotonic() - began < 5
    assert not alive("62.5")


def test_found_by_another_supervisor(processes: Bench) -> None:
    id = processes.start("sleep 1; exit 6")
    other = ProcessRuntime(processes.runtime._root)  # type: ignore[attr-defined]
    (found,) = other.found(processes.spec.project)
    assert (found.id, found.session, found.running, found.entry) == (id, processes.spec.session, True, "entry")
    assert other.found("another") == []
    processes.finish(id)
    exit = other.wait(id, 5)
    assert exit is not None
    assert exit.code == 6
    assert not other.found(processes.spec.project)[0].running


def test_disk_and_removal(processes: Bench) -> None:
    id = processes.start(f'{sys.executable} -c \'open("big", "wb").write(b"x" * 5_000_000)\'; chmod 0 .; exit 0')
    processes.finish(id)
    assert 5_000_000 < processes.runtime.disk(processes.spec.project)[processes.spec.session] < 6_000_000
    processes.runtime.remove(id)
    processes.runtime.remove(id)
    processes.runtime.stop(id, 1)
    with pytest.raises(Gone):
        processes.runtime.wait(id)
    with pytest.raises(Gone):
        processes.runtime.start(id)


def test_a_root_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir(mode=0o777)
    (tmp_path / "root").chmod(0o777)
    with pytest.raises(TeamError, match="not a directory of yours alone"):
        ProcessRuntime(tmp_path / "root").check("")


def alive(words: str) -> bool:
    """Whether a process with ``words`` in its argv lives."""
    for _ in range(50):  # one that was killed takes a moment to be gone
        if not any(words.encode() in line for line in _command_lines()):
            return False
        time.sleep(0.1)
    return True


def _command_lines() -> Iterator[bytes]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - a glob fails where a process ends meanwhile
        with contextlib.suppress(OSError):
            if name.isdigit():
                yield Path("/proc", name, "cmdline").read_bytes()
