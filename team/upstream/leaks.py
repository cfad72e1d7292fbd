"""What looks like a key or a token in a new file. The finding never repeats it."""

from __future__ import annotations

import re

_KINDS = (
    ("a private key", rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr])*[A-Za-z0-9+/=:]"),
    ("an AWS access key", rb"\b(?:AKIA|ASIA)(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}\b"),
    ("an Anthropic key", rb"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{24,}"),
    ("an OpenAI key", rb"\bsk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"),
    ("a GitHub token", rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})"),
)
_ANY = re.compile(b"|".join(b"(?P<k%d>%s)" % (i, pattern) for i, (_, pattern) in enumerate(_KINDS)))


def find(data: bytes) -> tuple[int, str] | None:
    """Line number and kind of the first thing in ``data`` that looks like a secret."""
    match = _ANY.search(data)
    if match is None:
        return None
    return data.count(b"\n", 0, match.start()) + 1, _KINDS[int((match.lastgroup or "k0")[1:])][0]
