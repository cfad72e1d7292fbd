"""How each ticket of the demo project is solved: what the scripted model knows."""

from __future__ import annotations

from dataclasses import dataclass

from team.rehearsal.protocol import Edit


@dataclass(frozen=True)
class Solution:
    """One ticket solved."""

    subject: str
    test: str
    """What ``python3 -m unittest`` is given to prove it."""
    edits: tuple[Edit, ...]


# Every new command goes to the same line of the menu, so commands that are added at the same time conflict.
_HERE = "    # new commands go above this line\n"


def _note(part: str, text: str) -> Edit:
    """A line at the top of one part of NOTES.md: two of the same part at the same time conflict."""
    return Edit("NOTES.md", f"## {part}\n\n", f"## {part}\n\n- {text}\n")


def _command(name: str, module: str, note: str) -> Solution:
    edits = (
        Edit(f"abacus/commands/{name}.py", "", module),
        Edit("abacus/menu.py", _HERE, f'    "{name}",\n{_HERE}'),
        _note("commands", note),
    )
    return Solution(f"Add the command {name}", f"tests.test_commands.{name.capitalize()}", edits)


_MEAN = '''"""`mean 1 2 6`: the arithmetic mean."""


def run(words):
    numbers = [float(word) for word in words]
    return f"{sum(numbers) / len(numbers):g}"
'''
_MEDIAN = '''"""`median 9 1 5`: the number in the middle."""

from statistics import median


def run(words):
    return f"{median(float(word) for word in words):g}"
'''
_ROMAN = '''"""`roman 1994`: a number in Roman numerals."""

SIGNS = [
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
]


def run(words):
    left, text = int(words[0]), ""
    for value, sign in SIGNS:
        text += sign * (left // value)
        left %= value
    return text
'''
_SLUG = '''"""`slug Hello, World`: a title as it looks in an address."""

import re


def run(words):
    return "-".join(re.findall(r"[a-z0-9]+", " ".join(words).lower()))
'''
_TEMPERATURE = '''"""`temperature 100 c`: Celsius in Fahrenheit and back."""


def run(words):
    degrees, scale = float(words[0]), words[1]
    if scale == "c":
        return f"{degrees * 9 / 5 + 32:g} f"
    return f"{(degrees - 32) * 5 / 9:g} c"
'''

SOLUTIONS = {
    "add_mean": _command("mean", _MEAN, "mean of nothing is a ZeroDivisionError; nobody asked yet."),
    "add_median": _command("median", _MEDIAN, "median uses the standard library."),
    "add_roman": _command(
        "roman", _ROMAN, "roman: pairs such as IV are signs of their own; no special case is needed."
    ),
    "add_slug": _command("slug", _SLUG, "slug drops everything that is not a-z or 0-9."),
    "add_temperature": _command("temperature", _TEMPERATURE, "temperature is no length, so units.py cannot do it."),
    "fix_calc_subtraction": Solution(
        "Subtract from left to right",
        "tests.test_calc.Subtraction",
        (
            Edit("abacus/calc.py", "value -= _sum(tokens)", "value -= _product(tokens)"),
            _note("calc", "Each loop takes one operand of the next level; a call of its own level binds to the right."),
        ),
    ),
    "fix_calc_unary_minus": Solution(
        "Understand a minus before a factor",
        "tests.test_calc.UnaryMinus",
        (
            Edit(
                "abacus/calc.py",
                "    if not token[0].isdigit():\n",
                '    if token == "-":\n        return -_factor(tokens)\n    if not token[0].isdigit():\n',
            ),
            _note("calc", "Tried a minus in the number's pattern: breaks `3-2`. It is a factor of its own."),
        ),
    ),
    "fix_calc_zero_division": Solution(
        "Say so when something is divided by zero",
        "tests.test_calc.ZeroDivision",
        (
            Edit(
                "abacus/calc.py",
                "            value /= _factor(tokens)\n",
                "            divisor = _factor(tokens)\n            if divisor == 0:\n"
                '                raise CalcError("division by zero")\n            value /= divisor\n',
            ),
            _note("calc", "Errors that a user can cause are CalcError."),
        ),
    ),
    "fix_dates_leap_year": Solution(
        "Get leap years right at centuries",
        "tests.test_dates.LeapYear",
        (
            Edit(
                "abacus/dates.py",
                "return year % 4 == 0",
                "return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
            ),
            _note("dates", "2000 was a leap year, 1900 was not."),
        ),
    ),
    "fix_units_mile": Solution(
        "Make a mile as long as it is",
        "tests.test_units.Mile",
        (
            Edit("abacus/units.py", '"mile": 1600.0', '"mile": 1609.344'),
            _note("units", "A mile is 5280 feet of exactly 0.3048 m."),
        ),
    ),
    "fix_words_count": Solution(
        "Count words whatever the gaps",
        "tests.test_words.Count",
        (
            Edit("abacus/words.py", 'text.split(" ")', "text.split()"),
            _note("words", "split() without an argument takes any run of white space."),
        ),
    ),
    "fix_words_wrap": Solution(
        "Keep the last line when wrapping",
        "tests.test_words.Wrap",
        (
            Edit(
                "abacus/words.py",
                "    return lines\n",
                "    if line:\n        lines.append(line)\n    return lines\n",
            ),
            _note("words", "A loop that hands over on the next word needs one more hand-over after it."),
        ),
    ),
}
