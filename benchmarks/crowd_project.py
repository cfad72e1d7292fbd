"""The project of the crowd: a real source tree with a long history of its own, and tickets that share files."""

from __future__ import annotations

import random
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from team.rehearsal import protocol
from team.rehearsal.protocol import Mark
from team.rehearsal.script import Step

AUTHORS = ("Ada", "Barbara", "Claude", "Dennis", "Edsger", "Frances", "Grace", "Ken", "Leslie", "Margaret", "Niklaus")
MARKER = "# crowd: "
MOST_TURNS = 40
"""A session that has not landed by then gives up."""
_BEGAN = 1_700_000_000
# Says the commit of each push that git calls a success, and how many milliseconds it took.
_WITNESS = """\
git() {
[ "$1" = push ] || { command git "$@"; return; }
began=$(date +%s%N); command git "$@" || return
echo "PUSHED $(command git rev-parse HEAD) $((($(date +%s%N) - began) / 1000000))"
}
"""


@dataclass(frozen=True)
class Ticket:
    """One line to add to one file."""

    path: str
    top: bool
    """At the top of the file, else at its end, where others add theirs."""


def tickets(files: Mapping[str, bytes], count: int) -> dict[str, Ticket]:
    """``count`` tickets by name. Of four in a row two end the same file and so conflict when they are done at once,
    two share another file and merge."""
    # An underlined heading looks like a mark of a conflict, which agents remove line by line.
    fit = sorted(path for path, data in files.items() if data.count(b"\n") > 20 and b"\n=======\n" not in data)
    picked = random.Random(1).sample(fit, len(fit))
    made = {}
    for n in range(count):
        path = picked[(n // 2) % len(picked)]
        made[f"note_{n:04}"] = Ticket(path, top=n % 4 == 2)
    return made


def download(package: str, into: Path) -> dict[str, bytes]:
    """The Python files of the newest release of ``package``, by path."""
    pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:", "--dest", str(into)]
    subprocess.run([*pip, package], check=True)
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in sorted(file.namelist()) if name.endswith(".py")}


def make(path: Path, files: Mapping[str, bytes], made: Mapping[str, Ticket], commits: int) -> None:
    """Write ``files`` to a new repository at ``path``, grown in ``commits`` commits, the last of which adds the
    tickets. Author, dates and order are fixed, so the commits of the same files have the same names everywhere."""
    if commits <= len(files):
        raise SystemExit(f"{len(files)} files need more than {commits} commits")
    chance = random.Random(2)
    names = list(files)
    steps = names + chance.choices(names, [len(files[n]) + 1 for n in names], k=commits - 1 - len(names))
    chance.shuffle(steps)
    times, lines = {n: steps.count(n) for n in names}, {n: data.splitlines(True) for n, data in files.items()}
    done = dict.fromkeys(names, 0)
    stream: list[bytes] = []
    for n, name in enumerate(steps):
        done[name] += 1
        text = b"".join(lines[name][: len(lines[name]) * done[name] // times[name]])
        verb = "Begin" if done[name] == 1 else "Go on with"
        stream.append(_commit(n, chance.choice(AUTHORS), f"{verb} {name}", {name: text}))
    stream.append(_commit(commits - 1, AUTHORS[0], "Write down what is to do", _tickets_as_files(made)))
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    subprocess.run(["git", "fast-import", "--quiet"], input=b"".join(stream), cwd=path, check=True)
    subprocess.run(["git", "reset", "-q", "--hard"], cwd=path, check=True)


def _tickets_as_files(made: Mapping[str, Ticket]) -> dict[str, bytes]:
    files = {"current_tasks/.gitkeep": b""}
    for name, ticket in made.items():
        where = "at the top" if ticket.top else "at the end"
        text = f"# Note in {ticket.path} who was here\n\nAdd the line `{MARKER}{name} by SESSION` {where}.\n"
        files[f"tasks/{name}.md"] = f"{text}Check: `{check(name, ticket)}`\n".encode()
    return files


def _commit(n: int, author: str, subject: str, files: Mapping[str, bytes]) -> bytes:
    who = f"{author} <{author.lower()}@example.invalid> {_BEGAN + 600 * n} +0000"
    head = f"commit refs/heads/main\nauthor {who}\ncommitter {who}\ndata {len(subject.encode())}\n{subject}\n"
    parts = [head.encode()]
    for path, data in files.items():
        parts.append(f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
    return b"".join(parts)


def check(task: str, ticket: Ticket) -> str:
    """The quick check: the line is there once, and the file still parses."""
    parses = f"import ast, pathlib; ast.parse(pathlib.Path('{ticket.path}').read_bytes())"
    return f"test $(grep -c '^{MARKER}{task} by ' {ticket.path}) = 1 && python3 -c \"{parses}\""


@dataclass(frozen=True)
class CrowdScript:
    """Leads each session through one ticket. All of a crowd want one of the same few, so that claims collide."""

    made: Mapping[str, Ticket]
    agents: int

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        """The answer to a request; see :class:`team.rehearsal.script.Script`."""
        if turn == 0:
            return _run(protocol.look())
        mark = protocol.mark(last_tool_result)
        if mark is None or turn >= MOST_TURNS:
            return Step(f"I cannot go on after {turn} commands.")
        return self._after(agent, session, mark)

    def _after(self, agent: str, session: str, mark: Mark) -> Step:
        task, seat = mark.rest[0] if mark.rest else "", protocol.number(agent)
        apart = seat % 4 == 2  # releases in a push of its own
        match mark.word:
            case "OPEN":
                return self._pick(mark.rest, random.Random(session).randrange(max(1, self.agents // 2)))
            case "REFUSED":
                return self._pick(mark.rest[1:], seat - 1)
            case "CLAIMED":
                return _run(self._work(task, session))
            case "PASSED":
                return _run(protocol.land(task, f"Note {session} in {self.made[task].path}", release=not apart))
            case "NOT_LANDED":
                return _run(protocol.pull(task, self._check(task)))
            case "CONFLICT":
                return _run(protocol.resolve(task, f"Note {session} and others", self._check(task)))
            case "LANDED" if not apart:
                return Step(f"Landed and released {task}.")
            case "LANDED" | "GONE" | "NOT_RELEASED":
                return _run(protocol.release(task))
            case "RELEASED":
                return Step(f"Released {task}.")
        return Step(f"{mark.word.lower()} {task}: I stop here.")

    def _pick(self, open_: tuple[str, ...], place: int) -> Step:
        known = [task for task in open_ if task in self.made]
        if not known:
            return Step("No task is open, so there is nothing to do.")
        task = known[place % len(known)]
        return _run(protocol.claim(task, f"Note in {self.made[task].path}"))

    def _work(self, task: str, session: str) -> str:
        ticket, line = self.made[task], f"{MARKER}{task} by {session}"
        add = f"sed -i '1i {line}' {ticket.path}" if ticket.top else f"echo '{line}' >> {ticket.path}"
        return f"# Work on {task}\n{add}\n{protocol.test(task, self._check(task))}"

    def _check(self, task: str) -> str:
        return check(task, self.made[task])


def _run(command: str) -> Step:
    title, _, rest = command.partition("\n")
    return Step(commands=(f"{title}\n{_WITNESS}{rest}",))
