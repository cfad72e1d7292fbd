"""The one error that a person is meant to read."""

from __future__ import annotations


class TeamError(Exception):
    """Something the user can mend: the message is one line that says what and how.

    The command line prints it after ``team: `` and exits with 2; a ``TeamError`` never leaves anything
    half-made behind.
    """


class WrongSetting(ValueError):
    """A setting in a table of team.toml that makes no sense: what is wrong and the mend, and the ``path`` of its keys
    below that table."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path
