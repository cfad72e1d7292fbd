"""What a session's containers look like: the one that the client runs in, and the one that rescues."""

from __future__ import annotations

import hashlib

from team.clients import Client
from team.config import Builtin, Policy
from team.names import agent_email
from team.oracle import settings as oracle_settings
from team.places import Project
from team.plan import Plan, Seat
from team.runtimes import PROXY_PORT, Spec, volume_names
from team.sampler.settings import environment


def spec_for(project: Project, plan: Plan, client: Client, seat: Seat, session: str, token: str, url: str) -> Spec:
    """The container of ``session``, complete."""
    env = _common_env(seat, session, token, url)
    env |= client.env(url, token, plan.model_of(seat.role))
    env["TEAM_SETUP"] = plan.settings.session.setup
    hosts = reachable(plan)
    if hosts:
        env |= proxy_env(f"http://127.0.0.1:{PROXY_PORT}")
    if plan.settings.policy != Policy():
        env["TEAM_POLICY"] = plan.settings.policy.model_dump_json()
    if plan.settings.builtin != Builtin():
        env["TEAM_BUILTIN"] = plan.settings.builtin.model_dump_json()
    env |= environment(plan.settings.test) | oracle_settings.environment(plan.settings.oracle)
    return Spec(
        name=f"team-{project.id}-{session}",
        project=project.id,
        session=session,
        image=plan.image,
        argv=tuple(client.argv(plan.model_of(seat.role), url)),
        env=env,
        upstream=project.upstream,
        door=project.door(session),
        workspace=volume_names(project.id, session),
        caches={path: _cache_name(project, seat, path) for path in plan.settings.session.cache},
        uid=plan.uid,
        gid=plan.gid,
        limits=plan.limits,
        hosts=hosts,
    )


def reachable(plan: Plan) -> tuple[str, ...]:
    """The hosts that sessions reach through a proxy at their door; none where they have no network, or no container."""
    network = plan.settings.network
    if plan.runtime == "process":
        return ()
    return (("(every public host)",) if network.open else ()) + network.allow


def rescue_spec(
    project: Project, plan: Plan, seat: Seat, session: str, token: str, url: str, base: str, image: str
) -> Spec:
    """The container that saves what ``session`` left in its volume."""
    env = _common_env(seat, session, token, url) | {
        "TEAM_BASE": base,
        "TEAM_RESCUE_MAX": str(plan.settings.landing.max_file),
    }
    return Spec(
        name=f"team-{project.id}-{session}-rescue",
        project=project.id,
        session=session,
        image=image,
        argv=(),
        env=env,
        upstream=project.upstream,
        door=project.door(session),
        workspace=volume_names(project.id, session),
        entry="rescue",
        uid=plan.uid,
        gid=plan.gid,
        limits=plan.limits,
    )


def _common_env(seat: Seat, session: str, token: str, url: str) -> dict[str, str]:
    email = agent_email(seat.name)
    return {
        "TEAM_AGENT": seat.name,
        "TEAM_ROLE": seat.role,
        "TEAM_SESSION": session,
        "TEAM_TOKEN": token,
        "TEAM_DOOR": url,
        "GIT_AUTHOR_NAME": seat.name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": seat.name,
        "GIT_COMMITTER_EMAIL": email,
    }


def proxy_env(url: str) -> dict[str, str]:
    """What makes pip, npm, cargo, go, apt, curl and git use the proxy; some read the one case, some the other."""
    env = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": "127.0.0.1,localhost"}
    return {"TEAM_PROXY": url} | env | {name.lower(): value for name, value in env.items()}


def _cache_name(project: Project, seat: Seat, path: str) -> str:
    return f"team-{project.id}-{seat.name}-cache-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
