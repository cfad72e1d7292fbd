"""`tap`: files that print TAP are cases; what `prove` says of them, we say."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from team.sampler.cases import Options, Outcome, Result
from team.sampler.settings import SuiteSettings
from team.sampler.suites.tap import Stream, Tap

FROM_NODE = Path(__file__).with_name("junit_files") / "node.tap"


def run(root: Path, options: Options | None = None, **fields: Any) -> dict[str, Result]:
    told: list[Result] = []
    Tap(root, SuiteSettings(kind="tap", **fields)).run(lambda cases: cases, options or Options(), told.append)
    assert len({result.name for result in told}) == len(told)
    return {result.name.removeprefix("t/"): result for result in told}


def write(root: Path, files: Mapping[str, str]) -> None:
    (root / "t").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "t" / name).write_text(text)


def printing(text: str, code: int = 0) -> str:
    return f"$_ = join '', <DATA>; print; exit {code};\n__DATA__\n{text}"


STREAMS = {
    "passes": "1..2\nok 1 - one\nok 2 - two\n",
    "plan at the end": "ok 1\nok 2\n1..2\n",
    "version 13": "TAP version 13\n1..1\nok 1 - one\n  ---\n  got: 3\n  ...\n",
    "subtest": "1..1\n# Subtest: sub\n    1..1\n    not ok 1 - inner # TODO\nok 1 - sub\n",
    "no numbers": "1..2\nok\nok - two\n",
    "todo": "1..1\nnot ok 1 - later # TODO not done\n",
    "skip": "1..2\nok 1 # skip no network\nok 2\n",
    "skip all": "1..0 # SKIP no network\n",
    "comments": "# hello\n1..1\nok 1 - # a hash\nnoise\nnot okay\nokay\n",
    "fails": "1..2\nok 1\nnot ok 2 - the second\n",
    "escaped": "1..1\nnot ok 1 - fix \\# TODO by hand\n",
    "too few": "1..3\nok 1\nok 2\n",
    "too many": "1..1\nok 1\nok 2\n",
    "no plan": "ok 1\nok 2\n",
    "nothing": "",
    "two plans": "1..1\nok 1\n1..1\n",
    "out of turn": "1..2\nok 1\nok 3\n",
    "bails out": "1..2\nok 1\nBail out!  the database is gone\n",
    "from node": FROM_NODE.read_text(),
}


def test_what_prove_says_we_say(tmp_path: Path) -> None:
    write(tmp_path, {f"{name}.t": printing(text) for name, text in STREAMS.items()})
    write(tmp_path, {f"{name} and exits.t": printing(text, 3) for name, text in STREAMS.items()})
    ours = run(tmp_path)
    for name, result in ours.items():
        prove = subprocess.run(["prove", "-Q", f"t/{name}"], cwd=tmp_path, capture_output=True, check=False)
        assert result.outcome.bad == (prove.returncode != 0), (name, result, prove.stdout)
    reasons = {name: result.reason for name, result in ours.items() if result.outcome.bad}
    assert reasons["fails.t"] == "1 of 2 not ok: 2 the second"
    assert reasons["escaped.t"] == "1 of 1 not ok: 1 fix \\# TODO by hand"
    assert reasons["too few.t"] == "planned 3 points, ran 2"
    assert reasons["no plan.t"] == "no plan after 2 points"
    assert reasons["nothing.t"] == "it printed no TAP"
    assert reasons["out of turn.t"] == "bad TAP: point 3 where 2 was due"
    assert reasons["bails out.t"] == "Bail out! the database is gone"
    assert reasons["passes and exits.t"] == "exit code 3"
    assert reasons["too few and exits.t"] == "exit code 3 (planned 3 points, ran 2)"
    assert reasons["from node.t"] == "2 of 5 not ok: 2 fails; 5 group"
    assert (ours["skip all.t"].outcome, ours["skip all.t"].reason) == (Outcome.SKIPPED, "no network")


def test_real_producers_run_as_prove_runs_them(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "Mine.pm").write_text("package Mine; sub two { 2 } 1;\n")
    more = "use strict; use warnings; use Test::More; use Mine;\n"
    write(
        tmp_path,
        {
            "more.t": f"#!/nowhere/bin/perl -w\n{more}is(Mine::two(), 2, 'two');\n"
            "subtest 'inner' => sub { plan tests => 1; ok(1, 'in') };\n"
            "TODO: { local $TODO = 'later'; ok(0, 'todo') } SKIP: { skip 'never', 1 } done_testing;\n",
            "fails.t": f"{more}plan tests => 3; is(Mine::two(), 3, 'three'); ok(0, 'nothing'); ok(1);\n",
            "dies.t": f"{more}plan tests => 2; ok(1); die 'out of luck';\n",
            "all.t": "use Test::More skip_all => 'wrong system';\n",
            "shell.t": "#!/bin/sh\necho 1..1\necho ok 1 - from the shell\n",
            "python.t": "#!/usr/bin/env python3\nprint('1..1\\nnot ok 1 - from python')\n",
        },
    )
    results = run(tmp_path)
    assert {name: result.outcome.value for name, result in results.items()} == {
        "more.t": "passed",
        "fails.t": "failed",
        "dies.t": "failed",
        "all.t": "skipped",
        "shell.t": "passed",
        "python.t": "failed",
    }
    assert results["fails.t"].reason == "2 of 3 not ok: 1 three; 2 nothing (got '2', expected '3')"
    assert "out of luck at t/dies.t line 2" in results["dies.t"].reason
    assert "Failed test 'three'" in results["fails.t"].detail
    assert results["all.t"].reason == "wrong system"


def test_the_command_and_the_files_can_be_set(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "print('ok 1')\nprint('1..1')\n", "b.t": "not this"})
    assert {name: r.outcome for name, r in run(tmp_path, files=("t/*.py",), run="python3 -B {file}").items()} == {
        "a.py": Outcome.PASSED
    }


def test_bad_cases_spoil_nothing_but_themselves(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "hang.t": "#!/bin/sh\necho 1..2; echo ok 1; echo not ok 2 - before; sleep 1000\n",
            "kill.t": "#!/bin/sh\nkill -9 $PPID; sleep 1000\n",
            "die.t": "#!/bin/sh\necho 1..2; echo ok 1; kill -SEGV $$\n",
            "flood.t": "#!/bin/sh\necho 1..1; yes | head -c 100000000; echo ok 1\n",
            "line.t": "#!/bin/sh\necho 1..1; head -c 100000000 /dev/zero; echo; echo ok 1\n",
            "bytes.t": "#!/bin/sh\nprintf '1..2\\nok 1 \\377\\000\\nnot ok 2 \\377\\n'\n",
            "leave.t": "#!/bin/sh\nsetsid -f sleep 1000; printf '1..1\\nok 1'\n",
            "na me\n::[x].t": "#!/bin/sh\necho 1..1; echo ok 1\n",
        },
    )
    results = run(tmp_path, Options(jobs=2, seconds=8))
    assert {name: result.outcome.value for name, result in results.items()} == {
        "hang.t": "timed_out",
        "kill.t": "crashed",
        "die.t": "crashed",
        "flood.t": "passed",
        "line.t": "passed",
        "bytes.t": "failed",
        "leave.t": "passed",
        "na me\n::[x].t": "passed",
    }
    assert results["hang.t"].reason == "timed out after 8 s; not ok: 2 before"
    assert results["die.t"].reason == "SIGSEGV after 1 points"
    assert results["bytes.t"].reason == "1 of 2 not ok: 2 \ufffd"


def test_version_14_is_read(tmp_path: Path) -> None:  # which prove does not know yet
    text = "TAP version 14\n1..2\n# Subtest: sub\n    1..1\n    not ok 1 - in\nnot ok 1 - sub\nok 2 - \\# SKIP\n"
    write(tmp_path, {"it.t": printing(text)})
    assert run(tmp_path)["it.t"].reason == "1 of 2 not ok: 1 sub"


@given(st.sampled_from(sorted(STREAMS)), st.integers(1, 40))
def test_pieces_of_any_size_say_the_same(name: str, size: int) -> None:
    data = STREAMS[name].encode()
    whole, pieces = Stream(), Stream()
    whole.add(data)
    for start in range(0, len(data), size):
        pieces.add(data[start : start + size])
    whole.close()
    pieces.close()
    assert pieces.verdict() == whole.verdict()


@given(st.binary())
def test_no_bytes_can_hurt(data: bytes) -> None:
    stream = Stream()
    stream.add(data)
    stream.close()
    assert stream.verdict()[0] in Outcome
