"""Small things that the tests of sessions' lives share."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager

from team.git import git
from team.ledger import Event, Kind, Ledger
from team.upstream.pusher import Pusher
from team.upstream.upstream import Upstream

from .conftest import Stage

# What a script of an agent may use; `claim` and `land` keep the protocol with plain git.
KIT = """
claim() { echo "$TEAM_AGENT" >"current_tasks/$1.txt"; git add current_tasks; git commit -qm "Claim $1"; git push -q; }
land() { git add -A; git commit -qm "$1"; git push -q; }
wait_for() { until git --git-dir=/upstream cat-file -e "main:tasks/$1.md" 2>/dev/null; do sleep 0.1; done; }
n=${TEAM_SESSION##*.}
"""


def by_agent(*scripts: str, kit: str = KIT) -> tuple[str, ...]:
    """A client that runs the first of ``scripts`` for agent-01, the second for agent-02 and so on."""
    cases = "\n".join(f"agent-{number:02d})\n{script}\n;;" for number, script in enumerate(scripts, 1))
    return ("sh", "-c", f"{kit}\ncase $TEAM_AGENT in\n{cases}\nesac")


def ended(stage: Stage, session: str) -> Event:
    """The event that tells how ``session`` ended."""
    (event,) = stage.ledger(Kind.SESSION_ENDED, session=session)
    return event


def reason(stage: Stage, session: str) -> tuple[str, str]:
    """Outcome of ``session`` and why."""
    data = ended(stage, session).data
    return data["outcome"], data["reason"]


def rescued_files(stage: Stage, session: str) -> dict[str, str]:
    """What the rescue commit of ``session`` holds: path -> content."""
    ref = rescue_ref(session)
    names = git("ls-tree", "-r", "-z", "--name-only", ref, at=stage.project.rescue).decode().split("\0")[:-1]
    return {name: git("show", f"{ref}:{name}", at=stage.project.rescue).decode("utf-8", "replace") for name in names}


def rescue_ref(session: str) -> str:
    return f"refs/rescue/{session.rpartition('.')[0]}/{session}"


def assert_sound(stage: Stage) -> None:
    """Upstream and the rescue repository are whole, and nothing half-received is left."""
    for repository in (stage.project.upstream, stage.project.rescue):
        told = git("fsck", "--strict", "--full", "--no-dangling", at=repository, ok=(0, 1, 2, 3, 4)).decode()
        assert not told, f"{repository.name}: {told}"
    assert not list(stage.project.incoming.glob("*")), "a quarantine was left behind"
    assert not list(stage.project.upstream.rglob("*.lock"))


def assert_gone(stage: Stage) -> None:
    """No container, volume or socket of the project is left."""
    assert stage.on_engine() == []
    assert not list(stage.project.doors.glob("*")), "a door was left behind"


def locks(stage: Stage) -> list[str]:
    """The locks on main."""
    return [path for path in stage.files() if path.startswith("current_tasks/") and path.endswith(".txt")]


@contextmanager
def landing_held_up(stage: Stage) -> Iterator[None]:
    """Somebody else lands for as long as the block runs."""
    with stage.project.landing_lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def said(stage: Stage, session: str, words: str, seconds: float = 40) -> None:
    """Wait until ``session`` printed a line that holds ``words``."""

    def printed(stage: Stage) -> bool:
        started = stage.ledger(Kind.SESSION_STARTING, session=session)
        return bool(started) and any(words in text for text in stage.printed(session))

    await stage.until(printed, seconds)


async def push_waits(stage: Stage, seconds: float = 40) -> None:
    """Wait until a whole push is at the landing lock."""
    await stage.until(lambda s: list(s.project.incoming.glob("*/objects/??")), seconds)
    await asyncio.sleep(0.2)


async def signal(stage: Stage, word: str) -> None:
    """Let every session that waits for ``word`` go on: a person adds a task of that name, which moves main."""

    def add() -> None:
        with closing(Ledger(stage.project.ledger)) as ledger, closing(Upstream(stage.project, ledger)) as upstream:
            upstream.add_task(word, f"# {word}", Pusher("Pat Example", "pat@example.org", None))

    await asyncio.to_thread(add)
