"""``python -m team.cli``: the command line without its console script."""

from team.cli import main

main(prog_name="team")
