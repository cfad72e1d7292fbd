"""Stands between a build tool and the test programs that it starts to list their cases: notes how it starts them.

A program of its own, for ``cargo test`` (as the target's ``runner``) and ``go test`` (``-exec``): only the tool itself
knows directory and environment of its test programs. Called as ``recorder.py FOLDER TOOL PROGRAM ARGUMENT...``, once
for each program, so it loads next to nothing.
"""

from __future__ import annotations

import marshal
import os
import time
from typing import Any

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def main(folder: str, tool: str, program: str, *arguments: str) -> None:
    if os.path.basename(program) == "rust_out":  # noqa: PTH119 - pathlib is slow to start
        os.execv(program, [program, *arguments])  # many doc tests in one: part of rustdoc's own listing
    name = f"{time.monotonic_ns():020d}-{os.getpid()}"
    file = f"{folder}/{name}"
    record: dict[str, Any] = {"program": program, "arguments": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109
    if tool == "go":
        record["program"] = _keep(program, f"{file}.test")
        print(f"\nrecorded {name}", flush=True)
    listed = tool == "go" or not _own_harness(program)
    record["code"] = _list([record["program"], *arguments], f"{file}.listing") if listed else None
    with open(f"{file}.record", "wb") as out:  # noqa: PTH123
        marshal.dump(record, out)


def records(folder: str) -> dict[str, dict[str, Any]]:
    """What was noted, by name, in order: ``program``, ``arguments``, ``cwd``, ``env``, ``code`` of the listing (None:
    it cannot list) and ``listing``."""
    found = {}
    for file in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if file.name.endswith(".record"):
            name = file.name.removesuffix(".record")
            with open(file.path, "rb") as data:  # noqa: PTH123
                found[name] = marshal.load(data)
            if found[name]["code"] is not None:
                with open(f"{folder}/{name}.listing", encoding="utf-8", errors="replace") as text:  # noqa: PTH123
                    found[name]["listing"] = text.read()
    return found


def _list(argv: list[str], file: str) -> int:
    """Run a program with its output in ``file``; returns its exit code."""
    actions = [(os.POSIX_SPAWN_OPEN, 1, file, _APPEND, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
    child = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _keep(program: str, target: str) -> str:
    """``go test`` removes the program when we return; keep it, for nothing where the file system allows."""
    try:
        os.link(program, target)
    except OSError:
        import shutil

        shutil.copy2(program, target)
    return target


def _own_harness(program: str) -> bool:
    """Whether a program of cargo's is not made with Rust's own test harness: it may not know how to list, and would
    run instead."""
    try:
        with open(os.environ["CARGO_MANIFEST_DIR"] + "/Cargo.toml", encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except (OSError, KeyError, UnicodeDecodeError):
        return False
    if "harness" not in text:
        return False
    import tomllib

    manifest = tomllib.loads(text)
    targets = [manifest.get("lib", {}), *(each for kind in _KINDS for each in manifest.get(kind, []))]
    own = {each.get("name", "").replace("-", "_") for each in targets if each.get("harness") is False}
    return os.path.basename(program).rpartition("-")[0].replace("-", "_") in own  # noqa: PTH119


_KINDS = ("bin", "test", "example", "bench")

if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
