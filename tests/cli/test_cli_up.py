"""``team up`` and ``team down``: what is refused, what is only looked at, and a small team of plain commands."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from team.config import Settings, UserSettings
from team.errors import TeamError
from team.launch import Wishes, check_money, costs_money, differs, make_plan
from team.ledger import Event, Kind, Ledger
from team.places import Project, find_project
from team.running import running_pid
from team.supervisor import gateway_of

from .conftest import CommandLine, git

SLEEPER = ("--runtime", "process", "--", "sh", "-c", "echo at work; sleep 60")
QUICK = ("--runtime", "process", "--sessions", "1", "--", "sh", "-c", "cat >prompt.txt; echo at work")


def nothing_made(root: Path) -> bool:
    return not any((root / name).exists() for name in (".team", "agent_logs")) and not (root.parent / "state").exists()


# -- bad input ------------------------------------------------------------------------------------------------------


def test_not_a_repository(team: CommandLine, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for verb in (["up"], ["ps"], ["down"], ["logs"], ["tasks"], ["task", "add", "Fix it all"], ["rehearse"]):
        assert "is not in a git repository" in team.refused(*verb, cwd=elsewhere)


def test_no_commits(team: CommandLine, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "--quiet")
    assert "no commits" in team.refused("up", "--yes", cwd=empty)
    assert nothing_made(empty)


def test_bare_repository(team: CommandLine, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    assert "bare repository" in team.refused("up", cwd=tmp_path / "bare.git")


def test_dirty_tree(team: CommandLine, root: Path) -> None:
    (root / "README.md").write_text("changed\n")
    assert "not committed: README.md" in team.refused("up", "--yes", *SLEEPER)
    assert nothing_made(root)
    assert (root / "README.md").read_text() == "changed\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--role", "nope"], "unknown role 'nope'; known: "),
        (["--role", "review:0"], "--role review"),
        (["--role", "review:9999"], "at most 512"),
        (["--client", "gpt"], "'gpt' is not one of 'claude-code', 'codex', 'opencode', 'builtin', 'command'"),
        (["--client", "command"], "team up --client command -- ARGV"),
        (["--client", "claude-code", "--", "sh"], "leave one of the two out"),
        (["--runtime", "process"], "containers only"),
        (["--runtime", "podman"], "is not one of"),
        (["--agents", "0"], "0 is not in the range"),
        (["--agents", "many"], "not a valid integer"),
        (["--for", "3 parsecs"], "a time is a number with s, m, h or d"),
        (["--for", "0"], "more than 0"),
        (["--sessions", "0"], "0 is not in the range"),
        (["--model", ""], "it is empty"),
    ],
)
def test_bad_flags(team: CommandLine, root: Path, args: list[str], words: str) -> None:
    assert words in team.refused("up", *args)
    assert nothing_made(root)


def test_broken_team_toml(team: CommandLine, root: Path) -> None:
    (root / "team.toml").write_text("agents = 2\n[session]\nmemory = 'lots'\n")
    message = team.refused("up")
    assert message.startswith("team.toml:3: session.memory: ")
    assert nothing_made(root)


def test_no_key(team: CommandLine, root: Path) -> None:
    message = team.refused("up", "--yes")
    assert "set ANTHROPIC_API_KEY" in message and "team rehearse" in message
    assert nothing_made(root)


def test_a_real_key_needs_a_budget_or_yes(team: CommandLine, root: Path) -> None:
    message = team.refused("up", "--agents", "3", ANTHROPIC_API_KEY="sk-ant-not-a-real-key")
    assert "no budget: 3 seats would spend at api.anthropic.com" in message
    assert "--yes" in message and "--budget 20" in message
    assert "sk-ant" not in message
    assert nothing_made(root)


def test_no_engine_never_falls_back(team: CommandLine, root: Path) -> None:
    env = {"DOCKER_HOST": "unix:///nowhere/docker.sock", "ANTHROPIC_API_KEY": "sk-ant-not-a-real-key"}
    message = team.refused("up", "--yes", **env)
    assert "docker" in message.lower()
    assert nothing_made(root)


def test_state_inside_the_work_tree(team: CommandLine, root: Path) -> None:
    for verb in (["up", *QUICK], ["task", "add", "Fix it all"], ["rehearse", "--runtime", "process"]):
        message = team.refused(*verb, XDG_STATE_HOME=str(root / "state"))
        assert message.endswith("set XDG_STATE_HOME to a place outside")
    assert nothing_made(root) and not (root / "state").exists()


def test_state_at_another_place_than_before(team: CommandLine, root: Path, project: Project, tmp_path: Path) -> None:
    now = tmp_path / "new home"
    for verb in (["up", *QUICK], ["ps"], ["down"]):
        message = team.refused(*verb, XDG_STATE_HOME=str(now))
        assert (
            f"set XDG_STATE_HOME={tmp_path}/state as it was, or move the state: `mkdir -p '{now}/team' && mv "
            in message
        )
    [move] = [part for part in message.split("`") if part.startswith("mkdir")]
    subprocess.run(["sh", "-c", move], check=True)
    assert team("task", "add", "Fix it all", XDG_STATE_HOME=str(now)).code == 0
    assert (root / "agent_logs").readlink() == now / "team" / project.id / "logs"


# -- the plan -------------------------------------------------------------------------------------------------------


def test_flags_override_team_toml(root: Path) -> None:
    settings = Settings(agents=2, roles=("docs",), model="a", client="claude-code")
    plan = make_plan(root, settings, UserSettings(), Wishes(), {"ANTHROPIC_API_KEY": "k"})
    assert [s.name for s in plan.seats] == ["agent-01", "agent-02", "docs-01"]
    assert (plan.model, plan.key is not None, costs_money(plan)) == ("a", True, True)
    wishes = Wishes(agents=1, roles=("review:2",), model="b")
    plan = make_plan(root, settings, UserSettings(), wishes, {})
    assert [s.name for s in plan.seats] == ["agent-01", "review-01", "review-02"]
    assert (plan.model, plan.key) == ("b", None)


@pytest.mark.parametrize(
    ("url", "costs"),
    [
        ("https://api.anthropic.com", True),
        ("http://127.0.0.1:8080", False),
        ("http://[::1]:1/v1", False),
        ("http://localhost:1", False),
        ("http://localhost.evil.example", True),
        ("http://10.0.0.1", True),
    ],
)
def test_a_model_on_this_machine_costs_nothing(root: Path, url: str, costs: bool) -> None:
    user = UserSettings.model_validate({"gateway": {"base_url": url}})
    assert costs_money(make_plan(root, Settings(), user, Wishes(), {})) is costs


def test_a_command_that_needs_no_model_costs_nothing(root: Path) -> None:
    assert not costs_money(make_plan(root, Settings(), UserSettings(), Wishes(argv=("true",)), {}))


@pytest.mark.parametrize(
    ("wishes", "environ", "url"),
    [
        (Wishes(), {"ANTHROPIC_API_KEY": "k"}, ""),  # nobody said what it may cost
        (Wishes(budget=5.0), {}, ""),
        (Wishes(budget=5.0), {"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com"),
        (Wishes(budget=5.0), {"OPENAI_API_KEY": "k"}, "https://api.openai.com"),
        (Wishes(yes=True), {"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com"),
    ],
)
def test_a_command_has_a_model_where_it_was_paid_for(
    root: Path, wishes: Wishes, environ: dict[str, str], url: str
) -> None:
    plan = make_plan(root, Settings(), UserSettings(), replace(wishes, argv=("true",)), environ)
    assert plan.model_url == url


def test_a_command_has_a_model_that_costs_nothing(root: Path) -> None:
    user = UserSettings.model_validate({"gateway": {"base_url": "http://127.0.0.1:8080"}})
    plan = make_plan(root, Settings(), user, Wishes(argv=("true",)), {"OPENAI_API_KEY": "k"})
    assert (plan.model_url, plan.may_pay) == ("http://127.0.0.1:8080", False)
    with closing(Ledger(root / ".git" / "l.db")) as ledger:
        asked = [provider.base_url for provider in gateway_of(plan, ledger)._providers]
    assert asked == ["http://127.0.0.1:8080"], "a provider that costs money can be asked"


def test_the_key_is_the_one_of_the_models_provider(root: Path) -> None:
    keys = {"ANTHROPIC_API_KEY": "a"}
    settings = Settings(client="opencode", models={"review": "openai/gpt-5.5"})
    plan = make_plan(root, settings, UserSettings(), Wishes(), keys)
    assert (plan.model_url, plan.key is not None) == ("https://api.anthropic.com", True)
    plan = make_plan(root, settings, UserSettings(), Wishes(roles=("review",)), keys)
    assert (plan.model_url, plan.key) == ("https://api.openai.com", None)
    with pytest.raises(TeamError, match="set OPENAI_API_KEY"):
        check_money(plan)
    with closing(Ledger(root / ".git" / "l.db")) as ledger:
        assert gateway_of(plan, ledger)._settings.models == {"review": "gpt-5.5"}, "requests name it without a prefix"


def test_a_model_whose_name_only_the_client_knows_cannot_be_enforced(root: Path) -> None:
    with pytest.raises(TeamError, match=r"models\.review: .*'opus'.* whole name"):
        make_plan(root, Settings(models={"review": "opus"}), UserSettings(), Wishes(), {})


def test_a_model_without_a_price_is_said_before_the_start(root: Path) -> None:
    plan = make_plan(root, Settings(model="new-model"), UserSettings(), Wishes(budget=5.0), {"ANTHROPIC_API_KEY": "k"})
    with pytest.raises(TeamError, match=r"gateway\.prices.\"new-model\""):
        check_money(plan)


def test_the_flags_of_the_background_are_those_of_the_person(root: Path) -> None:
    wishes = Wishes(
        agents=2, roles=("docs", "review:2"), sessions=1, seconds=60.0, until_idle=True, argv=("sh", "-c", "x")
    )
    assert wishes.flags() == [
        *("--agents=2", "--sessions=1", "--for=60.0", "--runtime=docker", "--role=docs", "--role=review:2"),
        *("--until-idle", "--", "sh", "-c", "x"),
    ]


@pytest.mark.parametrize(
    ("wishes", "flag"),
    [
        (Wishes(), None),
        (Wishes(agents=2), None),
        (Wishes(agents=2, roles=("review",)), None),
        (Wishes(roles=("review:1",)), None),
        (Wishes(agents=3), "--agents 3"),
        (Wishes(roles=("docs",)), "--role docs"),
        (Wishes(roles=("review:2",)), "--role review:2"),
        (Wishes(client="command"), "--client command"),
        (Wishes(model="x"), "--model x"),
    ],
)
def test_what_a_second_up_may_ask_for(wishes: Wishes, flag: str | None) -> None:
    seats = [["agent-01", "worker"], ["agent-02", "worker"], ["review-01", "review"]]
    started = Event(1, 0, Kind.TEAM_STARTED, None, None, None, {"seats": seats, "client": "claude-code", "model": None})
    assert differs(started, wishes) == flag


# -- only looking ---------------------------------------------------------------------------------------------------


def test_dry_run_prints_containers_and_prompt_and_makes_nothing(team: CommandLine, root: Path) -> None:
    shown = team("up", "--agents", "2", "--dry-run", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert shown.code == 0, shown
    assert "2 seats (2 worker), client claude-code" in shown.out
    text = shown.out[shown.out.index("{\n") :]
    settings, _ = json.JSONDecoder().raw_decode(text)
    assert settings["HostConfig"]["NetworkMode"] == "none"
    assert "prompt of agent-01, on its standard input" in shown.out and "current_tasks/" in shown.out
    assert nothing_made(root)


def test_dry_run_as_json_has_every_seat(team: CommandLine, root: Path) -> None:
    seats = team("up", "--agents", "1", "--role", "review:2", "--dry-run", "--json").json["seats"]
    assert [s["agent"] for s in seats] == ["agent-01", "review-01", "review-02"]
    assert all(s["container"] and s["prompt"] for s in seats)
    assert nothing_made(root)


# -- a small team ---------------------------------------------------------------------------------------------------


def wait_for(what: str, check: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)


@pytest.fixture
def ended(team: CommandLine) -> Iterator[None]:
    """Whatever a test starts in the background is stopped after it."""
    yield
    assert team("down", "--now").code == 0


def found(root: Path) -> Project:
    project = find_project(root)
    assert project is not None
    return project


def test_up_runs_to_its_end_and_says_what_happened(team: CommandLine, root: Path) -> None:
    ran = team("up", "--agents", "2", *QUICK)
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[0].startswith("team ") and "2 seats (2 worker), client command: sh -c" in lines[0]
    for words in (
        "project  ",
        "upstream ",
        "runtime  process",
        "as       uid ",
        "limits   ",
        "ends     after 1 session",
    ):
        assert any(line.startswith(words) for line in lines), words
    assert any("agent-01: session 1 starts" in line for line in lines)
    assert any("agent-02: session ended: done" in line for line in lines)
    assert any(line.endswith("team: stopped: done") for line in lines)
    assert any("2 sessions" in line and "2 done" in line for line in lines)
    assert "\x1b" not in ran.out
    assert "| at work" in team("logs").out
    again = team("up", "--agents", "1", *QUICK)
    assert any("agent-01: session 2 starts" in line for line in again.out.splitlines())


def test_when_every_session_failed_the_exit_code_says_so(team: CommandLine, root: Path) -> None:
    fails = ("--agents", "1", "--runtime", "process", "--sessions", "1", "--", "sh", "-c", "exit 3")
    ran = team("up", *fails)
    assert (ran.code, ran.err) == (1, "team: 1 session and all failed (agent-01: exit 3); `team logs` shows why\n")
    lines = [line[9:] for line in ran.out.splitlines()]
    assert lines.index("agent-01: session ended: failed, 0 landings, 0 s: exit 3") < lines.index("team: stopped: done")
    ran = team("up", "--json", *fails)
    assert ran.code == 1 and "all failed" in ran.err


def test_a_run_leaves_no_directory_of_doors(team: CommandLine, root: Path) -> None:
    team("up", "--agents", "1", *QUICK)
    doors = found(root).doors
    assert not doors.exists()
    doors.mkdir(parents=True)  # as one that was killed leaves it
    assert team("down").out == "nothing runs\n"
    assert not doors.exists()


def test_down_without_an_engine_says_what_it_cannot_know(team: CommandLine, project: Project, ledger: Ledger) -> None:
    nowhere = "unix:///nowhere/docker.sock"
    ledger.append(Kind.TEAM_STARTED, seats=[], client="command", runtime="docker", image="x")
    message = team.refused("down", DOCKER_HOST=nowhere)
    assert "no session is open, but the engine does not answer" in message and "start it and run this again" in message
    ledger.append(Kind.TEAM_STOPPED, reason="done")
    assert team("down", DOCKER_HOST=nowhere).out == "nothing runs\n"


def test_up_as_json_is_a_line_per_event(team: CommandLine, root: Path) -> None:
    ran = team("up", "--agents", "1", "--json", *QUICK)
    kinds = [json.loads(line)["kind"] for line in ran.out.splitlines()]
    assert kinds[0] == "team.started" and kinds[-1] == "team.stopped" and "session.ended" in kinds
    assert ran.err.startswith("team ")


def test_detached_joined_scaled_and_stopped(team: CommandLine, root: Path, ended: None) -> None:
    started = team("up", "--agents", "1", "-d", *SLEEPER)
    assert started.code == 0, started
    assert "started in the background (pid " in started.out and "supervisor.log" in started.out
    project = found(root)
    pid = running_pid(project)
    assert pid is not None and f"(pid {pid})" in started.out
    wait_for("the log", lambda: "at work" in team("logs").out)

    assert "already runs" in team("up", "-d").out
    message = team.refused("up", "--agents", "3")
    assert "`team down`, then `team up --agents 3`" in message

    view = subprocess.Popen(
        team.argv("up"), cwd=root, env=team.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert view.stdout is not None
    assert "ctrl-c leaves this view only" in view.stdout.readline()
    view.send_signal(signal.SIGINT)
    assert "the team goes on" in view.communicate(timeout=10)[0]
    assert view.returncode == 0
    assert running_pid(project) == pid

    down = team("down", "--now")
    assert down.code == 0 and "the team stopped after" in down.out
    assert running_pid(project) is None
    assert team("down").out == "nothing runs\n"
    assert "session 1 starts" in (project.state / "supervisor.log").read_text()


def session_runs(root: Path) -> bool:
    project = find_project(root)
    if project is None or not project.ledger.exists():
        return False
    with closing(Ledger(project.ledger)) as ledger:
        return ledger.last(Kind.SESSION_RUNNING) is not None


def test_ctrl_c_once_gives_time_to_land_and_twice_ends_now(team: CommandLine, root: Path, ended: None) -> None:
    process = subprocess.Popen(
        team.argv("up", "--agents", "1", *SLEEPER), cwd=root, env=team.env, stdout=subprocess.PIPE, text=True
    )
    wait_for("the session", lambda: session_runs(root))
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    stopping = next(line for line in lines if "stopping" in line)
    assert "stopping: ctrl-c; sessions have 2 min to land, ctrl-c again ends them now" in stopping
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=30)[0]
    assert "session ended: killed" in rest and "stopped: ctrl-c" in rest
    assert process.returncode == 0


def test_ctrl_c_while_down_waits_ends_sessions_now(team: CommandLine, root: Path, ended: None) -> None:
    team("up", "--agents", "1", "-d", *SLEEPER)
    wait_for("the session", lambda: session_runs(root))
    down = subprocess.Popen(team.argv("down"), cwd=root, env=team.env, stdout=subprocess.PIPE, text=True)
    assert down.stdout is not None
    assert down.stdout.readline() == "stopping; sessions have 2 min to land, ctrl-c ends them now\n"
    down.send_signal(signal.SIGINT)
    rest = down.communicate(timeout=30)[0]
    assert down.returncode == 0 and "ending the sessions now" in rest and "the team stopped after" in rest


def test_a_view_ends_with_its_team(team: CommandLine, root: Path, ended: None) -> None:
    team("up", "--agents", "1", "-d", *SLEEPER)
    view = subprocess.Popen(team.argv("up"), cwd=root, env=team.env, stdout=subprocess.PIPE, text=True)
    assert view.stdout is not None
    view.stdout.readline()
    team("down", "--now")
    rest, _ = view.communicate(timeout=15)
    assert view.returncode == 0 and "stopped: team down" in rest


def test_down_ends_what_a_killed_supervisor_left(team: CommandLine, root: Path, ended: None) -> None:
    team("up", "--agents", "1", "-d", *SLEEPER)
    project = found(root)
    wait_for("the session", lambda: session_runs(root))
    pid = running_pid(project)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for("the lock", lambda: running_pid(project) is None)
    down = team("down")
    assert down.code == 0 and "1 session may be left" in down.out, down
    assert team("ps", "--json").json["left_over"] == []
    assert team("down").out == "nothing runs\n"


def test_detached_fails_with_the_childs_last_line(team: CommandLine, root: Path, ended: None) -> None:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as run:  # short: it is for sockets
        Path(run, "team").symlink_to(root)  # somebody was there first: no socket is put there
        result = team("up", "--agents", "1", "-d", *SLEEPER, XDG_RUNTIME_DIR=run)
    assert result.code == 2, result
    last = result.err.splitlines()[-1]
    assert last.startswith("team: ") and "belongs to somebody else" in last and "supervisor.log)" in last


def test_down_where_nothing_ever_ran(team: CommandLine, root: Path) -> None:
    down = team("down")
    assert (down.code, down.out) == (0, "nothing runs; this project has no team yet\n")
    assert nothing_made(root)


def test_landings_not_pulled_are_told(team: CommandLine, root: Path) -> None:
    team("task", "add", "Fix the parser")
    told = "1 landing not in your branch yet: `team pull`"
    assert told in team("down").out and told in team("ps").out
    assert team("ps", "--json").json["to_pull"] == 1


def test_a_live_table_in_a_terminal(team: CommandLine, root: Path, ended: None) -> None:
    (root / "team.toml").write_text('[session]\nland_time = "0s"\n')
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        team.argv("up", "--agents", "1", "--for", "3s", *SLEEPER),
        cwd=root,
        env=team.env | {"TERM": "xterm-256color", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode()
    for words in ("AGENT", "LAST LINE", "agent-01", "at work", "stopped: time is up"):
        assert words in text


def test_wishes_that_contradict_team_toml(root: Path) -> None:
    settings = Settings.model_validate({"client": "command", "command": {"argv": ["my-agent"]}})
    plan = make_plan(root, settings, UserSettings(), Wishes(), {})
    assert (plan.client, plan.client_argv, plan.model_url) == ("command", ("my-agent",), "")
    with pytest.raises(TeamError, match="which command"):
        make_plan(root, Settings(client="command"), UserSettings(), Wishes(), {})


# -- in containers --------------------------------------------------------------------------------------------------


@pytest.mark.engine
def test_down_removes_caches_when_asked(
    team: CommandLine, root: Path, engine: docker.APIClient, agent_image: str
) -> None:
    (root / "team.toml").write_text('[session]\ncache = ["/home/agent/.cache"]\n')
    ran = team("up", "--agents", "1", "--sessions", "1", "--", "sh", "-c", "touch ~/.cache/x && echo kept")
    assert ran.code == 0 and f"docker, image {agent_image}" in ran.out, ran
    assert "session ended: done" in ran.out

    def volumes() -> list[str]:
        return [v["Name"] for v in engine.volumes()["Volumes"] or [] if found(root).id in v["Name"]]

    assert len(volumes()) == 1
    assert team("down").out == "nothing runs\n"
    assert len(volumes()) == 1
    assert "removed 1 cache volume" in team("down", "--volumes").out
    assert volumes() == []
