"""The history of a system: one point per stored result, whatever the state of the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import MissingError
from r2med.results.history import collect_history
from r2med.results.select import ResultSet
from tests.results.storing import ranks, store

ROOT = Path("kept")


def collect(*systems: str, tasks: tuple[str, ...] = ("ward",)) -> list[tuple[str, str, float]]:
    points = collect_history(ResultSet.open(ROOT), systems, tasks, "hit@1")
    return [(point.system, point.data, point.score) for point in points]


def store_night(day: int, system: str, *positives: int, task: str = "ward") -> None:
    created = f"2026-01-{day:02}T03:00:00+00:00"
    store(ROOT, system, task, ranks(*positives), suite=None, data=f"day{day}", created=created)


def test_every_state_of_the_data_is_a_point_oldest_first() -> None:
    for day, positives in enumerate([(1, 1), (1, 0), (0, 0)], start=1):
        store_night(day, "bm25", 1, 1)
        store_night(day, "bm25-nano", *positives)

    assert collect("bm25-nano") == [
        ("bm25-nano", "day1", 1.0),
        ("bm25-nano", "day2", 0.5),
        ("bm25-nano", "day3", 0.0),
    ]
    assert [system for system, _, _ in collect()] == ["bm25", "bm25-nano"] * 3


def test_other_tasks_are_left_out() -> None:
    store_night(1, "bm25", 1)
    store_night(1, "bm25", 0, task="clinic")

    assert collect("bm25", tasks=("clinic",)) == [("bm25", "day1", 0.0)]
    assert len(collect("bm25", tasks=())) == 2


def test_a_changed_system_has_another_version() -> None:
    for day, weights in ((1, "old"), (2, "new")):
        created = f"2026-01-{day:02}T03:00:00+00:00"
        identity = {"weights": weights}
        store(ROOT, "bm25", "ward", ranks(1), suite=None, created=created, identity=identity)

    first, second = collect_history(ResultSet.open(ROOT), ["bm25"], ["ward"], "hit@1")

    assert first.system == second.system
    assert first.version != second.version


def test_without_stored_results_the_error_has_the_command_to_run() -> None:
    with pytest.raises(MissingError, match="r2med eval bm25 --task TASK"):
        collect()
