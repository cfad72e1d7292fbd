"""Builds the images that sessions run in, and only what is missing. Tags are hashes of what went in."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from team import places
from team.config import Image
from team.errors import TeamError
from team.runtimes import EngineLost
from team.text import one_line

DEBIAN = "team-debian:bookworm"
"""The base that ``images/debian.sh`` makes."""
REGISTRY_BASE = "debian:bookworm-slim"
AGENT = "agent"
"""The image without any client; the client ``command`` uses it too."""
_CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_DOCKERFILE = ".team.Dockerfile"
_NEVER_SENT = (".git", ".team", "agent_logs")
"""Never part of a build: remotes may hold tokens, and agents can read all of their image."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Build:
    """One image to build: what goes in, and the tag that follows from it."""

    name: str
    dockerfile: bytes
    base: str
    """Tag of the image it stands on; empty: the default base, which is only looked for when something is built."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Small files of its context: path -> content."""
    context: Path | None = None
    """A directory whose files are in its context."""
    stamp: str = ""
    """What stands for the content of ``context`` in the tag."""

    @property
    def tag(self) -> str:
        digest = hashlib.sha256()
        parts = [self.name, self.base, self.stamp, *(f"{k}\0{v.hex()}" for k, v in sorted(self.files.items()))]
        for part in (*(p.encode() for p in parts), self.dockerfile):
            digest.update(len(part).to_bytes(8, "big") + part)
        return f"team-{self.name}:{digest.hexdigest()[:12]}"


def ensure(client_image: str, settings: Image, root: Path, *, say: Say, rebuild: bool = False) -> str:
    """The tag of the image that sessions run in; what is missing of it is built, with progress through ``say``.

    ``client_image`` is the client's file in ``images/`` without its ending, ``root`` the user's work tree, the only
    place from which ``settings.dockerfile`` is read. Warm, this costs one look at the engine. Raises
    :class:`~team.errors.TeamError` with the mend, and
    :class:`~team.runtimes.EngineLost` when the engine stops answering.
    """
    from team.runtimes import docker

    builds = plan(client_image, settings, root)
    try:
        engine = docker.connect()
    except EngineLost as e:
        raise docker.no_engine(e) from e
    with contextlib.closing(engine), docker.asking("build an image"):
        first = 0 if rebuild else next((i + 1 for i in reversed(range(len(builds))) if _has(engine, builds[i].tag)), 0)
        for build in builds[first:]:
            _build(engine, build, build.base or _base(engine, say), say, afresh=rebuild)
    return builds[-1].tag


def plan(client_image: str, settings: Image, root: Path) -> list[Build]:
    """The images that ``settings`` call for, each on the one before; the last is what sessions run in."""
    base = settings.base or os.environ.get("TEAM_BASE_IMAGE", "")
    agent = Build(AGENT, _shipped("Dockerfile"), base, files={"images/ca.crt": _certificates(settings)})
    builds = [agent]
    if client_image not in ("", AGENT, "command"):
        builds.append(Build(client_image, _shipped(f"{client_image}.Dockerfile"), agent.tag))
    if settings.dockerfile:
        builds.append(_of_user(settings.dockerfile, root, builds[-1].tag))
    return builds


def _shipped(name: str) -> bytes:
    """A file of ``images/`` (or the Dockerfile beside it), in a checkout or in an installed wheel."""
    package = Path(__file__).resolve().parent
    places = (package / "_images" / name, package.parent / "images" / name, package.parent / name)
    for path in places:
        if path.is_file():
            return path.read_bytes()
    raise TeamError(f"there is no image for this client: images/{name} is missing; install team again")


def _certificates(settings: Image) -> bytes:
    """CA certificates for builds and sessions: those that are configured, else what this machine itself uses."""
    if settings.ca:
        path = Path(settings.ca).expanduser()
        try:
            content = path.read_bytes()
        except OSError as e:
            raise TeamError(f"image.ca {settings.ca}: {e.strerror}; name a file with certificates (PEM)") from e
        if b"-----BEGIN CERTIFICATE-----" not in content:
            raise TeamError(f"image.ca {settings.ca} holds no certificates: it must be a PEM file")
        return content
    for variable in _CA_VARIABLES:
        with contextlib.suppress(OSError):
            if name := os.environ.get(variable, ""):
                return Path(name).read_bytes()
    return b""


def _of_user(dockerfile: str, root: Path, base: str) -> Build:
    path = (root / dockerfile).resolve()
    if not path.is_relative_to(root.resolve()):
        raise TeamError(f"image.dockerfile {dockerfile} leads out of the project: it must be in the work tree")
    try:
        content = path.read_bytes()
    except OSError as e:
        raise TeamError(f"image.dockerfile {dockerfile}: {e.strerror}; name a Dockerfile in the work tree") from e
    if not re.search(rb"(?im)^\s*FROM\s.*\$\{?BASE\b", content):
        raise TeamError(f"image.dockerfile {dockerfile} must begin with `ARG BASE` and `FROM ${{BASE}}`")
    slug = re.sub(r"[^a-z0-9]+", "-", root.name.lower()).strip("-")[:40] or "project"
    # Without COPY and ADD nothing of the work tree goes in, and no change in it can matter.
    if not re.search(rb"(?im)^\s*(COPY|ADD)\s", content):
        return Build(slug, content, base)
    return Build(slug, content, base, context=path.parent, stamp=_stamp(path.parent))


def _sent(context: Path) -> Iterator[str]:
    """Paths in ``context`` that are part of a build, sorted; ``.dockerignore`` is obeyed."""
    from docker.utils import build

    ignore = context / ".dockerignore"
    patterns = ignore.read_text("utf-8", "replace").splitlines() if ignore.is_file() else []
    patterns = [line.strip() for line in patterns if line.strip() and not line.startswith("#")]
    never = [pattern for name in _NEVER_SENT for pattern in (name, f"**/{name}")]
    yield from sorted(build.exclude_paths(str(context), [*patterns, *never]))


def _stamp(context: Path) -> str:
    """Changes when a file of ``context`` does. By size and time, not content: a work tree may be large."""
    digest = hashlib.sha256()
    for name in _sent(context):
        at = (context / name).lstat()
        times = "" if (context / name).is_dir() else f"{at.st_size} {at.st_mtime_ns}"
        digest.update(f"{name}\0{at.st_mode} {times}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _has(engine: Any, tag: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        engine.inspect_image(tag)
    except ImageNotFound:
        return False
    return True


def _base(engine: Any, say: Say) -> str:
    """The base that is used when none is configured: one that is here, else from the registry, else our own."""
    from docker.errors import APIError

    for tag in (DEBIAN, REGISTRY_BASE):
        if _has(engine, tag):
            return tag
    say(f"image: pulling {REGISTRY_BASE}")
    repository, tag = REGISTRY_BASE.split(":")
    try:
        engine.pull(repository, tag=tag)
        if _has(engine, REGISTRY_BASE):
            return REGISTRY_BASE
        why = "the pull did not bring it"
    except APIError as e:
        why = one_line(str(e.explanation or e))
    if os.geteuid() == 0 and Path("/etc/debian_version").exists():
        say(f"image: no registry ({why}); making {DEBIAN} from Debian packages, about a minute")
        _make_debian()
        return DEBIAN
    script = _script()
    raise TeamError(f"no base image ({why}): set image.base in team.toml, or run `sudo {script}` on Debian")


def _script() -> Path:
    package = Path(__file__).resolve().parent
    wheel = package / "_images" / "debian.sh"
    return wheel if wheel.exists() else package.parent / "images" / "debian.sh"


def _make_debian() -> None:
    done = subprocess.run(["sh", str(_script()), DEBIAN], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise TeamError(f"the base image could not be made: {one_line(last)}; set image.base in team.toml")


def _build(engine: Any, build: Build, base: str, say: Say, *, afresh: bool) -> None:
    say(f"image: building {build.tag} on {base}")
    arguments = {"BASE": base} | {name: os.environ[name] for name in _PROXY_VARIABLES if os.environ.get(name)}
    log = places.state_home() / "builds" / f"{build.tag.replace(':', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _context(build) as context, log.open("w", encoding="utf-8") as full:
        answers = engine.build(
            fileobj=context, custom_context=True, dockerfile=_DOCKERFILE, tag=build.tag, buildargs=arguments,
            rm=True, forcerm=True, nocache=afresh, decode=True, timeout=3600, labels={"team.image": build.name},
        )  # fmt: skip
        _watch(answers, build, full.write, say, log)
    _sweep(engine)


def _sweep(engine: Any) -> None:
    """Remove what only served to build: our Dockerfiles mark such stages, and no image of a user carries the mark."""
    from docker.errors import APIError

    for image in engine.images(filters={"dangling": True, "label": "team.stage=fetch"}):
        with contextlib.suppress(APIError):  # another build may still use it
            engine.remove_image(image["Id"])


def _watch(
    answers: Iterator[dict[str, Any]], build: Build, write: Callable[[str], object], say: Say, log: Path
) -> None:
    """Follow a build to its end: everything into the log, its steps to ``say``, its failure as one line."""
    last = ""
    for answer in answers:
        text = str(answer.get("stream") or answer.get("status") or "")
        write(text if text.endswith("\n") or not text else f"{text}\n")
        if error := answer.get("error"):
            write(f"{error}\n")
            why = last or one_line(str(error))
            raise TeamError(f"the image {build.name} could not be built: {why}; the whole output is in {log}")
        for line in text.splitlines():
            if line.startswith("Step "):
                say(f"image: {build.name}: {one_line(line, 100)}")
                last = ""
            elif line.strip() and not line.startswith((" --->", "Removing intermediate")):
                last = one_line(line)


@contextlib.contextmanager
def _context(build: Build) -> Iterator[Any]:
    """The build's context as a tar file: its Dockerfile has a name of its own beside the user's files."""
    with tempfile.TemporaryFile() as made:
        with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
            if build.context is not None:
                for name in _sent(build.context):
                    with contextlib.suppress(FileNotFoundError):
                        tar.add(build.context / name, arcname=name, recursive=False, filter=_plain)
            for name, content in {**build.files, _DOCKERFILE: build.dockerfile}.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                tar.addfile(entry, io.BytesIO(content))
        made.seek(0)
        yield made


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without owner and time, so that the engine's cache holds on another checkout; no sockets or devices."""
    if not (entry.isfile() or entry.isdir() or entry.issym()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
