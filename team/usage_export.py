"""Compares the ledger with a usage export of a provider, to the token.

The file is CSV with a header, JSON, or JSON lines. Columns go by name, and the names that providers use themselves are
known, so that an export fits as it was downloaded:

- ``date``: a day, a time (its day in UTC) or seconds since the epoch; without it all days are compared together
- ``model``: with or without its date; without it all models are compared together
- ``input`` (what the cache did not give), ``output``, ``cache_write``, ``cache_read``: tokens; what is missing is not
  compared
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from team.cost import TOKENS, Call, utc_day
from team.errors import TeamError
from team.gateway.prices import VARIANT
from team.text import one_line

ALL = "(all)"
_MAX_BYTES = 200 << 20
_DAYS = frozenset("date day usage_date usage_date_utc starting_at start_time timestamp time".split())
_MODELS = frozenset("model model_version model_name".split())
_COLUMNS = {
    "input": "input input_tokens uncached_input_tokens usage_input_tokens_no_cache",
    "output": "output output_tokens usage_output_tokens",
    "cache_write": "cache_write cache_write_tokens cache_write_5m cache_write_1h cache_creation_input_tokens "
    "cache_creation_5m_input_tokens cache_creation_1h_input_tokens ephemeral_5m_input_tokens ephemeral_1h_input_tokens "
    "usage_input_tokens_cache_write usage_input_tokens_cache_write_5m usage_input_tokens_cache_write_1h",
    "cache_read": "cache_read cache_read_tokens cache_read_input_tokens usage_input_tokens_cache_read",
    # Part of the input, where the names above are beside it.
    "cached": "input_cached_tokens cached_tokens",
}
_FIELD = {name: field for field, names in _COLUMNS.items() for name in names.split()}

Key = tuple[str, str]
"""Day and model; :data:`ALL` where the file does not tell them apart."""


@dataclass(frozen=True)
class Export:
    """What a file says."""

    rows: dict[Key, dict[str, int]]
    fields: tuple[str, ...]
    """Which of the token counts it has."""
    by_day: bool
    by_model: bool
    writes_in_input: bool
    """It counts cache writes as input."""


@dataclass(frozen=True)
class Line:
    """One day, model and count in both."""

    day: str
    model: str
    field: str
    ledger: int
    provider: int

    @property
    def difference(self) -> int:
        """How much more the provider counts."""
        return self.provider - self.ledger


@dataclass(frozen=True)
class Comparison:
    """The ledger beside a file."""

    lines: list[Line]
    calls: int
    """Of the ledger, in the time that the file covers."""
    unknown: int
    """Of those, how many broke off before the provider told the end of the count."""
    elsewhere: int
    """Calls of the ledger on other days than the file covers; they are not compared."""

    @property
    def differences(self) -> list[Line]:
        return [line for line in self.lines if line.difference]


def read(path: Path) -> Export:
    """The usage export at ``path``. Raises :class:`TeamError` naming file, line and column."""
    shown = one_line(str(path), 100)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise TeamError(f"{shown} has more than {_MAX_BYTES >> 20} MiB; export fewer days")
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise TeamError(f"{shown}: not UTF-8; export it as CSV or JSON") from None
    except OSError as error:
        raise TeamError(f"{shown} cannot be read: {error.strerror or error}") from None
    rows = list(_json_rows(text, shown) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text))
    return _export(rows, shown)


def compare(export: Export, calls: Iterable[Call]) -> Comparison:
    """``calls`` beside ``export``, on the days from its first to its last."""
    days = sorted(day for day, _ in export.rows if day != ALL)
    ours: defaultdict[Key, dict[str, int]] = defaultdict(lambda: dict.fromkeys(TOKENS, 0))
    counted = unknown = elsewhere = 0
    for call in calls:
        day = utc_day(call.at)
        if days and not days[0] <= day <= days[-1]:
            elsewhere += 1
            continue
        counted += 1
        unknown += not call.known
        row = ours[day if export.by_day else ALL, plain(call.model) if export.by_model else ALL]
        for name, count in call.tokens.items():
            row["input" if export.writes_in_input and name == "cache_write" else name] += count
    lines = [
        Line(*key, name, ours[key][name] if key in ours else 0, export.rows.get(key, {}).get(name, 0))
        for key in sorted(ours.keys() | export.rows.keys())
        for name in export.fields
    ]
    return Comparison([line for line in lines if line.ledger or line.provider], counted, unknown, elsewhere)


def plain(model: str) -> str:
    """``model`` without its date, so that both sides call it the same."""
    while (shorter := VARIANT.sub("", model)) != model:
        model = shorter
    return model


def _export(rows: list[tuple[int, dict[str, Any]]], shown: str) -> Export:
    names = {name for _, row in rows for name in row}
    fields = tuple(f for f in TOKENS if any(_FIELD.get(n) in (f, "cached" if f == "cache_read" else f) for n in names))
    if not fields:
        found = ", ".join(sorted(one_line(n, 30) for n in names)[:8]) or "nothing"
        raise TeamError(f"{shown}: no column with tokens (input, output, cache_write, cache_read); it has {found}")
    by_day, by_model = bool(names & _DAYS), bool(names & _MODELS)
    summed: defaultdict[Key, dict[str, int]] = defaultdict(lambda: dict.fromkeys(TOKENS, 0))
    for line, row in rows:
        where = f"{shown}:{line}"
        counts = _counts(row, where)
        model = next((str(row[n]) for n in row if n in _MODELS and row[n]), "")
        key = (_day(row, where) if by_day else ALL, plain(one_line(model, 80)) if by_model else ALL)
        for name, count in counts.items():
            summed[key][name] += count
    beside = any(_FIELD.get(name) == "cached" for name in names)
    return Export(dict(summed), fields, by_day, by_model, beside and "cache_write" not in fields)


def _counts(row: dict[str, Any], where: str) -> dict[str, int]:
    counts = dict.fromkeys(TOKENS, 0)
    for name, value in row.items():
        field = _FIELD.get(name)
        if field is None or value in (None, ""):
            continue
        try:
            count = int(str(value).replace(",", "").replace("_", ""))
        except ValueError:
            raise TeamError(f"{where}: {name}: expected a whole number; it is {one_line(str(value), 40)!r}") from None
        if field == "cached":
            counts["cache_read"] += count
            counts["input"] -= count
        else:
            counts[field] += count
    return counts


def _day(row: dict[str, Any], where: str) -> str:
    value = next((row[name] for name in row if name in _DAYS and row[name] not in (None, "")), None)
    text = str(value if value is not None else "").strip()
    try:
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text):
            return utc_day(float(text))
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return datetime.fromisoformat(text).strftime("%Y-%m-%d")
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise TeamError(f"{where}: expected a date like 2026-10-16; it is {one_line(text, 40)!r}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).strftime("%Y-%m-%d")


def _csv_rows(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    head = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text), delimiter=max(",;\t", key=head.count))
    names: list[str] = []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if not names:
            names = [_name(cell) for cell in row]
        else:
            yield reader.line_num, dict(zip(names, row, strict=False))


def _json_rows(text: str, shown: str) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        whole = json.loads(text)
    except ValueError as error:
        try:
            whole = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            at = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise TeamError(f"{shown}{at}: neither JSON nor CSV with a header") from None
    except RecursionError:
        raise TeamError(f"{shown}: nested too deeply for a usage export") from None
    yield from enumerate(_flat(whole, {}), 1)


def _flat(value: Any, around: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The innermost objects of lists of objects, each with the plain fields of what is around it."""
    if isinstance(value, list):
        for item in value:
            yield from _flat(item, around)
    elif isinstance(value, dict):
        row = dict(around)
        inner = [part for part in value.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
        row |= dict(_leaves(value))
        if inner:
            for part in inner:
                yield from _flat(part, row)
        elif any(name in _FIELD for name in row):
            yield row


def _leaves(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, part in value.items():
        if isinstance(part, dict):
            yield from _leaves(part)
        elif not isinstance(part, list):
            yield _name(name), part


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.strip().lower()).strip("_")
