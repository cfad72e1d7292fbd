"""How a compiler's command line is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from team.oracle.cc_line import Line, expand, joined, split


def read(text: str) -> Line:
    return Line(text.split())


@pytest.mark.parametrize(
    ("text", "mode", "sources", "output"),
    [
        ("-c a.c", "-c", ["a.c"], "a.o"),
        ("-c sub/a.c", "-c", ["sub/a.c"], "a.o"),
        ("-o out/a.o -O2 -c a.c", "-c", ["a.c"], "out/a.o"),
        ("-oout/a.o -c a.c", "-c", ["a.c"], "out/a.o"),
        ("-S a.c", "-S", ["a.c"], "a.s"),
        ("-c -S a.c", "-S", ["a.c"], "a.s"),
        ("-c a.i", "-c", ["a.i"], "a.o"),
        ("-c -x c a.inc", "-c", ["a.inc"], "a.o"),
        ("-c -xc a.inc", "-c", ["a.inc"], "a.o"),
        ("a.c -lm", "link", ["a.c"], "a.out"),
        ("a.c -o prog", "link", ["a.c"], "prog"),
        ("a.o b.a -o prog", "link", [], "prog"),
        ("-include pre.c -I b.c -D c.c -MF d.c -c a.c", "-c", ["a.c"], "a.o"),
        ("-E a.c", "other", ["a.c"], ""),
        ("-c -E a.c", "other", ["a.c"], ""),
        ("-E -c a.c", "other", ["a.c"], ""),
        ("-MM a.c", "other", ["a.c"], ""),
        ("-fsyntax-only a.c", "other", ["a.c"], ""),
        ("-x c -c -", "other", [], ""),
        ("--version", "other", [], ""),
        ("-c a.S", "-c", [], ""),
        ("-x assembler-with-cpp -c a.c", "-c", [], ""),
        ("-x assembler a.c -x none -c b.c", "-c", ["b.c"], "b.o"),
    ],
)
def test_what_is_compiled_into_what(text: str, mode: str, sources: list[str], output: str) -> None:
    line = read(text)
    assert (line.mode, [source.path for source in line.sources]) == (mode, sources)
    if sources and output:
        assert line.output_of(line.sources[0]) == output


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("-c a.c", ""),
        ("-MD -c sub/a.c", "a.d"),
        ("-MMD -c a.c -o out/b.x.o", "out/b.x.d"),
        ("-MD -MF deps/a.P -MP -c a.c", "deps/a.P"),
        ("-MFdeps/a.P -MD -c a.c", "deps/a.P"),
        ("-Wp,-MMD,sub/.a.o.d -c a.c", "sub/.a.o.d"),
        ("-MD a.c -o prog", "prog.d"),
    ],
)
def test_where_dependencies_go(text: str, file: str) -> None:
    line = read(text)
    assert line.dependencies_of(line.sources[0]) == file


def test_one_source_is_taken_out_of_a_call_that_links() -> None:
    line = read("-O1 a.c -Iinc b.c c.o -L. -lm -Wl,-z,now -shared -o prog")
    assert line.alone(line.sources[1]) == ["-O1", "-Iinc", "b.c"]
    assert line.linked({1: "x.o", 3: "y.o"}) == "-O1 x.o -Iinc y.o c.o -L. -lm -Wl,-z,now -shared -o prog".split()


def test_objects_in_the_place_of_sources_are_no_sources() -> None:
    line = read("-x c a.inc -o prog")
    assert line.linked({2: "x.o"}) == ["-x", "c", "-x", "none", "x.o", "-x", "c", "-o", "prog"]


@pytest.mark.parametrize("flag", ["--coverage", "-save-temps", "-gsplit-dwarf", "-fprofile-use=x", "-dM", "-v"])
def test_what_makes_or_reads_other_files_is_not_kept(flag: str) -> None:
    assert not Line([flag, "-c", "a.c"]).known
    assert read("-g -O2 -fPIC -Wall -DNDEBUG -c a.c").known


def test_response_files(tmp_path: Path) -> None:
    (tmp_path / "inner").write_text("-c 'a b.c'\n")
    (tmp_path / "outer").write_text(f'-DX="a\\"b" @{tmp_path}/inner ""\n-O2')
    assert expand(["-g", f"@{tmp_path}/outer", "@nothing"]) == ["-g", '-DX=a"b', "-c", "a b.c", "", "-O2", "@nothing"]


def test_a_response_file_that_names_itself_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").write_text(f"@{tmp_path}/loop")
    assert expand([f"@{tmp_path}/loop"]) == [f"@{tmp_path}/loop"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_response_files_we_write_can_be_read(words: list[str]) -> None:
    assert split(joined(words)) == words
