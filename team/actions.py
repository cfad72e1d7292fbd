"""Actions of agents that wait for a person: asked at the door, listed and decided by ``team held|approve|deny``.

A session asks ``POST /team/action/ask {"tool", "input", "note"}`` and is answered ``{"id": "a1", "state": "waiting"}``;
then, every few seconds, ``POST /team/action/state {"id"}``, until ``state`` is ``allowed`` or ``denied``, with the
person's ``note``. The ledger holds all of it, so that it outlives the supervisor; the end of a session drops what it
still waits for. What is allowed is that one call, not others like it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from team.errors import TeamError
from team.ledger import Event, Kind, Ledger
from team.text import clean, one_line

MOST_WAITING = 8
"""Actions of one session that wait at once."""
MOST_ASKED = 200
"""Actions that one session may ask for in all."""
MOST_BYTES = 64 << 10
"""Of one question."""
MOST_SHOWN = 16 << 10
"""Characters of an action: a person sees all that is decided, so that one that is longer is refused."""
DENIED = "a person looked at it and does not want it"
_KINDS = (Kind.ACTION_HELD, Kind.ACTION_DECIDED, Kind.SESSION_ENDING)
_TOOL = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")
_ID = re.compile(r"a[1-9][0-9]{0,8}\Z")

State = Literal["waiting", "allowed", "denied", "dropped"]


@dataclass(frozen=True)
class Action:
    """A tool call that waits for a person, or did. ``at`` is in seconds since the epoch."""

    id: str
    """``a1`` and so on: beside the numbers of held pushes."""
    agent: str
    session: str
    task: str | None
    at: float
    tool: str
    text: str
    """The whole input, with what cannot be seen escaped."""
    digest: str
    """Of tool and input: the same question again is the same action."""
    reason: str = ""
    """Why it is held, as the policy has it."""
    state: State = "waiting"
    note: str = ""
    """What the person said."""
    by: str = ""

    @property
    def line(self) -> str:
        """The call on one line, for lists; where a line of it ends, another command may begin."""
        return one_line(f"{self.tool}: " + self.text.strip().replace("\n", " ↵ "), 120)


class Actions:
    """All actions of one project. Safe to use from several threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.RLock()
        self._actions: dict[str, Action] = {}
        self._asked: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._seen = 0

    # -- the session's side -----------------------------------------------------------------------------------

    def answer(self, what: str, body: bytes, agent: str, session: str, task: str | None) -> dict[str, Any]:
        """The answer to a question that came through the door of ``session``. Raises :class:`TeamError` for one that
        makes no sense or is one too many."""
        question = _read(body)
        with self._lock:
            self._sync()
            if what == "ask":
                action = self._ask(question, agent, session, task)
            elif what == "state":
                action = self._of(session, question.get("id"))
            else:
                raise TeamError(f"actions know 'ask' and 'state', not {one_line(what, 40)!r}")
        return {"id": action.id, "state": action.state, "note": action.note}

    def _ask(self, question: Mapping[str, Any], agent: str, session: str, task: str | None) -> Action:
        tool, input, reason = question.get("tool"), question.get("input"), question.get("note", "")
        if not isinstance(tool, str) or not _TOOL.match(tool):
            raise TeamError("an action needs 'tool', a name of letters, digits, '.', ':', '_' and '-'")
        if not isinstance(input, dict) or not isinstance(reason, str):
            raise TeamError("an action needs 'input', a JSON object, and may have 'note', a string")
        try:
            canonical = json.dumps([tool, input], sort_keys=True)
            text = _text(input)
        except RecursionError:
            raise TeamError("the input of this action is nested too deeply") from None
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        mine = [action for action in self._actions.values() if action.session == session and action.state == "waiting"]
        for action in mine:
            if action.digest == digest:
                return action
        if len(text) > MOST_SHOWN:
            raise TeamError(f"{len(text)} characters are too many for a person to judge; at most {MOST_SHOWN}")
        if len(mine) >= MOST_WAITING:
            raise TeamError(f"{len(mine)} actions of this session wait for a person already; wait for their verdict")
        if self._asked[session] >= MOST_ASKED:
            raise TeamError(f"this session has asked {MOST_ASKED} times; no more")
        number = len(self._actions) + 1
        self._ledger.append(
            Kind.ACTION_HELD, agent=agent, session=session, task=task,
            number=number, tool=tool, text=text, digest=digest, reason=one_line(reason, 300),
        )  # fmt: skip
        self._sync()
        return self._actions[f"a{number}"]

    def _of(self, session: str, id: object) -> Action:
        action = self._actions.get(id) if isinstance(id, str) else None
        if action is None or action.session != session:
            raise TeamError("this session has asked for no such action")
        return action

    # -- the person's side ------------------------------------------------------------------------------------

    def waiting(self) -> list[Action]:
        """What waits for a person, first come first."""
        with self._lock:
            self._sync()
            return [action for action in self._actions.values() if action.state == "waiting"]

    def find(self, id: str) -> Action:
        """The action ``id``, which waits. Raises :class:`TeamError`."""
        waiting = {action.id: action for action in self.waiting()}
        if id in waiting:
            return waiting[id]
        if (action := self._actions.get(id)) is not None:
            raise TeamError(f"action {id} {_past(action)}")
        known = ", ".join(waiting) or "none"
        raise TeamError(f"no action {one_line(id, 20)} is held; held: {known} (`team held`)")

    def approve(self, id: str, by: str, note: str = "") -> Action:
        """Let the call run. Raises :class:`TeamError` where it does not wait any more."""
        return self._decide(id, True, by, one_line(note, 300))

    def deny(self, id: str, by: str, note: str = "") -> Action:
        """Refuse the call; the agent is told ``note``. Raises :class:`TeamError` where it does not wait any more."""
        return self._decide(id, False, by, one_line(note, 300) or DENIED)

    def _decide(self, id: str, allowed: bool, by: str, note: str) -> Action:
        with self._lock:
            action = self.find(id)
            mine = self._ledger.append(
                Kind.ACTION_DECIDED, agent=action.agent, session=action.session, task=action.task,
                number=int(id[1:]), allowed=allowed, by=one_line(by, 80), note=note,
            )  # fmt: skip
            first = self._sync(until=id)
            action = self._actions[id]
        if first != mine:  # the session ended, or somebody else decided, between the look and the word
            raise TeamError(f"action {id} {_past(action)}")
        return action

    # -- from the ledger --------------------------------------------------------------------------------------

    def _sync(self, until: str = "") -> int:
        """Take in what was appended since, by whatever process; the id of the event that decided action ``until``."""
        decided = 0
        for event in self._ledger.events(*_KINDS, after=self._seen):
            waited = until in self._actions and self._actions[until].state == "waiting"
            self._take(event)
            self._seen = event.id
            if waited and self._actions[until].state != "waiting":
                decided = event.id
        return decided

    def _take(self, event: Event) -> None:
        if event.kind == Kind.SESSION_ENDING:
            self._end(event.session or "")
        elif event.kind == Kind.ACTION_HELD:
            action = _action(event)
            late = action.session in self._ended  # asked while its session was ending
            self._actions[action.id] = replace(action, state="dropped") if late else action
            self._asked[action.session] += 1
        else:
            id = f"a{event.data['number']}"
            action = self._actions[id]
            if action.state == "waiting":
                state: State = "allowed" if event.data["allowed"] else "denied"
                note, by = str(event.data["note"]), str(event.data["by"])
                self._actions[id] = replace(action, state=state, note=note, by=by)

    def _end(self, session: str) -> None:
        self._ended.add(session)
        if not self._asked[session]:
            return
        for action in list(self._actions.values()):
            if action.session == session and action.state == "waiting":
                self._actions[action.id] = replace(action, state="dropped")


def is_id(text: str) -> bool:
    """Whether ``text`` is how an action is called."""
    return _ID.match(text) is not None


def _past(action: Action) -> str:
    if action.state == "dropped":
        return f"was dropped: session {action.session} has ended"
    return f"is {action.state} already, by {action.by}" + (f": {action.note}" if action.note else "")


def _action(event: Event) -> Action:
    data = event.data
    return Action(
        id=f"a{data['number']}",
        agent=event.agent or "",
        session=event.session or "",
        task=event.task,
        at=event.at,
        tool=str(data["tool"]),
        text=str(data["text"]),
        digest=str(data["digest"]),
        reason=str(data["reason"]),
    )


def _read(body: bytes) -> Mapping[str, Any]:
    if len(body) > MOST_BYTES:
        raise TeamError(f"a question about an action may have {MOST_BYTES} bytes at most")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        raise TeamError('expected a question in JSON, like {"tool": "bash", "input": {"command": "..."}}')
    return question


def _text(input: Mapping[str, Any]) -> str:
    """All of ``input`` for a person's eyes: a shell command as it is, everything else as JSON."""
    command, rest = input.get("command"), {key: value for key, value in input.items() if key != "command"}
    if isinstance(command, str) and "path" not in input:
        return _visible(command + (f"\n{_json(rest)}" if rest else ""))
    return _visible(_json(input))


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(table, ensure_ascii=False, indent=1, sort_keys=True)


def _visible(text: str) -> str:
    """``text`` with every character that a screen obeys or hides written out: nobody approves what they cannot see."""
    text = text.replace("\r\n", "\n")
    if clean(text) == text:
        return text
    return "".join(char if clean(char) == char else f"\\u{{{ord(char):x}}}" for char in text)
