"""From what a person wished on the command line to a plan, its first lines, and a team in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import click

from team import __version__, git
from team.clients import Api, Client
from team.config import Budget, Limit, Policy, Settings, UserSettings
from team.containers import reachable
from team.errors import TeamError
from team.gateway.hosts import within
from team.gateway.providers import is_loopback
from team.ledger import Event, Kind, Ledger
from team.names import agent_email
from team.places import Project, state_home
from team.plan import Plan, seats
from team.text import one_line
from team.view import plural, span


@dataclass(frozen=True)
class Wishes:
    """The flags of ``team up``; None and empty mean that ``team.toml`` decides."""

    agents: int | None = None
    roles: tuple[str, ...] = ()
    client: str | None = None
    model: str | None = None
    argv: tuple[str, ...] = ()
    sessions: int | None = None
    seconds: float | None = None
    until_idle: bool = False
    runtime: str = "docker"
    budget: float | None = None
    """US dollars for the team, in all."""
    yes: bool = False

    def flags(self) -> list[str]:
        """The command line that says the same."""
        words: list[str] = []
        for flag, value in (
            ("--agents", self.agents),
            ("--client", self.client),
            ("--model", self.model),
            ("--sessions", self.sessions),
            ("--for", self.seconds),
            ("--runtime", self.runtime),
            ("--budget", self.budget),
        ):
            if value is not None:
                words.append(f"{flag}={value}")
        words += [f"--role={role}" for role in self.roles]
        words += ["--until-idle"] * self.until_idle + ["--yes"] * self.yes
        return [*words, "--", *self.argv] if self.argv else words


class StartFailed(TeamError):
    """The team in the background ended before it had started; ``exit_code`` is its own."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


MOST_SEATS = 512
LOG_KEPT = 10 << 20
"""Bytes of ``supervisor.log`` after which a new start begins a new one and keeps the old beside it."""


def make_plan(root: Path, settings: Settings, user: UserSettings, wishes: Wishes, environ: Mapping[str, str]) -> Plan:
    """The plan of what ``wishes`` and ``settings`` ask for; its image may still have to be built.

    Raises :class:`TeamError` for an unknown role, client or runtime, and for flags that contradict each other.
    """
    from team import images, prompt
    from team.clients import client
    from team.runtimes import RUNTIMES

    within(settings.network, user.network)
    name = wishes.client or ("command" if wishes.argv else settings.client)
    if wishes.argv and name != "command":
        raise TeamError(f"a command after -- is for --client command, not {name}; leave one of the two out")
    argv = (wishes.argv or settings.command.argv) if name == "command" else ()
    if name == "command" and not argv:
        raise TeamError("say which command: `team up --client command -- ARGV`, or [command] argv in team.toml")
    chosen = client(name, argv)
    if settings.policy != Policy() and name != "builtin":
        raise TeamError(
            f"team.toml: policy: only the client builtin keeps it, not {name}; remove [policy], or use --client builtin"
        )
    if wishes.runtime not in RUNTIMES:
        raise TeamError(f"unknown runtime {wishes.runtime!r}; known: {', '.join(RUNTIMES)}")
    if wishes.runtime == "process" and chosen.needs_model:
        raise TeamError(f"{name} runs in containers only: as a process it could do whatever you can; --runtime docker")
    prompts = prompt.load(root)
    chairs = seats(wishes.agents or settings.agents, wishes.roles or settings.roles, prompts.roles)
    if len(chairs) > MOST_SEATS:
        raise TeamError(f"{len(chairs)} seats are too many for one machine; at most {MOST_SEATS}")
    prompts.check({seat.role for seat in chairs})
    plan = Plan(
        seats=chairs,
        settings=settings,
        tree=root,
        client=name,
        runtime=wishes.runtime,
        image="" if wishes.runtime == "process" else images.plan(chosen.image, settings.image, root)[-1].tag,
        model=wishes.model or settings.model,
        client_argv=tuple(argv),
        agreed=wishes.yes,
        user=user,
        spending=_budget(settings, user, wishes),
        sessions=wishes.sessions,
        seconds=wishes.seconds,
        until_idle=wishes.until_idle,
        uid=os.getuid() or 1000,
        gid=os.getgid() or 1000,
    )
    return _with_model(plan, user, chosen, environ)


def _with_model(plan: Plan, user: UserSettings, chosen: Client, environ: Mapping[str, str]) -> Plan:
    """``plan`` with address and key of its model. Of several, one whose key is missing, or that costs money."""
    from team.gateway.keys import first_source

    for role, model in plan.settings.models.items():
        if chosen.asks(model)[1] is None:
            raise TeamError(
                f"team.toml: models.{role}: what {model!r} stands for is known to {chosen.name} alone; write the "
                "model's whole name, like the ones that `team cost --by model` shows"
            )
    if chosen.needs_model:
        asked = dict.fromkeys(chosen.asks(plan.model_of(seat.role)) for seat in plan.seats)
        sources = [first_source(user, *what) for what in asked]
        found = [(url, source.find(environ), source.names) for url, source in sources]
    else:  # any program may ask a model, where that was paid for or costs nothing
        sources = [first_source(user, api) for api in get_args(Api)]
        wanted = [(url, source) for url, source in sources if is_loopback(url) or plan.may_pay]
        found = [(url, source.find(environ), source.names) for url, source in wanted]
        found = [(url, key, names) for url, key, names in found if is_loopback(url) or key is not None]
    if not found:
        return plan
    url, key, names = min(found, key=lambda told: (told[1] is not None or is_loopback(told[0]), is_loopback(told[0])))
    return replace(plan, model_url=url, key=key, key_names=names)


def _budget(settings: Settings, user: UserSettings, wishes: Wishes) -> Budget:
    """What the team may spend: the flag goes before team.toml, and the person's own configuration bounds both."""
    asked = settings.budget
    if wishes.budget is not None:
        asked = asked.model_copy(update={"usd": wishes.budget})
    return asked.lower(user.budget)


def costs_money(plan: Plan) -> bool:
    """Whether the plan's model is somewhere else than on this machine, so that somebody pays for it."""
    return bool(plan.model_url) and not is_loopback(plan.model_url)


def check_money(plan: Plan) -> None:
    """Raise :class:`TeamError` unless what the plan will cost is covered by a key and by the person's word."""
    if not costs_money(plan):
        return
    if plan.key is None:
        raise TeamError(
            f"{plan.client} needs a key: {_how_to_give_a_key(plan)}; it stays on this host. `team rehearse` needs none"
        )
    if not plan.may_pay:
        raise TeamError(
            f"there is no budget: {plural(len(plan.seats), 'seat')} would spend at {_host(plan.model_url)} without "
            "limit; set one: `team up --budget 20` (US dollars), or [budget] in team.toml; or go on without: --yes"
        )
    _check_prices(plan)


def _check_prices(plan: Plan) -> None:
    """Raise :class:`TeamError` for a model that the gateway would refuse for want of a price."""
    from team.clients import client
    from team.gateway.prices import Prices, how_to_price

    if not plan.budget.in_dollars:
        return
    prices = Prices(plan.user.gateway.prices if plan.user else None)
    chosen = client(plan.client, plan.client_argv)
    for seat in plan.seats:
        name = chosen.asks(plan.model_of(seat.role))[1]
        if name and prices.of(name) is None:
            raise TeamError(how_to_price(name))


def _how_to_give_a_key(plan: Plan) -> str:
    if plan.key_names:
        return f"set {plan.key_names} in the environment"
    return f"name one for {_host(plan.model_url)} under [gateway.providers] in your config.toml"


def with_image(plan: Plan, say: Callable[[str], None], *, rebuild: bool = False) -> Plan:
    """``plan`` with its image there, built where it is missing, and the engine ready for it."""
    from team import images
    from team.clients import client
    from team.runtimes import runtime

    if plan.runtime == "process":
        return plan
    made = client(plan.client, plan.client_argv).image
    tag = images.ensure(made, plan.settings.image, plan.tree, say=say, rebuild=rebuild)
    runtime(plan.runtime).check(tag)
    return replace(plan, image=tag)


def dry_project(root: Path) -> Project:
    """The project that ``up`` would make for ``root``: its paths are right but for the number it would get."""
    name = f"{root.name.lower()}-00000000"
    return Project(root=root, id=name, state=state_home() / name)


def dry_run(project: Project, plan: Plan) -> list[dict[str, Any]]:
    """The exact container settings and the prompt of each seat's first session; nothing is made."""
    from team.runtimes import runtime
    from team.session import prompt_for
    from team.supervisor import specs

    engine = runtime(plan.runtime)
    return [
        {
            "agent": seat.name,
            "role": seat.role,
            "session": spec.session,
            "container": engine.describe(spec),
            "prompt": prompt_for(plan, seat, spec.session),
        }
        for seat, spec in zip(plan.seats, specs(project, plan), strict=True)
    ]


def opening(project: Project, plan: Plan) -> list[str]:
    """The first lines of ``up``: what will run, where, as whom, with which limits."""
    roles: dict[str, int] = {}
    for seat in plan.seats:
        roles[seat.role] = roles.get(seat.role, 0) + 1
    shown = ", ".join(f"{count} {role}" for role, count in roles.items())
    first, last = plan.seats[0], plan.seats[-1]
    names = first.name if first is last else f"{first.name} … {last.name}"
    where = f"{plan.runtime}, image {plan.image}" if plan.image else _uncontained(plan)
    branch = git.git_status("symbolic-ref", "--short", "-q", "HEAD", at=project.root)[1].decode("utf-8", "replace")
    return [
        f"team {__version__}: {plural(len(plan.seats), 'seat')} ({shown}), client {_client(plan)}",
        f"project  {project.root}, branch {one_line(branch, 80) or '(detached)'}",
        f"upstream {project.upstream}",
        f"runtime  {where}",
        f"as       uid {plan.uid if plan.image else os.getuid()}, {names} <{agent_email(first.name)}>",
        f"limits   {_limits(plan)}",
        *([f"budget   {_budget_words(plan)}"] if plan.model_url else []),
        *_network(plan),
        f"ends     {_ends(plan)}",
    ]


def _uncontained(plan: Plan) -> str:
    whom = "root" if os.getuid() == 0 else "you"
    return click.style(f"{plan.runtime}: no container, agents can do all that {whom} can; for trials only", fg="red")


def _client(plan: Plan) -> str:
    if plan.client_argv:
        return f"{plan.client}: {one_line(' '.join(plan.client_argv), 80)}"
    model = f"model {plan.model}" if plan.model else "its own default model"
    return f"{plan.client}, {model}" + (f" at {_host(plan.model_url)}" if plan.model_url else "")


def _budget_words(plan: Plan) -> str:
    if plan.budget.empty:
        return "none: --budget USD, or [budget] in team.toml, bounds what the team may spend"
    budget = plan.budget
    named = [("the team", budget), ("a day", budget.day), ("an agent", budget.agent), ("a session", budget.session)]
    named += [(f"role {one_line(name, 40)}", limit) for name, limit in budget.roles.items()]
    return "; ".join(f"{_limit(limit)} for {name}" for name, limit in named if _limit(limit)) + ", at list price"


def _limit(limit: Limit) -> str:
    """``limit`` for people, empty where it bounds nothing."""
    dollars = "" if limit.usd is None else f"${limit.usd:g}"
    tokens = "" if limit.tokens is None else f"{limit.tokens:,} tokens"
    return " and ".join(word for word in (dollars, tokens) if word)


def _limits(plan: Plan) -> str:
    if plan.runtime == "process":
        return f"a session at most {span(plan.settings.session.max_time)}; no other limit outside a container"
    limits = plan.limits
    cpus = f", {limits.cpus:g} CPUs" if limits.cpus else ""
    return (
        f"a session: memory {_size(limits.memory)}{cpus}, {limits.pids} processes, disk {_size(limits.disk)}, "
        f"{'' if reachable(plan) else 'no network, '}at most {span(plan.settings.session.max_time)}"
    )


def _network(plan: Plan) -> list[str]:
    """What sessions reach, where it is more than nothing; that they reach everything is shown in red."""
    network = plan.settings.network
    if not reachable(plan):
        return []
    named = f"{plural(len(network.allow), 'host')}: {', '.join(network.allow)}" if network.allow else ""
    if not network.open:
        return [f"network  {named}"]
    words = "network  OPEN: agents reach every public host (network.open in team.toml)"
    return [click.style(words + (f", and {named}" if named else ""), fg="red", bold=True)]


def _ends(plan: Plan) -> str:
    ends = [
        f"after {plural(plan.sessions, 'session')} a seat" if plan.sessions is not None else "",
        f"after {span(plan.seconds)}" if plan.seconds is not None else "",
        "when idle" if plan.until_idle else "",
    ]
    return f"{', '.join(e for e in ends if e) or 'never by itself'}; ctrl-c or `team down` stops it, `team up` goes on"


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url


def _size(count: int) -> str:
    """``count`` bytes for people: ``4 GiB``, ``512 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def differs(started: Event, wishes: Wishes) -> str | None:
    """Which flag of ``wishes`` asks for something else than the running team has, or None."""
    data = started.data
    have: dict[str, int] = {}
    for _, role in data.get("seats", []):
        have[role] = have.get(role, 0) + 1
    if wishes.agents is not None and wishes.agents != have.get("worker", 0):
        return f"--agents {wishes.agents}"
    if wishes.roles:
        want: dict[str, int] = {}
        for text in wishes.roles:
            role, _, count = text.partition(":")
            want[role] = want.get(role, 0) + int(count or 1)
        base = wishes.agents or have.get("worker", 0)
        if {"worker": base} | want != have:
            return " ".join(f"--role {role}" for role in wishes.roles)
    if wishes.client is not None and wishes.client != data.get("client"):
        return f"--client {wishes.client}"
    if wishes.model is not None and wishes.model != data.get("model"):
        return f"--model {wishes.model}"
    return None


def detach(project: Project, ledger: Ledger, flags: Sequence[str], *, poll: float = 0.1) -> Event:
    """Start ``team up`` with ``flags`` in the background; return its ``team.started`` event.

    Its output goes to ``supervisor.log``. Raises :class:`StartFailed` with its last line when it ends before that.
    """
    newest = ledger.last()
    after = newest.id if newest is not None else 0
    log = supervisor_log(project)
    if log.exists() and log.stat().st_size > LOG_KEPT:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as out:
        os.fchmod(out.fileno(), 0o600)
        begin = out.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            # -P: without it python would import from the project, where agents wrote
            [sys.executable, "-P", "-m", "team.cli", "up", *flags],
            cwd=project.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        while (started := ledger.last(Kind.TEAM_STARTED, after=after)) is None:
            if (code := child.poll()) is not None:
                last = _last_line(log, begin) or f"it ended with exit code {code}"
                raise StartFailed(f"{last} (all of it: {log})", code or 1)
            time.sleep(poll)
    except KeyboardInterrupt:
        child.terminate()
        raise
    return started


def supervisor_log(project: Project) -> Path:
    """Where a team in the background prints."""
    return project.state / "supervisor.log"


def _last_line(path: Path, begin: int) -> str:
    with path.open("rb") as file:
        file.seek(max(begin, path.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1]).removeprefix("team: ") if lines else ""
