"""What suites share that are made of shell commands: the build, the files that are cases, a command per file, and
what its end means."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from team.sampler.cases import CannotRun, Case, Options, Outcome
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings

MOST_DETAIL = 64 << 10
_BUILD_SECONDS = 3600.0
# Shells run these themselves; some are programs too, which then do not do quite the same.
_BUILTINS = frozenset(
    ". : [ alias bg break builtin case cd command continue declare do done echo elif else enable esac eval exec exit"
    " export false fg fi for function getopts hash if in jobs kill let local popd printf pushd pwd read readonly return"
    " select set shift shopt source test then time times trap true type typeset ulimit umask unalias unset until wait"
    " while".split()
)
_SPECIAL = re.compile(r"[\\$`;|&<>()*?\[\]#~!{}\n]")
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}


def place(root: Path, settings: SuiteSettings) -> Path:
    """The directory in which the suite's commands run. Raises :class:`CannotRun` where there is none."""
    found = root / settings.directory
    if not found.is_dir():
        raise CannotRun(f"[test] directory = {settings.directory!r}: there is no such directory")
    return found


def build(root: Path, settings: SuiteSettings) -> None:
    """Run the suite's build command, if any. Raises :class:`CannotRun` where it fails."""
    if not settings.build:
        return
    job = Job("build", ["sh", "-c", settings.build], place(root, settings), seconds=_BUILD_SECONDS)
    (ended,) = Pool().run([job])
    if ended.code:
        output = text(ended.output)
        raise CannotRun(f"the build failed ({ending(ended)}): {telling(output) or settings.build}", output)


def listed(root: Path, settings: SuiteSettings, default: Sequence[str] = ()) -> dict[str, str]:
    """The files that the suite's globs find: path from the top of the work tree -> path from the suite's directory,
    sorted. Raises :class:`CannotRun` where there are none."""
    base = place(root, settings)
    globs = settings.files or default
    if not globs:
        raise CannotRun(f"[test] files is empty: name globs of the files that are cases, for kind = {settings.kind!r}")
    found = {path for glob in globs for path in _matches(base, glob)}
    prefix = PurePosixPath(settings.directory)
    if not found:
        raise CannotRun(f"no file matches [test] files = {', '.join(globs)} in {settings.directory or 'the project'}")
    return {str(prefix / path): path for path in sorted(found)}


def _matches(base: Path, glob: str) -> Iterator[str]:
    # As a shell does it: hidden only if the glob says so. pathlib never goes through a link, so there is no loop.
    hidden = any(part.startswith(".") for part in PurePosixPath(glob).parts)
    start = len(str(base)) + 1
    try:
        for path in base.glob(glob):
            name = str(path)[start:]
            if (hidden or (not name.startswith(".") and "/." not in name)) and path.is_file():
                yield name
    except (ValueError, NotImplementedError, IndexError) as error:
        raise CannotRun(f"[test] files: {glob!r} is no glob below the suite's directory: {error}") from None


def cases(files: dict[str, str]) -> list[Case]:
    """A case for each file of :func:`listed`."""
    return [Case(name, name) for name in files]


class Command:
    """A command with ``{file}``, ``{stem}`` and ``{dir}``, for one file after another. What stands for them is quoted
    as its place needs it: outside and inside of quotes."""

    def __init__(self, template: str) -> None:
        self._parts = list(_parts(template))
        self._words = _words(template)

    def argv(self, path: str) -> list[str]:
        """What to run for the file ``path``; without a shell where none is needed, for a shell costs as much as a
        tiny case."""
        if self._words:
            return [fill(word, path) for word in self._words]
        values = _values(path)
        return ["sh", "-c", "".join(_quoted(values[part], quote) if quote else part for part, quote in self._parts)]


def fill(template: str, path: str) -> str:
    """``template`` with what the placeholders stand for, not quoted: for the name of a file."""
    for name, value in _values(path).items():
        template = template.replace(name, value)
    return template


def _values(path: str) -> dict[str, str]:
    directory, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0] or name
    safe = "./" if path.startswith("-") else ""  # or it would be taken for an option
    return {"{file}": safe + path, "{stem}": stem, "{dir}": safe + directory if directory else "."}


def _parts(template: str) -> Iterator[tuple[str, str]]:
    """The template in pieces: text with "", or a placeholder with the quotes around it (" " for none)."""
    quote = " "
    for piece in re.findall(r"\\.|['\"]|\{(?:file|stem|dir)\}|[^\\'\"{]+|.", template, re.S):
        if piece in ("{file}", "{stem}", "{dir}"):
            yield piece, quote
            continue
        if piece == quote or (quote == "'" and piece == "\\'"):
            quote = " "
        elif quote == " " and piece in ("'", '"'):
            quote = piece
        yield piece, ""


def _quoted(value: str, quote: str) -> str:
    if quote == " ":
        return shlex.quote(value)
    if quote == "'":
        return value.replace("'", "'\"'\"'")
    return re.sub(r'([\\$`"])', r"\\\1", value)


def _words(template: str) -> list[str]:
    """The words of a command that means the same without a shell; empty where it needs one."""
    if _SPECIAL.search(re.sub(r"\{(?:file|stem|dir)\}", "", template)):
        return []
    try:
        words = shlex.split(template)
    except ValueError:
        return []
    return [] if not words or "=" in words[0] or words[0] in _BUILTINS else words


def shown(argv: Sequence[str]) -> str:
    """``argv`` as one would type it."""
    return argv[2] if list(argv[:2]) == ["sh", "-c"] else shlex.join(argv)


def ending(ended: Ended, options: Options | None = None) -> str:
    """How a command ended, in words: "timed out after 3 s", "SIGSEGV", "exit code 1"."""
    if ended.why == "timed out":
        return f"timed out after {options.seconds if options else ended.seconds:g} s"
    if ended.why == "memory":
        most = f" of {options.memory >> 20} MiB" if options and options.memory else ""
        return f"out of memory: more than its bound{most}, or than the container has"
    if ended.why == "lost":
        return "killed or stopped its parent process"
    if ended.why:
        return ended.why
    number = crash(ended.code)
    if ended.code < 0:
        return _signal_name(-ended.code)
    return f"exit code {ended.code}" + (f" ({_signal_name(number)})" if number else "")


def outcome(ended: Ended, expected: int = 0) -> Outcome:
    """What its end alone says: also ``exit code 139`` is a crash, since a shell tells it so."""
    if ended.why == "timed out":
        return Outcome.TIMED_OUT
    if not ended.why and (ended.code if ended.code >= 0 else 128 - ended.code) == expected:
        return Outcome.PASSED
    return Outcome.CRASHED if ended.why or ended.code < 0 or crash(ended.code) else Outcome.FAILED


def crash(code: int) -> int:
    """The signal of which a shell tells by ``code``, if it is one of a program gone wrong; else 0."""
    return code - 128 if code - 128 in _CRASHES or code == 137 else 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def text(data: bytes) -> str:
    """Output as text; what is no UTF-8 is marked."""
    return data.decode("utf-8", "replace")


def telling(output: str) -> str:
    """The line that tells most: the first that speaks of an error, else the last; empty where there is none."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if "stack traceback:" in lines[1:]:  # Lua's, which comes after the error
        lines = lines[: lines.index("stack traceback:", 1)]
    for line in lines:
        if re.search(r"\b(\w*error|fatal|panic\w*|\w*exception|assert\w*|cannot|no such)\b", line, re.I):
            return line
    return lines[-1] if lines else ""


def detail(argv: Sequence[str], output: bytes, errors: bytes = b"") -> str:
    """Command and output for the log, bounded."""
    half = MOST_DETAIL // 2
    told = [
        text(part if len(part) <= half * 2 else part[:half] + b"\n[...]\n" + part[-half:])
        for part in (output, errors)
        if part
    ]
    return "\n".join([f"$ {shown(argv)}", *told])[: 2 * MOST_DETAIL]


def there(base: Path, path: str) -> bool:
    """Whether a listed file is still there."""
    return os.path.isfile(f"{base}/{path}")  # noqa: PTH113 - once a case
