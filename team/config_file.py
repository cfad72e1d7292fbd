"""Reads ``team.toml`` and the person's own configuration; every complaint names file, line, key and the mend."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from team import places, prompt
from team.clients import CLIENTS
from team.config import Settings, UserSettings
from team.errors import TeamError, WrongSetting
from team.text import one_line

NAME = "team.toml"
_MAX_BYTES = 1 << 20
_ROLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(:[1-9][0-9]{0,2})?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,80}\Z")
_Model = TypeVar("_Model", bound=BaseModel)

# What a value should have been, by pydantic's name of the error; pydantic's own words serve for the rest.
_EXPECTED = {
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a number, not inf or nan",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": 'expected text in quotes, like "a"',
    "tuple_type": 'expected a list, like ["a", "b"]',
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}


def load(root: Path) -> Settings:
    """The settings in ``team.toml`` of the work tree ``root``; all defaults where there is no such file.

    Raises :class:`TeamError` on one line with file, line, key and what is allowed.
    """
    path = root / NAME
    if not path.exists() and not path.is_symlink():
        return Settings()
    if not path.resolve().is_relative_to(root.resolve()):
        raise TeamError(f"{NAME} is a symbolic link out of the work tree; put the file itself there")
    text = _read(path, NAME)
    data = _parse(text, NAME)
    settings = _validate(Settings, data, text, NAME, show_values=True)
    if settings.client not in CLIENTS:
        known = ", ".join(CLIENTS)
        raise _complaint(NAME, text, ("client",), f"unknown client {settings.client!r}; allowed: {known}")
    for role in settings.roles:
        if not _ROLE.match(role):
            raise _complaint(NAME, text, ("roles",), f"{role!r} is no role; write 'review' or 'review:2'")
    _check_roles(root, settings, text)
    return settings


def _check_roles(root: Path, settings: Settings, text: str) -> None:
    """Raise :class:`TeamError` for a role that nobody can have: its limit or its model would never hold."""
    known = prompt.roles(root)
    named: list[tuple[tuple[str, ...], str]] = [(("roles",), role.partition(":")[0]) for role in settings.roles]
    named += [(("models", role), role) for role in settings.models]
    named += [(("role", role), role) for role in settings.role]
    named += [(("budget", "roles", role), role) for role in settings.budget.roles]
    for loc, role in named:
        if role not in known:
            what = f"unknown role {one_line(repr(role), 60)}; known: {', '.join(sorted(known))}, or add roles/NAME.md"
            raise _complaint(NAME, text, loc, what)


def load_user() -> UserSettings:
    """The person's own configuration, ``~/.config/team/config.toml``; all defaults where there is no such file.

    Raises :class:`TeamError` like :func:`load`, but never shows a value: somebody may have put a key there.
    """
    path = places.config_home() / "config.toml"
    if not path.exists() and not path.is_symlink():
        return UserSettings()
    shown = str(path)
    text = _read(path, shown)
    settings = _validate(UserSettings, _parse(text, shown), text, shown, show_values=False)
    for key in ("key_env", "token_env"):
        if not _VARIABLE.match(getattr(settings.gateway, key)):
            what = "expected the name of an environment variable, never the key itself, like 'ANTHROPIC_API_KEY'"
            raise _complaint(shown, text, ("gateway", key), what)
    if not re.match(r"https?://[^\s/@]+(/[^\s@]*)?\Z", settings.gateway.base_url):
        what = "expected an address without user or password, like 'https://api.anthropic.com'"
        raise _complaint(shown, text, ("gateway", "base_url"), what)
    return settings


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line (from 1) on which each key and table of the valid TOML ``text`` begins.

    ``tomllib`` tells no positions, but it tells where a statement ends: an open bracket or string never parses,
    so the fewest lines that parse are one statement. What is inside a list or an inline table has its key's line.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    start = 0
    while start < len(lines):
        end, statement = _statement(lines, start)
        if lines[start].lstrip().startswith("["):
            table = next(_paths(statement), ())
            found.setdefault(table, start + 1)
        else:
            for path in _paths(statement):
                found.setdefault(table + path, start + 1)
        start = end
    return found


def _statement(lines: list[str], start: int) -> tuple[int, dict[str, Any]]:
    """The index after the statement that begins at ``start``, and what it parses to."""
    for end in range(start + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _paths(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path of keys in ``value``, deepest first; a list of tables counts as its table."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = value[0]
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    if path:
        yield path


def _read(path: Path, shown: str) -> str:
    try:
        if not path.is_file():
            raise TeamError(f"{shown} is not a regular file; replace or remove it")
        if path.stat().st_size > _MAX_BYTES:
            raise TeamError(f"{shown} has more than {_MAX_BYTES >> 20} MiB; it is no configuration of team")
        raw = path.read_bytes()
    except OSError as error:
        raise TeamError(f"{shown} cannot be read: {error.strerror or error}; check its permissions") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TeamError(f"{shown}:{line}: not UTF-8; save the file as UTF-8") from None


def _parse(text: str, shown: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at line (\d+), column (\d+)\)\Z", str(error))
        if at:
            what, line = str(error)[: at.start()], int(at[1])
        else:
            what, line = re.sub(r" \(at end of document\)\Z", "", str(error)), len(text.rstrip().split("\n"))
        raise TeamError(f"{shown}:{line}: not TOML: {one_line(what[:1].lower() + what[1:])}") from None
    except RecursionError:
        raise TeamError(f"{shown}: not TOML: nested too deeply") from None


def _validate(model: type[_Model], data: dict[str, Any], text: str, shown: str, *, show_values: bool) -> _Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    loc = tuple(str(part) for part in first["loc"])
    if loc == ("roles",) and isinstance(first["input"], dict):
        raise _complaint(shown, text, loc, "this is the list of seats; the settings of a role are [role.NAME]")
    kind, context = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        raise _complaint(shown, text, loc, _unknown_key(model, loc))
    if kind == "value_error":
        what = str(context["error"])
        if isinstance(context["error"], WrongSetting):
            raise _complaint(shown, text, loc + context["error"].path, what)
    else:
        words = first["msg"] if show_values else "this value is not allowed here"
        what = _EXPECTED.get(kind, words).format(**context)
    if show_values and not isinstance(first["input"], dict):
        value = first["input"]
        what += f"; it is {one_line(str(value).lower() if isinstance(value, bool) else repr(value), 60)}"
    raise _complaint(shown, text, loc, what)


def _unknown_key(model: type[BaseModel], loc: tuple[str, ...]) -> str:
    other = UserSettings if model is Settings else Settings
    if loc[0] in other.model_fields and loc[0] not in model.model_fields:
        home = places.config_home() / "config.toml" if other is UserSettings else f"{NAME} in the project"
        return f"unknown key here; it is read from {home} only"
    known = list(_fields(model, loc[:-1]))
    near = difflib.get_close_matches(loc[-1].lower().replace("-", "_"), known, n=1, cutoff=0.6)
    return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; known here: {', '.join(known)}"


def _fields(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """The keys that are known in the table ``path`` of ``model``."""
    steps = iter(path)
    for part in steps:
        inner: Any = model.model_fields[part].annotation
        if get_origin(inner) is dict:  # tables by a name of the person's own
            next(steps, None)
            inner = get_args(inner)[1]
        elif get_origin(inner) is tuple:  # tables in a list, by their place
            next(steps, None)
            inner = get_args(inner)[0]
        assert isinstance(inner, type) and issubclass(inner, BaseModel)
        model = inner
    yield from model.model_fields


def _complaint(shown: str, text: str, loc: tuple[str, ...], what: str) -> TeamError:
    """A :class:`TeamError` for the key ``loc``, with the line of it or of the nearest table around it."""
    lines = key_lines(text)
    line = next((lines[loc[:n]] for n in range(len(loc), 0, -1) if loc[:n] in lines), 1)
    key = ".".join(one_line(part, 60) for part in loc)
    return TeamError(f"{shown}:{line}: {key}: {what}")
