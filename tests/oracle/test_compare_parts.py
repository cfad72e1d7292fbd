"""The parts of compare mode that run nothing: normalisers, shrinking, kinds of difference, places in commands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from team.errors import TeamError
from team.names import task_problem
from team.oracle.compare_runs import filled
from team.oracle.difference import Outcome, difference, task_name
from team.oracle.normalise import Normaliser, suggest
from team.oracle.shrink import Shrink

# --- normalisers


@pytest.mark.parametrize(
    ("builtin", "text", "normal"),
    [
        ("addresses", "at 0x7ffd12ab34cd, flag 0x1f", "at 0xADDRESS, flag 0x1f"),
        ("paths", "in '/tmp/x.8a/b.c': /var/tmp/y /tmpfs/z", "in '/tmp/PATH': /tmp/PATH /tmpfs/z"),
        ("times", "2024-02-03T04:05:06.789Z; 2024-02-03 04:05:06 +0100", "TIME; TIME"),
        ("times", "Sun Nov 29 17:29:07 UTC 2026", "TIME"),
        ("times", "Mon, 01 Jan 2024 00:00:00 GMT", "TIME"),
        ("times", "took 1.25 ms, 3s and 12 items, v1.2.3", "took TIME, TIME and 12 items, v1.2.3"),
        ("times", "1706933106.12 1706933106123 1234", "TIME TIME 1234"),
        ("floats", "1.00000001 2 -1.5e10 1e400 v1.2.3 .5", "1 2 -1.5e+10 inf v1.2.3 0.5"),
        ("floats:2", "3.14159 0.999", "3.1 1"),
        ("sorted", "b\na\nc", "a\nb\nc\n"),
    ],
)
def test_built_in_normalisers(builtin: str, text: str, normal: str) -> None:
    assert Normaliser(builtin=[builtin])(text) == normal


def test_replacements_come_first_and_in_order_by_lines() -> None:
    normal = Normaliser([(r"^id=(\w+)$", r"ID \1"), ("ID x", "y")], ["sorted"])
    assert normal("z\nid=x\n") == "y\nz\n"


@pytest.mark.parametrize("pair", [("(", ""), ("a", r"\1"), ("a", r"\q"), ("a",)])
def test_a_bad_replacement(pair: tuple[str, ...]) -> None:
    with pytest.raises(TeamError, match="normalise: "):
        Normaliser([pair])


@pytest.mark.parametrize("name", ["time", "times:3", "floats:0", "floats:x", "floats:200", ""])
def test_a_bad_built_in(name: str) -> None:
    with pytest.raises(TeamError, match="builtin: "):
        Normaliser(builtin=[name])


def test_what_is_suggested() -> None:
    assert suggest([], [("at 0x7ffd12ab34cd", "at 0x7ffd12ab34ce"), ("", "")]) == 'builtin = ["addresses"]'
    assert suggest(["times"], [("a\nb", "b\na")]) == 'builtin = ["times", "sorted"]'
    both = suggest([], [("/tmp/a 12:00:01", "/tmp/b 12:00:02")])
    assert both == 'builtin = ["paths", "addresses", "times", "floats"]'
    assert suggest([], [("a", "b")]) == ""


# --- shrinking


def _shrunk(data: bytes, needles: list[bytes], most: int = 100_000) -> Shrink:
    shrink, seen = Shrink(data, most=most), {data}
    while (smaller := shrink.ask()) is not None:
        assert smaller not in seen
        assert len(smaller) < len(shrink.best)
        seen.add(smaller)
        shrink.tell(all(needle in smaller for needle in needles))
    assert shrink.asked == len(seen) - 1 <= most
    return shrink


_TEXT = st.text(st.sampled_from("ab é\n("), max_size=60)


@settings(max_examples=60, deadline=None)
@given(_TEXT, st.lists(st.sampled_from("XYZ"), unique=True, max_size=3), _TEXT)
def test_only_what_is_needed_stays(before: str, needles: list[str], after: str) -> None:
    data = (before + "a\n".join(needles) + after).encode()
    shrink = _shrunk(data, [needle.encode() for needle in needles])
    assert shrink.minimal
    assert shrink.best.decode() == "".join(needles)


def test_a_line_of_many_is_found_in_few_steps() -> None:
    lines = [f"line {number}\n" for number in range(1000)]
    lines[700] = "BAD\n"
    shrink = _shrunk("".join(lines).encode(), [b"BAD"])
    assert (shrink.best, shrink.minimal) == (b"BAD", True)
    assert shrink.asked < 40


def test_bounded_it_keeps_the_best_so_far() -> None:
    data = b"".join(b"%d\n" % number for number in range(1000))
    shrink = _shrunk(data, [b"7\n", b"500\n"], most=12)
    assert (shrink.asked, shrink.minimal) == (12, False)
    assert b"500\n" in shrink.best
    assert len(shrink.best) < len(data)


def test_what_is_no_text_and_what_is_empty() -> None:
    assert _shrunk(b"\xff\xc3\x00\xa9", [b"\xc3"]).best == b"\xc3"
    assert _shrunk(b"abc", []).best == b""
    assert Shrink(b"", most=9).ask() is None


# --- kinds


def _kind(one: str, other: str) -> str:
    found = difference(Outcome(0, "", {"stdout": one}), Outcome(0, "", {"stdout": other}))
    assert found
    return found.signature.removeprefix("exit 0; stdout: ")


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("a 1\n", "a 2\n", "whole number -> whole number"),
        ("a 1\n", "a 1.0\n", "whole number -> number"),
        ("a 1e5\n", "a nan\n", "number -> nan"),
        ("a 0x1F\n", "a 31\n", "hex -> whole number"),
        ("a -1\n", "a 1\n", "- -> whole number"),
        ("foo\n", "bar\n", "word -> word"),
        ("Foo\n", "fOO\n", "upper and lower case"),
        ("a,b\n", "a;b\n", ", -> ;"),
        ("a b\n", "a  b\n", "white space"),
        ("a\n", "a", "line ends"),
        ("", "a", "empty -> text"),
        ("a\nb\n", "b\na\n", "order of lines"),
        ("a\nb\n", "a\n", "lines missing"),
        ("a\n", "a\nb\n", "lines too many"),
        ("ab", "ab c", "end of line -> space"),
        ("a\0b", "a\0bc", "binary, other length"),
        ("\x1b[1m", "\x07[1m", "byte -> byte"),
    ],
)
def test_kinds_of_difference(one: str, other: str, kind: str) -> None:
    assert _kind(one, other) == kind


def test_endings() -> None:
    good, crash = Outcome(0, "", {}), Outcome(139, "", {}, "")
    found = difference(good, crash)
    assert found
    assert found.signature == "exit 0 -> signal SEGV"
    assert difference(good, good) is None
    slow = difference(good, Outcome(0, "timed out", {"stdout": "x"}, "error: 5"))
    assert slow
    assert slow.signature == "exit 0 -> timed out"


def test_what_was_said_is_told_without_places_and_numbers() -> None:
    said = [
        "warning: 3\nsrc/a/b.c:12:4: error: unknown name 'foo'",
        "warning: 9\n/x/y.c:1:40: error: unknown name 'ba z'",
    ]
    found = [difference(Outcome(0, "", {}), Outcome(1, "", {}, errors)) for errors in said]
    assert found[0]
    assert found[0] == found[1]
    assert found[0].signature == "exit 0 -> exit 1; stderr: PATH:N:N: error: unknown name QUOTED"


def test_hostile_output_is_safe_to_show() -> None:
    found = difference(
        Outcome(0, "", {"stdout": "a"}), Outcome(3, "", {"file \x1b[2J": ""}, "\x1b[31merror\u202e x\r\nmore")
    )
    assert found
    assert (found.signature + found.excerpt).replace("\n", "").isprintable()


def test_an_excerpt_shows_what_differs_also_where_it_is_far_right_or_cannot_be_seen() -> None:
    one, other = "x" * 500 + "a  b\t\0\udcff", "x" * 500 + "a  b\t\x1b"
    found = difference(Outcome(0, "", {"stdout": f"1\n2\n{one}\n"}), Outcome(0, "", {"stdout": f"1\n2\n{other}\n"}))
    assert found
    head, before, minus, plus = found.excerpt.splitlines()
    assert (head, before) == ("stdout:", "  2")
    assert minus.startswith("- …xx")
    assert minus.endswith(r"xa  b\t\x00\udcff")
    assert plus.endswith(r"xa  b\t\x1b")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_every_signature_makes_a_task_name(signature: str) -> None:
    assert task_problem(task_name(signature)) is None


# --- commands


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("cc {input}", 'cc "${TEAM_INPUT}"'),
        ("cc '{input}' \"{input}\"", 'cc "${TEAM_INPUT}" "${TEAM_INPUT}"'),
        ('cc "{root}/x y"', 'cc "${TEAM_ROOT}/x y"'),
        ("sh -c 'cc {input}'", "sh -c 'cc \"${TEAM_INPUT}\"'"),
        ("echo it\\'s {input} '\"' {input}", 'echo it\\\'s "${TEAM_INPUT}" \'"\' "${TEAM_INPUT}"'),
        ("awk '{print}' {seed} {other}", "awk '{print}' \"${TEAM_SEED}\" {other}"),
    ],
)
def test_places_in_commands_are_quoted_as_they_stand(command: str, shell: str) -> None:
    assert filled(command) == shell
