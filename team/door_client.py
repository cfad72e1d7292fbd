"""The session's side of its door, for what runs inside in Python: standard library only."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_SECONDS = 120


class DoorClient:
    """Asks at the door of the session."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """``env``: the session's environment, which says where the door is."""
        self._socket = env.get("TEAM_DOOR_SOCKET", "/run/team/door.sock")
        self._url = env.get("TEAM_DOOR", "")
        self._token = env.get("TEAM_TOKEN", "")

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question in JSON. Raises :class:`OSError` where there is none, or a refusal."""
        status, body = self.post(path, json.dumps(question).encode(), "application/json")
        if status != 200:
            raise OSError(f"the door refused: {body[:200].decode('utf-8', 'replace').strip()}")
        try:
            answer: dict[str, Any] = json.loads(body)
        except ValueError as error:
            raise OSError(f"the door makes no sense: {error}") from None
        return answer

    def post(self, path: str, body: bytes, content_type: str = "text/plain") -> tuple[int, bytes]:
        """Status and body of the answer. Raises :class:`OSError` where there is none."""
        connection = self._connection()
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
            with suppress(BrokenPipeError, ConnectionResetError):  # refused unread: the answer is there already
                connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise OSError(f"the door does not answer: {error!r}") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._socket:
            try:
                return UnixConnection(self._socket)
            except OSError:  # no such socket: the relay on loopback
                pass
        return http.client.HTTPConnection(self._url.removeprefix("http://"), timeout=_SECONDS)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("door", timeout=_SECONDS)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
