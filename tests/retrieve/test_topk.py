"""Exact search against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.topk import best_indexes, top, top_scored


def sorted_out(scores: np.ndarray, depth: int) -> np.ndarray:
    order = np.lexsort((np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores))
    return order[:, :depth]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 60), st.integers(1, 70), st.integers(1, 20), st.integers(0, 9)
)
def test_the_best_are_those_of_a_full_sort_with_ties_to_the_earlier(
    queries: int, documents: int, depth: int, block: int, seed: int
) -> None:
    scores = np.random.default_rng(seed).integers(-2, 3, (queries, documents)).astype(np.float32)

    best, found = top_scored(
        lambda start, stop: scores[:, start:stop], scores.shape, depth=depth, block=block
    )

    expected = sorted_out(scores, depth)
    np.testing.assert_array_equal(best, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, expected, 1))


@pytest.mark.parametrize("memory", [1, 10**9])
def test_products_are_searched_within_any_budget(memory: int) -> None:
    chance = np.random.default_rng(1)
    queries = chance.standard_normal((1100, 8), dtype=np.float32)
    documents = chance.standard_normal((3000, 8), dtype=np.float32)

    best, scores = top(
        queries, lambda start, stop: documents[start:stop], 3000, depth=5, memory=memory
    )

    np.testing.assert_allclose(scores, np.sort(queries @ documents.T)[:, :-6:-1], rtol=1e-4)
    assert best.shape == (1100, 5)


def test_an_empty_corpus_gives_empty_lists() -> None:
    best, _ = top(
        np.ones((2, 3), np.float32), lambda a, b: np.ones((0, 3), np.float32), 0, depth=5, memory=9
    )

    assert best.shape == (2, 0)


def test_zero_and_minus_zero_are_a_tie() -> None:
    scores = np.array([[-0.0, 0.0, -1.0, -0.0]], dtype=np.float32)

    best, _ = top_scored(lambda a, b: scores[:, a:b], scores.shape, depth=3, block=2)

    assert best.tolist() == [[0, 1, 3]]


def test_a_corpus_of_nothing_but_ties_keeps_its_order() -> None:
    best, _ = top_scored(
        lambda a, b: np.ones((3, b - a), dtype=np.float32), (3, 5000), depth=7, block=900
    )

    assert best.tolist() == [list(range(7))] * 3


scores_with_ties = st.lists(st.sampled_from([-1.5, 0.0, 0.5, 1.0, 1.5, 2.0, 7.25]), max_size=300)


@settings(deadline=None)
@given(scores_with_ties, st.integers(1, 40))
def test_the_best_indexes_are_the_head_of_a_stable_sort(scores: list[float], depth: int) -> None:
    places = best_indexes(np.array(scores), depth)

    assert places.tolist() == sorted(range(len(scores)), key=lambda place: -scores[place])[:depth]


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=50, max_size=400), st.integers(1, 5))
def test_the_best_indexes_are_found_among_many_groups(scores: list[float], depth: int) -> None:
    places = best_indexes(np.array(scores), depth)

    assert places.tolist() == sorted(range(len(scores)), key=lambda place: -scores[place])[:depth]


def test_no_queries_give_no_lists() -> None:
    best, scores = top_scored(
        lambda a, b: np.ones((0, b - a), np.float32), (0, 9), depth=3, block=4
    )

    assert best.shape == scores.shape == (0, 3)
