"""Compiles one source file for ``team-cc``, or takes from the cache what was made of it before.

Part of every call: nothing here may import what is slow to import.
"""

from __future__ import annotations

import os
import stat
import time

from team.oracle import cc_objects as objects
from team.oracle.cc_compilers import Settings, say, show, wait
from team.oracle.cc_line import Line, Source, without_dependencies

_MORE = ("-MT", "team", "-MQ", "team", "-MP")  # as builds ask for dependencies


class Compilation:
    """One source file, compiled by whoever's turn it is."""

    def __init__(self, settings: Settings, line: Line, source: Source, unit: str, output: str) -> None:
        """``output``: what the call makes of it in the end, an object or a program."""
        self.settings = settings
        self.files = settings.files
        self.source = source
        self.unit = unit
        self.output = output
        self.which = settings.which(unit) if unit else "reference"
        self.words = [*line.alone(source), "-S" if line.mode == "-S" else "-c"]
        self.depends = line.dependencies_of(source)
        if self.depends and line.mode == "link":
            self.words += ["-MF", self.depends, "-MT", output]  # not the passing object
        self.cache = settings.cache
        self.given, self.asks = self.words, False
        if self.depends and self.cache and self.which == "candidate" and not self._tells(self.cache, self.which, _MORE):
            self.given, self.asks = without_dependencies(self.words), True
        outputs = [path for path in (output, self.depends) if path]
        self.keeps = bool(unit) and line.known and all(_is_plain(path) for path in outputs)

    def run(self, into: str) -> int:
        """Write the object to ``into``; the compiler's exit code."""
        if self.unit and self.settings.listing:
            objects.append(self.settings.listing, self.unit)
        if not self.cache or not self.keeps:
            return self._compile(into, [])
        compiler = self.settings.compiler(self.which)
        outputs = [name for name in (self.output, self.depends) if name]
        key = objects.Key(self.files, compiler, self.words, outputs)
        entry = self.cache.find(key)
        if entry and self._restore(entry, into):
            return 0
        return self._compile_and_keep(self.cache, key, into)

    def _restore(self, entry: objects.Entry, into: str) -> bool:
        """Write what is in the cache; False: it cannot be, let the compiler say why."""
        paths = [self.depends, into] if self.depends else [into]
        if len(entry.made) != len(paths):
            return False
        try:
            for path, data in zip(paths, entry.made, strict=True):
                temporary = f"{path}.team-cc-{os.getpid()}"
                data = self._shown(data) if path == self.depends else data
                objects.write(temporary, data)
                os.replace(temporary, path)
        except OSError:
            return False
        show(self._shown(entry.errors))
        if self.cache:
            self.cache.mended(self.unit, self.which)
        return True

    def _compile_and_keep(self, cache: objects.Cache, key: objects.Key, into: str) -> int:
        """Compile, and keep what is made if all that is read can be told."""
        ours = ""
        if not self.depends and not self.source.preprocessed and self._tells(cache, self.which):
            ours = cache.temporary(".d")
        start = time.time_ns()
        try:
            if code := self._compile(into, ["-MD", "-MF", ours] if ours else []):
                return code
            depends = self.depends or ours or self._ask_reference(cache)
            read = self._read(depends, start)
            if read:
                with open(into, "rb") as file:
                    made = file.read()
                parts = [self._hidden(_content(self.depends)), made] if self.depends else [made]
                bound = self.files.root.encode("utf-8", "surrogateescape") in made
                cache.store(key, objects.Entry(read, self._hidden(self._errors), parts), bound=bound)
            if depends != self.depends:
                objects.remove(depends)
        except OSError:  # a file that should be there is not: the build will say so
            pass
        finally:
            objects.remove(ours)
        return 0

    def _compile(self, into: str, more: list[str]) -> int:
        """Run the compiler, and write down what came of it."""
        self._errors = b""
        words = self.settings.compiler(self.which)
        handle = os.memfd_create("errors")
        try:
            argv = [*words, *self.given, *more, "-o", into]
            code = wait(self.which, words, argv, [(os.POSIX_SPAWN_DUP2, handle, 2)])
            if self.asks and not code:
                code = self._depend_by_reference()
            os.lseek(handle, 0, os.SEEK_SET)
            with open(handle, "rb", closefd=False) as file:
                self._errors = file.read()
        finally:
            os.close(handle)
        show(self._errors)
        if code and self.which == "candidate":
            # Some leave half a file behind, or the last one: nothing wrong must get linked.
            if _is_plain(into):
                objects.remove(into)
            say(f"the candidate cannot compile {self.unit}: exit code {code}")
        if self.cache and self.unit:
            if code:
                self.cache.failed(self.unit, self.which, code, self._errors)
            else:
                self.cache.mended(self.unit, self.which)
                self.cache.record(self.unit, self.files.name(self.output))
        return code

    def _read(self, depends: str, start: int) -> list[tuple[str, str]]:
        """The files that were read, with their fingerprints; none: they cannot be told, or changed meanwhile."""
        if self.source.preprocessed:
            paths = [self.source.path]
        elif depends:
            paths = objects.dependencies(_content(depends).decode("utf-8", "surrogateescape"))
        else:
            return []
        source = self.files.name(self.source.path)
        names = list(dict.fromkeys(self.files.name(path) for path in paths))
        if source not in names:
            return []
        for name in names:
            path = self.files.path(name)
            if os.stat(path).st_mtime_ns >= start or (not name.startswith("/") and b".incbin" in _content(path)):
                return []
        return [(name, objects.fingerprint(self.files, name)) for name in names]

    def _depend_by_reference(self) -> int:
        """Have the reference write the dependencies that the candidate cannot."""
        words = [word for word in self.words if word not in ("-c", "-S")]
        if not any(word.startswith(("-MT", "-MQ")) for word in words):
            words += ["-MT", self.output]
        compiler = self.settings.compiler("reference")
        argv = [*compiler, *words, "-fsyntax-only", "-w", "-MF", self.depends]
        return wait("reference", compiler, argv, [])

    def _tells(self, cache: objects.Cache, which: str, more: tuple[str, ...] = ()) -> bool:
        """Whether a compiler can write dependencies while it compiles, also with the options ``more``; tried once for
        each."""
        compiler = self.settings.compiler(which)
        known = cache.probed([*compiler, *more])
        try:
            return _content(known) == b"yes"
        except OSError:
            pass
        stem = cache.temporary("")
        files = {suffix: f"{stem}.{suffix}" for suffix in ("c", "h", "o", "d")}
        objects.write(files["h"], b"\n")
        objects.write(files["c"], f'#include "{os.path.basename(stem)}.h"\nint team;\n'.encode())
        quiet = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
        argv = [*compiler, "-c", files["c"], "-o", files["o"], "-MD", "-MF", files["d"], *more]
        try:
            told = not wait(which, compiler, argv, quiet) and f"{stem}.h".encode() in _content(files["d"])
        except OSError:
            told = False
        for path in files.values():
            objects.remove(path)
        objects.write(known, b"yes" if told else b"no")
        return told

    def _ask_reference(self, cache: objects.Cache) -> str:
        """A file with what the reference would have read, for a candidate that cannot tell; empty: it cannot either."""
        if self.source.preprocessed or self.which == "reference" or not self._tells(cache, "reference"):
            return ""
        path = cache.temporary(".d")
        words = [word for word in self.words if word not in ("-c", "-S")]
        quiet = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
        compiler = self.settings.compiler("reference")
        return "" if wait("reference", compiler, [*compiler, *words, "-M", "-MF", path], quiet) else path

    def _hidden(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        return self.files.hide(text).encode("utf-8", "surrogateescape")

    def _shown(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        return self.files.show(text).encode("utf-8", "surrogateescape")


def _is_plain(path: str) -> bool:
    """Whether ``path`` is a file, or nothing yet: not /dev/null, for instance."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
