"""Which tool calls the built-in agent may make, must ask a person for, or must leave: a table, first match wins.

It runs in the container, beside what the model starts: a rule for an agent that goes wrong, no fence against one that
wants to get around it. The fence is the container. Standard library only.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

VARIABLE = "TEAM_POLICY"
"""Environment variable with ``[policy]`` of team.toml as JSON; without it everything is allowed."""
SHELL = "bash"
"""The tool whose input is a shell command: each command in it is looked at."""
_TREE = "/workspace"


class Verdict(StrEnum):
    """What may happen to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Rule:
    """One line of the table; both globs must match the whole of what they look at."""

    verdict: Verdict
    tool: str = "*"
    pattern: str = "*"
    """Matches what :func:`texts` makes of the input."""
    note: str = ""
    """What the model is told when it is not allowed."""


@dataclass(frozen=True)
class Decision:
    """What the table says of a call."""

    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Policy:
    """The table."""

    default: Verdict = Verdict.ALLOW
    """For what no rule matches."""
    rules: tuple[Rule, ...] = ()

    def decide(self, tool: str, input: Mapping[str, Any]) -> Decision:
        """The first rule that matches; of several commands in one shell line the strictest verdict counts."""
        if not self.rules:
            return Decision(self.default)
        found = [self._first(tool, text) for text in texts(tool, input)]
        return max(found, key=lambda decision: decision.verdict.strictness)

    def _first(self, tool: str, text: str) -> Decision:
        bare = _bare(text) if tool == SHELL else text
        for rule in self.rules:
            known_as = {text} if rule.verdict is Verdict.ALLOW else {text, bare}
            if fnmatchcase(tool, rule.tool) and any(fnmatchcase(t, rule.pattern) for t in known_as):
                return Decision(rule.verdict, rule.note)
        return Decision(self.default)


def load(env: Mapping[str, str]) -> Policy:
    """The policy of this session. Raises :class:`ValueError` for one that makes no sense: then nothing must run."""
    text = env.get(VARIABLE)
    if not text:
        return Policy()
    try:
        table = json.loads(text)
        rules = tuple(
            Rule(Verdict(rule["verdict"]), str(rule["tool"]), str(rule["pattern"]), str(rule["note"]))
            for rule in table["rules"]
        )
        return Policy(Verdict(table["default"]), rules)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{VARIABLE} makes no sense: {error!r}") from None


def texts(tool: str, input: Mapping[str, Any]) -> list[str]:
    """What patterns are matched against.

    For the shell: the whole line and each command in it, also in what ``bash -c`` and ``eval`` run, with single
    spaces; what is denied or asks is also matched without what stands before it (``env A=1 nice /bin/rm x`` is
    ``rm x``, too). For a tool with a ``path``: its ``command``, where it has one, and the absolute path without ``..``,
    like ``create /workspace/src/a.py``. For any other: its input as JSON with sorted keys.
    """
    command, path = input.get("command"), input.get("path")
    if isinstance(path, str):
        absolute = posixpath.normpath(posixpath.join(_TREE, path))
        return [f"{command} {absolute}" if isinstance(command, str) else absolute]
    if tool == SHELL and isinstance(command, str):
        return list(dict.fromkeys([_flat(command), *_parts(command)]))
    return [json.dumps(input, sort_keys=True, ensure_ascii=False, default=str)]


def _parts(line: str, depth: int = 4) -> Iterator[str]:
    """The commands of ``line``, each with those in what it gives to another shell."""
    for part in _commands(line):
        part = _KEYWORDS.sub("", part.lstrip())
        if _WORD.search(part):
            yield _flat(part)
            if depth and (inner := _inner(_unwrapped(part))):
                yield from _parts(inner, depth - 1)


def _bare(command: str) -> str:
    """``command`` without quotes, without its directory, and without what it is wrapped in."""
    return " ".join(_unwrapped(command))


def _unwrapped(command: str) -> list[str]:
    """The words of ``command`` from its own name on; none where they cannot be told."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that ends elsewhere
        return []
    while words:
        name = posixpath.basename(words[0])
        if name in _WRAPPERS:
            words = words[1:]
            while words and _OPTION.match(words[0]):
                words = words[1:]
        elif _ASSIGNMENT.match(words[0]):
            words = words[1:]
        else:
            return [name, *words[1:]]
    return []


def _inner(words: list[str]) -> str:
    """What a shell that is called so would run."""
    if words[:1] == ["eval"]:
        return " ".join(words[1:])
    if words and words[0] in _SHELLS:
        for option, word in itertools.pairwise(words[1:]):
            if _COMMAND_OPTION.match(option):
                return word
    return ""


def _flat(text: str) -> str:
    return " ".join(text.split())


_WORD = re.compile(r"[^\s'\"]")
_KEYWORDS = re.compile(r"(?:(?:if|then|elif|else|while|until|do|time|!|\{)(?:\s+|$))+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_OPTION = re.compile(r"[-\d]")
_COMMAND_OPTION = re.compile(r"-[a-z]*c[a-z]*\Z")
_SHELLS = frozenset("bash dash ksh sh zsh".split())
_WRAPPERS = frozenset(
    "builtin command doas env exec ionice nice nohup setsid stdbuf sudo time timeout unbuffer xargs".split()
)
_ESCAPE = re.compile(r"\\(.)", re.S)
# What may begin, end or hide a command. A redirection (`2>&1`, `&>`) is none of them; `<<` is a here-document.
_TOKEN = re.compile(
    r"\\.|>&|<&|&>|<<<|(?P<here><<)|(?P<quote>\$?'|\")|(?P<comment>(?<![^\s;&|()`<>])#)"
    r"|(?P<split>\$\(|[<>]\(|[`()\n;|&])",
    re.S,
)


def _commands(line: str) -> Iterator[str]:
    """The commands of a shell line, one too many rather than one too few: where quotes are hard to tell (in comments,
    after here-documents, backticks and ``case``), what looks like a separator is taken as one."""
    line = _ESCAPE.sub(lambda match: "" if match[1] == "\n" else match[0], line)
    begin, quote, comment, trusted = 0, "", False, not re.search(r"\bcase\b", line)
    outer: list[str] = []
    for match in _TOKEN.finditer(line):
        token = match[0]
        if quote in ("'", "$'"):
            if token.endswith("'") and not (quote == "$'" and token.startswith("\\")):
                quote = ""
        elif match["quote"]:
            if trusted and not comment and (not quote or token == '"'):
                quote = "" if quote else token
        elif match["here"]:
            trusted = trusted and bool(quote)
        elif match["comment"]:
            comment = comment or not quote
        elif match["split"] and (not quote or token in ("$(", "`")):
            yield line[begin : match.start()]
            begin = match.end()
            comment = comment and token != "\n"
            trusted = trusted and token != "`"
            if comment or not trusted:
                quote = ""
            elif token.endswith("("):
                outer.append(quote)
                quote = ""
            elif token == ")" and outer:
                quote = outer.pop()
    yield line[begin:]
