"""The reranked part stands above the rest, for every tool that sorts by score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from r2med.rerank.scores import reordered
from r2med.runs import Run
from r2med.runs.ties import ordered


def floats(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


LOWEST = float(np.finfo(np.float32).min)
FIRST = Run.from_lists(
    {
        "q1": [("a", 9.0), ("b", 8.0), ("c", 7.0), ("d", 6.0)],
        "q2": [],
        "q3": [("x", 1.0)],
    }
)
SCORES = [floats(1, 5), floats(), floats(3)]


def ids(run: Run, query: str) -> list[str]:
    return [document for document, _ in run.ranking(query)]


def test_keep_leaves_the_first_stage_order_below() -> None:
    run = reordered(FIRST, SCORES, 2, "keep")

    assert [ids(run, query) for query in ("q1", "q2", "q3")] == [["b", "a", "c", "d"], [], ["x"]]


def test_drop_returns_the_reranked_documents_only() -> None:
    run = reordered(FIRST, SCORES, 2, "drop")

    assert [ids(run, query) for query in ("q1", "q2", "q3")] == [["b", "a"], [], ["x"]]


def test_equal_scores_are_ordered_as_trec_eval_does() -> None:
    scores = [floats(2, 2), floats(), floats(0)]

    run = reordered(FIRST, scores, 2, "keep")

    assert ids(run, "q1") == ["b", "a", "c", "d"]


@settings(deadline=None)
@given(
    st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False) | st.just(LOWEST),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 300),
    st.sampled_from(["keep", "drop"]),
)
def test_sorting_by_score_changes_nothing(scores: list[float], below: int, tail: str) -> None:
    total = len(scores) + below
    first = Run.from_lists({"q": [(f"d{n:04}", float(-n)) for n in range(total)]})

    run = reordered(first, [floats(*scores)], len(scores), tail)  # type: ignore[arg-type]

    assert ids(ordered(run, "trec"), "q") == ids(run, "q")
    assert ids(run, "q")[len(scores) :] == [
        f"d{n:04}" for n in range(len(scores), total if tail == "keep" else len(scores))
    ]


def test_the_smallest_float32_leaves_ranks_for_the_whole_list() -> None:
    run = reordered(FIRST, [floats(LOWEST, 5), floats(), floats(3)], 2, "keep")

    assert run.ranking("q1") == [("b", 4.0), ("a", 3.0), ("c", 2.0), ("d", 1.0)]


@pytest.mark.parametrize("tail", ["keep", "drop"])
def test_a_depth_beyond_the_list_reranks_all_of_it(tail: str) -> None:
    scores = [floats(1, 2, 3, 4), floats(), floats(1)]

    run = reordered(FIRST, scores, 50, tail)  # type: ignore[arg-type]

    assert ids(run, "q1") == ["d", "c", "b", "a"]
