"""Text from agents, made safe for a screen or a log line of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable

# C0 and C1 controls, zero-width and bidirectional marks, line and paragraph separators, byte-order mark,
# tag characters. A terminal obeys the first two; the others hide or reorder what a person reads.
# Lone surrogates (from JSON escapes, or file names that are not UTF-8) cannot be written anywhere.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
# Whole escape sequences go first, so that their printable tail does not stay behind.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x1b\\|\x07|$)|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]", re.S
)

MASK = "[masked]"


def clean(text: str) -> str:
    """``text`` without escape sequences, control, zero-width and bidirectional characters; newlines and tabs stay."""
    return _HIDDEN.sub("", _ESCAPES.sub("", text))


def one_line(text: str, width: int = 200) -> str:
    """``text`` cleaned, on one line, at most ``width`` characters (an ellipsis marks the cut)."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def mask(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every one of ``secrets`` (those of 8 characters or more) replaced by ``[masked]``."""
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, MASK)
    return text
