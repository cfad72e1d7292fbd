"""Where models are: each provider's API, address, key and which models are asked for there."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from team.clients import Api
from team.config import UserSettings
from team.gateway.keys import OPENAI_URL, Keys, default_source, named_source
from team.plan import Key

OAUTH_BETA = "oauth-2025-04-20"
"""What Anthropic wants to see beside a bearer token of a subscription."""


@dataclass(frozen=True)
class Provider:
    """One provider."""

    name: str
    api: Api
    base_url: str
    """Without ``/v1``, which every path begins with."""
    keys: Keys
    models: tuple[str, ...] = ("*",)
    billed: bool = True
    """Whether its tokens are paid for one by one; a bearer token of a subscription never is."""

    def takes(self, api: Api, model: str) -> bool:
        return self.api == api and any(fnmatchcase(model, pattern) for pattern in self.models)

    def pays(self, key: Key | None) -> bool:
        """Whether what goes out with ``key`` is billed by the token."""
        return self.billed and key is not None and not (self.api == "anthropic" and key.bearer)

    def authorization(self, key: Key | None) -> dict[str, str]:
        """The headers that pay."""
        if key is None:
            return {}
        if self.api == "openai" or key.bearer:
            return {"Authorization": f"Bearer {key.value}"}
        return {"x-api-key": key.value}

    def purse(self, key: Key | None) -> str:
        """A name for the key, safe to write down: limits hold for a key at an address, whichever project asks."""
        return hashlib.sha256(f"{self.base_url}\0{key.value if key else ''}".encode()).hexdigest()[:24]


def is_loopback(url: str) -> bool:
    """Whether ``url`` is served by this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_version(url: str) -> str:
    """``url`` as the part before ``/v1``."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def providers(
    user: UserSettings, environ: Mapping[str, str], *, base_url: str | None = None, key: Key | None = None
) -> list[Provider]:
    """All providers, in the order in which they are asked: those of the person's own configuration, then Anthropic
    and OpenAI, or what ``base_url`` says instead of both (nobody where it is empty)."""
    found = [
        Provider(
            name, told.api, without_version(told.base_url), Keys(named_source(told), environ), told.models, told.billed
        )
        for name, told in user.gateway.providers.items()
    ]
    defaults: tuple[tuple[Api, str], ...] = (("anthropic", user.gateway.base_url), ("openai", OPENAI_URL))
    for api, url in defaults:
        address = url if base_url is None else base_url
        if address:
            keys = Keys(default_source(user, api), environ, key)
            found.append(Provider(api, api, without_version(address), keys))
    return found
