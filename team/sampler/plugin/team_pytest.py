"""The pytest side of ``team test``, and ``pytest --team-fast``. PYTEST_DONT_REWRITE

One file that stands alone: it runs in the project's own interpreter, which may be any Python from 3.8 on with any
pytest from 6 on, and has no ``team``. Two things are in it:

- The *channel*: ``team test`` starts pytest with ``-p team_pytest`` and a directory (TEAM_PYTEST) to speak through. We
  write down which cases there are, wait for the choice, run only that, and tell what came of each as it comes.
- The option ``--team-fast`` for those who call pytest themselves: asks ``team test`` which cases to run.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import pytest

# Much of this runs for each file or each case, so without pathlib.
# ruff: noqa: PTH100, PTH105, PTH109, PTH110, PTH112, PTH118, PTH119, PTH120, PTH123

_HERE = os.path.dirname(os.path.abspath(__file__))
_PYTEST = int(pytest.__version__.split(".")[0])
_DETAIL = 60_000  # characters
_REASON = 500
_CHANNEL_NAME = "team-channel"
_FAST_NAME = "team-fast"

# Options that would keep a case from being run, or run it elsewhere, whatever the project's addopts say.
_TAMED: dict[str, object] = {
    "continue_on_collection_errors": True,
    "maxfail": 0,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "usepdb": False,
    "trace": False,
    "numprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
}

# What reaches beyond files, by its audit event.
_STARTS = ("subprocess.Popen", "os.fork", "os.system", "os.posix_spawn", "socket.connect")
# What platform and ctypes.util start, to learn of the machine.
_HARMLESS = ("uname", "ldconfig", "gcc", "cc", "ld", "objdump")


# -- results ---------------------------------------------------------------------------------------------------


def bounded(text: str, most: int = _DETAIL) -> str:
    """The first and the last half of a long text."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def outcome(reports: Sequence[Any], root: str) -> dict[str, Any]:
    """What came of one case, from the reports of its set-up, call and tear-down (and subtests)."""
    failed = [report for report in reports if report.failed]
    skipped = [report for report in reports if report.skipped and not hasattr(report, "context")]
    result = {"outcome": "passed", "seconds": sum(getattr(report, "duration", 0.0) for report in reports)}
    if failed:
        where = "" if failed[0].when == "call" else f"{failed[0].when}: "
        detail = "\n".join(_text(report) for report in failed)
        result.update(outcome="failed", reason=where + reason(failed[0], root), detail=bounded(detail))
    elif skipped or not reports:
        result.update(outcome="skipped", reason=_why_skipped(skipped[0]) if skipped else "")
    return result


def reason(report: Any, root: str) -> str:
    """The line that tells most: the assertion or the exception, and where."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return _last_line(report.longreprtext)[:_REASON]
    message = next((line for line in str(crash.message).splitlines() if line.strip()), "no message").strip()
    if message.startswith("assert "):
        message = "AssertionError: " + message
    return f"{message[:_REASON]} ({place(report, root)})"


def place(report: Any, root: str) -> str:
    """File and line: of the project where possible, else where it was raised."""
    crash = report.longrepr.reprcrash
    found: str = getattr(report, "team_place", "") or f"{crash.path}:{crash.lineno}"
    return found[len(root) + 1 :] if found.startswith(root + os.sep) else found


def note_place(report: Any, call: Any, root: str) -> None:
    """Note in a report where in the project it was raised: a library's line tells less."""
    if report.failed and call.excinfo is not None:
        for entry in reversed(call.excinfo.traceback):
            path = str(entry.path)
            if path.startswith(root + os.sep) and "site-packages" not in path and not _hidden(entry):
                report.team_place = f"{path}:{entry.lineno + 1}"
                return


def _hidden(entry: Any) -> bool:
    return bool(entry.frame.f_locals.get("__tracebackhide__", False))


def _last_line(text: str) -> str:
    """Of a text that is all we have: what a doctest expected and got, an import that failed, or the last line."""
    lines = text.splitlines()
    flat = [line.strip() for line in lines]
    if "Expected:" in flat and "Got:" in flat:
        expected, got = flat.index("Expected:"), flat.index("Got:")
        last = next((line for line in reversed(flat) if line), "")
        return f"expected {' '.join(flat[expected + 1 : got])}, got {' '.join(flat[got + 1 : got + 2])} ({last})"
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    found = [line for line in errors or flat if line]
    if not found:
        return "no message"
    at = re.findall(r'^File "(.+)", line (\d+)$', "\n".join(errors), re.M)
    if at and re.match(r"(Syntax|Indentation|Tab)Error", found[-1]):  # it says all but where
        path = at[-1][0]
        here = os.getcwd() + os.sep
        return f"{found[-1]} ({path[len(here) :] if path.startswith(here) else path}:{at[-1][1]})"
    return found[-1]


def _text(report: Any) -> str:
    captured = [f"---- {title} ----\n{text}" for title, text in report.sections]
    return "\n".join([report.longreprtext, *captured])


def _why_skipped(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"[:_REASON]
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:_REASON]
    return _last_line(report.longreprtext)[:_REASON]


# -- the channel -----------------------------------------------------------------------------------------------


class TimeLimit(BaseException):
    """Raised in a case that takes too long. Not an Exception, so that few cases swallow it."""


class Channel:
    """Speaks with ``team test`` through files in ``directory``:

    ``order``    from it, there before we start: {"list": whether to list, "record": whether to say what the listing
                 depends on, "skip": files not to collect, "seconds": of a case, "root": of the project}
    ``listing``  from us: what was collected, and what that depended on
    ``choice``   from it: {"names": cases to run, "only": files that hold them, or null for all}
    ``events``   from us, a line each: what is collected, what begins, what came of it
    """

    def __init__(self, directory: str, order: dict[str, Any], recorder: Recorder | None) -> None:
        self.directory = directory
        self.order = order
        self.root = order["root"]
        self.seconds = order["seconds"]
        self.recorder = recorder
        self.skip: set[str] = set(order["skip"])
        self.only: set[str] | None = None
        self.above: set[str] = set()
        self.choice: dict[str, Any] | None = None
        self.names: dict[Any, str] = {}
        self.paths: dict[str, str] = {}
        self.broken: list[dict[str, str]] = []
        self.reports: list[Any] = []
        self.pid = os.getpid()
        self.stdout = os.dup(1)  # as it is before pytest captures it
        self.fd = -1
        self.inode = (0, 0)
        self.pending = b""
        self.armed = self.late = False
        self.handler: Any = None

    # Speaking

    def tell(self, *event: Any) -> None:
        """Append an event. A test may have closed our descriptor, or opened another file there."""
        if os.getpid() != self.pid:
            return
        data, self.pending = self.pending + _line(event), b""
        try:
            now = os.fstat(self.fd)
            ours = (now.st_dev, now.st_ino) == self.inode
        except OSError:
            ours = False
        if not ours:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            low = os.open(os.path.join(self.directory, "events"), flags, 0o600)
            # High up: pytest would write to what we open where its own files were, if a test has closed those.
            self.fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 300)
            os.close(low)
            now = os.fstat(self.fd)
            self.inode = (now.st_dev, now.st_ino)
        while data:
            data = data[os.write(self.fd, data) :]

    def nudge(self) -> None:
        """Wake who reads our standard output: there is news in the files."""
        with contextlib.suppress(OSError):
            os.write(self.stdout, b"\n")

    def wait(self) -> dict[str, Any]:
        """The choice, as soon as it is there."""
        path = os.path.join(self.directory, "choice")
        while self.choice is None:
            if not os.path.isdir(self.directory):
                pytest.exit("nobody waits for the results any more", 2)
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self.choice = json.load(file)
                break
            time.sleep(0.004)
        return self.choice

    # Collecting

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        if not self.order["list"]:
            self.tell("waits", time.monotonic())
            only = self.wait()["only"]
            if only is not None:
                self.only = set(only)
                self.above = {above for path in only for above in _above(path)}
        self.tell("begins", time.monotonic())

    if _PYTEST >= 7:

        @pytest.hookimpl(tryfirst=True)
        def pytest_ignore_collect(self, collection_path: Any) -> bool | None:
            return self.ignored(str(collection_path))

    else:

        @pytest.hookimpl(tryfirst=True)
        def pytest_ignore_collect(self, path: Any) -> bool | None:  # type: ignore[misc]
            return self.ignored(str(path))

    def ignored(self, path: str) -> bool | None:
        """True for a file that nothing is wanted of; a package's ``__init__.py`` always belongs to it."""
        if path in self.skip:
            return True
        if self.only is None or os.path.basename(path) == "__init__.py":
            return None
        if path in self.only or path in self.above or not self.only.isdisjoint(_above(path)):
            return None
        return True

    def pytest_collectstart(self, collector: Any) -> None:
        path = _path(collector)
        self.paths[collector.nodeid] = path
        if isinstance(collector, pytest.File):
            self.tell("collect", collector.nodeid, path, time.monotonic())

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            path = self.paths.get(report.nodeid, "")
            name = report.nodeid or path or "collection"
            text = bounded(_text(report))
            self.broken.append({"name": name, "path": path, "reason": reason(report, self.root), "detail": text})

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: Any, items: builtins.list[Any]) -> Generator[None, Any, None]:
        """Outermost, so that we see what plugins left, in whatever order they put it."""
        before = {id(item): number for number, item in enumerate(items)}
        result = yield
        if result.excinfo is not None:
            return
        self.names = named(sorted(items, key=lambda item: before.get(id(item), len(before))))
        if self.order["list"]:
            self.list()
        choice = self.wait()
        wanted = set(choice["names"])
        _keep(config, items, [item for item in items if self.names[item] in wanted])
        missing = wanted.difference(self.names.values())
        if missing:
            self.tell("missing", sorted(missing), [] if self.order["list"] else self.broken)

    def list(self) -> None:
        """Write down what there is, and give a sign."""
        cases = [[name, _path(item)] for item, name in self.names.items()]
        listing = {"cases": cases, "broken": self.broken, "facts": self.recorder and self.recorder.facts()}
        path = os.path.join(self.directory, "listing")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(listing, file)
        os.replace(path + ".new", path)
        self.tell("waits", time.monotonic())
        self.nudge()

    # Running

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Generator[None, Any, None]:
        name = self.names.get(item)
        if name is None:  # made while others ran
            yield
            return
        self.reports.clear()
        self.tell("start", name, time.monotonic())
        self.arm()
        result = yield
        self.disarm()
        if os.getpid() != self.pid:  # a case forked, and its child came back to run the other cases too
            os._exit(70)
        came = outcome(self.reports, self.root)
        if self.late:
            came.update(outcome="timed_out", reason=self.why_late())
        elif result.excinfo is not None:  # ends the whole run: pytest.exit, or a Ctrl-C
            kind, value = result.excinfo[:2]
            came.update(outcome="crashed", reason=f"{kind.__name__}: {value}")
        self.pending = _line(("result", dict(came, name=name)))
        if nextitem is None or self.late or result.excinfo is not None:
            self.flush()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.reports.append(report)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, None]:
        """Keeps no gigabyte of output, which pytest would until its end."""
        sections: list[Any] = getattr(item, "_report_sections", [])
        for number, (when, key, text) in enumerate(sections):
            if len(text) > 4 * _DETAIL:
                sections[number] = (when, key, bounded(text, 2 * _DETAIL))
        result = yield
        if result.excinfo is None:
            note_place(result.get_result(), call, self.root)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No dot for what passes: nobody reads them, and to pass on each costs more than many a case."""
        dull = report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail")
        return ("passed", "", "") if dull else None

    def arm(self) -> None:
        """Set the alarm. Before plugins that have one of their own: theirs then holds instead."""
        self.late = False
        if self.seconds and threading.current_thread() is threading.main_thread():
            self.handler = signal.signal(signal.SIGALRM, self.ring)
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def disarm(self) -> None:
        if self.armed:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.handler or signal.SIG_DFL)

    def ring(self, signum: int, frame: Any) -> None:
        __tracebackhide__ = True
        if self.armed:
            self.late = True
            raise TimeLimit(f"no end after {self.seconds:g} s")

    def why_late(self) -> str:
        crashes = [report for report in self.reports if report.failed and hasattr(report.longrepr, "reprcrash")]
        where = f" ({place(crashes[0], self.root)})" if crashes else ""
        return f"no end after {self.seconds:g} s{where}"

    def flush(self) -> None:
        if self.pending:
            self.tell("idle", time.monotonic())
            self.nudge()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self.tell("end", time.monotonic())


class Recorder:
    """Writes down what collecting depends on: files that are read, directories that are listed."""

    def __init__(self) -> None:
        self.since = time.time()
        self.read: set[str] = set()
        self.listed: set[str] = set()
        self.doubt = ""
        self.on = True

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook, which can never be taken off again: quick where it has nothing to do."""
        if not self.on:
            return
        try:
            if event == "open":
                if not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR):
                    self.note(self.read, args[0])
            elif event == "os.listdir" or event == "os.scandir":
                self.note(self.listed, args[0] or ".")
            elif event == "import":
                if args[1]:
                    self.note(self.read, args[1])
            elif event in _STARTS and not (args and os.path.basename(os.fsdecode(args[0])) in _HARMLESS):
                self.doubt = self.doubt or event
        except Exception as error:  # it would end up in whoever opened the file
            self.doubt = self.doubt or repr(error)

    def note(self, where: set[str], path: Any) -> None:
        if not isinstance(path, int):
            where.add(os.path.abspath(os.fsdecode(path)))

    def facts(self) -> dict[str, Any]:
        """What was seen; nothing is written down from now on. The installed packages stand for what is in them."""
        self.on = False
        installed = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
        installed.update(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
        apart = tuple(path + os.sep for path in installed | {_HERE, "/proc", "/sys", "/dev"})
        read = {_source(path) for path in self.read if not path.startswith(apart)}
        listed = {path for path in self.listed if not (path + os.sep).startswith(apart)}
        listed.update(os.path.abspath(path) for path in sys.path if os.path.isdir(path))
        return {"since": self.since, "doubt": self.doubt, "read": sorted(read), "listed": sorted(listed)}


def _source(path: str) -> str:
    """The source of a compiled module; else the path itself."""
    directory, name = os.path.split(path)
    if os.path.basename(directory) != "__pycache__":
        return path
    return os.path.join(os.path.dirname(directory), name.split(".")[0] + ".py")


def _above(path: str) -> Iterator[str]:
    """The directories that ``path`` is in."""
    while len(path) > 1:
        path = os.path.dirname(path)
        yield path


def _line(event: Iterable[Any]) -> bytes:
    return json.dumps(list(event)).encode("ascii") + b"\n"


def _path(node: Any) -> str:
    return str(getattr(node, "path", None) or node.fspath)


def named(items: Iterable[Any]) -> dict[Any, str]:
    """A name for each item: its node id, with a number where several have the same."""
    found: dict[Any, str] = {}
    taken: set[str] = set()
    for item in items:
        name, number = item.nodeid, 1
        while name in taken:
            number += 1
            name = f"{item.nodeid}#{number}"
        taken.add(name)
        found[item] = name
    return found


def _keep(config: Any, items: list[Any], kept: list[Any]) -> None:
    stay = set(map(id, kept))
    rest = [item for item in items if id(item) not in stay]
    items[:] = kept
    if rest:
        config.hook.pytest_deselected(items=rest)


def _open_channel() -> Channel | None:
    """The channel, if we were started with one. Puts the environment back as it was, for the tests."""
    directory = os.environ.pop("TEAM_PYTEST", "") if __name__ == "team_pytest" else ""
    if not directory:
        return None
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _HERE]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [path for path in sys.path if path != _HERE]
    with open(os.path.join(directory, "order"), encoding="utf-8") as file:
        order = json.load(file)
    recorder = None
    if order["record"]:
        recorder = Recorder()
        sys.addaudithook(recorder.hook)
    return Channel(directory, order, recorder)


# -- pytest --team-fast ----------------------------------------------------------------------------------------


class Fast:
    """Asks ``team`` which cases to run, and tells it what came of them."""

    def __init__(self, config: Any, rate: str, command: list[str]) -> None:
        self.rate = rate
        self.command = command
        self.root = _top(os.getcwd())
        self.worker = hasattr(config, "workerinput")
        self.reports: dict[str, list[Any]] = {}
        self.lines: list[str] = []

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> Generator[None, Any, None]:
        before = {id(item): number for number, item in enumerate(items)}
        result = yield
        if result.excinfo is not None or not items:
            return
        names = named(sorted(items, key=lambda item: before.get(id(item), len(before))))
        top = _top(os.getcwd())
        rows = [{"name": name, "file": os.path.relpath(_path(item), top)} for item, name in names.items()]
        chosen = {row["name"] for row in self.ask("--pick", rows, json.loads)}
        _keep(config, items, [item for item in items if names[item] in chosen])

    def ask(self, what: str, rows: Iterable[Any], read: Any) -> list[Any]:
        """Give ``team`` these rows; its answer, line by line."""
        command = [*self.command, "test", what, f"--fast={self.rate}"]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        done = subprocess.run(command, input=text.encode("ascii"), capture_output=True)
        errors = done.stderr.decode("utf-8", "replace").strip()
        try:
            if done.returncode not in (0, 1, 3):
                raise ValueError(errors.splitlines()[-1] if errors else f"exit code {done.returncode}")
            return [read(line) for line in done.stdout.decode("utf-8", "replace").splitlines() if line]
        except ValueError as error:
            raise pytest.UsageError(f"--team-fast: {' '.join(command)}: {error}") from None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Generator[None, Any, None]:
        result = yield
        if result.excinfo is None:
            note_place(result.get_result(), call, self.root)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.reports.setdefault(report.nodeid, []).append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.reports and not self.worker:
            rows = [dict(outcome(reports, self.root), name=name) for name, reports in self.reports.items()]
            try:
                self.lines = self.ask("--record", rows, str)
            except pytest.UsageError as error:
                self.lines = [str(error)]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.lines:
            terminalreporter.section("team")
            for line in self.lines:
                terminalreporter.write_line(line)


def _top(path: str) -> str:
    """The work tree that ``path`` is in."""
    while not os.path.exists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            return os.getcwd()
        path = above
    return path


def _rate(text: str) -> str:
    if not re.match(r"\d+(\.\d*)?%?$", text):
        raise ValueError
    return text


def _fast(config: Any, rate: str) -> Fast:
    command = shlex.split(os.environ.get("TEAM_TEST_COMMAND", "")) or ["team"]
    if shutil.which(command[0]) is None:
        raise pytest.UsageError(
            f"--team-fast asks `{' '.join(command)} test`, and there is no such command: "
            "install team, or name it in TEAM_TEST_COMMAND"
        )
    return Fast(config, rate, command)


# -- pytest's hooks --------------------------------------------------------------------------------------------


def pytest_addoption(parser: Any) -> None:
    _rate.__name__ = "rate like 10% (write --team-fast=10%, or put it behind the paths)"
    with contextlib.suppress(ValueError):  # this file is loaded twice: by ``-p``, and as an installed plugin
        parser.getgroup("team").addoption(
            "--team-fast",
            nargs="?",
            const="10%",
            metavar="RATE",
            type=_rate,
            help="run a sample of the tests, 10%% without =RATE: always the same for one agent",
        )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Generator[None, Any, None]:
    """Before all other plugins look at the options."""
    if _CHANNEL and not config.pluginmanager.has_plugin(_CHANNEL_NAME):
        for name, value in _TAMED.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.pluginmanager.register(_CHANNEL, _CHANNEL_NAME)
    yield


def pytest_configure(config: Any) -> None:
    rate = config.getoption("team_fast", None)
    manager = config.pluginmanager
    if rate and not manager.has_plugin(_CHANNEL_NAME) and not manager.has_plugin(_FAST_NAME):
        manager.register(_fast(config, rate), _FAST_NAME)


_CHANNEL = _open_channel()
