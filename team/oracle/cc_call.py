"""One call of ``team-cc``: what the command line asks for, each source file by the compiler whose turn it is.

Builds make calls by the thousand: nothing here may import what is slow to import (re, subprocess, pathlib ...).
"""

from __future__ import annotations

import os

from team.errors import TeamError
from team.oracle import cc_line as lines
from team.oracle import cc_objects as objects
from team.oracle.cc_compile import Compilation
from team.oracle.cc_compilers import Settings, become_reference, run, say
from team.oracle.cc_line import Line, Source

# Files that configure, CMake and Meson try a compiler on.
_PROBES = ("/conftest.", "/CompilerId", "/CMakeScratch/", "/CMakeTmp/", "/meson-private/")


def main(argv: list[str]) -> int:
    """Do what the command line says; the exit code. Does not return where all of it is the reference's."""
    try:
        settings = Settings()
        line = Line(argv)
        units = {source.place: _unit(settings, source) for source in line.sources}
        if line.mode == "other" or not any(units.values()):
            if any(units.values()) and "-E" in line.words and _under_ccache():
                return 1
            become_reference(settings, argv)
        if line.mode != "link" and line.output and len(line.sources) + len(line.others) > 1:
            become_reference(settings, argv)  # it will say that this cannot be
        if line.mode == "link":
            return _compile_and_link(settings, line, units, argv)
        return _compile_all(settings, line, units)
    except TeamError as e:
        say(str(e))
        return 2
    except KeyboardInterrupt:
        return 130


def _unit(settings: Settings, source: Source) -> str:
    """What ``source`` is called in an assignment; empty: nothing to choose."""
    name = settings.files.name(source.path)
    outside = name.startswith("/") or "\n" in name or "\t" in name
    return "" if outside or any(probe in f"/{name}" for probe in _PROBES) else name


def _under_ccache() -> bool:
    """Whether ccache calls. It would keep an object for all assignments; if it cannot preprocess, it keeps nothing."""
    try:
        return os.path.basename(os.readlink(f"/proc/{os.getppid()}/exe")) == "ccache"
    except OSError:
        return False


def _compile_all(settings: Settings, line: Line, units: dict[int, str]) -> int:
    """A call that makes an object of each source."""
    code = 0
    for source in line.sources:
        output = line.output_of(source)
        code = Compilation(settings, line, source, units[source.place], output).run(output) or code
    if line.others:  # assembly
        words = [word for place, word in enumerate(line.words) if place not in units]
        code = run(settings, "reference", words) or code
    return code


def _compile_and_link(settings: Settings, line: Line, units: dict[int, str], argv: list[str]) -> int:
    """A call that makes a program of sources: an object of each, linked by the reference."""
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"team-cc-{os.getpid()}-{os.urandom(4).hex()}")
    os.mkdir(folder, 0o700)
    made = {source.place: os.path.join(folder, f"{source.place}.o") for source in line.sources}
    response = os.path.join(folder, "words")
    try:
        for source in line.sources:
            compilation = Compilation(settings, line, source, units[source.place], line.output_of(source))
            if code := compilation.run(made[source.place]):
                return code
        words = line.linked(made)
        if any(word.startswith("@") for word in argv):  # it may have been too long for a command line
            objects.write(response, lines.joined(words).encode("utf-8", "surrogateescape"))
            words = [f"@{response}"]
        return run(settings, "reference", words)
    finally:
        for path in (*made.values(), response):
            objects.remove(path)
        os.rmdir(folder)
