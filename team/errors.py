"""The one error that a person is meant to read."""

from __future__ import annotations


class TeamError(Exception):
    """Something the user can mend: the message is one line that says what and how.

    The command line prints it after ``team: `` and exits with 2; a ``TeamError`` never leaves anything
    half-made behind.
    """
