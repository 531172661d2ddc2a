"""Intervals: what they cover, where nothing varies, and how tasks count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2med.measure.intervals import DIFFERENCES, mean_interval, pooled_interval


def coverage(population: np.ndarray, size: int, *, trials: int = 1500) -> float:
    random = np.random.default_rng(size)
    samples = population[random.integers(0, len(population), (trials, size))]
    truth = float(population.mean())
    return float(np.mean([truth in mean_interval(each, span=DIFFERENCES) for each in samples]))


@pytest.mark.parametrize("size", [13, 30, 100])
def test_differences_of_similar_systems_are_covered_as_promised(size: int) -> None:
    random = np.random.default_rng(1)
    moved = random.normal(0.05, 0.25, 600) * (random.random(600) < 0.35)

    assert 0.935 <= coverage(moved, size) <= 0.975


def test_light_tails_have_the_plain_t_interval() -> None:
    values = np.linspace(0.2, 0.6, 40)
    theirs = stats.t.interval(0.95, 39, loc=values.mean(), scale=stats.sem(values))

    ours = mean_interval(values)

    assert (ours.low, ours.high) == pytest.approx(theirs)


def test_heavy_tails_widen_the_interval() -> None:
    values = np.array([0.0] * 12 + [1.0])
    theirs = stats.t.interval(0.95, 12, loc=values.mean(), scale=stats.sem(values))

    ours = mean_interval(values, span=DIFFERENCES)

    assert ours.low < theirs[0] < theirs[1] < ours.high


def test_hits_without_a_miss_have_the_exact_binomial_interval() -> None:
    interval = mean_interval(np.ones(13))

    assert (interval.low, interval.high) == pytest.approx((0.025 ** (1 / 13), 1.0))


def test_queries_that_all_tie_do_not_prove_that_no_query_differs() -> None:
    interval = mean_interval(np.zeros(876), span=DIFFERENCES)

    assert -interval.low == interval.high == pytest.approx(0.0042, abs=1e-4)


def test_the_task_mean_counts_tasks_and_the_query_mean_queries() -> None:
    random = np.random.default_rng(3)
    large, small = random.random(400), 0.2 * random.random(10)

    by_task = pooled_interval([large, small])
    by_query = pooled_interval([large, small], by="query")

    assert (large.mean() + small.mean()) / 2 in by_task
    assert np.concatenate([large, small]).mean() in by_query
    assert by_task.high < by_query.low


def test_tasks_that_differ_do_not_widen_the_interval_over_all_queries() -> None:
    tasks = [np.tile([0.0, 0.1], 50), np.tile([0.9, 1.0], 50)]

    within = pooled_interval(tasks, by="query")
    mixed = mean_interval(np.concatenate(tasks))

    assert within.high - within.low < 0.2 * (mixed.high - mixed.low)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=6), min_size=1, max_size=3))
def test_an_interval_holds_the_mean_and_stays_among_possible_scores(
    tasks: list[list[float]],
) -> None:
    columns = [np.array(task) for task in tasks]

    interval = pooled_interval(columns)

    assert 0 <= interval.low <= np.mean([c.mean() for c in columns]) + 1e-9
    assert np.mean([c.mean() for c in columns]) - 1e-9 <= interval.high <= 1
