"""Drives agents on the user's own project: claim, touch a scratch file, run the test command, push, release."""

from __future__ import annotations

import shlex

from team.rehearsal import protocol
from team.rehearsal.script import Step

SCRATCH = "team-rehearsal"
"""Directory of the scratch files, one an agent; only ever on the throw-away copy."""
MOST_TURNS = 20
MOST_PUSHES = 5
"""Turns up to which a push that was refused is tried again."""
TEST_SECONDS = 540.0
"""Longest run of the test command; clients' shells end a command after ten minutes."""


def scratch_path(agent: str) -> str:
    """Where ``agent`` writes what it found."""
    return f"{SCRATCH}/{agent}.txt"


class OwnScript:
    """One session an agent, one task of its own: ``rehearsal_<agent>``."""

    def __init__(self, test: str) -> None:
        self._test = test
        """Shell command; empty where the project names none."""

    def next(self, agent: str, session: str, turn: int, last_tool_result: str, prompt: str) -> Step:
        agent = agent or "agent"
        task = f"rehearsal_{agent}"
        land = Step(
            commands=(protocol.land(task, f"Rehearsal of {agent}", f"-f {scratch_path(agent)}", release=False),)
        )
        mark = protocol.mark(last_tool_result)
        if turn == 0:
            return Step(commands=(protocol.claim(task, "Rehearsal", ticket=False),))
        if mark is None and turn > 1:  # the shell ended the test command
            return land
        if mark is None or turn >= MOST_TURNS:
            return Step("I cannot tell what the last command did, so I stop here.")
        match mark.word:
            case "CLAIMED":
                return Step(commands=(_try_out(agent, self._test),), seconds=TEST_SECONDS + 30)
            case "TESTED":
                return Step(
                    commands=(protocol.land(task, f"Rehearsal of {agent}", f"-f {scratch_path(agent)}", release=False),)
                )
            case "NOT_LANDED" if turn > MOST_PUSHES:
                return Step("The push is refused again and again, so I stop here.")
            case "NOT_LANDED":
                return Step(commands=(protocol.pull(task, "true"),))
            case "LANDED" | "NOT_RELEASED":
                return Step(commands=(protocol.release(task),))
            case "RELEASED":
                return Step("Claimed, tested, landed and released.")
        return Step(f"{mark.word.lower()}: I stop here.")


def _try_out(agent: str, test: str) -> str:
    """Write the scratch file, run the test command, write down how it ended: ``TESTED code``."""
    path = scratch_path(agent)
    begin = f"mkdir -p {SCRATCH}\nprintf 'tests: no verdict\\n' > {path}\n"
    if not test:
        return f"{begin}printf 'tests: no command\\n' > {path}\necho '== TESTED'"
    return f"""\
{begin}timeout {TEST_SECONDS:.0f} sh -c {shlex.quote(test)} >.git/said 2>&1 </dev/null; code=$?
tail -n 15 .git/said
why=; [ $code = 0 ] || why=$(grep -m 1 'cannot run' .git/said || tail -n 1 .git/said)
why=$(printf %s "$why" | cut -c 1-160)
printf 'tests: exit %s%s\\n' $code "${{why:+: $why}}" > {path}
echo "== TESTED $code\""""
