"""The tools: what each takes, as the model is told and as its input is checked, and what it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from team.clients.builtin.editor import Editor, Wrong
from team.clients.builtin.output import Spill
from team.clients.builtin.processes import run
from team.clients.builtin.shell import MOST_SECONDS, SECONDS, Shell

_DOOR_SECONDS = 150.0
"""How long a call of ``team`` at the door may take."""


class Input(BaseModel):
    """What a tool takes: nothing that its schema does not name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class BashInput(Input):
    command: str
    """The shell command; several lines are fine."""
    seconds: float = Field(default=SECONDS, gt=0, le=MOST_SECONDS)
    """Time-out."""
    restart: bool = False
    """Begin with a new shell."""


class EditInput(Input):
    command: Literal["view", "create", "str_replace", "insert"]
    path: str
    """File or directory, relative to the work tree."""
    view_range: list[int] | None = Field(default=None, min_length=2, max_length=2)
    """For view: first and last line; -1 is the last one."""
    file_text: str | None = None
    """For create: the whole file."""
    old_str: str | None = None
    """For str_replace: text that is in the file exactly once."""
    new_str: str | None = None
    """For str_replace and insert: the new text."""
    insert_line: int | None = Field(default=None, ge=0)
    """For insert: the line after which; 0 is the top."""

    @model_validator(mode="after")
    def _complete(self) -> EditInput:
        for name in {"create": ("file_text",), "str_replace": ("old_str",), "insert": ("insert_line", "new_str")}.get(
            self.command, ()
        ):
            if getattr(self, name) is None:
                raise ValueError(f"{self.command} needs {name}")
        return self


class ClaimInput(Input):
    task: str
    """Name of the task."""
    scope: list[str] = []
    """Globs of the files that will change."""
    note: str = ""
    """What you will do, in a line."""
    force: bool = False
    """Although somebody holds a task with a similar name."""


class ReleaseInput(Input):
    task: str = ""
    """Empty: the one that you hold."""
    done: bool = False
    """The work has landed: the ticket goes, too."""
    give_up: str = ""
    """Why you give up."""


class TasksInput(Input):
    pass


class TestInput(Input):
    cases: list[str] = []
    """Names of cases, or parts of them; none: as `mode` says."""
    mode: Literal["fast", "failed", "all"] = "fast"
    """A sample, what failed last time, or everything."""


T = TypeVar("T", bound=Input)


@dataclass(frozen=True)
class Result:
    """What goes back to the model."""

    text: str
    failed: bool = False


@dataclass(frozen=True)
class Tool(Generic[T]):
    """One tool."""

    name: str
    about: str
    takes: type[T]
    do: Callable[[T], Result]
    looks: Callable[[T], bool] = lambda given: False
    """Whether a call only looks at things, so that it may run beside others."""

    @cached_property
    def definition(self) -> dict[str, Any]:
        """As the model is told."""
        schema = self.takes.model_json_schema()
        for each in schema.get("properties", {}).values():
            each.pop("title", None)
        schema.pop("title", None)
        return {"name": self.name, "description": self.about, "input_schema": schema}

    def parse(self, given: Mapping[str, Any]) -> T:
        """The input, checked. Raises :class:`Wrong` with what the schema says."""
        try:
            return self.takes.model_validate(given)
        except ValidationError as error:
            said = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'input'}: {e['msg']}" for e in error.errors(include_url=False)[:5]
            )
            known = ", ".join(self.takes.model_fields) or "nothing"
            raise Wrong(f"the input of {self.name} does not fit its schema: {said}. It takes: {known}") from None


def all_tools(
    shell: Shell, editor: Editor, spill: Spill, left: Callable[[], float] = lambda: math.inf
) -> Sequence[Tool[Any]]:
    """Every tool of a session, in the order in which the model is told of them. ``left``: the session's seconds."""

    def bash(given: BashInput) -> Result:
        if given.restart:
            shell.close()
        ran = shell.run(given.command, min(given.seconds, left()))
        if ran.code == 0:
            return Result(ran.text or "(no output)")
        return Result(ran.text if ran.code is None else f"{ran.text}\n[exit {ran.code}]".strip(), failed=True)

    def edit(given: EditInput) -> Result:
        if given.command == "view":
            first, last = given.view_range or (None, None)
            return Result(editor.view(given.path, first, last))
        if given.command == "create":
            return Result(editor.create(given.path, given.file_text or ""))
        if given.command == "str_replace":
            return Result(editor.replace(given.path, given.old_str or "", given.new_str or ""))
        return Result(editor.insert(given.path, given.insert_line or 0, given.new_str or ""))

    def team(seconds: float, *words: str) -> Result:
        seconds = min(seconds, left())
        code, text = run(["team", *words], seconds, spill)
        if code is None:
            return Result(f"{text}\n[ended: it took longer than {seconds:g} s]".strip(), failed=True)
        return Result(text.strip() or "(no output)", failed=code != 0)

    def claim(given: ClaimInput) -> Result:
        scope = [word for glob in given.scope for word in ("--scope", glob)]
        note = ["--note", given.note] if given.note else []
        return team(_DOOR_SECONDS, "claim", _name(given.task), *scope, *note, *["--force"] * given.force)

    def release(given: ReleaseInput) -> Result:
        if given.done and given.give_up:
            raise Wrong("release is either done or given up")
        how = ["--done"] if given.done else ["--give-up", given.give_up] if given.give_up else []
        return team(_DOOR_SECONDS, "release", *([_name(given.task)] if given.task else []), *how)

    def test(given: TestInput) -> Result:
        mode = [] if given.cases else [f"--{given.mode}"]
        return team(MOST_SECONDS, "test", *mode, *(["--", *given.cases] if given.cases else []))

    return (
        Tool(
            "bash",
            "Run a command in a bash that lives as long as the session, in your clone. Standard input is empty. "
            "Long output is cut in the middle, and the cut names the file with all of it. What you start with `&` "
            "goes on; send its output to a file.",
            BashInput,
            bash,
        ),
        Tool(
            "edit",
            "View and change text files. `view` shows a file with line numbers, or a directory; `create` writes a "
            "whole file; `str_replace` replaces text that is there exactly once; `insert` adds lines after a line. "
            "A file that changed since you viewed it must be viewed again.",
            EditInput,
            edit,
            looks=lambda given: given.command == "view",
        ),
        Tool("claim", "Claim a task before you work on it. The lock is in your clone after a pull.", ClaimInput, claim),
        Tool(
            "release",
            "Give your task back: when its work has landed (`done`), or when you give up and say why.",
            ReleaseInput,
            release,
        ),
        Tool("tasks", "List the tasks: open, held or blocked.", TasksInput, lambda _: team(_DOOR_SECONDS, "tasks"),
             looks=lambda given: True),
        Tool("test", "Run the project's tests: a sample by default. What fails on main too is told apart.", TestInput,
             test),
    )  # fmt: skip


def _name(task: str) -> str:
    if task.startswith("-") or not task.strip():
        raise Wrong("task: expected the name of a task")
    return task
