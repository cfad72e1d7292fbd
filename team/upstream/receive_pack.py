"""The program behind the user's remote ``team``: ``git push team`` lands by the same rules, supervisor or not.

``remote.team.receivepack`` runs it as ``python -m team.upstream.receive_pack <state>/upstream.git``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from team.config import Settings
from team.errors import TeamError
from team.ledger import Kind, Ledger
from team.places import Project
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream
from team.upstream.wire import pkt

_WAIT = 24 * 3600.0
"""Seconds that a person's push waits for its verdict: where no supervisor runs, the gate ends with it."""
_IDENT = re.compile(r"(.*?) <([^<>]*)> \d+ [+-]\d{4}\Z")


def serve(upstream: Upstream, pusher: Pusher) -> None:
    """Speak receive-pack on standard input and output, as git's own program does."""
    out = sys.stdout.buffer

    def send(data: bytes) -> None:
        out.write(data)
        out.flush()

    send(upstream.advertise(pusher))
    upstream.receive(pusher, sys.stdin.buffer, send)


@contextmanager
def gate_here(upstream: Upstream, ledger: Ledger, settings: Settings, project: Project) -> Iterator[None]:
    """Run the checks in this process, as long as it lives and no supervisor does it."""
    if not settings.gate.check:
        yield
        return
    from team.runtimes import Limits, runtime
    from team.sampler.host import Tests
    from team.sampler.settings import environment
    from team.upstream.check import ContainerChecker

    session, started = settings.session, ledger.last(Kind.TEAM_STARTED)
    where, image = ("docker", "") if started is None else (str(started.data["runtime"]), str(started.data["image"]))
    if not image and where == "docker":
        from team import images
        from team.clients import client

        image = images.plan(client(settings.client, settings.command.argv).image, settings.image, project.root)[-1].tag
    limits = Limits(session.memory, session.pids, session.cpus, session.disk)
    tests = Tests(project.tests, ledger)
    checker = ContainerChecker(
        project, settings.gate, runtime(where), image, session.setup, os.getuid() or 1000, os.getgid() or 1000, limits,
        env=environment(settings.test), on_tests=tests.from_gate,
    )  # fmt: skip
    with closing(tests), upstream.open_gate(checker).running():
        yield


def project_of(repository: Path) -> Project:
    """The project whose upstream is ``repository``. Raises :class:`TeamError`."""
    state = repository.resolve().parent
    try:
        root = Path(json.loads((state / "project.json").read_text("utf-8"))["root"])
    except (OSError, ValueError, KeyError):
        raise TeamError(
            f"{repository} is no upstream of team; `team up` in your project sets the remote again"
        ) from None
    return Project(root=root, id=state.name, state=state)


def person_here() -> Pusher:
    """The person, as git in the current directory would have them commit. Raises :class:`TeamError`."""
    # The user's own git in the user's own repository: here their configuration is what we want to know.
    found = subprocess.run(["git", "var", "GIT_COMMITTER_IDENT"], capture_output=True, text=True, check=False)
    match = _IDENT.match(found.stdout.strip())
    if match is None:
        raise TeamError("git does not know who you are; `git config --global user.name` and `user.email` tell it")
    return Pusher(name=match[1], email=match[2], session=None)


def main(argv: list[str]) -> int:
    """Serve one push; what cannot be served is said in one line."""
    try:
        if len(argv) != 1:
            raise TeamError("this program is run by `git push team`")
        project, person = project_of(Path(argv[0])), person_here()
        from team.config_file import load  # heavy, and not needed to complain

        settings = load(project.root)
        ledger = Ledger(project.ledger)
        gate = settings.gate.model_copy(update={"wait": _WAIT})
        upstream = Upstream(project, ledger, settings.landing, settings.protected, gate=gate)
        upstream.main()
    except TeamError as e:
        sys.stdout.buffer.write(pkt(f"ERR team: {e}\n".encode("utf-8", "replace")))
        sys.stdout.buffer.flush()
        return 2
    try:
        with gate_here(upstream, ledger, settings, project):
            serve(upstream, person)
    except BrokenPipeError:
        return 1
    finally:
        upstream.close()
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
