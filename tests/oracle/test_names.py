"""Units as tasks, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from team.names import task_problem
from team.oracle.names import task_of, unit_of


@given(st.text(max_size=60).filter(lambda text: text.encode("utf-8", "replace").decode() == text))
def test_every_unit_has_a_task_name_and_short_ones_a_way_back(unit: str) -> None:
    task = task_of(unit)
    assert task_problem(task) is None
    assert unit_of(task) in (unit, None)
    if len(unit.encode()) <= 24:
        assert unit_of(task) == unit or task_problem(f"fix_{unit}")


@given(st.text(max_size=200), st.text(max_size=200))
def test_two_units_never_share_a_task(one: str, other: str) -> None:
    assert one == other or task_of(one) != task_of(other)


def test_common_paths_stay_readable() -> None:
    assert task_of("src/parse_expr.c") == "fix_src--parse_expr.c"
    assert task_of("lib/Foo-bar.c") == "fix_lib---foo-_bar.c"
    assert unit_of("fix_lib---foo-_bar.c") == "lib/Foo-bar.c"
    assert unit_of("dedup_parser") is None and unit_of("fix_-") is None
