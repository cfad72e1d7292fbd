"""When a provider that says "not now" may be asked again: from its headers, or from what its message says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = 8 * 86400.0
"""Seconds; what is further away is a misunderstanding."""
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])")
_UNIT = {"ms": 0.001, "mi": 60.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_IN = re.compile(
    r"(?:again in|retry (?:in|after)|wait(?: for)?|resets? in)\s+((?:[\d.]+\s*[a-z]+[\s,]*(?:and\s+)?)+)", re.I
)
_STAMP = re.compile(r"\|(\d{10})\b")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_CLOCK = re.compile(r"resets?(?: at)?\s+(\d{1,2})(?::(\d\d))?\s*([ap]m)?\b(?:\s*\(?(UTC|GMT)\)?)?", re.I)
_GROUPS = ("requests", "tokens", "input-tokens", "output-tokens")


def seconds(headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Seconds from ``now`` (since the epoch) until the provider answers again; None where nothing tells."""
    told = [s for s in _header_waits(headers, now) if 0 <= s <= LONGEST]
    if told:
        return max(told)
    in_words = [s for s in _message_waits(message[:4000], now) if 0 <= s <= LONGEST]
    return max(in_words, default=None)


def _header_waits(headers: Mapping[str, str], now: float) -> Iterator[float]:
    if (ms := _number(headers.get("retry-after-ms", ""))) is not None:
        yield ms / 1000
    elif text := headers.get("retry-after", ""):
        number = _number(text)
        wait = number if number is not None else _until(text, now)
        if wait is not None:
            yield wait
    if (stamp := _number(headers.get("anthropic-ratelimit-unified-reset", ""))) is not None:
        yield stamp - now
    for group in _GROUPS:  # each tells its reset, used up or not
        if headers.get(f"anthropic-ratelimit-{group}-remaining") == "0":
            wait = _until(headers.get(f"anthropic-ratelimit-{group}-reset", ""), now)
            if wait is not None:
                yield wait
        if headers.get(f"x-ratelimit-remaining-{group}") == "0":
            wait = span(headers.get(f"x-ratelimit-reset-{group}", ""))
            if wait is not None:
                yield wait


def _message_waits(message: str, now: float) -> Iterator[float]:
    for stamp in _STAMP.findall(message):
        yield float(stamp) - now
    for text in _IN.findall(message):
        if (wait := span(text)) is not None:
            yield wait
    for text in _ISO.findall(message):
        if (wait := _until(text, now)) is not None:
            yield wait
    for hour, minute, half, utc in _CLOCK.findall(message):
        if (wait := _clock(int(hour), int(minute or 0), half.lower(), bool(utc), now)) is not None:
            yield wait


def span(text: str) -> float | None:
    """Seconds of ``6m0s``, ``20ms``, ``1 hour and 5 minutes``; None where it is none."""
    parts = _SPAN.findall(text.lower())
    if not parts:
        return None
    return sum(float(number) * (_UNIT.get(unit[:2]) or _UNIT[unit[0]]) for number, unit in parts)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _until(text: str, now: float) -> float | None:
    """Seconds until an RFC 3339 or HTTP date."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(text)
        except (ValueError, TypeError, IndexError):
            continue
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now
    return None


def _clock(hour: int, minute: int, half: str, utc: bool, now: float) -> float | None:
    """Seconds until the clock shows this time next."""
    hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
    if hour > 23 or minute > 59:
        return None
    zone = UTC if utc else datetime.fromtimestamp(now).astimezone().tzinfo
    here = datetime.fromtimestamp(now, zone)
    at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at > here else at + timedelta(days=1)).timestamp() - now


def clock_words(at: float) -> str:
    """``at`` (since the epoch) as people read it: the time, with the date where it is not today."""
    when, today = time.localtime(at), time.localtime()
    same = when[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", when)
