from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.bm25.scoring import Postings, compiled_product


@st.composite
def postings(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """The rows of each term, and the terms that a query names."""
    rows = st.lists(st.integers(0, 11), unique=True, max_size=12).map(sorted)
    terms = draw(st.lists(rows, min_size=1, max_size=6))
    asked = draw(st.lists(st.integers(0, len(terms) - 1), unique=True).map(sorted))
    return terms, asked


def _summed(
    terms: list[list[int]], asked: list[int], **product: None
) -> tuple[np.ndarray, np.ndarray]:
    """What the code adds up, and the same by hand."""
    offsets = np.cumsum([0, *map(len, terms)])
    rows = np.array([row for term in terms for row in term], dtype=np.int32)
    impacts = np.sqrt(np.arange(1.0, len(rows) + 1))
    weights = np.arange(1.0, len(asked) + 1)
    chosen = np.array(asked, dtype=np.int64)
    sums = np.zeros(12)
    held = Postings(rows, impacts, **product)
    held.add(sums, (offsets[chosen], offsets[chosen + 1]), weights)
    expected = np.zeros(12)
    for term, weight in zip(asked, weights, strict=True):
        for place in range(offsets[term], offsets[term + 1]):
            expected[rows[place]] += weight * impacts[place]
    return sums, expected


@settings(deadline=None)
@given(postings())
def test_only_the_asked_terms_are_added(case: tuple[list[list[int]], list[int]]) -> None:
    assert compiled_product() is not None

    found, expected = _summed(*case)

    assert found == pytest.approx(expected)


def test_without_the_compiled_loop_the_sums_are_the_same() -> None:
    terms, asked = [[0, 3, 7], [], [1, 3], [3, 11], [7]], [0, 1, 3, 4]
    compiled, _ = _summed(terms, asked)

    plain, expected = _summed(terms, asked, product=None)

    assert plain.tolist() == compiled.tolist()
    assert plain == pytest.approx(expected)
    assert _summed(terms, [], product=None)[0].tolist() == [0.0] * 12


def test_scipy_still_works_beside_the_loop_that_was_loaded_alone() -> None:
    assert compiled_product() is not None

    from scipy.sparse import csc_array

    assert (csc_array([[1.0, 2.0]]) @ np.array([3.0, 4.0])).tolist() == [11.0]
