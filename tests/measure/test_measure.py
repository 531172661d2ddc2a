"""What measuring promises beyond trec_eval: Nano metrics, tie orders, and good errors."""

from __future__ import annotations

import pytest

from r2med.errors import UsageError
from r2med.measure import measure, parse_metric
from r2med.runs import Run
from tests.building import judgements_of


def test_queries_without_documents_count_as_zero_and_unjudged_ones_not_at_all() -> None:
    run = Run.from_lists({"1": [("a", 1.0)], "unjudged": [("a", 1.0)]})

    scores = measure(run, judgements_of({"1": {"a": 1}, "2": {"b": 1}}), ["ndcg@10"])

    assert scores.query_ids.to_pylist() == ["1", "2"]
    assert scores.means() == {"ndcg@10": 0.5}


def test_an_empty_run_scores_zero() -> None:
    scores = measure(Run.from_lists({}), judgements_of({"1": {"a": 1}}))

    assert set(scores.means().values()) == {0.0}


def test_hit_and_micro_recall_follow_the_nano_protocol() -> None:
    run = Run.from_lists({"1": [("a", 2.0), ("x", 1.0)], "2": [("x", 1.0)]})
    judged = judgements_of({"1": {"a": 1, "b": 1, "c": 1}, "2": {"d": 1}})

    scores = measure(run, judged)

    assert scores.means()["hit@10"] == 0.5
    assert scores.means()["recall@100"] == pytest.approx(1 / 6)
    assert scores.micro_recall(100) == 0.25


@pytest.mark.parametrize("ties, first", [("trec", "b"), ("id-ascending", "a"), ("list", "a")])
def test_ties_are_broken_as_each_protocol_says(ties: str, first: str) -> None:
    run = Run.from_lists({"1": [("a", 0.5), ("b", 0.5 + 1e-9)]})
    if ties == "id-ascending":
        run = Run.from_lists({"1": [("b", 0.5), ("a", 0.5)]})

    scores = measure(run, judgements_of({"1": {first: 1}}), ["hit@1"], ties=ties)  # type: ignore[arg-type]

    assert scores.means() == {"hit@1": 1.0}


@pytest.mark.parametrize(
    "name, message",
    [
        ("ncdg@10", "Did you mean .*'ndcg@10'"),
        ("recall", "needs a cutoff, as in recall@10"),
        ("ndcg@0", "is not known"),
        ("", "is not known"),
    ],
)
def test_an_unknown_metric_is_refused_with_what_is_known(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_metric(name)


def test_short_names_of_metrics_are_understood() -> None:
    assert str(parse_metric("P@5")) == "precision@5"
    assert str(parse_metric("MRR@10")) == "mrr@10"
