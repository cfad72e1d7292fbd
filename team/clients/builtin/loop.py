"""The loop: model, tools, repeat; and what each way to stop means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from team.clients.builtin.answer import Answer
from team.clients.builtin.conversation import Conversation
from team.clients.builtin.hands import Hands, Stuck
from team.clients.builtin.limits import Limits
from team.clients.builtin.model import Model, Refused
from team.clients.builtin.options import Options
from team.clients.builtin.output import Spill
from team.clients.builtin.transcript import Transcript

NUDGES = 3
"""Answers in a row that neither call a tool nor end the session."""
MOST_TOKENS = 64_000
"""Of one answer, when a call did not fit."""
TRIM_AT, WORTH = 0.5, 0.15
"""Old results are trimmed from this share of the window on, and only where this share is freed: what comes behind the
first of them must be read anew, at full price."""
HAND_OVER_TURNS = 8
"""Answers in which the model may land what works, before the session ends without its note."""

_GO_ON = "[team] Your answer was cut off. Go on where you stopped, in smaller pieces."
_EMPTY = "[team] Your last answer was empty. Please continue; when all is done, say what landed and what is left."
_UNKNOWN = "[team] Your last answer stopped for an unknown reason ({stop}). Please continue, or say that you are done."
_FULL = """\
[team] Your context is {share:.0%} full, so this session ends now and a fresh one goes on from the repository. Begin \
nothing new. If what you have works by itself, commit and push it now. Then answer without calling a tool: a note \
for whoever goes on, at most 40 lines, with what is done, what is open, what you decided and why, what failed, and \
the very next step. It is written to {notes} and pushed for you; changes that are not in main are kept beside it."""
_COMPACTED = "[team] Your context was full and begins anew. Your work tree is as you left it. Your own note:\n\n"


@dataclass(frozen=True)
class End:
    """How the session ended."""

    outcome: str
    """``done``, ``failed``, ``refused`` (by the model's side), ``out_of_budget`` or ``timed_out``."""
    reason: str
    status: int | None = None
    handed_over: bool = False


HandOver = Callable[[str, bool], str]
"""Writes a note, with what is not in main where that is asked for; says what was done."""


@dataclass
class Loop:
    """One session."""

    options: Options
    model: Model
    conversation: Conversation
    hands: Hands
    limits: Limits
    spill: Spill
    transcript: Transcript
    hand_over: HandOver
    prompt: str = ""
    last_words: str = ""
    """What the model said last, for a note that it does not write itself."""
    _nudges: int = 0
    _handing: int | None = None
    """Answers that are left until the session ends; None: it is not full."""
    _filled: int = 0
    """Tokens of the conversation, about."""
    _begun: int | None = None
    """Tokens of the first request since the conversation began; None: it was not answered yet."""
    _unknown: set[str] = field(default_factory=set)

    def run(self, prompt: str) -> End:
        """Work until the model is done, or something else ends the session."""
        self.prompt = prompt
        self.conversation.say(prompt)
        try:
            while True:
                answer = self._ask()
                if end := self._take(answer) or self._look_after_bounds():
                    return end
        except Refused as refused:
            if refused.too_long and self._begun is not None:
                return self._end_full("the conversation no longer fits the model")
            return End("refused", str(refused), refused.status)
        except Stuck as stuck:
            return End("failed", str(stuck))

    def _take(self, answer: Answer) -> End | None:
        """Do what the answer asks for; the end, where it is one."""
        if answer.content:
            self.conversation.add("assistant", answer.content)
        self.last_words = answer.text or self.last_words
        if answer.stop == "refusal":
            return End("failed", f"the model refused{': ' if answer.why else ''}{answer.why}")
        if answer.calls:
            results = self.hands.run(answer.calls)
            self.conversation.add("user", results)
            self.transcript.event("tools", content=results)
            self._filled += sum(len(r["content"]) for r in results) // 4
            self._nudges = 0
            return None
        if answer.stop == "model_context_window_exceeded":
            return self._end_full("the model's context is full")
        if self._handing is not None and answer.text:
            return self._handed_over(answer.text)
        return self._without_calls(answer)

    def _without_calls(self, answer: Answer) -> End | None:
        """An answer that calls no tool: the end, or one that must be gone on with."""
        if answer.stop in ("end_turn", "stop_sequence") and answer.text:
            return End("done", answer.text)
        self._nudges += 1
        if self._nudges > NUDGES:
            return End("failed", f"{self._nudges} answers in a row came to nothing (the last ended: {answer.stop})")
        if answer.stop == "pause_turn" and answer.content:
            return None  # sent back as it is, it is gone on with
        if answer.stop in ("max_tokens", "pause_turn"):
            self.conversation.say(_GO_ON)
        elif answer.stop in ("end_turn", "stop_sequence"):
            self.conversation.say(_EMPTY)
        else:
            self.conversation.say(_UNKNOWN.format(stop=answer.stop[:40] or "none"))
        return None

    # -- asking -----------------------------------------------------------------------------------------------

    def _ask(self) -> Answer:
        answer = self._asked(None)
        if answer.stop == "max_tokens" and any(call.wrong for call in answer.calls) and not self.limits.passed():
            room = min(2 * self.options.max_tokens, MOST_TOKENS)
            if room > self.options.max_tokens:
                self.transcript.note(f"a call did not fit into {self.options.max_tokens} tokens; asking for {room}")
                try:
                    return self._asked(room)
                except Refused as refused:
                    if refused.status != 400:
                        raise  # else the model's answers are no longer than that: it is told to make smaller pieces
        return answer

    def _asked(self, max_tokens: int | None) -> Answer:
        """One answer, counted and noted. Blocks that the other side does not take back are left out."""
        try:
            answer = self.model.ask(self.conversation.body(max_tokens))
        except Refused as refused:
            if refused.too_long and self.conversation.trimmable():
                self._trim()
            elif not (refused.status in (400, 403) and self.conversation.drop(sorted(self._unknown))):
                raise
            answer = self.model.ask(self.conversation.body(max_tokens))
        self.limits.count(answer.usage)
        self._filled = answer.usage.all or self.conversation.size // 4
        if self._begun is None:
            self._begun = self._filled - answer.usage.output_tokens
        self._unknown.update(answer.unknown)
        if answer.unknown:
            self.transcript.note(f"content of unknown kinds: {', '.join(answer.unknown)}")
        self.transcript.event("assistant", content=answer.content, stop=answer.stop, usage=vars(answer.usage))
        return answer

    # -- bounds -----------------------------------------------------------------------------------------------

    def _look_after_bounds(self) -> End | None:
        if passed := self.limits.passed():
            return End(*passed)
        window = self.options.window
        if self._filled >= TRIM_AT * window:
            freed = self.conversation.trimmable() * self._filled // self.conversation.size
            if freed >= WORTH * window:
                self._trim()
                self._filled -= freed
        if self._handing is not None:
            self._handing -= 1
            if self._handing <= 0:
                return self._handed_over(self.last_words)
        elif self._filled >= self.options.full * window:
            self._handing = HAND_OVER_TURNS
            self.transcript.note(f"the context is {self._filled / window:.0%} full: handing over")
            self.conversation.say(_FULL.format(share=self._filled / window, notes=self.options.notes))
        return None

    def _trim(self) -> None:
        self.conversation.trim(lambda text: str(self.spill.write(text)))
        self.transcript.note("old tool results are trimmed to save room")

    def _handed_over(self, note: str) -> End | None:
        if end := self._cramped():
            return end
        compact = self.options.when_full == "compact"
        self.transcript.note(self.hand_over(note, not compact))
        if not compact:
            return End("done", f"handed over: {note}", handed_over=True)
        self._handing = None
        self.conversation.restart([self.prompt, _COMPACTED + note])
        self._filled, self._begun = 0, None
        return None

    def _cramped(self) -> End | None:
        """The end where the prompt alone fills the window: so it would in every session after this one, and each would
        land a note."""
        share = (self._begun or 0) / self.options.window
        if share < self.options.full:
            return None
        return End("failed", f"the prompt alone fills {share:.0%} of the window; raise [builtin] window")

    def _end_full(self, why: str) -> End:
        """The end of a session whose model cannot be asked for a note any more."""
        if end := self._cramped():
            return end
        self.transcript.note(self.hand_over(f"{why}. The last words were: {self.last_words}", True))
        return End("done", f"handed over: {why}", handed_over=True)
