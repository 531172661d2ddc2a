"""The ceiling: the best order of the same candidates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.measure.metrics import parse_metric, stored_metrics
from r2med.measure.scores import ceiling, measure
from r2med.runs import Run
from tests.building import judgements_of

RUN = Run.from_lists({"q": [("a", 5.0), ("b", 4.0), ("c", 3.0), ("d", 2.0)]})


def test_judged_documents_among_the_first_k_go_to_the_top() -> None:
    judged = judgements_of({"q": {"b": 1, "d": 1}})
    metrics = [parse_metric(name) for name in ("precision@1", "recall@3", "recall@10", "mrr")]

    best = ceiling(RUN, judged, metrics, depth=3).means()

    assert best == {"precision@1": 1.0, "recall@3": 0.5, "recall@10": 1.0, "mrr": 1.0}


def test_graded_documents_stand_in_the_order_of_their_grades() -> None:
    judged = judgements_of({"q": {"a": 1, "c": 2}})

    best = ceiling(RUN, judged, [parse_metric("ndcg@10")], depth=4)

    assert best.means() == {"ndcg@10": pytest.approx(1.0)}


@settings(deadline=None)
@given(
    st.permutations(list("abcdefgh")),
    st.sets(st.sampled_from("abcdefghxyz"), min_size=1),
    st.integers(1, 10),
)
def test_no_score_is_above_its_ceiling(order: list[str], positives: set[str], depth: int) -> None:
    run = Run.from_lists({"q": [(d, float(-n)) for n, d in enumerate(order)]})
    judged = judgements_of({"q": dict.fromkeys(positives, 1)})

    reached = measure(run, judged, stored_metrics()).means()
    best = ceiling(run, judged, stored_metrics(), depth=depth).means()

    assert all(best[name] >= reached[name] - 1e-12 for name in reached)
