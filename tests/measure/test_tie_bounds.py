"""Tie bounds against every order that the ties allow."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.measure import measure
from r2med.measure.scores import tie_bounds
from r2med.runs import Run
from tests.building import judgements_of

METRICS = ["ndcg@3", "map@3", "recall@2", "mrr", "hit@1"]
ranked = st.lists(
    st.tuples(st.sampled_from([1.0, 0.5, 0.25]), st.integers(0, 2)), min_size=1, max_size=5
)


@settings(deadline=None)
@given(ranked)
def test_the_bounds_are_the_extremes_over_all_orders_of_equal_scores(
    entries: list[tuple[float, int]],
) -> None:
    scores = {f"d{place}": score for place, (score, _) in enumerate(entries)}
    judged = {f"d{place}": grade for place, (_, grade) in enumerate(entries)}
    known = {**judged, "elsewhere": 1}
    orders = {
        f"order{place}": [(d, 0.0) for d in order]
        for place, order in enumerate(permutations(scores))
        if [scores[d] for d in order] == sorted(scores.values(), reverse=True)
    }
    every = measure(
        Run.from_lists(orders), judgements_of(dict.fromkeys(orders, known)), METRICS, ties="list"
    )

    worst, best = tie_bounds(
        Run.from_lists({"q": list(scores.items())}), judgements_of({"q": known}), METRICS
    )

    for metric in METRICS:
        assert worst.means()[metric] == pytest.approx(every[metric].min())
        assert best.means()[metric] == pytest.approx(every[metric].max())


def test_scores_that_float32_cannot_tell_apart_tie_under_trec_only() -> None:
    run = Run.from_lists({"q": [("a", 0.500000001), ("b", 0.5)], "unjudged": [("a", 1.0)]})
    judgements = judgements_of({"q": {"a": 1}, "empty": {"a": 1}})

    trec = tie_bounds(run, judgements, ["mrr"])
    double = tie_bounds(run, judgements, ["mrr"], ties="id-ascending")
    listed = tie_bounds(run, judgements, ["mrr"], ties="list")

    assert [bound.means()["mrr"] for bound in trec] == [0.25, 0.5]
    for exact in (double, listed):
        assert [bound.means()["mrr"] for bound in exact] == [0.5, 0.5]
