"""``make demo``, and ``team rehearse`` on the user's own project: the whole system, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from team import config_file, prompt
from team.config import Budget
from team.errors import TeamError
from team.git import line
from team.ledger import Event, Kind, Ledger
from team.places import Project, state_home
from team.plan import Plan, seats
from team.rehearsal import project as demo
from team.rehearsal.demo_script import DemoScript
from team.rehearsal.model import ScriptedModel
from team.rehearsal.own_script import TEST_SECONDS, OwnScript
from team.rehearsal.report import DemoReport, OwnReport, demo_report, own_report

Say = Callable[[str], None]

REAL = ("claude-code", "codex", "opencode", "builtin")
"""Clients that a scripted model can lead."""
DEMO_SECONDS = 900.0
"""The demo takes about a minute; a demo that takes this long has failed."""
OWN_SECONDS = TEST_SECONDS + 600
_TOLD = (
    Kind.CLAIM,
    Kind.PUSH_REFUSED,
    Kind.LANDING_DONE,
    Kind.RESCUE_SAVED,
    Kind.RUNTIME_LOST,
    Kind.ERROR,
    Kind.TEAM_IDLE,
)


@click.command()
@click.option("--agents", type=click.IntRange(1, 16), default=4, show_default=True)
@click.option("--runtime", type=click.Choice(["docker", "process"]), help="By default docker where an engine answers.")
@click.option("--client", type=click.Choice([*REAL, "stand-in"]), help="claude-code in docker by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON; progress goes to standard error.")
def main(agents: int, runtime: str | None, client: str | None, as_json: bool) -> None:
    """Run a team of agents on a demo project with a scripted model: no key, no cost, nothing of yours is touched."""

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    try:
        report = run_demo(agents=agents, runtime=runtime, client=client, say=say)
    except TeamError as error:
        click.echo(f"team: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        say("")
        for text in report.lines():
            say(text)
    sys.exit(0 if report.ok else 1)


class RehearsalFailed(TeamError):
    """The rehearsal came to its end, but not to a good one; its state is kept in ``state``."""

    def __init__(self, report: OwnReport, project: Project) -> None:
        super().__init__(
            f"the rehearsal failed; logs: {project.logs}; when done with them: rm -r {shlex.quote(str(project.state))}"
        )
        self.report, self.state = report, project.state


def run_demo(*, agents: int, runtime: str | None, client: str | None, say: Say) -> DemoReport:
    """Run ``agents`` on a new demo project until they are idle. The project and its state are kept."""
    from team import worktree

    runtime = runtime or _pick_runtime(say)
    client = client or _real_where_contained("claude-code", runtime)
    began = time.monotonic()
    root = demo.make(Path(tempfile.mkdtemp(prefix="team-demo-")) / "abacus")
    plan = _plan(root, agents, client, runtime, say)
    project = worktree.open_project(root)
    base = line("rev-parse", "main", at=project.upstream)
    say(f"{agents} agents ({client}) work on {root}; a scripted model answers, so nothing is spent")
    plan = replace(plan, until_idle=True, seconds=DEMO_SECONDS)
    asyncio.run(_run(project, plan, ScriptedModel(DemoScript(), gather=agents), say))
    with closing(Ledger(project.ledger)) as ledger:
        took = time.monotonic() - began
        return demo_report(project, ledger, base, seconds=took, agents=agents, client=client, runtime=runtime)


def rehearse(root: Path, *, agents: int, client: str, runtime: str, say: Say) -> OwnReport:
    """Let each agent claim, run the test command, land and release, on a throw-away copy of the project at ``root``.

    Uses the commit that is checked out; neither the work tree nor its upstream is touched. The copy is removed,
    but kept for a look where the rehearsal failed: then :class:`RehearsalFailed` says where it is.
    """
    from team.upstream.upstream import Upstream

    chosen = _real_where_contained(client, runtime)
    if chosen != client:
        say(f"the small stand-in client plays the agents: a scripted model cannot lead {client} here")
    plan = replace(_plan(root, agents, chosen, runtime, say), sessions=1, seconds=OWN_SECONDS)
    name = f"rehearsal-{os.urandom(4).hex()}"
    project = Project(root=root, id=name, state=state_home() / name)
    project.logs.mkdir(parents=True, mode=0o700)
    project.state.chmod(0o700)
    began = time.monotonic()
    try:
        base = line("rev-parse", "--verify", "HEAD^{commit}", at=root)
        Upstream.create(project, root, base)
        test = prompt.about_tests(root, plan.settings.test)["test_command"]
        asyncio.run(_run(project, plan, ScriptedModel(OwnScript(test)), say))
        with closing(Ledger(project.ledger)) as ledger:
            report = own_report(
                project,
                ledger,
                base,
                agents=[seat.name for seat in plan.seats],
                test=test,
                seconds=time.monotonic() - began,
                client=chosen,
                runtime=runtime,
            )
    except BaseException:
        say(f"what was there until then: {project.state}")
        raise
    _remove_caches(project, plan)
    for text in report.lines():
        say(text)
    if not report.ok:
        raise RehearsalFailed(report, project)
    shutil.rmtree(project.state)
    shutil.rmtree(project.doors, ignore_errors=True)
    return report


def _pick_runtime(say: Say) -> str:
    """Docker where an engine answers, else plain processes, with a warning."""
    from team.runtimes import EngineLost, runtime

    try:
        runtime("docker").found("nobody")
    except (EngineLost, TeamError) as error:
        say(f"no container engine answers ({error})")
        say(
            "WARNING: this rehearsal runs its agents as plain processes, without isolation; `team up` does so "
            "only where --runtime process asks for it"
        )
        return "process"
    return "docker"


def _real_where_contained(client: str, runtime: str) -> str:
    """Real clients run in containers only, but for our own; what a user's own command does cannot be scripted."""
    contained = client in REAL and runtime == "docker"
    return client if contained or client == "builtin" else "stand-in"


def _plan(root: Path, agents: int, client: str, runtime: str, say: Say) -> Plan:
    """A plan with a key that is worth nothing; builds the image where it is missing."""
    from team.launch import with_image

    plan = Plan(
        seats=seats(agents, (), {}),
        settings=config_file.load(root),
        tree=root,
        client=client,
        runtime=runtime,
        image="",
        spending=Budget(),  # nothing is spent
        uid=os.getuid() or 1000,
        gid=os.getgid() or 1000,
    )
    return with_image(plan, say)


async def _run(project: Project, plan: Plan, model: ScriptedModel, say: Say) -> None:
    """Supervise ``plan`` with ``model`` beside it, telling what happens with the seconds since the start."""
    from team.supervisor import supervise
    from team.view import describe

    began = time.monotonic()

    def tell(event: Event) -> None:
        text = describe(event) if event.kind in _TOLD else None
        if text is not None:
            say(f"{time.monotonic() - began:5.1f} s  {text}")

    async with model.running() as url:
        await supervise(project, replace(plan, model_url=url), on_event=tell)


def _remove_caches(project: Project, plan: Plan) -> None:
    """Volumes of ``[session] cache`` outlive sessions; those of a rehearsal do not."""
    from team.runtimes import runtime
    from team.supervisor import specs

    engine = runtime(plan.runtime)
    for name in {name for spec in specs(project, plan) for name in spec.caches.values()}:
        engine.remove_volume(name)


if __name__ == "__main__":
    main()
