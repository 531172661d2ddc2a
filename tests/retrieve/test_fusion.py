"""Fusion: the formulas, and the laws that hold for every set of runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.retrieve.fusion import Fusion
from r2med.runs import Run
from r2med.settings import parse_settings

DOCUMENTS = [f"d{number}" for number in range(8)]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    lists = {}
    for query in draw(st.sets(st.sampled_from(["q1", "q2", "q3"]), min_size=1)):
        documents = draw(st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=8))
        scores = draw(
            st.lists(
                st.floats(-5, 5).map(lambda x: round(x, 3)),
                min_size=len(documents),
                max_size=len(documents),
            )
        )
        lists[query] = list(zip(documents, sorted(scores, reverse=True), strict=True))
    return Run.from_lists(lists)


def lists_of(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: run.ranking(query) for query in run.query_ids.to_pylist()}


@settings(deadline=None)
@given(st.lists(runs(), min_size=2, max_size=4), st.sampled_from(["rrf", "minmax", "zscore"]))
def test_the_order_of_the_members_does_not_matter(members: list[Run], method: str) -> None:
    fusion = parse_settings(Fusion, {"method": method, "weights": ""})

    forward = lists_of(fusion.fuse(members, depth=100))
    backward = lists_of(fusion.fuse(members[::-1], depth=100))

    assert forward == backward


@settings(deadline=None)
@given(st.lists(runs(), min_size=2, max_size=3), st.integers(0, 200))
def test_reciprocal_rank_fusion_sums_inverse_ranks(members: list[Run], k: int) -> None:
    fused = Fusion(k=k).fuse(members, depth=1000)

    for query, ranked in lists_of(fused).items():
        ranks = [
            {document: rank for rank, (document, _) in enumerate(run.ranking(query), start=1)}
            for run in members
            if query in run.query_ids.to_pylist()
        ]
        for document, score in ranked:
            expected = sum(1 / (k + places[document]) for places in ranks if document in places)
            assert math.isclose(score, expected, rel_tol=1e-12)


@settings(deadline=None)
@given(st.lists(runs(), min_size=2, max_size=3), st.sampled_from(["minmax", "zscore"]))
def test_a_document_that_a_run_lacks_never_beats_the_same_one_found(
    members: list[Run], method: str
) -> None:
    fusion = parse_settings(Fusion, {"method": method, "weights": ""})

    assert (fusion.fuse(members, depth=100).scores >= 0).all()


def test_weights_go_to_the_members_in_their_order() -> None:
    left = Run.from_lists({"q": [("a", 9.0), ("b", 1.0)]})
    right = Run.from_lists({"q": [("b", 0.9), ("a", 0.1)]})
    fusion = parse_settings(Fusion, {"method": "minmax", "weights": "0.3:0.7"})

    fused = fusion.fuse([left, right], depth=10)

    assert fused.ranking("q") == [("b", 0.7), ("a", 0.3)]


def test_equal_sums_are_ordered_by_best_rank_then_by_id() -> None:
    left = Run.from_lists({"q": [("z", 2.0), ("a", 1.0)]})
    right = Run.from_lists({"q": [("a", 2.0), ("z", 1.0)]})

    fused = Fusion().fuse([left, right], depth=1000)

    assert [document for document, _ in fused.ranking("q")] == ["a", "z"]


def test_the_constant_is_100_on_nano_and_60_elsewhere() -> None:
    fusion = parse_settings(Fusion, {"method": "rrf", "k": "auto", "weights": ""})

    assert [fusion.on(suite).k for suite in ("nano", "full", "demo", None)] == [100, 60, 60, 60]


def test_a_chosen_constant_holds_everywhere() -> None:
    assert parse_settings(Fusion, {"method": "rrf", "k": "7", "weights": ""}).on("nano").k == 7


@pytest.mark.parametrize("weights", ["a:b", "1:-2", "nan:1"])
def test_weights_that_are_no_weights_are_refused(weights: str) -> None:
    with pytest.raises(UsageError, match=r"expected numbers from 0, as in 0.3:0.7"):
        parse_settings(Fusion, {"method": "rrf", "weights": weights}, name="rrf")


def test_queries_that_one_member_lacks_are_kept() -> None:
    left = Run.from_lists({"q1": [("a", 1.0)], "q2": []})
    right = Run.from_lists({"q3": [("b", 1.0)]})

    fused = Fusion().fuse([left, right], depth=1000)

    assert fused.query_ids.to_pylist() == ["q1", "q2", "q3"]
    assert fused.lengths.tolist() == [1, 0, 1]
