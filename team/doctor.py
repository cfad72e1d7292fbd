"""Looks whether a team can run here: this machine, the engine, the image, and the inside of a real container."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socketserver
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from team import config_file, git, places, worktree
from team.config import Settings, UserSettings
from team.errors import TeamError
from team.runtimes import DOOR_DIR, DOOR_PORT, PACKAGE_DIR, UPSTREAM, WORKSPACE, EngineLost, Gone, Limits, Spec
from team.sampler import suites
from team.text import one_line

if TYPE_CHECKING:
    from team.gateway.keys import Source

GIB = 1 << 30
LONGEST_SESSION = "performance-99.99999"
"""A session's name as long as they come; it is part of a socket's path."""
_PROBE_SECONDS = 120


class Status(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    """The team runs, but something may surprise."""
    FAIL = "fail"
    """The team cannot run, or would not be shut in."""


@dataclass(frozen=True)
class Finding:
    """What was found, on one line."""

    name: str
    status: Status
    text: str
    mend: str = ""
    """What to do about it; empty where nothing needs doing."""


def ok(name: str, text: str) -> Finding:
    return Finding(name, Status.OK, text)


def warn(name: str, text: str, mend: str) -> Finding:
    return Finding(name, Status.WARN, text, mend)


def fail(name: str, text: str, mend: str = "") -> Finding:
    return Finding(name, Status.FAIL, text, mend)


def checks(root: Path, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Every finding about the work tree ``root`` and this machine, each as soon as it is known. Changes nothing."""
    yield from _guarded("git", _git)
    yield from _guarded("repository", lambda: _repository(root))
    settings, user = Settings(), UserSettings()
    try:
        settings = config_file.load(root)
        user = config_file.load_user()
        yield from _configuration(root, settings)
    except TeamError as error:
        yield fail("configuration", str(error))
    yield from _guarded("key", lambda: _key(settings, user, environ))
    yield from _guarded("state", lambda: _state(root))
    yield from _guarded("sockets", lambda: _sockets(root))
    yield from _engine(root, settings)


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of ``check``; what it raises is a finding too, so that the others are still looked at."""
    try:
        yield from check()
    except (TeamError, git.GitError, OSError) as error:
        yield fail(name, one_line(str(error), 400))


# -- this machine -------------------------------------------------------------------------------------------------


def _git() -> Iterator[Finding]:
    needed = ".".join(map(str, git.MINIMUM))
    try:
        found = git.version()
    except FileNotFoundError:
        yield fail("git", "git is not installed", f"install git {needed} or newer")
        return
    shown = ".".join(map(str, found))
    if found < git.MINIMUM:
        yield fail("git", f"git {shown} is too old", f"install git {needed} or newer")
    else:
        yield ok("git", f"git {shown} on this host ({needed} or newer is needed)")


def _repository(root: Path) -> Iterator[Finding]:
    branch = worktree.require_branch(root)
    try:
        worktree.require_clean(root)
        yield ok("repository", f"branch {branch}, nothing uncommitted")
    except TeamError as error:
        yield warn("repository", f"branch {branch}; `team up` and `team pull` will refuse: {error}", "commit or stash")
    for note in worktree.unseen(root):
        yield warn("repository", note, "commit what agents need")


def _configuration(root: Path, settings: Settings) -> Iterator[Finding]:
    where = config_file.NAME if (root / config_file.NAME).exists() else "defaults, there is no team.toml"
    yield ok("configuration", f"{where}: {settings.agents} agents, client {settings.client}")
    if not settings.test.command and not suites.known(root, settings.test):
        mend = "set [test] command, or kind for `team test`, in team.toml"
        yield warn("configuration", "no test command: agents must guess how to test", mend)
    own = places.config_home() / "config.toml"
    if own.exists() and own.stat().st_mode & 0o022:
        yield warn("configuration", f"{own} can be written by others; it says where the key goes", f"chmod 600 {own}")


def _key(settings: Settings, user: UserSettings, environ: Mapping[str, str]) -> Iterator[Finding]:
    from team.clients import client
    from team.gateway.keys import first_source, named_source

    for name, told in user.gateway.providers.items():
        models = "" if told.models == ("*",) else f" for {one_line(', '.join(told.models), 100)}"
        yield _key_of(f"provider {one_line(name, 40)}", f"{told.base_url}{models}", named_source(told), environ)
    chosen = client(settings.client, settings.command.argv)
    if not chosen.needs_model:
        yield ok("key", f"client {settings.client} needs none")
        return
    url, source = first_source(user, *chosen.asks(settings.model))
    yield _key_of("key", url, source, environ)


def _key_of(name: str, url: str, source: Source, environ: Mapping[str, str]) -> Finding:
    """Whether ``source`` gives the key of the provider at ``url``."""
    from team.gateway.providers import is_loopback

    try:
        key = source.find(environ)
    except TeamError as error:
        return fail(name, one_line(str(error), 400))
    if key is not None:
        return ok(name, f"{source.where(environ)} has the key for {url}; it stays on this host")
    if is_loopback(url.split()[0]):
        return ok(name, f"{url} is on this host and gets none")
    mend = f"set {source.names}" if source.names else "set key_env, key_file or key_command in your config.toml"
    return warn(name, f"no key for {url}", f"{mend} before `team up`; `team rehearse` needs none")


def _state(root: Path) -> Iterator[Finding]:
    if sys.platform != "linux":
        yield fail("state", f"{sys.platform} is not supported yet", "use Linux, or a virtual machine with it")
    home = places.state_home()
    exists = _nearest(home)
    if not os.access(exists, os.W_OK | os.X_OK):
        yield fail("state", f"{exists} is not writable, state goes to {home}", "chown it, or set XDG_STATE_HOME")
        return
    project = worktree.existing_project(root)
    state = project.state if project is not None else None
    if state is not None and (state.stat().st_uid != os.getuid() or state.stat().st_mode & 0o077):
        yield fail("state", f"{state} is open to others: it holds logs and unlanded work", f"chmod 700 {state}")
    else:
        yield ok("state", f"state is kept in {state or home}")
    yield _space("state", exists, "state, upstream and logs", least=GIB, comfortable=5 * GIB)


def _sockets(root: Path) -> Iterator[Finding]:
    from team.door import SOCKET_MAX

    project = worktree.existing_project(root) or places.Project(root, "new", places.state_home() / "new")
    path = project.door(LONGEST_SESSION) / "door.sock"
    length, base = len(os.fsencode(path)), places.runtime_dir()
    if length > SOCKET_MAX:
        text = f"socket paths have {length} bytes, at most {SOCKET_MAX} are possible ({path})"
        yield fail("sockets", text, "set XDG_RUNTIME_DIR to a short directory")
    elif base.exists() and (base.is_symlink() or base.stat().st_uid != os.getuid()):
        yield fail("sockets", f"{base} belongs to somebody else", "remove it, or set XDG_RUNTIME_DIR")
    else:
        yield ok("sockets", f"{base}, paths of at most {length} of {SOCKET_MAX} bytes")


def _nearest(path: Path) -> Path:
    """``path`` or the nearest directory above it that exists."""
    return next(p for p in (path, *path.parents) if p.exists())


def _space(name: str, path: Path, purpose: str, *, least: int, comfortable: int) -> Finding:
    free = shutil.disk_usage(_nearest(path)).free
    text = f"{free / GIB:.1f} GiB free for {purpose} ({path})"
    if free < least:
        return fail(name, text, f"free at least {least / GIB:g} GiB there")
    if free < comfortable:
        return warn(name, text, f"{comfortable / GIB:g} GiB are comfortable")
    return ok(name, text)


# -- the engine ---------------------------------------------------------------------------------------------------


def _engine(root: Path, settings: Settings) -> Iterator[Finding]:
    from team.runtimes.docker import DockerRuntime, asking, no_engine

    runtime = DockerRuntime()
    try:
        with asking("describe itself"):
            info = runtime.api.info()
        yield from _engine_facts(info, settings)
        yield from _image(root, settings, runtime)
    except EngineLost as error:
        yield fail("engine", str(no_engine(error)))
    except TeamError as error:
        yield fail("engine", str(error))


def _engine_facts(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    host = os.environ.get("DOCKER_HOST", "")
    where = f"Docker {info.get('ServerVersion')}, {info.get('NCPU')} CPUs, {_total(info) / GIB:.1f} GiB"
    yield ok("engine", f"{where}, {info.get('OperatingSystem')}")
    if host and not host.startswith("unix://"):
        yield fail("engine", f"DOCKER_HOST={one_line(host)} is another machine", "use an engine of this machine")
    if any("rootless" in option for option in info.get("SecurityOptions") or ()):
        yield warn("engine", "the engine is rootless: limits depend on cgroup delegation", "see the probe below")
    yield from _limits(info, settings)
    driver, below = info.get("Driver"), dict(info.get("DriverStatus") or ()).get("Backing Filesystem", "?")
    most = settings.session.disk / GIB
    yield ok("disk limit", f"{driver} on {below}: team measures, and ends a session over {most:g} GiB")
    if info.get("LiveRestoreEnabled"):
        yield ok("live-restore", "sessions survive a restart of the engine")
    else:
        text = "off: when the engine restarts, it ends all sessions (their work is rescued)"
        yield warn("live-restore", text, 'put "live-restore": true into /etc/docker/daemon.json if that matters')
    place = Path(info.get("DockerRootDir") or "/")
    purpose = "images, clones and containers"
    yield _space("engine disk", place, purpose, least=2 * GIB, comfortable=10 * GIB)


def _total(info: Mapping[str, Any]) -> int:
    return int(info.get("MemTotal") or 0)


def _limits(info: Mapping[str, Any], settings: Settings) -> Iterator[Finding]:
    """Whether the engine can limit what a session uses, and whether all sessions fit."""
    needed = {"MemoryLimit": "memory", "PidsLimit": "processes"}
    if settings.session.cpus is not None:
        needed["CpuCfsQuota"] = "CPUs"
    lacking = [words for key, words in needed.items() if not info.get(key)]
    if lacking:
        text = f"the kernel cannot limit {', '.join(lacking)}"
        yield fail("limits", text, "boot with cgroup_enable=memory, or use cgroup v2")
    if not info.get("SwapLimit"):
        text = "the kernel cannot limit swap: a session may swap beyond its memory limit"
        yield warn("limits", text, "boot with swapaccount=1, or use cgroup v2")
    each = settings.session.memory
    if each * settings.agents > _total(info):
        text = (
            f"{settings.agents} agents of {each / GIB:g} GiB may want more than the {_total(info) / GIB:.1f} GiB here"
        )
        yield warn(
            "limits", text, "lower `agents` or [session] memory; sessions over their limit are ended, not others"
        )
    elif not lacking:
        yield ok("limits", f"memory {each / GIB:g} GiB, {settings.session.pids} processes a session")


# -- the image and the inside -------------------------------------------------------------------------------------


def _image(root: Path, settings: Settings, runtime: Any) -> Iterator[Finding]:
    from team import images
    from team.clients import client

    chosen = client(settings.client, settings.command.argv)
    tag = images.plan(chosen.image, settings.image, root)[-1].tag
    try:
        runtime.check(tag)
    except TeamError as error:
        if "not on the engine" not in str(error):
            raise
        text = f"{tag} is not built yet: image and inside are not looked at"
        yield warn("image", text, "`team image build`, then `team doctor` again (`team up` builds it too)")
        return
    yield from inside(tag, settings, chosen.argv(settings.model)[0], runtime, versioned=chosen.needs_model)


def inside(image: str, settings: Settings, program: str, runtime: Any, *, versioned: bool) -> Iterator[Finding]:
    """Run the probe in a container of ``image``, made exactly as a session's is, and judge what it reports.

    ``versioned``: ``program`` understands ``--version``.
    """
    uid, gid = os.getuid() or 1000, os.getgid() or 1000
    try:
        report = probe(image, settings, program, runtime, uid, gid, versioned=versioned)
    except Gone:
        yield fail("probe", "the container was removed while it ran", "run `team doctor` again")
        return
    yield from contract(report, image, program)
    yield from shut_in(report, uid, gid, settings.session.memory)


def probe(
    image: str, settings: Settings, program: str, runtime: Any, uid: int, gid: int, *, versioned: bool
) -> dict[str, Any]:
    """What ``team/probe.py`` reports from a container that has a door, a clone and nothing else."""
    name = f"team-doctor-{secrets.token_hex(4)}"
    text = (Path(__file__).parent / "probe.py").read_text("utf-8")
    base = places.runtime_dir()
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=base) as made:
        here = Path(made)
        spec = Spec(
            name=name,
            project=name,
            session=f"{name}.1",
            image=image,
            argv=("python3", "-c", text, program, "--version" if versioned else ""),
            env={"TEAM_DOOR": f"http://127.0.0.1:{DOOR_PORT}", "TEAM_TOKEN": "none", "TEAM_AGENT": "doctor"},
            upstream=_tiny_upstream(here / "u"),
            door=here / "d",
            workspace=name,
            uid=uid,
            gid=gid,
            limits=Limits(settings.session.memory, settings.session.pids, settings.session.cpus, settings.session.disk),
        )
        assert spec.door is not None
        spec.door.mkdir(mode=0o755)
        (spec.door / "prompt.md").touch(0o644)
        with _door(spec.door / "door.sock"):
            lines = _run(runtime, spec)
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            report = json.loads(line)
            if isinstance(report, dict):
                return report
    last = one_line(lines[-1].decode("utf-8", "replace")) if lines else "it printed nothing"
    raise TeamError(f"the container of {image} did not get to work: {last}")


def _run(runtime: Any, spec: Spec) -> list[bytes]:
    """The lines that the container prints; nothing of it is left on the engine."""
    lines: list[bytes] = []
    try:
        container = runtime.create(spec)
        timer = threading.Timer(_PROBE_SECONDS, runtime.stop, (container, 0))
        timer.start()
        try:
            runtime.start(container)
            runtime.follow(container, lines.append)
        finally:
            timer.cancel()
    finally:
        runtime.remove(spec.name)
        runtime.remove_volume(spec.workspace)
    return lines


def _tiny_upstream(path: Path) -> Path:
    """A bare repository with one empty commit on main, readable by the session's user."""
    path.mkdir(mode=0o755)
    git.git("init", "--quiet", "--bare", "--initial-branch=main", at=path)
    tree = git.line("hash-object", "-w", "-t", "tree", "--stdin", at=path, stdin=b"")
    commit = git.line("commit-tree", "-m", "nothing", tree, at=path)
    git.git("update-ref", "refs/heads/main", commit, at=path)
    return path


class _Yes(socketserver.StreamRequestHandler):
    """A door that answers 204 to everything: the probe needs no more."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            continue
        self.wfile.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")


@contextlib.contextmanager
def _door(path: Path) -> Iterator[None]:
    with socketserver.ThreadingUnixStreamServer(str(path), _Yes) as server:
        path.chmod(0o666)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def contract(report: Mapping[str, Any], image: str, program: str) -> Iterator[Finding]:
    """The image contract: git, python3.11+, socat, the client."""
    mend = "extend our image (`FROM ${BASE}` in image.dockerfile) instead of replacing it"
    problems = []
    if tuple(report["python"]) < (3, 11):
        problems.append(f"python {'.'.join(map(str, report['python']))} is older than 3.11")
    words = str(report["git"]).split()
    numbers = words[2].split(".") if words[:2] == ["git", "version"] and len(words) > 2 else []
    if tuple(int(n) for n in numbers if n.isdigit()) < git.MINIMUM:
        problems.append(f"git {'.'.join(map(str, git.MINIMUM))} or newer is missing")
    if not report["socat"]:
        problems.append("socat is missing")
    if not report["client"]:
        problems.append(f"the client ({one_line(program, 80)}) is missing")
    elif str(report["version"]).startswith("error"):
        problems.append(f"the client does not start: {one_line(str(report['version']), 200)}")
    if problems:
        yield fail("image", f"{image}: {'; '.join(problems)}", mend)
        return
    versions = f"git {'.'.join(numbers)}, python {'.'.join(map(str, report['python']))}, socat"
    client = one_line(f"{program} {report['version']}".strip(), 100)
    yield ok("image", f"{image}: {versions}, {client}")


def shut_in(report: Mapping[str, Any], uid: int, gid: int, memory: int) -> Iterator[Finding]:
    """Whether the container is what DESIGN calls a session's: judged from inside, not from its settings."""
    if (report["uid"], report["gid"]) != (uid, gid) or uid == 0:
        yield fail("user", f"inside as uid {report['uid']} gid {report['gid']}, not {uid}:{gid}", "check userns-remap")
    elif not report["home"] or not report["writable"][WORKSPACE]:
        yield fail("user", f"uid {uid} cannot write its HOME or {WORKSPACE}", "both must be writable to any user: 1777")
    else:
        yield ok("user", f"uid {uid} inside, HOME and {WORKSPACE} are its own")
    fixed = (UPSTREAM, DOOR_DIR, PACKAGE_DIR)
    loose = [p for p in fixed if report["mounts"][p] != "ro" or report["writable"][p]]
    loose += [p for p in ("/etc", "/usr") if report["writable"][p]]
    if loose or report["engine_socket"]:
        open_ = ", ".join(loose) if loose else "the engine's socket is inside"
        yield fail("mounts", f"writable from inside: {open_}", "do not run sessions on this engine")
    else:
        yield ok("mounts", f"{', '.join(fixed)} are read-only, no engine socket")
    found = [name for name, reached in report["reaches"].items() if reached]
    links = [link for link in report["links"] if link != "lo"]
    if found:
        yield fail("network", f"reached from inside: {', '.join(found)}", "do not run sessions on this engine")
    else:
        text = "closed: IPv4, IPv6, DNS and metadata address tried from inside"
        yield ok("network", text + (f" (interfaces without a way out: {', '.join(links)})" if links else ""))
    rights = [value for value in report["capabilities"] if value.strip("0")]
    if rights or report["no_new_privs"] != "1":
        text = f"capabilities {', '.join(rights) or 'none'}, no-new-privileges {report['no_new_privs']}"
        yield fail("rights", text, "do not run sessions on this engine")
    else:
        yield ok("rights", "no capabilities, no-new-privileges")
    given = report["memory"]
    if given is None or given > memory:
        yield fail("memory", "the memory limit does not hold inside", "check the engine's cgroup driver")
    else:
        yield ok("memory", f"limited to {given / GIB:g} GiB inside")
