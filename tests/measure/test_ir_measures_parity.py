"""Our metrics against ir_measures, by its own notation; RBP against its definition."""

from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.measure import measure, parse_metric
from r2med.measure.metrics import parse_metrics
from r2med.runs import Run
from tests.building import judgements_of

NAMES = [
    *("nDCG", "nDCG@3", "nDCG(judged_only=True)@3"),
    *("AP", "AP@3", "AP(rel=2)", "AP(judged_only=True)", "AP(rel=2,judged_only=True)@3"),
    *("RR", "RR@3", "RR(rel=2)", "RR(judged_only=True)"),
    *("P@2", "P(rel=2)@7", "R@7", "R(rel=2,judged_only=True)@2", "Success@2", "Success(rel=2)@2"),
    *("Rprec", "Rprec(rel=2)", "Rprec(judged_only=True)", "Bpref", "Bpref(rel=2)"),
    *("Judged@1", "Judged@4", "Judged@100"),
]

documents = st.sampled_from([f"d{n}" for n in range(14)])
#: Without ties: their order is held to trec_eval's in another test, and Judged has its own.
runs = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(documents, unique=True, min_size=1))
grades = st.dictionaries(documents, st.integers(-2, 3), min_size=1).filter(
    lambda graded: max(graded.values()) >= 0
)
judged = st.dictionaries(st.sampled_from("abcdefgh"), grades, min_size=1)


def descending(ranked: list[str]) -> dict[str, float]:
    return {name: float(len(ranked) - place) for place, name in enumerate(ranked)}


@settings(max_examples=30, deadline=None)
@given(runs.filter(bool), judged)
def test_every_measure_equals_ir_measures(
    lists: dict[str, list[str]], qrels: dict[str, dict[str, int]]
) -> None:
    run = {query: descending(ranked) for query, ranked in lists.items()}

    scores = measure(
        Run.from_lists({query: list(ranked.items()) for query, ranked in run.items()}),
        judgements_of(qrels),
        NAMES,
    )

    theirs = {
        (each.query_id, str(each.measure)): each.value
        for each in ir_measures.iter_calc(map(ir_measures.parse_measure, NAMES), qrels, run)
    }
    for name in NAMES:
        column = scores[str(parse_metric(name))]
        measured = dict(zip(scores.query_ids.to_pylist(), column, strict=True))
        for query in qrels:
            expected = theirs[query, str(ir_measures.parse_measure(name))]
            assert measured[query] == pytest.approx(expected, abs=1e-9), (name, query)


@settings(max_examples=50, deadline=None)
@given(runs.filter(bool), judged, st.sampled_from(["0.5", "0.8", ".95"]), st.integers(1, 20))
def test_rbp_is_what_its_definition_says(
    lists: dict[str, list[str]], qrels: dict[str, dict[str, int]], p: str, k: int
) -> None:
    name = f"RBP(p={p})@{k}"
    run = Run.from_lists({q: list(descending(ranked).items()) for q, ranked in lists.items()})

    scores = measure(run, judgements_of(qrels), [name])

    column = scores[str(parse_metric(name))]
    for query, value in zip(scores.query_ids.to_pylist(), column, strict=True):
        positive = [qrels[query].get(each, 0) > 0 for each in lists.get(query, [])[:k]]
        steps = [float(p) ** place for place, hit in enumerate(positive) if hit]
        expected = (1 - float(p)) * sum(steps)
        assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", [*NAMES, "RBP", "rbp(p=0.95,rel=2)@20", "nDCG(judged_only=True)"])
def test_a_metrics_printed_name_names_it(name: str) -> None:
    metric = parse_metric(name)

    assert parse_metric(str(metric)) == metric


def test_a_comma_in_parentheses_parts_no_metrics() -> None:
    metrics = parse_metrics("nDCG@10, RBP(p=0.9,rel=2)@20,AP(rel=2)")

    assert [str(each) for each in metrics] == ["ndcg@10", "rbp(p=0.9,rel=2)@20", "map(rel=2)"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("RBP(p=1.2)", "p is '1.2', expected a number between 0 and 1"),
        ("nDCG(rel=2)@10", "has no option 'rel'; ndcg takes judged_only"),
        ("Judged(rel=2)@10", "judged takes none"),
        ("Bpref@10", "takes no cutoff"),
        ("AP(judged_only=1)", "expected True or False"),
        ("R(rel=0)@5", "a whole number above 0"),
    ],
)
def test_a_wrong_option_of_a_metric_is_named(name: str, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_metric(name)

    assert problem in str(error.value)
