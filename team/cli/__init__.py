"""The command line: one module a verb, imported only when its verb is called."""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from team import __version__
from team.errors import TeamError
from team.text import one_line

# Verb -> (module, what it does). The words are here so that `team --help` imports no verb.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "init": ("team.cli.init", "Write team.toml, AGENT_PROMPT.md and tasks/ into the project."),
        "doctor": ("team.cli.doctor", "Check engine, image, git, disk and key; each finding with its mend."),
        "rehearse": ("team.cli.rehearse", "Run the whole team on a copy of the project, with no key, for nothing."),
    },
    "Run": {
        "up": ("team.cli.up", "Start the team, or go on where it ended."),
        "down": ("team.cli.down", "Stop the team; sessions get time to land."),
        "ps": ("team.cli.ps", "Show every seat: state, task, last landing."),
        "logs": ("team.cli.logs", "Show what agents did, as it happens with -f."),
        "prompt": ("team.cli.prompt", "Print what an agent's next session will be told."),
        "cost": ("team.cli.cost", "Show tokens and money by agent, role, task, model or day."),
    },
    "Work": {
        "tasks": ("team.cli.tasks", "List tasks: free, held and by whom."),
        "task": ("team.cli.task", "Add a task."),
        "test": ("team.cli.test", "Run the tests, or a sample of them with --fast."),
        "oracle": ("team.cli.oracle", "Split one failing build into culprits, with a reference beside it."),
        "held": ("team.cli.held", "List pushes and actions that wait for you, or show one."),
        "approve": ("team.cli.approve", "Let a held push land, or a held action run."),
        "deny": ("team.cli.deny", "Refuse a held push or action; its agent hears why."),
        "unblock": ("team.cli.unblock", "Let agents try a task again that failed three times."),
        "rescue": ("team.cli.rescue", "List, show or drop what sessions left behind."),
        "pull": ("team.cli.pull", "Bring what landed into your branch."),
        "mirror": ("team.cli.mirror", "Publish main to GitHub, GitLab or any git remote."),
    },
    "More": {
        "image": ("team.cli.image", "Build the image that sessions run in."),
        "completion": ("team.cli.completion", "Print the completion script of a shell."),
    },
}
VERBS = {verb: entry for section in SECTIONS.values() for verb, entry in section.items()}


class Verbs(click.Group):
    """A group that imports a verb when it is called, and prints every error as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(VERBS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            near = difflib.get_close_matches(name, VERBS, 1, 0.6)
            mend = f"did you mean `team {near[0]}`?" if near else "`team --help` lists them"
            raise TeamError(f"there is no verb {name!r}; {mend}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(verb, words) for verb, (_, words) in verbs.items()], col_max=12)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            code = super().main(args, prog_name or "team", complete_var, False, **extra)
        except Exception as error:
            code = _report(error)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: Exception) -> int:
    """Print ``error`` as one line on standard error and return the exit code; raises what is a bug of ours."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    if isinstance(error, click.Abort):
        return 128 + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        # The reader went away, as `head` does; nothing is wrong, and flushing at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    message = _message(error)
    if message is None:
        raise error
    click.echo(f"team: {one_line(message, 2000)}", err=True)
    return int(getattr(error, "exit_code", 2))


def _message(error: Exception) -> str | None:
    """What a person reads about ``error``; None for what is a bug of ours."""
    import sqlite3

    from team.git import GitError
    from team.runtimes import EngineLost

    if _no_space(error):
        return "no space left on the disk; free some (`team doctor` says where it is needed) and run this again"
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx is not None else "team"
        return f"{error.format_message().rstrip('.')}; see `{where} --help`"
    if isinstance(error, TeamError | click.ClickException):
        return str(error)
    if isinstance(error, EngineLost):
        return f"the engine does not answer ({error}); start it, or let `team doctor` look"
    if isinstance(error, GitError):
        return str(error)
    if isinstance(error, FileNotFoundError) and error.filename == "git":
        return "git is not installed; install git 2.38 or newer"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.ENOTDIR) and error.filename:
        return f"cannot write {error.filename} ({error.strerror}); XDG_STATE_HOME says where the state goes"
    if isinstance(error, PermissionError):
        return f"permission denied: {error.filename}"
    if isinstance(error, sqlite3.DatabaseError):
        return f"the ledger cannot be read ({error})"
    return None


FULL = 1 << 20
"""Bytes free on a disk below which an error of git or SQLite is the disk's; neither has reliable words for it."""


def _no_space(error: BaseException) -> bool:
    """Whether ``error``, or what it was made from, comes from a full disk."""
    import shutil
    import sqlite3
    from contextlib import suppress

    from team.git import GitError
    from team.places import state_home

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return True
    if isinstance(error, GitError | sqlite3.DatabaseError):
        if "No space left on device" in str(error) or "database or disk is full" in str(error):
            return True
        home = state_home()
        with suppress(OSError):
            place = next(path for path in (home, *home.parents) if path.exists())
            return any(shutil.disk_usage(path).free < FULL for path in (place, "."))
    return error.__context__ is not None and _no_space(error.__context__)


@click.group("team", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="team", message="%(prog)s %(version)s")
def main() -> None:
    """Run a team of coding agents on this git repository, each session in a fresh container.

    \b
      team init              write team.toml and the prompt
      team rehearse          prove image, mounts, git and tests for nothing
      team up --agents 4     start; ctrl-c stops, `team up` goes on
      team ps, team logs -f  look
      team pull              bring what landed into your branch

    State, logs and upstream are kept outside the work tree; `team VERB --help` says more.

    Completion in your shell: eval "$(team completion bash)" in ~/.bashrc (zsh in ~/.zshrc), or
    team completion fish > ~/.config/fish/completions/team.fish
    """
