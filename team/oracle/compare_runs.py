"""One run of one command on one input: a fresh directory, and all that came of it, bounded and normalised."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from team.oracle.difference import Outcome
from team.oracle.normalise import Normaliser
from team.sampler.process import Ended, Job

KEPT = 1 << 20
"""Bytes of a stream or a file that are compared: the first and the last half, and how much lies between."""
_FILES = 1000
_FILE_BLOCKS = 1 << 21  # of 512 bytes: what a run may write into one file
_HOLES = re.compile(r"""(?P<quote>["'])\{(?P<quoted>input|root|seed)\}(?P=quote)|\{(?P<bare>input|root|seed)\}""")

Steps = Generator[Job, Ended, None]


class Place:
    """Where runs happen, one at a time: reference and candidate get the same paths, so that none differs by them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.temporary = folder / "tmp"

    def clear(self) -> None:
        """Nothing of the run before is left."""
        for path in (self.work, self.temporary):
            wipe(path)
            path.mkdir(parents=True)

    def put(self, data: bytes, name: str) -> Path:
        """An input that is no file of the project; ``name``: for its ending, which many programs look at."""
        folder = self.folder / "input"
        wipe(folder)
        folder.mkdir(parents=True)
        path = folder / (Path(name).name or "input")
        path.write_bytes(data)
        return path


class Runner:
    """Runs a command; as a generator of jobs, so that many go on at once in one pool."""

    def __init__(
        self,
        root: Path,
        command: str,
        normal: Normaliser,
        *,
        stdin: bool = False,
        files: Sequence[str] = (),
        seconds: float,
        memory: int | None,
    ) -> None:
        """``files``: globs of what it writes that counts; all where there are none."""
        self.root, self.seconds = root, seconds
        prelude = f"ulimit -f {_FILE_BLOCKS} 2>/dev/null\n" + ('exec <"$TEAM_INPUT"\n' if stdin else "")
        self._script = prelude + filled(command)
        self._normal, self._files, self._memory = normal, files, memory

    def run(self, place: Place, path: Path, seconds: float | None = None) -> Generator[Job, Ended, Outcome]:
        """What comes of it on the input at ``path``. ``seconds``: instead of the usual time limit."""
        place.clear()
        env = {
            "TEAM_INPUT": str(path),
            "TEAM_ROOT": str(self.root),
            "TMPDIR": str(place.temporary),
        }
        ended = yield Job(
            str(place.folder),
            ["sh", "-c", self._script],
            place.work,
            env,
            seconds=seconds or self.seconds,
            memory=self._memory,
            output=KEPT,
            merge=False,
        )
        return self._outcome(ended, place, path)

    def _outcome(self, ended: Ended, place: Place, path: Path) -> Outcome:
        hide = _hidden([(str(path), "<input>"), (str(place.work), "<dir>"), (str(place.temporary), "<tmp>")])

        def text(data: bytes) -> str:
            return self._normal(hide(data.decode(errors="surrogateescape")))

        errors = text(ended.errors)
        streams = {"stdout": text(ended.output)} | ({"stderr": errors} if self._normal.stderr else {})
        for name, data in _written(place.work):
            if not self._files or any(fnmatch(name, pattern) for pattern in self._files):
                streams[f"file {name}"] = text(data)
        code = 128 - ended.code if ended.code < 0 else ended.code
        cut = len(ended.output) > KEPT or len(ended.errors) > KEPT
        return Outcome(0 if ended.why else code, ended.why, streams, errors, ended.seconds, cut)


def filled(command: str) -> str:
    """``command`` with ``{input}``, ``{root}`` and ``{seed}`` as shell variables, quoted as they stand there."""

    def variable(found: re.Match[str]) -> str:
        name = f"${{TEAM_{(found['quoted'] or found['bare']).upper()}}}"
        inside = not found["quoted"] and _in_double_quotes(command[: found.start()])
        return name if inside else f'"{name}"'

    return _HOLES.sub(variable, command)


def for_hand(command: str, root: Path, path: Path, *, stdin: bool) -> str:
    """``command`` on the input at ``path`` as a person can type it."""
    variables = f"TEAM_ROOT={shlex.quote(str(root))} TEAM_INPUT={shlex.quote(str(path))}"
    return f"{variables} sh -c {shlex.quote(filled(command))}" + (f" <{shlex.quote(str(path))}" if stdin else "")


def wipe(path: Path) -> None:
    """Remove a directory, also where a program took our rights in it away."""
    if not os.path.lexists(path):
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(0o700)
            for each in os.scandir(folder):
                if each.is_dir(follow_symlinks=False):
                    Path(each.path).chmod(0o700)
        shutil.rmtree(path)


def _in_double_quotes(text: str) -> bool:
    quote = ""
    for mark in re.findall(r"""\\.|["']""", text, re.S):
        if mark == quote:
            quote = ""
        elif not quote and mark in ('"', "'"):
            quote = mark
    return quote == '"'


def _hidden(paths: Sequence[tuple[str, str]]) -> Callable[[str], str]:
    def hide(text: str) -> str:
        for path, word in paths:
            text = text.replace(path, word)
        return text

    return hide


def _written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of what lies below ``folder``; of anything but files and links the kind only."""
    count = 0
    for at, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if (Path(at) / name).is_symlink()]
        for name in sorted(files + links):
            path = Path(at) / name
            if count == _FILES:
                yield f"more than {_FILES} files", b""
                return
            count += 1
            yield str(path.relative_to(folder)), _content(path)


def _content(path: Path) -> bytes:
    try:
        kind = path.lstat()
        if stat.S_ISLNK(kind.st_mode):
            return b"link to " + os.fsencode(path.readlink())
        if not stat.S_ISREG(kind.st_mode):
            return b"no regular file"
        if kind.st_size <= KEPT:
            return path.read_bytes()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            head = file.read(KEPT // 2)
            file.seek(-KEPT // 2, os.SEEK_END)
            return head + f"\n[... {kind.st_size} bytes, sha256 {digest} ...]\n".encode() + file.read()
    except OSError:
        return b"unreadable"
