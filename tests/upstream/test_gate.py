"""Nothing broken reaches main, nothing that waits is lost. Real checks, as plain processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from team.config import Gate
from team.ledger import Kind
from team.runtimes import Limits
from team.runtimes.process import ProcessRuntime
from team.upstream.check import ContainerChecker
from team.upstream.queue import Queue
from tests.upstream.conftest import Clone, Site, environment

CHECK = "! grep -rn BAD src"


def checker(site: Site, gate: Gate, tmp: Path) -> ContainerChecker:
    return ContainerChecker(site.project, gate, ProcessRuntime(tmp / "sessions"), "", "", 1000, 1000, Limits())


@contextmanager
def gated(site: Site, **settings: object) -> Iterator[None]:
    """A gate with these settings, at work."""
    gate = Gate.model_validate({"check": CHECK, **settings})
    upstream = site.reopen(gate=gate)
    with upstream.open_gate(checker(site, gate, site.base)).running():
        yield


@contextmanager
def closed(site: Site, **settings: object) -> Iterator[None]:
    """A gate that nobody works at."""
    site.reopen(gate=Gate.model_validate({"check": CHECK, "wait": 0.3, **settings}))
    yield


def on_main(site: Site, path: str) -> bool:
    return path in site.files()


def wait_for(met: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_green_lands_and_red_is_refused_with_its_lines(site: Site) -> None:
    with gated(site):
        one = site.agent(1)
        one.commit("good", src__good_DOT_txt="good\n")
        said = one.lands()
        assert "queued as 1" in said and "landed on main" in said
        one.commit("bad", src__bad_DOT_txt="this is BAD\n")
        said = one.refused()
        assert "src/bad.txt:1:this is BAD" in said and "log " in said, said
        assert not on_main(site, "src/bad.txt")
        log = Path(said.split("log ")[1].split(")")[0].split()[0])
        assert "this is BAD" in log.read_text()
    runs = site.events(Kind.GATE_RUN)
    assert [r.data["ok"] for r in runs] == [True, False, False]  # red is checked once more


def test_the_merged_result_is_checked_not_the_push(site: Site) -> None:
    with gated(site, check="! [ -f src/x.txt -a -f src/y.txt ]"):
        one, two = site.agent(1), site.agent(2)
        one.commit("x", src__x_DOT_txt="x")
        two.commit("y", src__y_DOT_txt="y")
        one.lands()
        two.refused()


def test_locks_and_tickets_never_wait(site: Site) -> None:
    with closed(site):
        one = site.agent(1)
        one.claim("fix_parser")
        one.commit_paths("A ticket", {"tasks/more.md": "# More\n"})
        assert "queued" not in one.lands()


def test_a_batch_lands_without_the_guilty(site: Site) -> None:
    with closed(site):
        agents = [site.agent(n) for n in range(1, 7)]
        for n, agent in enumerate(agents, 1):
            agent.commit("work", **{f"src__{n}_DOT_txt": "BAD\n" if n in (2, 5) else "good\n"})
            assert f"queued as {n}, not landed yet" in agent.refused()
    with gated(site):
        for n, agent in enumerate(agents, 1):
            done = agent.push()
            assert (done.returncode == 0) == (n not in (2, 5)), done.stderr
    assert {n for n in range(1, 7) if on_main(site, f"src/{n}.txt")} == {1, 3, 4, 6}
    landed = [e.data["subject"] for e in site.events(Kind.LANDING_DONE)]
    assert [s[-4:-1] for s in landed] == ["-01", "-03", "-04", "-06"]  # first come, first served
    assert len(site.events(Kind.GATE_RUN)) <= 16


def test_of_two_that_fail_together_the_later_is_refused(site: Site) -> None:
    with closed(site):
        one, two = site.agent(1), site.agent(2)
        one.commit("x", src__x_DOT_txt="x")
        two.commit("y", src__y_DOT_txt="y")
        one.refused()
        two.refused()
    with gated(site, check="! [ -f src/x.txt -a -f src/y.txt ]"):
        one.lands()
        two.refused()


def test_a_waiting_push_survives_pusher_and_restart_and_keeps_its_task(site: Site) -> None:
    with closed(site):
        one = site.agent(1, "s-1")
        one.claim("fix_parser")
        one.lands()
        one.commit("work", src__w_DOT_txt="good\n")
        one.refused()
        assert site.upstream.release("s-1", "agent-01", "its session ended") == []
        site.ended.add("s-1")
        site.upstream.settle()
        assert site.upstream.holder("fix_parser") is not None
        two = site.agent(2)
        two.claim("fix_parser", "mine")
        assert "held by agent-01" in two.refused()
        task = next(t for t in site.upstream.tasks() if t.name == "fix_parser")
        assert "push 1 queued" in task.push
        assert "held fix_parser agent-01, 0 min: Fix the parser [push 1 queued since 0 min]" in site.upstream.overview(
            "x"
        )
    with gated(site):
        wait_for(lambda: on_main(site, "src/w.txt") and site.upstream.holder("fix_parser") is None)
        heir = site.agent(1, "s-2")
        heir.commit_paths("A ticket", {"tasks/more.md": "# More\n"})
        assert "your push 1 (work) landed" in heir.lands()
        assert "push 1" not in heir.push().stderr  # told once


def test_a_refusal_reaches_the_next_holder_of_the_task(site: Site) -> None:
    with closed(site):
        one = site.agent(1, "s-1")
        one.claim("fix_parser")
        one.lands()
        one.commit("work", src__w_DOT_txt="BAD\n")
        one.refused()
        site.upstream.release("s-1", "agent-01", "its session ended")
    with gated(site):
        wait_for(lambda: site.upstream.holder("fix_parser") is None)
        task = next(t for t in site.upstream.tasks() if t.name == "fix_parser")
        assert "push 1 was refused" in task.push
        two = site.agent(2)
        two.claim("fix_parser")
        said = two.lands()
        assert "agent-01's push 1 (work) was refused" in said and "BAD" in said, said


def test_a_verdict_that_came_later_is_told_by_team_tasks_and_by_the_next_push(site: Site) -> None:
    with closed(site):
        one = site.agent(1, "s-1")
        one.commit("work", src__w_DOT_txt="BAD\n")
        one.refused()
        assert "note:" not in site.upstream.overview("s-1")
    with gated(site, wait=1):  # the last push finds nobody who checks
        wait_for(lambda: not site.upstream.waiting())
    for _ in range(2):  # to look is not to have heard
        told = site.upstream.overview("s-1")
        assert "note: your push 1 (work) was refused" in told and "src/w.txt:1:BAD" in told, told
    assert "your push 1 (work) was refused" in one.push().stderr
    assert "note:" not in site.upstream.overview("s-1")


def test_the_same_commit_joins_the_queue(site: Site) -> None:
    with closed(site):
        one = site.agent(1)
        one.commit("work", src__w_DOT_txt="good\n")
        one.refused()
        assert "queued as 1," in one.refused()
    assert len(site.upstream.waiting()) == 1
    with gated(site):
        one.lands()


def test_a_flaky_check_lands_and_is_called_flaky(site: Site) -> None:
    flag = site.base / "flag"
    with gated(site, check=f"[ -e {flag} ] || {{ touch {flag}; echo Error: flaked; exit 1; }}"):
        one = site.agent(1)
        one.commit("work", src__w_DOT_txt="good\n")
        assert "the check is flaky" in one.lands()
    assert len(site.events(Kind.GATE_FLAKY)) == 1


def test_claims_land_while_a_check_runs(site: Site) -> None:
    hold = site.base / "hold"
    hold.touch()
    with gated(site, check=f"while [ -e {hold} ]; do sleep 0.1; done"):
        one, two = site.agent(1), site.agent(2)
        one.commit("work", src__w_DOT_txt="good\n")
        with ThreadPoolExecutor(1) as pool:
            pushing = pool.submit(one.lands)
            wait_for(lambda: bool(site.upstream.waiting()))
            two.claim("fix_parser")
            two.lands()
            hold.unlink()
            pushing.result()
    assert len(site.events(Kind.GATE_RUN)) == 1  # the lock did not make it check again


def test_a_check_that_hangs_is_red(site: Site) -> None:
    with gated(site, check="sleep 60", timeout=0.6):
        one = site.agent(1)
        one.commit("work", src__w_DOT_txt="good\n")
        assert "took longer than 0.6 s" in one.refused()


def test_a_push_that_conflicts_when_its_turn_comes(site: Site) -> None:
    with closed(site):
        one, two = site.agent(1), site.agent(2)
        one.commit("one", src__a_DOT_txt="one\n")
        two.commit("two", src__a_DOT_txt="two\n")
        one.refused()
        two.refused()
    with gated(site):
        one.lands()
        assert "conflicts with main in src/a.txt" in two.refused()


@pytest.mark.parametrize("how", ["count", "junit"])
def test_fewer_tests_than_before_or_none_is_red(site: Site, how: str) -> None:
    junit = (
        "for f in src/*; do echo '<testcase >'; done >j.xml; [ -f src/z ] && echo '<testcase /><skipped/>' >j.xml; true"
    )
    how_many = {"count": r"(\d+) passed"} if how == "count" else {"junit": "j.xml"}
    count = "n=$(ls src | wc -l); [ -f src/z ] && n=0; echo $n passed"
    with gated(site, check=count if how == "count" else junit, **how_many):
        one = site.agent(1)
        one.commit("more", src__c_DOT_txt="c\n")
        one.lands()
        one.commit("fewer", src__c_DOT_txt=None)
        assert "the check ran 2 tests, 3 before; fewer may land by the person's own push only" in one.refused()
        one.git("reset", "-q", "--hard", "HEAD~1")
        one.commit("none", src__z="z\n")
        assert "the check ran no test" in one.refused()


def test_the_check_that_a_lock_names_must_fail_before_and_pass_after(site: Site) -> None:
    with gated(site):
        one = site.agent(1)
        one.claim("fix_parser", "check: sh tests/parser.sh\n")
        one.lands()
        done = {"current_tasks/fix_parser.txt": None, "tasks/fix_parser.md": None, "src/fixed.txt": "no\n"}
        one.commit_paths("Fix", {**done, "tests/parser.sh": "true\n"})
        assert "passes without this push too" in one.refused()
        one.commit_paths("Test it", {"tests/parser.sh": "grep yes src/fixed.txt\n"})
        assert "the task's own check fails" in one.refused()
        one.commit_paths("Really", {"src/fixed.txt": "yes\n"})
        one.lands()


@pytest.mark.parametrize("once", ["fails after", "passes before"])
def test_a_tasks_own_check_that_is_flaky_is_run_once_more(site: Site, once: str) -> None:
    flag = site.base / "flag"
    after = f"grep -q yes src/fixed.txt && {{ [ -e {flag} ] || {{ touch {flag}; false; }}; }}"
    before = f"grep -q yes src/fixed.txt || {{ [ ! -e {flag} ] && touch {flag}; }}"
    with gated(site):
        one = site.agent(1)
        one.claim("fix_parser", f"check: {after if once == 'fails after' else before}\n")
        one.lands()
        done = {"current_tasks/fix_parser.txt": None, "tasks/fix_parser.md": None, "src/fixed.txt": "yes\n"}
        one.commit_paths("Fix", done)
        assert "the check is flaky" in one.lands()
    assert len(site.events(Kind.GATE_FLAKY)) == 1


def test_pushes_of_many_at_once(site: Site) -> None:
    agents = [site.agent(n) for n in range(1, 9)]
    with gated(site, check=f"sleep 0.3; {CHECK}"):

        def push(item: tuple[int, Clone]) -> bool:
            n, agent = item
            agent.commit("work", **{f"src__{n}_DOT_txt": "BAD\n" if n == 3 else "good\n"})
            return agent.push().returncode == 0

        with ThreadPoolExecutor(8) as pool:
            landed = list(pool.map(push, enumerate(agents)))
    assert landed == [n != 3 for n in range(8)]
    assert threading.active_count() < 30


def test_a_red_main_is_told_from_a_bad_push(site: Site) -> None:
    site.person().commit("Break main", src__bad_DOT_txt="BAD\n")
    ann = Clone(site.base / "person", "Ann", "ann@example.org")
    ann.lands("origin", "HEAD:main")
    with gated(site):
        one = site.agent(1)
        one.commit("work", src__w_DOT_txt="good\n")
        assert "main fails it without this push too" in one.refused()
        one.commit("mend", src__bad_DOT_txt=None)
        one.lands()


def test_a_push_whose_objects_are_gone_does_not_block_the_others(site: Site) -> None:
    with closed(site):
        one, two = site.agent(1), site.agent(2)
        one.commit("one", src__x_DOT_txt="x")
        two.commit("two", src__y_DOT_txt="y")
        one.refused()
        shutil.rmtree(site.project.gate)
        two.refused()
    with gated(site):
        two.lands()
        one.lands()  # again, from the start


def test_a_persons_push_is_checked_by_its_own_process_where_no_team_runs(site: Site) -> None:
    (site.project.state / "project.json").write_text(json.dumps({"root": str(site.project.root)}))
    (site.project.root / "team.toml").write_text(f"[gate]\ncheck = '{CHECK}'\nwait = 0.1\n")
    site.ledger.append(Kind.TEAM_STARTED, runtime="process", image="")
    ann = site.source
    ann.git("config", "remote.team.url", str(site.project.upstream))
    ann.git("config", "remote.team.receivepack", f"{sys.executable} -m team.upstream.receive_pack")

    def push() -> subprocess.CompletedProcess[str]:
        env = environment() | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(site.base)}
        argv = ["git", "push", "team", "HEAD:refs/for/main"]
        return subprocess.run(argv, cwd=ann.path, env=env, capture_output=True, text=True)

    ann.commit("mine", src__mine_DOT_txt="good\n")
    done = push()
    assert done.returncode == 0 and "queued as 1" in done.stderr, done.stderr
    ann.commit("worse", src__mine_DOT_txt="BAD\n")
    done = push()
    assert done.returncode != 0 and "src/mine.txt:1:BAD" in done.stderr, done.stderr


def test_code_in_a_directory_named_tasks_waits_like_any_other(site: Site) -> None:
    with closed(site):
        one = site.agent(1)
        one.commit_paths("Code beside the tickets", {"tasks/email.py": "BAD\n"})
        assert "queued as 1" in one.refused()
        assert not on_main(site, "tasks/email.py")
    with gated(site, check="! grep -rn BAD tasks"):
        assert "tasks/email.py:1:BAD" in one.refused()
        one.git("reset", "-q", "--hard", "HEAD~1")
        one.commit_paths("Code beside the tickets", {"tasks/email.py": "good\n"})
        one.lands()
    assert on_main(site, "tasks/email.py")


def test_what_landed_before_a_crash_is_not_refused_after_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(BaseException):
        """As if the process had been killed here."""

    def crash(*args: object, **more: object) -> None:
        raise Crash

    with closed(site):
        one = site.agent(1)
        one.commit("work", src__n_DOT_txt="n")
        one.refused()
    flaky = site.base / "flaky"
    gate = Gate(check=f"[ ! -e {flaky} ]")
    with monkeypatch.context() as patch:
        patch.setattr(Queue, "decide", crash)
        with pytest.raises(Crash):
            site.reopen(gate=gate).open_gate(checker(site, gate, site.base)).round()
    assert on_main(site, "src/n.txt")
    flaky.touch()
    upstream = site.reopen(gate=gate)
    upstream.settle()
    upstream.open_gate(checker(site, gate, site.base)).round()
    assert not upstream.waiting() and [e.data["landed"] for e in site.events(Kind.PUSH_VERDICT)] == [True]


def test_what_main_put_back_meanwhile_is_protected_still(site: Site) -> None:
    person, one = site.person(), site.agent(1)
    person.commit_paths("b", {"Dockerfile": "FROM b\n"})
    person.lands()
    one.commit_paths("The same, and work", {"Dockerfile": "FROM b\n", "src/n.txt": "n\n"})
    with closed(site):
        assert "queued as 1" in one.refused()  # main has that Dockerfile
    site.reopen()
    person.pull()
    person.commit_paths("back", {"Dockerfile": None})
    person.lands()
    gate = Gate(check="true")
    site.reopen(gate=gate).open_gate(checker(site, gate, site.base)).round()
    assert not on_main(site, "Dockerfile")
    assert "would change Dockerfile" in site.events(Kind.PUSH_VERDICT)[0].data["reason"]


def test_a_claim_that_lands_after_its_session_ended_is_free_at_once(site: Site) -> None:
    with closed(site):
        one = site.agent(1, "s-1")
        one.commit_paths("Claim and work", {"current_tasks/fix_parser.txt": "me\n", "src/n.txt": "n\n"})
        one.refused()
        site.ended.add("s-1")
        assert site.upstream.release("s-1", "agent-01", "its session ended") == []
    with gated(site):
        wait_for(lambda: on_main(site, "src/n.txt") and not site.upstream.waiting())
        wait_for(lambda: site.upstream.holder("fix_parser") is None)
    assert [e.kind for e in site.events(Kind.CLAIM, Kind.RELEASE)] == ["claim", "release"]
    assert "current_tasks/fix_parser.txt" not in site.files()
