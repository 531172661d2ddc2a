"""Comparisons over tasks: two poolings that may disagree, and a correction over the tasks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from r2med.measure.intervals import mean_interval, task_mean_interval, task_mean_intervals
from r2med.measure.pooled import compare_tasks, task_mean_p
from r2med.measure.significance import compare, holm


def pairs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(11)
    return {
        name: (random.random(size), random.random(size))
        for name, size in (("small", 12), ("large", 90), ("middle", 40))
    }


def test_the_task_mean_counts_tasks_and_the_pool_counts_queries() -> None:
    paired = {"small": (np.ones(10), np.zeros(10)), "large": (np.zeros(90), np.zeros(90))}

    found = compare_tasks(paired)

    assert found.by_task.difference == pytest.approx(0.5)
    assert found.by_query.difference == pytest.approx(0.1)
    assert (found.by_task.won, found.by_task.tied, found.by_task.lost) == (10, 90, 0)


def test_each_task_is_the_plain_comparison_with_holms_correction() -> None:
    paired = pairs()

    found = compare_tasks(paired)

    assert [task.comparison for task in found.tasks] == [compare(a, b) for a, b in paired.values()]
    assert [task.p_holm for task in found.tasks] == holm(
        [task.comparison.p_randomisation for task in found.tasks]
    )


def test_one_task_is_its_own_pool() -> None:
    a, b = pairs()["middle"]

    found = compare_tasks({"middle": (a, b)})

    assert found.by_task == found.by_query == found.tasks[0].comparison


def test_the_task_mean_test_enumerates_small_cases_exactly() -> None:
    differences = [np.array([0.5, -0.2, 0.3]), np.array([0.1, 0.4])]
    weights = np.concatenate([np.full(len(task), 1 / len(task)) for task in differences])
    values = np.concatenate(differences) * weights
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((1, -1), repeat=5)]
    expected = np.mean([value >= abs(values.sum()) - 1e-12 for value in sums])

    assert task_mean_p(differences) == pytest.approx(expected)


def test_the_stratified_t_test_of_two_equal_tasks_is_welchs() -> None:
    random = np.random.default_rng(2)
    first, second = random.normal(0.2, 1.0, 30), random.normal(0.1, 2.0, 50)
    welch = stats.ttest_ind(first, -second, equal_var=False)

    found = compare_tasks({"first": (first, np.zeros(30)), "second": (second, np.zeros(50))})

    assert found.by_task.p_t == pytest.approx(welch.pvalue)


def test_intervals_of_many_systems_are_those_of_each() -> None:
    random = np.random.default_rng(4)
    tasks = [random.random((size, 3)) for size in (20, 60)]

    together = task_mean_intervals(tasks)

    for place, interval in enumerate(together):
        alone = task_mean_interval([task[:, place] for task in tasks])
        assert (interval.low, interval.high) == pytest.approx((alone.low, alone.high))


def test_large_samples_are_drawn_in_blocks() -> None:
    values = np.tile([0.0, 1.0], 15_000)

    interval = mean_interval(values, resamples=200)

    assert 0.49 < interval.low < 0.5 < interval.high < 0.51
