"""Paired tests against scipy and against exact enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from r2med.errors import DataError
from r2med.measure.intervals import mean_interval, task_mean_interval
from r2med.measure.significance import compare, holm, randomisation_p, t_test_p

grades = st.sampled_from([0.0, 0.25, 0.5, 0.63, 1.0])
pairs = st.lists(st.tuples(grades, grades), min_size=2, max_size=10)


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = zip(*pairs, strict=True)
    return np.array(a), np.array(b)


@given(pairs)
def test_small_samples_are_enumerated_exactly(found: list[tuple[float, float]]) -> None:
    a, b = columns(found)
    differences = a - b
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    expected = np.mean([value >= abs(differences.sum()) - 1e-9 for value in sums])

    assert randomisation_p(differences) == pytest.approx(expected)


@given(pairs)
def test_swapping_the_systems_mirrors_the_comparison(found: list[tuple[float, float]]) -> None:
    a, b = columns(found)

    there, back = compare(a, b), compare(b, a)

    assert there.difference == pytest.approx(-back.difference)
    assert there.p_randomisation == pytest.approx(back.p_randomisation)
    assert (there.won, there.tied, there.lost) == (back.lost, back.tied, back.won)


def test_the_t_test_is_scipys() -> None:
    random = np.random.default_rng(3)
    a, b = random.random(300), random.random(300)

    assert t_test_p(a - b) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=1e-12)


def test_the_randomisation_test_agrees_with_scipys() -> None:
    random = np.random.default_rng(5)
    a = random.random(120)
    b = a + random.normal(0.02, 0.1, 120)
    theirs = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )

    assert randomisation_p(a - b, resamples=20_000) == pytest.approx(theirs.pvalue, abs=0.01)


def test_the_bootstrap_interval_agrees_with_scipys() -> None:
    values = np.random.default_rng(9).beta(0.4, 0.8, 876)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=9999, rng=np.random.default_rng(2)
    ).confidence_interval

    ours = mean_interval(values)

    assert ours.low == pytest.approx(theirs.low, abs=0.002)
    assert ours.high == pytest.approx(theirs.high, abs=0.002)
    assert values.mean() in ours


def test_the_task_mean_weighs_tasks_alike_whatever_their_size() -> None:
    large, small = np.ones(400), np.zeros(10)

    interval = task_mean_interval([large, small])

    assert (interval.low, interval.high) == (0.5, 0.5)


def test_equal_systems_do_not_differ() -> None:
    same = np.array([0.0, 0.5, 1.0])

    found = compare(same, same)

    assert (found.p_randomisation, found.p_t, found.tied) == (1.0, 1.0, 3)


def test_columns_of_other_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="2 and 3 scores"):
        compare(np.zeros(2), np.zeros(3))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)

    assert all(new >= old for new, old in zip(adjusted, p_values, strict=True))
    assert sorted(range(len(p_values)), key=lambda i: (p_values[i], i)) == sorted(
        range(len(p_values)), key=lambda i: (adjusted[i], p_values[i], i)
    )


def test_holm_on_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
