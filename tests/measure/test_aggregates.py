"""Means over tasks: each under its own name, none over fewer tasks than it claims."""

from __future__ import annotations

import pytest

from r2med.measure.scores import aggregate

FAMILIES = {"a": "one", "b": "one", "c": "two"}
QUERIES = {"a": 10, "b": 30, "c": 60}


def test_the_two_means_count_tasks_and_queries() -> None:
    found = aggregate({"a": 1.0, "b": 0.0, "c": 0.5}, QUERIES, FAMILIES)

    assert found.task_mean == pytest.approx(0.5)
    assert found.weighted_mean == pytest.approx(0.4)
    assert found.families == {"one": 0.5, "two": 0.5}
    assert (found.tasks, found.queries) == (3, 100)


def test_a_missing_task_leaves_no_mean_but_the_families_that_are_whole() -> None:
    found = aggregate({"a": 1.0, "c": 0.5}, QUERIES, FAMILIES)

    assert (found.task_mean, found.weighted_mean) == (None, None)
    assert found.families == {"one": None, "two": 0.5}
    assert (found.tasks, found.queries) == (2, 70)
