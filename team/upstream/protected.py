"""Paths that no agent changes without a person: what later sessions, or the host, would obey."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from team.upstream.paths import RESERVED, fold

DEFAULT = (
    "/team.toml",
    "/Dockerfile",
    "/images/",
    "/roles/",
    "/AGENT_PROMPT.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "AGENTS.md",
    ".claude/",
    ".mcp.json",
    "/.codex/",
    "/.opencode/",
    "/opencode.json",
    "/opencode.jsonc",
    ".envrc",
    ".vscode/",
    "/.github/",
    ".gitattributes",
    "/.gitmodules",
)
"""As in a .gitignore: a slash at the front or inside ties to the root, one at the end means a directory."""


def touched(paths: Iterable[str], globs: Sequence[str] = ()) -> list[str]:
    """Those of ``paths`` that are protected by default or by ``globs``, in any case or Unicode form."""
    matcher = _compiled((*DEFAULT, *globs))
    return [path for path in paths if matcher.match(_folded(path))]


def reserved(paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that would replace what ``team`` keeps at the root of the user's work tree."""
    return [path for path in paths if fold(path.split("/", 1)[0]) in RESERVED]


def _folded(path: str) -> str:
    return "/".join(fold(part) for part in path.split("/"))


@lru_cache(maxsize=16)
def _compiled(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_pattern(glob)})" for glob in globs), re.S)


def _pattern(glob: str) -> str:
    body = fold(glob).strip("/")
    anywhere = "/" not in body and not glob.startswith("/")
    out, position = ["(?:.*/)?" if anywhere else ""], 0
    for match in re.finditer(r"\*\*/?|\*|\?|\[[^\]]*\]", body):
        out += [re.escape(body[position : match.start()]), _WILD.get(match[0]) or _class(match[0])]
        position = match.end()
    # What is below a protected name is protected too, and so is a file or link in a directory's place.
    return "".join([*out, re.escape(body[position:]), r"(?:/.*)?\Z"])


_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _class(text: str) -> str:
    inner = text[1:-1].replace("\\", "\\\\")
    inner = "^" + inner[1:] if inner.startswith("!") else inner
    try:
        re.compile(f"[{inner}]")
    except re.error:
        return re.escape(text)
    return f"[{inner}]"
