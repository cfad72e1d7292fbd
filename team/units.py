"""Sizes and times as people write them. Standard library only: it is used inside containers too."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SPANS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(value: object) -> object:
    """Bytes from ``4g``, ``512m`` (powers of 1024) or a number; other types are returned as they are."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", value.lower())
        if not match:
            raise ValueError("a size is a number with k, m, g or t, like '4g'")
        return int(float(match[1]) * _UNITS[match[2]])
    return value


def parse_span(value: object) -> object:
    """Seconds from ``90``, ``90s``, ``20m``, ``12h`` or ``2d``; other types are returned as they are."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", value.lower())
        if not match:
            raise ValueError("a time is a number with s, m, h or d, like '20m'")
        return float(match[1]) * _SPANS[match[2]]
    return value
