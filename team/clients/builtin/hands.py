"""Makes the calls of one answer: checked, allowed, done in order, each answered whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from team.clients.builtin.answer import Call
from team.clients.builtin.editor import Wrong
from team.clients.builtin.limits import SAME, Repeats
from team.clients.builtin.output import Spill, cut
from team.clients.builtin.policy import Policy, Verdict
from team.clients.builtin.tools import Result, Tool

_AT_ONCE = 4
"""Calls that only look, side by side."""
_AGAIN = "\n[team] That was the same call {n} times running. Do something else: at the next one this session ends."

Ask = Callable[[str, Mapping[str, Any], str], tuple[bool, str]]
"""Asks a person: tool, input and why; whether it is allowed, and what they say."""


class Stuck(Exception):
    """The model makes the same call again and again, although it was told."""


@dataclass
class Hands:
    """The tools of one session, behind its policy."""

    tools: Sequence[Tool[Any]]
    policy: Policy
    ask: Ask
    spill: Spill
    repeats: Repeats = field(default_factory=Repeats)

    def run(self, calls: Sequence[Call]) -> list[dict[str, Any]]:
        """The answers to ``calls``, in their order. What follows from what is done in order; only calls that look
        run side by side. Raises :class:`Stuck`."""
        results: list[dict[str, Any]] = []
        waiting: list[tuple[Call, Callable[[], Result]]] = []
        for call in calls:
            work, looks = self._ready(call)
            if waiting and not looks:
                results += self._together(waiting)
                waiting = []
            waiting.append((call, work))
            if not looks:
                results += self._together(waiting)
                waiting = []
        return results + self._together(waiting)

    def _together(self, waiting: Sequence[tuple[Call, Callable[[], Result]]]) -> list[dict[str, Any]]:
        if len(waiting) < 2:
            return [self._answer(call, work) for call, work in waiting]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda pair: self._answer(*pair), waiting))

    def _ready(self, call: Call) -> tuple[Callable[[], Result], bool]:
        """What to do for ``call``, and whether that only looks."""
        tool = next((t for t in self.tools if t.name == call.name), None)
        times = self.repeats.see(call.name, call.input)
        if times > SAME:
            raise Stuck(f"the same call of {call.name} {times} times running")
        told = _AGAIN.format(n=times) if times == SAME else ""
        try:
            if tool is None:
                raise Wrong(f"there is no tool {call.name!r}; there are {', '.join(t.name for t in self.tools)}")
            if call.wrong:
                raise Wrong(f"{call.wrong}; send the whole input again, in smaller pieces where it is long")
            given = tool.parse(call.input)
        except Wrong as wrong:
            said = f"{wrong}{told}"
            return lambda: Result(said, failed=True), False
        return lambda: self._permitted(call, tool, given, told), tool.looks(given)

    def _permitted(self, call: Call, tool: Tool[Any], given: Any, told: str) -> Result:
        decision, note = self.policy.decide(call.name, call.input), ""
        if decision.verdict is Verdict.ASK:
            allowed, note = self.ask(call.name, call.input, decision.note)
            if not allowed:
                return Result(f"a person denied this call: {note or 'no reason given'}{told}", failed=True)
        elif decision.verdict is Verdict.DENY:
            return Result(f"the policy of this team denies this call. {decision.note}{told}".strip(), failed=True)
        result: Result = tool.do(given)
        said = f"\n[a person allowed this: {note}]" if note else ""
        return Result(cut(result.text, self.spill) + said + told, result.failed)

    def _answer(self, call: Call, work: Callable[[], Result]) -> dict[str, Any]:
        try:
            result = work()
        except Wrong as wrong:
            result = Result(str(wrong), failed=True)
        except Exception as error:  # whatever a file or a process does to us, the model gets an answer
            result = Result(f"{call.name} failed: {type(error).__name__}: {error}", failed=True)
        answer = {"type": "tool_result", "tool_use_id": call.id, "content": result.text}
        return {**answer, "is_error": True} if result.failed else answer
