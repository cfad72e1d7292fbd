"""The commands that there are, and how one is run."""

from importlib import import_module

COMMANDS = [
    "calc",
    "convert",
    # new commands go above this line
]


def run(command, words):
    """What `command` prints for `words`."""
    if command not in COMMANDS:
        raise KeyError(f"no command {command!r}")
    return import_module(f"abacus.commands.{command}").run(words)
