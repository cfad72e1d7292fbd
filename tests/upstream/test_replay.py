"""A small recorded run, replayed: locks that overlap, come back, and are swept away with their session."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.replay import at_once, read, replay


def test_a_trace_is_replayed_without_two_holders_or_lost_locks(tmp_path: Path) -> None:
    rows = [
        {"task": f"step_{n % 40:02d}.txt", "held_from_s": 10 * n, "held_to_s": 10 * n + 70, "swept": n % 7 == 3}
        for n in range(120)
    ]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read(file)
    assert at_once(trace) == 7
    for sessions in (at_once(trace), 64):
        result = replay(trace, sessions, 4.0)
        assert result["wrong"] == []
        assert result["claims"] + result.get("skipped", 0) == 120
        assert result["swept"] >= 1
