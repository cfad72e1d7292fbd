"""Reads a C compiler's command line: what it compiles, and into which files.

Part of every call of ``team-cc``, which builds make by the thousand: nothing here may import what is slow to import.
"""

from __future__ import annotations

import os

_SEPARATE = frozenset(
    "-o -x -I -D -U -L -l -A -B -T -u -z -e -h -include -include-pch -imacros -isystem -iquote -idirafter "
    "-iprefix -iwithprefix -iwithprefixbefore -isysroot -imultilib -MF -MT -MQ -MJ -Xlinker -Xpreprocessor -Xassembler "
    "-Xclang -Xarch_host -aux-info --param -arch -target --sysroot -wrapper -dumpbase -dumpbase-ext -dumpdir -specs "
    "-mllvm -ivfsoverlay -framework -R -soname -rpath".split()
)
_LANGUAGES = frozenset("c c++ objective-c objective-c++ cpp-output c++-cpp-output objective-c-cpp-output".split())
_SUFFIXES = frozenset(".c .i .cc .cp .cxx .cpp .CPP .c++ .C .ii .m .mm .mi .mii .M".split())
_PREPROCESSED = frozenset(".i .ii .mi .mii cpp-output c++-cpp-output objective-c-cpp-output".split())
_NO_OUTPUT = frozenset(("-E", "-M", "-MM", "-fsyntax-only", "-###", "--help", "--version"))
_LINK = ("-l", "-L", "-Wl,")
_LINK_WORDS = frozenset(
    "-shared -static -rdynamic -pie -no-pie -s -static-pie -static-libgcc -Xlinker -T -u -z -R -rpath -soname -h "
    "-e".split()
)
# These make more files than we know of, read files that no dependency file names, or print to standard output.
_UNKNOWN_FILES = tuple(
    "-save-temps --save-temps --coverage -coverage -ftest-coverage -fprofile -fauto-profile -gsplit-dwarf -fdump "
    "-fstack-usage -fcallgraph-info -aux-info -MJ -Wa,-a -ftime-report -fplugin -wrapper -dumpdir -fopt-info -Q "
    "-fmodules -fbranch-probabilities -v -H -d -emit-pch -ftime-trace".split()
)


class Source:
    """A source file on the command line."""

    def __init__(self, place: int, path: str, language: str) -> None:
        self.place = place
        """Index in :attr:`Line.words`."""
        self.path = path
        self.language = language
        """As given by ``-x``; empty: told by the suffix."""

    @property
    def preprocessed(self) -> bool:
        return (self.language or os.path.splitext(self.path)[1]) in _PREPROCESSED


class Line:
    """What a command line asks for."""

    def __init__(self, argv: list[str]) -> None:
        self.words = expand(argv)
        """The command line without the program, response files replaced by what they hold."""
        self.mode = "link"
        """``-c``, ``-S``, "link" (compiles, where there are sources, and links), or "other": makes no object."""
        self.output = ""
        """What ``-o`` names, or nothing."""
        self.dependencies = ""
        """The file that the compiler is asked to write dependencies to, "" for none, "?" where its name follows from
        that of the output."""
        self.sources: list[Source] = []
        """C and its kin; assembly is not: a compiler for C need not know it."""
        self.others: list[int] = []
        """Indices of all other input files."""
        self.links: list[int] = []
        """Indices of words that only a linker wants."""
        self.known = True
        """The compiler reads and writes only files that we know how to find out."""
        self._read()

    def _read(self) -> None:
        language, place = "", 0
        while place < len(self.words):
            word = self.words[place]
            value = self.words[place + 1] if place + 1 < len(self.words) else ""
            separate = word in _SEPARATE
            if word == "-" or not word.startswith("-"):
                self._input(place, word, language)
            elif word.startswith("-x"):
                language = (value if separate else word[2:]).replace("none", "")
            else:
                self._option(word, value)
                if word.startswith(_LINK) or word in _LINK_WORDS:
                    self.links += [place, place + 1] if separate else [place]
            place += 1 + separate

    def _input(self, place: int, word: str, language: str) -> None:
        if word == "-":
            self.mode = "other"  # standard input: a probe of a configure script
        elif language in _LANGUAGES or (not language and os.path.splitext(word)[1] in _SUFFIXES):
            self.sources.append(Source(place, word, language))
        else:
            self.others.append(place)

    def _option(self, word: str, value: str) -> None:
        if word in _NO_OUTPUT:
            self.mode = "other"
        elif word in ("-c", "-S"):
            if self.mode != "other":
                self.mode = "-S" if "-S" in (word, self.mode) else "-c"
        elif word.startswith("-o"):
            self.output = value if word == "-o" else word[2:]
        elif word in ("-MD", "-MMD"):
            self.dependencies = self.dependencies or "?"
        elif word.startswith("-MF"):
            self.dependencies = value if word == "-MF" else word[3:]
        elif word.startswith(("-Wp,-MD,", "-Wp,-MMD,")):
            self.dependencies = word.split(",")[2]
        elif word.startswith(_UNKNOWN_FILES) and not word.startswith("-dumpbase"):
            self.known = False

    def output_of(self, source: Source) -> str:
        """The file that is made of ``source``."""
        if self.output:
            return self.output
        if self.mode == "link":
            return "a.out"
        return os.path.splitext(os.path.basename(source.path))[0] + (".s" if self.mode == "-S" else ".o")

    def dependencies_of(self, source: Source) -> str:
        """The file that the dependencies of ``source`` are written to; empty: none."""
        if self.dependencies != "?":
            return self.dependencies
        return os.path.splitext(self.output_of(source) if self.output else os.path.basename(source.path))[0] + ".d"

    def alone(self, source: Source) -> list[str]:
        """Arguments that compile only ``source``; ``-o`` and where to stop (``-c``) left out."""
        drop = {other.place for other in self.sources if other is not source} | set(self.others) | set(self.links)
        words: list[str] = []
        skip = False
        for place, word in enumerate(self.words):
            if skip or place in drop or word in ("-c", "-S"):
                skip = False
            elif word == "-o":
                skip = True
            elif not word.startswith("-o"):
                words.append(word)
        return words

    def linked(self, objects: dict[int, str]) -> list[str]:
        """Arguments that link, with ``objects`` in the place of sources, by their index."""
        words: list[str] = []
        languages = {source.place: source.language for source in self.sources}
        for place, word in enumerate(self.words):
            if place not in objects:
                words.append(word)
            elif languages[place]:
                words += ["-x", "none", objects[place], "-x", languages[place]]
            else:
                words.append(objects[place])
        return words


def without_dependencies(words: list[str]) -> list[str]:
    """``words`` without what asks for a file with dependencies, for a compiler that does not know it."""
    left: list[str] = []
    skip = False
    for word in words:
        if skip or word in ("-MD", "-MMD", "-MP", "-MG") or word.startswith(("-Wp,-MD,", "-Wp,-MMD,")):
            skip = False
        elif word in ("-MF", "-MT", "-MQ"):
            skip = True
        elif not word.startswith(("-MF", "-MT", "-MQ")):
            left.append(word)
    return left


def expand(argv: list[str], depth: int = 0) -> list[str]:
    """``argv`` with each ``@file`` that can be read replaced by the words in it, as gcc does."""
    words: list[str] = []
    for word in argv:
        text = None
        if word.startswith("@") and len(word) > 1 and depth < 100:
            try:
                with open(word[1:], encoding="utf-8", errors="surrogateescape") as file:
                    text = file.read()
            except (OSError, ValueError):
                text = None
        words += [word] if text is None else expand(split(text), depth + 1)
    return words


def split(text: str) -> list[str]:
    """The words of a response file, or of a command: quotes and backslashes as gcc takes them."""
    words: list[str] = []
    word, quote, started, escaped = "", "", False, False
    for char in text:
        if escaped:
            word, escaped = word + char, False
        elif char == "\\":
            escaped = started = True
        elif quote:
            word, quote = (word, "") if char == quote else (word + char, quote)
        elif char in "'\"":
            quote, started = char, True
        elif char.isspace():
            words += [word] if started else []
            word, started = "", False
        else:
            word, started = word + char, True
    return [*words, word] if started else words


def joined(words: list[str]) -> str:
    """The text of a response file that :func:`split` takes apart into ``words``."""
    return "\n".join("".join(c if c.isalnum() or c in "-_./" else f"\\{c}" for c in word) or '""' for word in words)
