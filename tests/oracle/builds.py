"""Real projects to build with two compilers, and compilers that get chosen files of them wrong."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.sampler import toolchains


@dataclass(frozen=True)
class Build:
    """A project, ready to be built. Both commands are for the shell and run in :attr:`root`."""

    root: Path
    build: str
    """Compiles with ``team-cc``, as found by PATH."""
    check: str
    """Exit code 0: what was built works."""
    units: tuple[str, ...]
    """Every source file that the build compiles, relative to :attr:`root`."""


@dataclass(frozen=True)
class Fault:
    """What a bad compiler does to one file."""

    flag: str = ""
    """A flag that was not asked for."""
    edits: tuple[tuple[str, str], ...] = ()
    """Text of the preprocessed source, and what is compiled in its place."""
    dies: bool = False
    """It crashes."""


LUA_FAULTS = {
    "src/lmathlib.c": Fault(flag="-fsingle-precision-constant"),
    "src/ldblib.c": Fault(flag="-fpack-struct=1"),
    "src/ltablib.c": Fault(edits=(("for (i = e; i > pos; i--)", "for (i = e; i < pos; i--)"),)),
    "src/lstrlib.c": Fault(edits=(("p[i] = s[l - i - 1];", "p[i] = s[l - i];"),)),
    "src/lutf8lib.c": Fault(edits=(("n = (int)(pose - posi) + 1;", "n = (int)(pose + posi) + 1;"), ("n++;", "n--;"))),
    "src/loslib.c": Fault(edits=(("difftime(t1, t2)", "difftime(t2, t1)"),)),
    "src/lobject.c": Fault(edits=(("a = a * 16 + luaO_hexavalue(*s);", "a = a * 16 - luaO_hexavalue(*s);"),)),
    "src/lcorolib.c": Fault(edits=(("if (L == co) return", "if (L != co) return"),)),
}
"""Eight files of Lua, each of which alone makes the check fail."""

LUA_PAIR = {
    # The upper half of a register that holds an int is the callee's to ignore. One file puts something there, the
    # other looks at it: wrong only together.
    "src/lbaselib.c": Fault(
        edits=(
            ("(lua_pushboolean) (lua_State *L, int b)", "(lua_pushboolean) (lua_State *L, long b)"),
            ("lua_pushboolean(L, lua_rawequal(L, 1, 2))", "lua_pushboolean(L, 1L << 32 | lua_rawequal(L, 1, 2))"),
        )
    ),
    "src/lapi.c": Fault(
        edits=(
            ("(lua_pushboolean) (lua_State *L, int b)", "(lua_pushboolean) (lua_State *L, long b)"),
            ("void lua_pushboolean (lua_State *L, int b)", "void lua_pushboolean (lua_State *L, long b)"),
        )
    ),
}
"""Two files of Lua that make the check fail only together."""

LUA_CRASH = {"src/lundump.c": Fault(dies=True)}
"""The compiler crashes on this file."""

LUA_NO_LINK = {"src/lzio.c": Fault(edits=(("luaZ_fill (ZIO *z) {", "luaZ_full (ZIO *z) {"),))}
"""What is made of this file cannot be linked."""

ZLIB_FAULTS = {
    "trees.c": Fault(flag="-fpack-struct=1"),
    "crc32.c": Fault(edits=(("crc = (crc >> 8) ^ crc_table[", "crc = (crc >> 8) + crc_table["),)),
    "inflate.c": Fault(edits=(("*put++ = (unsigned char)(state->length);", "*put++ = (char)(state->length + 1);"),)),
}
"""Three files of zlib, each of which alone makes the check fail."""

SQLITE_FAULTS = {
    "src/func.c": Fault(edits=(("if( nNeedle>nHaystack ) N = 0;", "if( nNeedle<nHaystack ) N = 0;"),)),
    "src/insert.c": Fault(flag="-fpack-struct=1"),
    "src/printf.c": Fault(edits=(("cset[longvalue%base]", "cset[longvalue/base]"),)),
}
"""Three files of SQLite, each of which alone makes the check fail."""

_LUA_CHECK = """
assert(math.pi == 3.141592653589793, "math.pi")
assert(debug.getinfo(1, "l").currentline == 3, "debug.getinfo")
local t = {1, 2, 3}
table.insert(t, 2, 9)
assert(table.concat(t, " ") == "1 9 2 3", "table.insert")
assert(string.reverse("abc") == "cba", "string.reverse")
assert(select("#", utf8.codepoint("abc", 1, 3)) == 3, "utf8.codepoint")
assert(os.difftime(7, 3) == 4, "os.difftime")
assert(tonumber("0x1f") == 31, "tonumber")
assert(coroutine.status(coroutine.create(print)) == "suspended", "coroutine.status")
assert(rawequal({}, {}) == false, "rawequal")
print("all is well")
"""

_SQLITE_CHECK = """
create table t(a integer primary key, b text);
insert into t(b) values('one'), ('two'), ('three');
select instr('haystack', 'st'), printf('%d %x', 42, 255), count(*), max(b) from t;
"""

_SQLITE_UNITS = {
    "bld": "fts5 opcodes parse shell",
    "ext/fts3": (
        "fts3 fts3_aux fts3_expr fts3_hash fts3_icu fts3_porter fts3_snippet fts3_tokenize_vtab "
        "fts3_tokenizer fts3_tokenizer1 fts3_unicode fts3_unicode2 fts3_write"
    ),
    "ext/icu": "icu",
    "ext/misc": "stmt",
    "ext/rbu": "sqlite3rbu",
    "ext/rtree": "rtree",
    "ext/session": "sqlite3session",
    "ext/userauth": "userauth",
    "src": (
        "alter analyze attach auth backup bitvec btmutex btree build callback complete ctime date dbpage "
        "dbstat delete expr fault fkey func global hash insert json legacy loadext main malloc mem0 mem1 mem2 "
        "mem3 mem5 memdb memjournal mutex mutex_noop mutex_unix mutex_w32 notify os os_kv os_unix os_win "
        "pager pcache pcache1 pragma prepare printf random resolve rowset select status table threads "
        "tokenize treeview trigger update upsert utf util vacuum vdbe vdbeapi vdbeaux vdbeblob vdbemem "
        "vdbesort vdbetrace vdbevtab vtab wal walker where wherecode whereexpr window"
    ),
    "tool": "lemon",
}

_LUA_UNITS = (
    "lapi lauxlib lbaselib lcode lcorolib lctype ldblib ldebug ldo ldump lfunc lgc linit liolib llex lmathlib lmem "
    "loadlib lobject lopcodes loslib lparser lstate lstring lstrlib ltable ltablib ltm lua lundump lutf8lib lvm lzio"
)


def lua(folder: Path, *, libraries: str = "-lm") -> Build:
    """Lua's interpreter in ``folder``, which must not exist: 33 files, built by make in a second or two.

    ``libraries``: what it is linked with; some compilers' objects need one of their own.
    """
    shutil.copytree(_source("lua5.4"), folder)
    for patch in ("0002-lua-modules-paths", "0001-build-system"):  # Debian's: libtool, and paths of its own
        _run(["patch", "-s", "-R", "-p1", "-i", f"debian/patches/{patch}.patch"], folder)
    (folder / "check.lua").write_text(_LUA_CHECK)
    flags = "-std=gnu99 -O0 -DLUA_COMPAT_5_3 -DLUA_USE_POSIX"
    return Build(
        root=folder,
        build=f"make -s -C src CC=team-cc CFLAGS='{flags}' LIBS='{libraries}' AR='ar rc' lua",
        check="src/lua check.lua",
        units=tuple(f"src/{name}.c" for name in _LUA_UNITS.split()),
    )


def zlib(folder: Path, *, cmake: bool = False) -> Build:
    """zlib and its test program in ``folder``, which must not exist: 16 files, by make or by CMake with ninja.

    make was configured with gcc; CMake tries ``team-cc`` itself, and builds in a folder with a space in its name, two
    objects of most files.
    """
    shutil.copytree(_source("zlib"), folder)
    units = "adler32 compress crc32 deflate gzclose gzlib gzread gzwrite infback inffast inflate inftrees test/example "
    units += "trees uncompr zutil"
    build = "make -s CC=team-cc libz.a example"
    program = "./example"
    if cmake:
        toolchains.need("cmake")
        toolchains.need("ninja")
        (folder / "win32").mkdir()  # Debian takes it out; CMake asks for it on every system
        (folder / "win32" / "zlib1.rc").touch()
        build = "CC=team-cc cmake -Wno-deprecated -S . -B 'a build' -G Ninja >configured"
        build += " && ninja -C 'a build' example >built"
        program = "'a build/example'"
    else:
        _run(["./configure", "--static"], folder, CFLAGS="-O0", CC="gcc")
    return Build(
        root=folder,
        build=build,
        check=f"{program} x.gz && gzip -t x.gz",
        units=tuple(f"{name}.c" for name in units.split()),
    )


def sqlite(folder: Path) -> Build:
    """SQLite's shell in ``folder``, which must not exist: 104 files, built out of tree by make and libtool.

    Some are made by the build, and two are compiled and linked in one call.
    """
    toolchains.need("tclsh")
    shutil.copytree(_source("sqlite3"), folder)
    (folder / "check.sql").write_text(_SQLITE_CHECK)
    (folder / "bld").mkdir()
    without = "amalgamation shared tcl readline load-extension".split()
    _run(["../configure", "-q", *(f"--disable-{what}" for what in without)], folder / "bld", CFLAGS="-O0", CC="gcc")
    return Build(
        root=folder,
        build="make -s -C bld CC=team-cc sqlite3",
        check='[ "$(bld/sqlite3 :memory: <check.sql)" = "4|42 ff|3|two" ]',
        units=tuple(f"{where}/{name}.c" for where, names in _SQLITE_UNITS.items() for name in names.split()),
    )


def flaky(check: str, percent: int) -> str:
    """``check``, which also fails by chance in about ``percent`` of 100 runs."""
    bound = percent * 256 // 100
    return f"{check} && [ $(od -An -N1 -tu1 /dev/urandom) -ge {bound} ]"


def miscompiler(folder: Path, faults: Mapping[str, Fault]) -> str:
    """The command of a C compiler that is gcc but for ``faults``, by the path of the unit; it is kept in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong = folder / "wrong"
    _program(wrong, f"#!{sys.executable} -IS\nFAULTS = {_plain(faults)!r}\n{_WRONG}")
    names = "|".join(f"*{Path(unit).name}" for unit in faults) or "''"
    # gcc runs every one of its steps through the wrapper, with the preprocessor's output in a file of its own.
    text = f"""#!/bin/sh
for word; do
    case $word in
    {names}) exec gcc "$@" -no-integrated-cpp -wrapper '{wrong}' ;;
    esac
done
exec gcc "$@"
"""
    return _program(folder / "miscompiler", text)


_WRONG = r"""
import os, sys
argv = sys.argv[1:]
made = [word for word in argv if word.endswith((".i", ".ii"))]
if "-fpreprocessed" in argv and made:
    with open(made[0], encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    source = os.path.abspath(text.split('"', 2)[1])
    for unit, (flag, edits, dies) in FAULTS.items():
        if not source.endswith("/" + unit):
            continue
        if dies:
            sys.exit(f"{unit}: internal compiler error: Segmentation fault")
        for old, new in edits:
            if old not in text:
                sys.exit(f"{unit}: nothing to get wrong: no {old!r}")
            text = text.replace(old, new)
        argv += [flag] if flag else []
    with open(made[0], "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
os.execvp(argv[0], argv)
"""


def _plain(faults: Mapping[str, Fault]) -> dict[str, tuple[str, tuple[tuple[str, str], ...], bool]]:
    return {unit: (fault.flag, fault.edits, fault.dies) for unit, fault in faults.items()}


def _program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


@functools.cache
def _source(package: str) -> Path:
    """The source of a Debian package, fetched once for all tests of this process."""
    toolchains.need("gcc")
    toolchains.need("make")
    return toolchains.source(package, Path(_sources().name) / package)


@functools.cache
def _sources() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sources-")


def _run(argv: list[str], cwd: Path, **env: str) -> None:
    subprocess.run(argv, cwd=cwd, env={**os.environ, **env}, check=True, capture_output=True)
