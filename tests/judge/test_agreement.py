"""Agreement statistics equal those of statsmodels, scikit-learn and krippendorff."""

from __future__ import annotations

import warnings

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa, to_table
from statsmodels.stats.proportion import proportion_confint

from r2med.errors import DataError
from r2med.judge.agreement import (
    Level,
    Weights,
    alpha_interval,
    cohen_kappa,
    count_pairs,
    detect,
    kappa_interval,
    krippendorff_alpha,
    measure_agreement,
    percent_agreement,
)

SCALE = [0, 1, 2, 3]
LABELS = st.lists(
    st.tuples(st.sampled_from(SCALE), st.sampled_from(SCALE)), min_size=1, max_size=60
)
WEIGHTS: list[Weights] = ["none", "linear", "quadratic"]
LEVELS: list[Level] = ["nominal", "ordinal", "interval"]


@given(labels=LABELS, weights=st.sampled_from(WEIGHTS))
def test_kappa_equals_scikit_learn(labels: list[tuple[int, int]], weights: Weights) -> None:
    first, second = map(list, zip(*labels, strict=True))
    chosen = None if weights == "none" else weights
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cohen_kappa_score(first, second, labels=SCALE, weights=chosen)

    value = cohen_kappa(count_pairs(first, second, SCALE), weights=weights)

    if value is None:
        assert np.isnan(expected)
    else:
        assert value == pytest.approx(expected, abs=1e-9)


@given(labels=LABELS, weights=st.sampled_from(WEIGHTS))
def test_kappa_equals_statsmodels(labels: list[tuple[int, int]], weights: Weights) -> None:
    table, _ = to_table(np.array(labels), bins=[-0.5, 0.5, 1.5, 2.5, 3.5])
    first, second = map(list, zip(*labels, strict=True))
    value = cohen_kappa(count_pairs(first, second, SCALE), weights=weights)
    if value is None:
        return
    kind = None if weights == "none" else weights
    expected = cohens_kappa(table, wt=kind, return_results=False)

    assert value == pytest.approx(float(expected), abs=1e-9)


@given(data=st.data(), level=st.sampled_from(LEVELS))
def test_alpha_equals_krippendorff_with_missing_labels(data: st.DataObject, level: Level) -> None:
    raters = data.draw(st.integers(2, 5))
    units = data.draw(st.integers(1, 25))
    label = st.one_of(st.just(np.nan), st.sampled_from([0.0, 1.0, 2.0, 3.0]))
    rows = st.lists(label, min_size=units, max_size=units)
    table = np.array(data.draw(st.lists(rows, min_size=raters, max_size=raters)))
    value = krippendorff_alpha(table, level=level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = krippendorff.alpha(reliability_data=table, level_of_measurement=level)
    except ValueError:  # it refuses tables with a single label or without paired units
        assert value is None
        return

    if value is None:
        assert np.isnan(expected) or not np.isfinite(expected)
    else:
        assert value == pytest.approx(expected, abs=1e-9)


@given(labels=LABELS)
def test_percent_agreement_is_the_share_of_equal_labels(labels: list[tuple[int, int]]) -> None:
    first, second = map(list, zip(*labels, strict=True))
    confusion = count_pairs(first, second, SCALE)

    equal = sum(a == b for a, b in labels) / len(labels)
    assert percent_agreement(confusion) == pytest.approx(equal, abs=1e-12)


@given(labels=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
def test_precision_and_recall_follow_the_counts_and_wilson(
    labels: list[tuple[bool, bool]],
) -> None:
    found = detect([a for a, _ in labels], [b for _, b in labels])

    called = [b for a, b in labels if a]
    relevant = [a for a, b in labels if b]
    assert found.units == len(labels)
    assert found.precision == (sum(called) / len(called) if called else None)
    assert found.recall == (sum(relevant) / len(relevant) if relevant else None)
    interval = found.precision_interval()
    if called:
        assert interval is not None
        low, high = proportion_confint(sum(called), len(called), method="wilson")
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


def test_bootstrap_intervals_cover_the_value_and_shrink_with_more_units() -> None:
    generator = np.random.default_rng(1)
    first = generator.integers(0, 4, 400)
    second = np.where(generator.random(400) < 0.7, first, generator.integers(0, 4, 400))
    small = kappa_interval(first[:40].tolist(), second[:40].tolist(), SCALE)
    large = kappa_interval(first.tolist(), second.tolist(), SCALE)
    alpha = alpha_interval(np.stack([first, second]).astype(float))

    for statistic in (small, large, alpha):
        assert statistic.value is not None and statistic.interval is not None
        assert statistic.value in statistic.interval
    assert small.interval and large.interval
    width = large.interval.high - large.interval.low
    assert width < small.interval.high - small.interval.low


def test_all_raters_are_compared_on_the_units_that_both_labelled() -> None:
    labels = {
        "ann": {"p1": 3, "p2": 0, "p3": 1},
        "ben": {"p1": 3, "p2": 0},
        "judge": {"p2": 0, "p3": 3, "p4": 2},
    }

    table = measure_agreement(labels, SCALE)

    pairs = {(pair.first, pair.second): pair for pair in table.pairs}
    assert pairs["ann", "ben"].units == 2 and pairs["ann", "ben"].percent.value == 1.0
    assert pairs["ann", "judge"].units == 2 and pairs["ann", "judge"].percent.value == 0.5
    assert pairs["ben", "judge"].units == 1
    assert table.units == 3
    assert table.to_arrow().num_rows == 3


def test_labels_that_never_vary_have_no_kappa() -> None:
    table = measure_agreement({"ann": {"p1": 3, "p2": 3}, "ben": {"p1": 3, "p2": 3}}, SCALE)

    assert table.pairs[0].percent.value == 1.0
    assert table.pairs[0].kappa.value is None
    assert table.alpha.value is None


def test_a_label_off_the_scale_is_an_error() -> None:
    with pytest.raises(DataError, match="label 7 is not on the scale"):
        count_pairs([7], [1], SCALE)
