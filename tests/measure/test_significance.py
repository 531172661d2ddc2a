"""Paired tests against scipy and exact enumeration; two poolings; letters that tell the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from r2med.errors import DataError
from r2med.measure.significance import (
    compare_columns,
    compare_systems,
    draws_for,
    heterogeneity,
    holm,
    letters,
    pairwise_p,
    t_test_p,
)

grades = st.sampled_from([0.0, 0.25, 0.5, 0.63, 1.0])
pairs = st.lists(st.tuples(grades, grades), min_size=2, max_size=10)


def randomisation_p(differences: np.ndarray, *, resamples: int = 10_000) -> float:
    """The paired randomisation test on one column of differences."""
    paired = np.column_stack([differences, np.zeros(len(differences))])
    return float(pairwise_p([paired], "task", resamples=resamples)[0, 1])


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    a, b = zip(*pairs, strict=True)
    return np.array(a), np.array(b)


def two_systems(**tasks: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    return {name: random.random((size, 2)) for name, size in tasks.items()}


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

    there, back = compare_columns(a, b), compare_columns(b, a)

    assert there.difference == pytest.approx(-back.difference)
    assert there.p_randomisation == pytest.approx(back.p_randomisation)
    assert (there.won, there.tied, there.lost) == (back.lost, back.tied, back.won)
    assert there.interval.low == pytest.approx(-back.interval.high)


def test_the_t_test_is_scipys() -> None:
    random = np.random.default_rng(3)
    a, b = random.random(300), random.random(300)

    assert t_test_p([a - b]) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=1e-12)


def test_the_stratified_t_test_of_two_equal_tasks_is_welchs() -> None:
    random = np.random.default_rng(2)
    first, second = random.normal(0.2, 1.0, 30), random.normal(0.1, 2.0, 50)
    welch = stats.ttest_ind(first, -second, equal_var=False)

    assert t_test_p([first, second]) == pytest.approx(welch.pvalue)


def test_a_task_of_one_query_takes_the_spread_of_the_others() -> None:
    spread = np.array([-0.4, 0.5, 0.3, -0.2])
    one_query = t_test_p([spread, np.array([0.1])])
    constant = t_test_p([spread, np.full(4, 0.1)])

    assert one_query is not None and constant is not None
    assert one_query > constant


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_there_is_no_t_where_no_task_varies_within_itself(values: list[float]) -> None:
    tasks = [np.full(3, value) for value in values]

    assert t_test_p(tasks) in (None, 1.0)
    assert t_test_p([np.array([value]) for value in values]) in (None, 1.0)


def test_effect_size_ignores_tasks_of_one_query() -> None:
    random = np.random.default_rng(4)
    large = np.column_stack([random.random(40), random.random(40)])
    tasks = {"large": large, "one": np.array([[0.9, 0.4]])}
    (pair,) = compare_systems(tasks)
    differences = large[:, 0] - large[:, 1]
    expected = (differences.mean() + 0.5) / 2 / differences.std(ddof=1)

    assert pair.by_task.effect == pytest.approx(expected)


def test_a_constant_difference_has_no_finite_effect_size() -> None:
    columns = np.column_stack([np.full(5, 0.75), np.full(5, 0.25)])
    (pair,) = compare_systems({"task": columns})

    assert pair.by_task.effect is None
    assert pair.by_task.p_randomisation == pytest.approx(2 / 2**5)


def test_heterogeneity_is_that_of_a_meta_analysis() -> None:
    random = np.random.default_rng(6)
    tasks = [random.normal(mean, 0.3, size) for mean, size in ((0.2, 20), (-0.3, 12), (0.1, 40))]
    means = np.array([task.mean() for task in tasks])
    weights = np.array([len(task) / task.var(ddof=1) for task in tasks])
    center = np.average(means, weights=weights)
    q = (weights * (means - center) ** 2).sum()

    found = heterogeneity(tasks)

    assert found is not None
    assert found.q == pytest.approx(q)
    assert found.freedom == 2
    assert found.p_q == pytest.approx(stats.chi2.sf(q, 2))
    assert found.i_squared == pytest.approx(1 - 2 / q)
    assert found.p_random_tasks == pytest.approx(stats.ttest_1samp(means, 0).pvalue)


def test_one_task_has_no_heterogeneity_and_constant_tasks_have_no_q() -> None:
    assert heterogeneity([np.array([0.1, 0.2])]) is None
    found = heterogeneity([np.full(3, 0.1), np.full(3, 0.3)])
    assert found is not None
    assert (found.q, found.i_squared, found.p_q) == (0.0, 0.0, 1.0)


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
        random_state=np.random.default_rng(1),
    )

    assert randomisation_p(a - b, resamples=20_000) == pytest.approx(theirs.pvalue, abs=0.01)


def test_the_task_mean_test_enumerates_small_cases_exactly() -> None:
    differences = [np.array([0.5, -0.2, 0.3]), np.array([0.1, 0.4])]
    weights = np.concatenate([np.full(len(task), 1 / len(task)) for task in differences])
    values = np.concatenate(differences) * weights
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((1, -1), repeat=5)]
    expected = np.mean([value >= abs(values.sum()) - 1e-12 for value in sums])
    scores = [np.column_stack([task, np.zeros(len(task))]) for task in differences]

    assert pairwise_p(scores, "task")[0, 1] == pytest.approx(expected)


def test_all_pairs_at_once_have_the_p_values_of_each_pair() -> None:
    random = np.random.default_rng(7)
    scores = random.random((60, 4)) + np.array([0, 0.02, 0.1, 0.3])

    together = pairwise_p([scores], "task", resamples=20_000)

    for a, b in itertools.combinations(range(4), 2):
        alone = randomisation_p(scores[:, a] - scores[:, b], resamples=20_000)
        assert together[a, b] == together[b, a] == pytest.approx(alone, abs=0.012)


def test_many_pairs_get_draws_enough_to_be_separated() -> None:
    random = np.random.default_rng(8)
    scores = random.normal(0, 0.01, (200, 40)) + np.linspace(0, 1, 40)

    found = compare_systems({"task": scores})

    assert len(found) == 780
    assert all(pair.p_holm < 0.05 for pair in found)
    assert 780 / (draws_for(780) + 1) < 0.05


def test_the_task_mean_counts_tasks_and_the_pool_counts_queries() -> None:
    small = np.column_stack([np.ones(10), np.zeros(10)])

    [found] = compare_systems({"small": small, "large": np.zeros((90, 2))})

    assert found.by_task.difference == pytest.approx(0.5)
    assert found.by_query.difference == pytest.approx(0.1)
    assert (found.by_task.won, found.by_task.tied, found.by_task.lost) == (10, 90, 0)


def test_each_task_is_the_plain_comparison_with_holms_correction() -> None:
    tasks = two_systems(small=12, large=90, middle=40)

    [found] = compare_systems(tasks)

    alone = [compare_columns(scores[:, 0], scores[:, 1]) for scores in tasks.values()]
    assert [task.difference for task in found.tasks] == alone
    assert [task.p_holm for task in found.tasks] == holm([one.p_randomisation for one in alone])


def test_one_task_is_its_own_pool() -> None:
    [found] = compare_systems(two_systems(middle=40))

    assert found.by_task == found.tasks[0].difference
    assert found.by_query.interval == found.by_task.interval


def test_holm_covers_the_pairs() -> None:
    scores = np.random.default_rng(1).random((30, 4))

    found = compare_systems({"task": scores})

    assert [pair.p_holm for pair in found] == holm([p.by_task.p_randomisation for p in found])


def test_equal_systems_do_not_differ() -> None:
    same = np.array([0.0, 0.5, 1.0])

    found = compare_columns(same, same)

    assert (found.p_randomisation, found.p_t, found.tied) == (1.0, 1.0, 3)


def test_columns_of_other_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="2 and 3 scores"):
        compare_columns(np.zeros(2), np.zeros(3))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)

    assert all(new >= old for new, old in zip(adjusted, p_values, strict=True))
    assert sorted(range(len(p_values)), key=lambda i: (p_values[i], i)) == sorted(
        range(len(p_values)), key=lambda i: (adjusted[i], p_values[i], i)
    )


def test_holm_on_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@settings(deadline=None)
@given(st.integers(1, 9), st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))))
def test_two_systems_share_a_letter_exactly_when_they_do_not_differ(
    size: int, drawn: set[tuple[int, int]]
) -> None:
    different = np.zeros((size, size), dtype=bool)
    for a, b in drawn:
        if a != b and max(a, b) < size:
            different[a, b] = different[b, a] = True

    names = letters(different)

    for a, b in itertools.combinations(range(size), 2):
        assert bool(set(names[a]) & set(names[b])) != different[a, b]
    assert all(names)


def test_letters_on_a_worked_example() -> None:
    different = np.zeros((4, 4), dtype=bool)
    for a, b in ((0, 2), (0, 3), (1, 3)):
        different[a, b] = different[b, a] = True

    assert letters(different) == ["a", "ab", "bc", "c"]
