"""Stated power equals the power of the randomisation test in an independent simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.measure.power import detectable_difference, power_of, queries_needed
from r2med.measure.significance import pairwise_p

TASKS = {
    "one task": [40],
    "small tasks": [12, 12, 12, 12],
    "unequal tasks": [20, 60],
}


def columns_of(sizes: list[int]) -> list[np.ndarray]:
    """Differences of two similar systems: many ties, a few large values."""
    random = np.random.default_rng(sum(sizes))
    return [
        np.where(random.random(size) < 0.4, 0.0, random.normal(0.02, 0.25, size)) for size in sizes
    ]


def simulated_power(
    columns: list[np.ndarray], difference: float, factor: float = 1.0, *, samples: int = 1000
) -> float:
    """The share of resampled comparisons with p < 0.05, by the test that comparisons use.

    The true difference is in favour of the first system in half of them.
    """
    random = np.random.default_rng(99)
    detected = 0
    for sample in range(samples):
        direction = 1 if sample % 2 else -1
        scores = []
        for column in columns:
            centered = (column - column.mean()) * np.sqrt(len(column) / (len(column) - 1))
            drawn = random.choice(centered, round(factor * len(column))) + direction * difference
            scores.append(np.column_stack([drawn, np.zeros(len(drawn))]))
        detected += pairwise_p(scores, "task", resamples=999)[0, 1] < 0.05
    return detected / samples


@pytest.mark.parametrize("sizes", TASKS.values(), ids=TASKS)
def test_the_detectable_difference_is_found_with_80_percent_power(sizes: list[int]) -> None:
    columns = columns_of(sizes)

    difference = detectable_difference(columns)

    assert difference is not None
    assert simulated_power(columns, difference) == pytest.approx(0.80, abs=0.02)


def test_stated_power_is_simulated_power() -> None:
    columns = columns_of([40])

    simulated = simulated_power(columns, 0.05, samples=5000)  # its standard error is 0.7 points
    assert power_of(columns, 0.05) == pytest.approx(simulated, abs=0.02)
    assert power_of(columns, 0.0) == pytest.approx(0.05, abs=0.01)


def test_the_queries_needed_reach_the_power() -> None:
    columns = columns_of([40])

    needed = queries_needed(columns, 0.06)

    assert needed is not None
    assert simulated_power(columns, 0.06, needed / 40) == pytest.approx(0.80, abs=0.03)


@settings(max_examples=5, deadline=None)
@given(st.floats(1.2, 3.0))
def test_a_larger_difference_needs_fewer_queries(ratio: float) -> None:
    columns = columns_of([20])
    small, large = queries_needed(columns, 0.02), queries_needed(columns, 0.02 * ratio)

    assert small is not None and large is not None
    assert large < small


def test_the_order_of_two_systems_does_not_matter() -> None:
    random = np.random.default_rng(3)
    skewed = [random.exponential(0.2, 60) * (random.random(60) < 0.3)]
    swapped = [-column for column in skewed]

    assert detectable_difference(skewed) == pytest.approx(detectable_difference(swapped))
    assert power_of(skewed, 0.03) == power_of(swapped, 0.03)
    assert queries_needed(skewed, 0.03) == queries_needed(swapped, 0.03)


def test_constant_differences_and_no_difference_have_no_answer() -> None:
    assert detectable_difference([np.full(5, 0.1)]) is None
    assert queries_needed([np.full(5, 0.1)], 0.01) is None
    assert queries_needed(columns_of([20]), 0.0) is None
