"""The keys that pay at the providers. They stay in this process: never in a container, a log or an argument."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from team.clients import Api
from team.config import Provider, UserSettings
from team.errors import TeamError
from team.plan import Key

OPENAI_URL, OPENAI_KEY = "https://api.openai.com", "OPENAI_API_KEY"
COMMAND_SECONDS = 30.0
_MOST = 16 << 10
"""Bytes of a key; ours have a hundred."""


@dataclass(frozen=True)
class Source:
    """Where a key comes from: the first of these that is set. Only the person's own configuration says so."""

    env: str = ""
    file: str = ""
    command: tuple[str, ...] = ()
    bearer_env: str = ""
    """A variable whose key is sent as a bearer token."""
    bearer: bool = False
    """Whatever is found is sent as a bearer token."""

    def find(self, environ: Mapping[str, str]) -> Key | None:
        """The key, or None where nothing names one. Raises :class:`TeamError` where file or command fail."""
        if value := environ.get(self.env, "").strip():
            return Key(value, bearer=self.bearer)
        if value := environ.get(self.bearer_env, "").strip():
            return Key(value, bearer=True)
        if self.file:
            return Key(_one_word(_read(self.file), f"key_file {self.file}"), bearer=self.bearer)
        if self.command:
            return Key(_one_word(_run(self.command), f"key_command {self.command[0]}"), bearer=self.bearer)
        return None

    @property
    def can_change(self) -> bool:
        """Whether looking again may find another key."""
        return bool(self.file or self.command)


class Keys:
    """One key, found once and looked up again when the provider refuses it."""

    def __init__(self, source: Source, environ: Mapping[str, str], key: Key | None = None) -> None:
        self._source, self._environ = source, environ
        self._key = key
        self._lock = asyncio.Lock()
        self._known: set[str] = {key.value} if key else set()

    async def get(self) -> Key | None:
        """The key, or None where there is none. Raises :class:`TeamError`."""
        if self._key is None:
            await self.refresh(None)
        return self._key

    async def refresh(self, refused: Key | None) -> bool:
        """Look again, unless somebody else did since ``refused`` was handed out; whether the key is another one."""
        async with self._lock:
            if self._key is refused and (refused is None or self._source.can_change):
                self._key = await asyncio.to_thread(self._source.find, self._environ)
                if self._key is not None:
                    self._known.add(self._key.value)
            return self._key != refused

    def secrets(self) -> list[str]:
        """Every key seen so far, to be masked."""
        return list(self._known)


def named_source(told: Provider) -> Source:
    """Where the key of a provider of the person's own configuration comes from."""
    return Source(told.key_env, told.key_file, told.key_command, bearer=told.bearer or told.api == "openai")


def default_source(user: UserSettings, api: Api) -> Source:
    """Where the key of Anthropic, or of OpenAI, comes from."""
    gateway = user.gateway
    if api == "openai":
        return Source(OPENAI_KEY, bearer=True)
    return Source(gateway.key_env, gateway.key_file, gateway.key_command, bearer_env=gateway.token_env)


def first_source(user: UserSettings, api: Api) -> tuple[str, Source]:
    """Address and key of the provider that answers requests of ``api`` unless their model says otherwise."""
    for told in user.gateway.providers.values():
        if told.api == api:
            return told.base_url, named_source(told)
    return (OPENAI_URL if api == "openai" else user.gateway.base_url), default_source(user, api)


def find_key(user: UserSettings, environ: Mapping[str, str], api: Api = "anthropic") -> Key | None:
    """The key named by the person's own configuration, or None where nothing is set."""
    return first_source(user, api)[1].find(environ)


def _read(path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except OSError as error:
        raise TeamError(f"key_file {path} cannot be read: {error.strerror}; check it in config.toml") from None


def _run(argv: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise TeamError(f"key_command {argv[0]} did not answer within {COMMAND_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:  # never its output: it may hold the key
        raise TeamError(f"key_command {argv[0]} ended with exit code {error.returncode}; run it by hand") from None
    except OSError as error:
        raise TeamError(f"key_command {argv[0]} does not run: {error.strerror}") from None
    return done.stdout[:_MOST].decode("utf-8", "replace")


def _one_word(text: str, where: str) -> str:
    words = text.split()
    if len(words) != 1:
        raise TeamError(f"{where} must hold the key and nothing else, but holds {len(words)} words")
    return words[0]
