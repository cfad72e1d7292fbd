"""Python's pytest, run by the project's own interpreter; our side of plugin/team_pytest.py."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from team.sampler import plugin
from team.sampler.cases import CannotRun, Case, Choose, Options, Outcome, Result, Sink
from team.sampler.process import Ended, Job, Pool
from team.sampler.settings import SuiteSettings
from team.sampler.suites.batch import build, call, how_it_ended, inside, shell
from team.sampler.suites.pytest_listing import Listings

_PLUGIN = Path(plugin.__file__).parent
_GRACE = 5.0  # seconds that a case has to end by itself, once its alarm has rung
_QUIET = 60.0  # seconds that pytest may need where no case runs, at least: to start, to import a file, to end
_HUNG = "hung"


class Pytest:
    """The suite of kind ``pytest``."""

    def __init__(self, root: Path, settings: SuiteSettings) -> None:
        self._root, self._settings = root, settings

    def list(self, options: Options) -> Sequence[Case]:
        """Every case, in the order in which pytest collects them; a file that cannot be collected is a case too."""
        found: list[Case] = []

        def none(cases: Sequence[Case]) -> list[Case]:
            found.extend(cases)
            return []

        self.run(none, replace(options, jobs=1), lambda result: None)
        return found

    def run(self, choose: Choose, options: Options, sink: Sink) -> None:
        """Run what ``choose`` returns, in ``options.jobs`` processes of pytest, each with whole files if possible."""
        place = build(self._root, self._settings)
        command = _command(self._root, place, self._settings)
        with tempfile.TemporaryDirectory(prefix="team-pytest-", ignore_cleanup_errors=True) as folder:
            _Run(self._root, place, command, options, sink, Path(folder)).all(choose)


# -- how it is called ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Command:
    text: str
    """As a person would type it."""
    argv: Sequence[str]
    """Empty: a shell command."""

    def __call__(self, *arguments: str) -> list[str]:
        return [*self.argv, *arguments] if self.argv else shell(self.text, arguments)


def _command(root: Path, place: Path, settings: SuiteSettings) -> _Command:
    """How pytest is called: by the setting, by the project's virtual environment, or as it is installed."""
    if settings.run:
        return _Command(settings.run, ())
    homes = dict.fromkeys(top / name for top in (place, root) for name in (".venv", "venv"))
    pythons = [str(home / "bin" / "python") for home in homes if (home / "bin" / "python").exists()]
    installed = shutil.which("python3")
    for python in [*pythons, *([installed] if installed else [])]:
        if _has_pytest(python, place):
            name = inside(Path(python).parent, root)
            return _Command(f"{name}/python -m pytest" if name else "python3 -m pytest", (python, "-m", "pytest"))
    if shutil.which("pytest"):
        return _Command("pytest", ("pytest",))
    python = os.path.relpath(pythons[0], root) if pythons else "python3"
    raise CannotRun(
        f"pytest is not installed: `{python} -m pip install pytest`, or say in team.toml, [test] run, how it is called"
    )


def _has_pytest(python: str, place: Path) -> bool:
    if any(Path(python).parent.parent.glob("lib/python*/site-packages/pytest/__init__.py")):
        return True
    asks = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('pytest'))"
    return call([python, "-c", asks], place).code == 0


# -- one process -----------------------------------------------------------------------------------------------


class _Process:
    """One process of pytest, and what it has told. ``lists``: it collects everything, tells, and then waits."""

    def __init__(self, folder: Path, *, lists: bool, seconds: float, order: Mapping[str, Any]) -> None:
        self.folder, self.lists, self._seconds = folder, lists, seconds
        self.names: list[str] = []
        self.whole = lists
        """It collects all files, so that what it does not find is not there."""
        self.listed = self.moved = False
        self.kind, self.since = "", time.monotonic()
        self.what: list[str] = []
        """What it does, and since when: waits for us, collects a file (node, path), runs a case (name)..."""
        self._events: IO[bytes] | None = None
        self._rest = b""
        folder.mkdir()
        (folder / "order").write_text(json.dumps({**order, "list": lists, "seconds": seconds}))

    @property
    def key(self) -> str:
        return self.folder.name

    def choose(self, names: Sequence[str], only: Sequence[str] | None) -> None:
        """Tell it what to run; ``only`` what files to collect for that, None: all."""
        self.names = list(names)
        self.whole = self.whole or only is None
        new = self.folder / "choice.new"
        new.write_text(json.dumps({"names": self.names, "only": only}))
        new.rename(self.folder / "choice")

    def news(self) -> Iterator[list[Any]]:
        """What it has told since the last call."""
        if self._events is None:
            try:
                self._events = (self.folder / "events").open("rb")
            except FileNotFoundError:
                return
        *lines, self._rest = (self._rest + self._events.read()).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # a test got at it
                continue
            if event[0] in ("waits", "begins", "collect", "start", "idle", "end"):
                self.kind, self.what, self.since = event[0], event[1:-1], event[-1]
            yield event

    def hangs(self) -> bool:
        """Whether it must be killed."""
        bounds = {"waits": float("inf"), "start": self._seconds + _GRACE, "end": _GRACE}
        return time.monotonic() - self.since > bounds.get(self.kind, max(self._seconds, _QUIET))

    def close(self) -> None:
        if self._events:
            self._events.close()


# -- a run -----------------------------------------------------------------------------------------------------


class _Run:
    """From the listing to the last result."""

    def __init__(self, root: Path, place: Path, command: _Command, options: Options, sink: Sink, folder: Path) -> None:
        self._root, self._place, self._command = root, place, command
        self._options, self._sink, self._folder = options, sink, folder
        self._listings = Listings(place, command(), os.environ)
        self._paths: dict[str, str] = {}
        """The file of each listed case."""
        self._todo: dict[str, None] = {}
        """The chosen cases without a result."""
        self._doubtful: set[str] = set()
        """Chosen cases that were not found in the file that holds them."""
        self._killers: dict[str, dict[str, str]] = {}
        """By path: files that take pytest down while they are collected."""
        self._chosen = False
        self._count = 0

    def all(self, choose: Choose) -> None:
        self._choose = choose
        known = self._listings.load()
        if known is not None:
            self._begin(known, [])
        while not self._chosen:
            first = self._new(lists=True)
            self._round([first, *(self._new() for _ in range(1, self._options.jobs))])
        while self._todo:
            self._round(self._next())

    def _new(self, *, lists: bool = False) -> _Process:
        self._count += 1
        order = {
            "record": lists and self._listings.possible,
            "skip": list(self._killers),
            "root": str(self._root),
        }
        return _Process(self._folder / str(self._count), lists=lists, seconds=self._options.seconds, order=order)

    def _next(self) -> list[_Process]:
        """Processes for what is left. What was not where it should be is looked for everywhere, once."""
        sure = [name for name in self._todo if name not in self._doubtful]
        processes = []
        for names in _shards(sure, self._paths, self._options.jobs):
            processes.append(self._new())
            self._give(processes[-1], names)
        if self._doubtful:
            self._listings.distrust()
            processes.append(self._new())
            processes[-1].choose([name for name in self._todo if name in self._doubtful], None)
        return processes

    def _give(self, process: _Process, names: Sequence[str]) -> None:
        process.choose(names, list(dict.fromkeys(self._paths[name] for name in names)))

    def _round(self, processes: Sequence[_Process]) -> None:
        live = {process.key: process for process in processes}

        def look(pool: Pool) -> None:
            for process in live.values():
                self._hear(process, processes)
                if process.hangs():
                    pool.kill(process.key, _HUNG)

        pool = Pool(len(live), on_output=lambda key, chunk: self._hear(live[key], processes), on_tick=look)
        try:
            for end in pool.run(map(self._job, processes)):
                process = live.pop(end.key)
                self._hear(process, processes)
                self._settle(process, _unshelled(end, self._command))
                if process.lists and not process.listed:
                    for key in live:  # they would wait for ever
                        pool.kill(key, _HUNG)
        finally:
            for process in processes:
                process.close()

    def _job(self, process: _Process) -> Job:
        path = os.pathsep.join(filter(None, [str(_PLUGIN), os.environ.get("PYTHONPATH", "")]))
        env = {"TEAM_PYTEST": str(process.folder), "PYTHONPATH": path}
        argv = self._command("-p", "team_pytest", "--color=no")
        return Job(process.key, argv, self._place, env, memory=self._options.memory)

    # What a process tells

    def _hear(self, process: _Process, processes: Sequence[_Process]) -> None:
        for event in process.news():
            if event[0] == "result":
                process.moved = True
                self._result(Result(**{**event[1], "outcome": Outcome(event[1]["outcome"])}))
            elif event[0] == "missing":
                self._missing(process, event[1], {each["path"]: each for each in event[2]})
            elif event[0] == "waits" and process.lists and not process.listed:
                process.listed = True
                found = json.loads((process.folder / "listing").read_bytes())
                self._remember(found)
                self._begin(found["cases"], found["broken"], processes)

    def _result(self, result: Result) -> None:
        if result.name in self._todo:
            del self._todo[result.name]
            self._doubtful.discard(result.name)
            self._sink(result)

    def _remember(self, found: Mapping[str, Any]) -> None:
        """An import that fails may depend on anything, so then there is nothing to remember."""
        if found["facts"] and not found["broken"] and not self._killers:
            self._listings.save(found["cases"], found["facts"])

    def _begin(
        self, cases: Iterable[tuple[str, str]], broken: Sequence[Mapping[str, str]], processes: Sequence[_Process] = ()
    ) -> None:
        """All cases are known: have some chosen, and hand them to the processes that wait."""
        self._paths = dict(cases)
        bad = {each["name"]: each for each in [*broken, *self._killers.values()]}
        if not self._paths:
            raise _nothing([_broken(each) for each in bad.values()], self._command)
        paths = self._paths | {name: each["path"] for name, each in bad.items()}
        inner = {path: inside(Path(path), self._root) for path in {*paths.values()}}
        listed = [Case(name, inner[path], broken=name in bad) for name, path in paths.items()]
        chosen = [case.name for case in self._choose(listed)]
        self._chosen = True
        self._todo = dict.fromkeys(chosen)
        for name in chosen:
            if name in bad:
                self._result(_broken(bad[name]))
        shards = _shards(list(self._todo), self._paths, len(processes))
        for process, names in zip(processes, [*shards, *([[]] * len(processes))], strict=False):
            self._give(process, names)

    def _missing(self, process: _Process, names: Sequence[str], broken: Mapping[str, Mapping[str, str]]) -> None:
        process.moved = True
        for name in names:
            if cause := broken.get(self._paths[name]):
                self._result(replace(_broken(cause), name=name))
            elif process.whole:
                self._result(Result(name, Outcome.GONE, 0.0, "it was listed, but not found when it was to run"))
            else:
                self._doubtful.add(name)

    # What its end tells

    def _settle(self, process: _Process, end: Ended) -> None:
        """Give a result to the case, or the file, that took the process down."""
        left = [name for name in process.names if name in self._todo]
        if process.lists and not process.listed:
            if process.kind != "collect":
                raise _cannot(self._command, end, self._options)
            self._blame_file(process, end)
        elif not left:
            return
        elif process.kind == "start" and process.what[0] in self._todo:
            self._blame(process.what, process, end)
        elif process.kind == "collect":
            self._blame_file(process, end)
            self._blame([name for name in left if self._paths[name] == process.what[1]], process, end)
        elif not process.moved:
            self._blame(left, process, end)

    def _blame(self, names: Iterable[str], process: _Process, end: Ended) -> None:
        seconds = time.monotonic() - process.since
        outcome, reason, detail = self._verdict(process, end)
        for name in names:
            self._result(Result(name, outcome, seconds, reason, detail))

    def _blame_file(self, process: _Process, end: Ended) -> None:
        outcome, reason, detail = self._verdict(process, end)
        name, path = process.what
        self._killers[path] = {"name": name, "path": path, "reason": reason, "detail": detail, "outcome": outcome}

    def _verdict(self, process: _Process, end: Ended) -> tuple[Outcome, str, str]:
        detail = end.output.decode("utf-8", "replace")
        if end.why == _HUNG:
            said = f"no end after {self._options.seconds:g} s, and it could not be interrupted"
            return Outcome.TIMED_OUT, said, detail
        reason = how_it_ended(end, self._options)
        if process.kind in ("start", "collect"):
            return Outcome.CRASHED, reason, detail
        return Outcome.CRASHED, f"pytest ended without running it: {_telling(detail) or reason}", detail


def _shards(names: Sequence[str], paths: Mapping[str, str], count: int) -> list[list[str]]:
    """``names`` in at most ``count`` parts of like size; a file is cut only where it is larger than a part."""
    if not names or not count:
        return []
    share = -(-len(names) // count)
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(paths[name], []).append(name)
    pieces = [held[at : at + share] for held in files.values() for at in range(0, len(held), share)]
    shards: list[list[str]] = [[] for _ in range(count)]
    for piece in sorted(pieces, key=len, reverse=True):
        min(shards, key=len).extend(piece)
    return [shard for shard in shards if shard]


# -- words -----------------------------------------------------------------------------------------------------


def _broken(each: Mapping[str, str]) -> Result:
    """Of a file that cannot be collected."""
    outcome = Outcome(each.get("outcome", Outcome.FAILED))
    return Result(each["name"], outcome, 0.0, f"it cannot be collected: {each['reason']}", each["detail"])


def _nothing(broken: Sequence[Result], command: _Command) -> CannotRun:
    """The error for a suite without a single case that could run."""
    if not broken:
        return CannotRun(
            f"`{command.text}` found no tests: name files test_*.py and functions test_*, or say in team.toml, "
            "[test] directory or run, where they are"
        )
    files = "the only test file" if len(broken) == 1 else f"none of the {len(broken)} test files"
    verb = "cannot be collected" if len(broken) == 1 else "can be collected"
    text = "\n\n".join(f"{each.name}: {each.reason}\n{each.detail}" for each in broken)
    return CannotRun(f"{files} {verb}; {broken[0].name}: {broken[0].reason}", text)


def _cannot(command: _Command, end: Ended, options: Options) -> CannotRun:
    """The error for a pytest that ended before it had listed anything."""
    text = end.output.decode("utf-8", "replace")
    if end.why == _HUNG:
        seconds = max(options.seconds, _QUIET)
        return CannotRun(f"`{command.text}` did nothing for {seconds:g} s; see its conftest.py", text)
    if "No module named pytest" in text:
        python = command.argv[0] if command.argv else "python"
        return CannotRun(f"`{command.text}`: pytest is not installed: `{python} -m pip install pytest`", text)
    if end.code == 127 and not command.argv:
        return CannotRun(f"[test] run = `{command.text}`: {_telling(text) or 'no such command'}", text)
    if 'Error importing plugin "team_pytest"' in text:
        return CannotRun(f"[test] run = `{command.text}` must let PYTHONPATH through to pytest", text)
    said = _telling(text) or how_it_ended(end, options)
    if end.code == 0 and not end.why:
        said = "it did not list any tests; [test] run must call pytest, with the arguments that are put behind it"
    return CannotRun(f"`{command.text}` cannot run: {said}", text)


def _telling(text: str) -> str:
    """The line of pytest's output that says why it ended; empty: none."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    conftest = next((line for line in lines if line.startswith("ImportError while loading conftest")), "")
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    if conftest:
        return f"{conftest.rstrip('.')}: {errors[-1]}" if errors else conftest
    for sign in ("INTERNALERROR>", "!!!"):
        found = [line.strip("! ").removeprefix("INTERNALERROR>").strip() for line in lines if line.startswith(sign)]
        if any(found):
            return next(line for line in reversed(found) if line)
    usage = [line for line in lines if ": error: " in line] + [line for line in lines if line.startswith("ERROR: ")]
    return (usage or lines[-1:] or [""])[0]


def _unshelled(end: Ended, command: _Command) -> Ended:
    """A shell tells of a signal by a code of its own."""
    return replace(end, code=128 - end.code) if not command.argv and 128 < end.code < 160 else end
