"""The inputs of a comparison: files of the project (written by hand or recorded), and generated ones."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from team.errors import TeamError
from team.oracle.compare_runs import filled
from team.sampler.process import Job, Pool
from team.text import one_line

_SECONDS = 60.0


@dataclass(frozen=True)
class Input:
    """One input."""

    name: str
    """The path in the project, or ``seed-7``."""
    path: Path
    size: int
    """Bytes."""


def files(root: Path, patterns: Sequence[str]) -> list[Input]:
    """Files below ``root`` (or anywhere, by an absolute pattern) that match, each once, in the order of their names.

    ``**`` stands for any directories. Raises TeamError for a pattern that matches none.
    """
    found: dict[str, Input] = {}
    for pattern in patterns:
        matches = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 - takes absolute patterns too
        names = [name for name in matches if (root / name).is_file()]
        if not names:
            raise TeamError(f"inputs: '{one_line(pattern, 80)}' matches no file below {one_line(str(root))}")
        for name in names:
            path = Path(os.path.abspath(root / name))  # noqa: PTH100 - a link keeps the name that it is known by
            found[str(path)] = Input(name, path, path.stat().st_size)
    return sorted(found.values(), key=lambda each: each.name)


def generated(root: Path, command: str, seeds: range, folder: Path, jobs: int) -> list[Input]:
    """What ``command`` prints for each seed (``{seed}``, also ``$TEAM_SEED``), kept in ``folder``.

    Raises TeamError where it fails, or prints the same for every seed.
    """
    folder.mkdir()
    script = 'exec >"$TEAM_OUTPUT"\n' + filled(command)

    def each() -> Iterator[Job]:
        for seed in seeds:
            env = {"TEAM_SEED": str(seed), "TEAM_ROOT": str(root), "TEAM_OUTPUT": str(folder / f"seed-{seed}")}
            yield Job(str(seed), ["sh", "-c", script], root, env, seconds=_SECONDS)

    for ended in Pool(jobs).run(each()):
        if ended.code or ended.why:
            said = ended.output.decode(errors="replace").strip().splitlines() or [f"exit code {ended.code}"]
            raise TeamError(f"generate: with seed {ended.key} it fails: {ended.why or one_line(said[-1])}")
    made = [Input(path.name, path, path.stat().st_size) for path in (folder / f"seed-{seed}" for seed in seeds)]
    if len(made) > 1 and len({each.path.read_bytes() for each in made}) == 1:
        raise TeamError("generate: it prints the same for every seed: use {seed} (or $TEAM_SEED) in it")
    return made
