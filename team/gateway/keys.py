"""The key that pays at the provider. It stays in this process: never in a container, a log or an argument."""

from __future__ import annotations

from collections.abc import Mapping

from team.config import UserSettings
from team.plan import Key


def find_key(user: UserSettings, environ: Mapping[str, str]) -> Key | None:
    """The key named by the person's own configuration, or None where neither variable is set."""
    if value := environ.get(user.gateway.key_env, "").strip():
        return Key(value)
    if value := environ.get(user.gateway.token_env, "").strip():
        return Key(value, bearer=True)
    return None
