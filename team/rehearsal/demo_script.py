"""Drives agents on the demo project: look, pick, claim, work, test, land, merge, release."""

from __future__ import annotations

from collections.abc import Sequence

from team.rehearsal import protocol
from team.rehearsal.protocol import Mark
from team.rehearsal.script import Step
from team.rehearsal.solutions import SOLUTIONS

MOST_TURNS = 30
"""An agent that has not landed by then gives up."""


class DemoScript:
    """One task a session. In its first session everybody wants the first ticket, so that all but one are refused."""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        if turn == 0:
            return Step(commands=(protocol.look(),))
        mark = protocol.mark(last_tool_result)
        if mark is None:
            return Step("I cannot tell what the last command did, so I stop here.")
        if turn >= MOST_TURNS:
            return Step(f"After {turn} commands nothing has landed, so I give up.")
        return self._after(agent, session, mark)

    def _after(self, agent: str, session: str, mark: Mark) -> Step:
        task = mark.rest[0] if mark.rest else ""
        seat = protocol.number(agent)
        match mark.word:
            case "OPEN":
                return _pick(mark.rest, 0 if session.endswith(".1") else seat - 1)
            case "REFUSED":
                return _pick(mark.rest[1:], seat - 1)
            case "CLAIMED":
                return Step(commands=(_work(task),))
            case "PASSED":
                # Every fourth agent releases in a push of its own; both ways must work.
                command = protocol.land(task, SOLUTIONS[task].subject, release=not _apart(seat))
                return Step(commands=(command,))
            case "NOT_LANDED":
                return Step(commands=(protocol.pull(task, _test(task)),))
            case "CONFLICT":
                # The landing takes its subject from here, so it says what landed, not that there was a merge.
                return Step(commands=(protocol.resolve(task, SOLUTIONS[task].subject, _test(task)),))
            case "LANDED" if not _apart(seat):
                return Step(f"Landed and released {task}.")
            case "LANDED" | "GONE" | "NOT_RELEASED":
                return Step(commands=(protocol.release(task),))
            case "RELEASED":
                return Step(f"Released {task}.")
        return Step(f"{mark.word.lower()} {task}: I stop here.")


def _apart(seat: int) -> bool:
    return seat % 4 == 2


def _pick(open_: Sequence[str], place: int) -> Step:
    known = [task for task in open_ if task in SOLUTIONS]
    if not known:
        return Step("No task is open, so there is nothing to do.")
    task = known[place % len(known)]
    # Everybody writes the same bytes: upstream decides by path who holds it.
    return Step(commands=(protocol.claim(task, SOLUTIONS[task].subject),))


def _test(task: str) -> str:
    return f"python3 -m unittest -q {SOLUTIONS[task].test}"


def _work(task: str) -> str:
    return f"{protocol.edit(SOLUTIONS[task].edits)}\n{protocol.test(task, _test(task))}"
