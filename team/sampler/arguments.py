"""The command line of ``team test``, and what ``team oracle`` shares of it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from team.sampler import sample
from team.sampler.settings import MOST_JOBS
from team.text import one_line
from team.units import parse_span


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; ends the program with exit code 2, and one line, where they make no sense."""
    # `--fast` takes its rate only with `=`: in `--fast tests/test_a.py` the word behind it is a case.
    argv = [f"--fast={sample.DEFAULT}" if word == "--fast" else word for word in argv]
    parser = Parser(
        prog="team test",
        description="Run the project's tests, or a sample of them, and say in a few lines what came of it.",
        epilog="exit codes: 0 all passed, 1 failures, 2 cannot run, 3 only failures that the last landed state has too",
        allow_abbrev=False,
        formatter_class=Help,
    )
    fast = "a sample, 10%% without =RATE: always the same for one agent, another for each agent"
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these: a name, a glob, or a part of a name")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fast", metavar="RATE", type=_rate, help=fast)
    which.add_argument("--all", action="store_true", help="every case (the default)")
    which.add_argument("--failed", action="store_true", help="what failed when you last ran it")
    which.add_argument("--history", metavar="CASE", help="what came of a case, by landing")
    which.add_argument("--flaky", action="store_true", help="cases that passed and failed on the same commit")
    which.add_argument("--bisect", metavar="CASE", help="find the landing that broke a case")
    which.add_argument("--coverage", action="store_true", help="which cases nobody has run since which landing")
    parser.add_argument("--good", metavar="COMMIT", default="", help="for --bisect: where it still passed")
    parser.add_argument("--list", action="store_true", help="print the names of the cases, run none")
    parser.add_argument("--agent", metavar="NAME", help="whose sample, outside a session (in one: TEAM_AGENT)")
    parser.add_argument("--suite", metavar="NAME", default=None, help="only this one of [test.suites]")
    parser.add_argument("-j", "--jobs", type=_count, metavar="N", help="cases at once")
    parser.add_argument("--timeout", type=_span, metavar="TIME", help="of one case, like 60s")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--pick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_intermixed_args(argv)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line: an agent pays for each."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message, 400)}; see `{self.prog} --help`\n")


class Help(argparse.HelpFormatter):
    """Looks like the help of the other verbs."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


def _rate(text: str) -> str:
    try:
        sample.rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", text) or not 0 < int(text) <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{one_line(text, 80)!r} is no number from 1 to {MOST_JOBS}")
    return int(text)


def _span(text: str) -> float:
    try:
        seconds = parse_span(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not isinstance(seconds, float) or seconds <= 0:
        raise argparse.ArgumentTypeError("a time is above 0")
    return seconds
