"""The benchmark of the gateway measures what it says; its figures are for machines that do nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SMALL = ("--requests", "5", "--rounds", "1", "--seconds", "1", "--events", "200")


def test_it_prints_one_json_document_with_every_figure() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gateway", "--json", *SMALL],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {"added_ms_p50", "added_ms_p99", "paced_ratio", "full_ratio", "mb_per_stream"} <= figures.keys()
    assert all(isinstance(value, float) for value in figures.values())
    assert 0 < figures["paced_ratio"] < 2
