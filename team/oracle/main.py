"""``team oracle``: reads the arguments, searches or compares, and reports.

Exit codes: 0 nothing is wrong (``next``: a culprit is yours), 1 something is wrong, 2 cannot run, 3 (``next``) no
culprit is left; ``check``: 0 right, 1 wrong, 125 cannot be told.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from team import git, places
from team.door_client import DoorClient
from team.errors import TeamError
from team.oracle import report, trees
from team.oracle import settings as settings_
from team.oracle.memory import Culprit, File, Memory, Remote
from team.oracle.search import Verdict
from team.sampler.arguments import Help, Parser
from team.sampler.landed import OWN
from team.sampler.place import half_of_memory
from team.text import one_line


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Run the command line; returns its exit code."""
    args = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)  # what a shell tool sends at its time-out: the verdicts are kept
    try:
        return _Call(args, env).run()
    except (TeamError, git.GitError, OSError, sqlite3.Error) as error:
        print(f"team oracle: {one_line(str(error), 600)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("team oracle: stopped; what was found out is kept, the next call goes on from there", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="team oracle",
        description="Find what a candidate gets wrong, with a known-good reference beside it.",
        allow_abbrev=False,
        formatter_class=Help,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="one JSON document")
    common.add_argument("-j", "--jobs", type=int, metavar="N", help="builds (or comparisons) at once")
    common.add_argument("--agent", metavar="NAME", help="outside a session: who searches (in one: TEAM_AGENT)")

    def verb(name: str, words: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=words, description=words, parents=[common], allow_abbrev=False)

    verb("run", "find all smallest sets of units that make the check fail")
    verb("next", "find one that nobody works on, and claim it")
    check = verb("check", "build and check with just these units from the candidate")
    check.add_argument("units", nargs="*", metavar="UNIT")
    check.add_argument("--all", action="store_true", help="all units but the given ones")
    verb("units", "list the units")
    verb("status", "what has been found so far, by anybody")
    compare = verb("compare", "run reference and candidate on the same inputs, and group what differs")
    compare.add_argument("--claim", action="store_true", help="claim the first difference that nobody works on")
    return parser


class _Call:
    """One call of the command."""

    def __init__(self, args: argparse.Namespace, env: Mapping[str, str]) -> None:
        here = Path.cwd()
        self.args, self.env = args, env
        self.root = next((path for path in (here, *here.parents) if (path / ".git").exists()), here)
        self.agent = args.agent or env.get("TEAM_AGENT") or getpass.getuser()
        settings = settings_.load(self.root, env)
        if args.jobs is not None and not 0 < args.jobs <= 256:
            raise TeamError(f"--jobs {args.jobs} is no number from 1 to 256")
        self.settings = replace(settings, jobs=args.jobs or settings.jobs)
        self.notes: list[str] = []
        self.project = places.find_project(self.root)

    def run(self) -> int:
        verbs = {
            "run": self._run, "next": self._next, "check": self._check, "units": self._units, "status": self._status,
            "compare": self._compare,
        }  # fmt: skip
        return verbs[self.args.verb]()

    def _bench(self) -> Any:
        from team.oracle.bench import Bench

        return Bench(
            self.root, self.settings, self._memory(), self.agent, memory_limit=half_of_memory(), notes=self.notes
        )

    def _memory(self) -> Memory:
        if self.env.get("TEAM_SESSION") and self.env.get("TEAM_DOOR"):
            return Remote(DoorClient(self.env))
        if self.project is not None:
            return File(self.project.oracle)
        if (self.root / ".git").exists():
            common = git.line("rev-parse", "--path-format=absolute", "--git-common-dir", at=self.root, env=OWN)
            return File(Path(common) / "team" / "oracle.db")
        return File(trees.home(self.root) / "oracle.db")

    def _print(self, document: Any, lines: Sequence[str]) -> None:
        print(json.dumps(document) if self.args.json else "\n".join(lines))

    # -- the verbs --------------------------------------------------------------------------------------------

    def _run(self) -> int:
        from team.oracle import flow

        found = flow.run(self._bench(), _say)
        self._print(report.as_json(found, self.notes), report.lines(found, self.notes))
        return 1 if found.culprits or found.rest is not Verdict.PASSES else 0

    def _next(self) -> int:
        from team.oracle import flow

        bench = self._bench()
        upstream = self.project.upstream if self.project is not None else None
        held = flow.held_units(self.env, bench.units, upstream)
        found = flow.next_one(bench, self.agent, held, flow.claimer(self.env), _say)
        self._print(report.as_json(found, self.notes), report.lines(found, self.notes))
        return 0 if found.culprits else 3 if found.rest is Verdict.PASSES else 1

    def _check(self) -> int:
        bench = self._bench()
        given, known = set(self.args.units), set(bench.units)
        if strange := sorted(given - known):
            raise TeamError(f"{strange[0]!r} is no unit; `team oracle units` lists them")
        units = frozenset(known - given if self.args.all else given)
        (found,) = bench.verdicts([units], anew=True)
        text = f"{found.verdict.value} with {len(units)} of {len(known)} units from the candidate"
        line = one_line(f"{text}: {found.reason}" if found.reason else text, 300)
        self._print({**asdict(found), "units": sorted(units)}, [line])
        return {Verdict.PASSES: 0, Verdict.FAILS: 1, Verdict.UNTESTABLE: 125}[found.verdict]

    def _units(self) -> int:
        units = self._bench().units
        self._print(units, [one_line(unit, 300) for unit in units])
        return 0

    def _status(self) -> int:
        bench = self._bench()
        found = bench.culprits()
        lines = [_culprit(one) for one in found[:10]]
        more = [f"and {len(found) - 10} more; --json shows them"] if len(found) > 10 else []
        none = "nothing has been found yet with this tree and these compilers; `team oracle run` looks for all"
        self._print([asdict(one) for one in found], [*lines, *more] or [none])
        return 0

    def _compare(self) -> int:
        from team.oracle import comparing, flow

        claim = flow.claimer(self.env) if self.args.claim else None
        return comparing.run(self.root, self.settings, claim, as_json=self.args.json)


def _culprit(one: Culprit) -> str:
    return one_line(f"{one.task}: {' + '.join(one.units)}, found by {one.agent}: {one.reason}", 220)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
