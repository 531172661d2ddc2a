"""Scores: kept as batches finish, refused when they are none, and put to use in a new order."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.execution.resources import Resources
from r2med.paths import cache_folder
from r2med.rerank.scores import Candidates, reorder_run
from r2med.rerank.user_models import wrap_reranker
from r2med.runs import Run
from r2med.runs.run import sort_lists


class Lengths:
    """Scores a pair by its document's length, and remembers what it was asked."""

    identity = "lengths"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
        self.asked += pairs
        return [len(document) for _, document in pairs]


def candidates(count: int, query: str = "q") -> list[Candidates]:
    texts = ["x" * (n + 1) for n in range(count)]
    return [Candidates("q1", query, [f"d{n}" for n in range(count)], texts)]


def scored(model: object, lists: list[Candidates]) -> list[Any]:
    return [one.tolist() for one in wrap_reranker("mine", model, Resources()).rerank(lists).scores]


def test_a_deeper_reranking_scores_only_what_is_new() -> None:
    scored(Lengths(), candidates(10))
    later = Lengths()

    scores = scored(later, candidates(15))

    assert scores == [[float(n + 1) for n in range(15)]]
    assert len(later.asked) == 5


def test_what_a_reranking_cost_leaves_out_the_pairs_that_were_kept() -> None:
    scored(Lengths(), candidates(10))
    later = wrap_reranker("mine", Lengths(), Resources())

    usage = later.rerank(candidates(15)).usage

    assert (usage.texts, usage.cached) == (5, 10)


def test_equal_pairs_are_scored_once() -> None:
    model = Lengths()

    scores = scored(model, [*candidates(3), *candidates(3)])

    assert scores == [[1, 2, 3], [1, 2, 3]]
    assert len(model.asked) == 3


def test_another_query_is_another_pair_even_when_the_texts_join_to_the_same() -> None:
    scored(Lengths(), [Candidates("q", "ab", ["d"], ["c"])])
    later = Lengths()

    scored(later, [Candidates("q", "a", ["d"], ["bc"])])

    assert later.asked == [("a", "bc")]


def test_without_an_identity_nothing_is_kept_and_that_is_said() -> None:
    class Anonymous(Lengths):
        identity = None  # type: ignore[assignment]

    told: list[str] = []
    wrap_reranker("mine", Anonymous(), Resources(warn=told.append)).rerank(candidates(3))
    later = Anonymous()

    scored(later, candidates(3))

    assert len(later.asked) == 3
    assert told == ["mine: the object has no `identity`, so its scores are not cached."]


def test_two_objects_without_an_identity_are_never_the_same_system() -> None:
    class Anonymous(Lengths):
        identity = None  # type: ignore[assignment]

    first, second = (wrap_reranker("mine", Anonymous(), Resources()) for _ in range(2))

    assert first.identity != second.identity


def test_too_few_scores_are_an_error_with_both_counts() -> None:
    class Short(Lengths):
        def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
            return [1.0] * (len(pairs) - 1)

    with pytest.raises(DataError, match=r"returned \[1\.0, .* \(shape \(9,\)\) for 10 pairs"):
        scored(Short(), candidates(10))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_not_finite_names_query_document_and_reranker(value: float) -> None:
    class Broken(Lengths):
        def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
            return [value if len(document) == 3 else 1.0 for _, document in pairs]

    with pytest.raises(DataError, match="query 'q1' and document 'd2' with mine, expected"):
        scored(Broken(), candidates(5))


def test_damaged_scores_are_named_and_made_again() -> None:
    scored(Lengths(), candidates(4))
    (file,) = cache_folder("rerank-scores").rglob("*.arrow")
    data = bytearray(file.read_bytes())
    data[-64] ^= 0xFF
    file.write_bytes(data)
    later, told = Lengths(), list[str]()

    scores = wrap_reranker("mine", later, Resources(warn=told.append)).rerank(candidates(4)).scores

    assert scores[0].tolist() == [1, 2, 3, 4]
    assert len(later.asked) == 4
    assert "checksum of these rerank-scores is wrong" in told[0]


def test_a_kill_in_the_middle_loses_no_finished_piece(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from r2med.rerank.scores import Candidates
            from r2med.rerank.user_models import wrap_reranker
            from r2med.execution.resources import Resources

            class Lengths:
                identity = "lengths"
                batches = 0

                def predict(self, pairs):
                    if self.batches == int(sys.argv[1]):
                        os.kill(os.getpid(), signal.SIGKILL)
                    self.batches += 1
                    print(len(pairs), file=sys.stderr, flush=True)
                    return [len(document) for _, document in pairs]

            texts = ["x" * (n + 1) for n in range(3000)]
            lists = [Candidates("q1", "q", [str(n) for n in range(3000)], texts)]
            output = wrap_reranker("mine", Lengths(), Resources()).rerank(lists)
            print(output.scores[0].tolist() == [len(text) for text in texts])
            """
        )
    )

    def run(batches: int) -> tuple[int, str, list[int]]:
        command = [sys.executable, str(script), str(batches)]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout.strip(), [int(line) for line in done.stderr.split()]

    code, _, finished = run(batches=2)
    _, correct, later = run(batches=10_000)

    assert code == -signal.SIGKILL and len(finished) == 2
    assert correct == "True"
    assert sum(later) == 3000 - sum(finished)


def test_rank_gives_an_order() -> None:
    class Backwards:
        def rank(self, query: str, documents: list[str]) -> list[int]:
            return list(range(len(documents)))[::-1]

    assert scored(Backwards(), candidates(3)) == [[1, 2, 3]]


def test_the_order_may_come_as_sentence_transformers_gives_it() -> None:
    class Ranked:
        def rank(self, query: str, documents: list[str]) -> list[dict[str, float]]:
            return [{"corpus_id": 1, "score": 0.9}, {"corpus_id": 0, "score": 0.1}]

    assert scored(Ranked(), candidates(2)) == [[1, 2]]


def test_a_position_that_is_no_number_is_shown() -> None:
    class Wrong:
        def rank(self, query: str, documents: list[str]) -> list[object]:
            return [*range(len(documents) - 1), "last"]

    with pytest.raises(DataError, match=r"rank returned \[0, 1, 'last'\] for the 3 documents"):
        scored(Wrong(), candidates(3))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3]])
def test_an_order_that_is_none_names_the_query(order: list[int]) -> None:
    class Wrong:
        def rank(self, query: str, documents: list[str]) -> list[int]:
            return order

    with pytest.raises(DataError, match=r"for the 3 documents of query 'q1', expected each"):
        scored(Wrong(), candidates(3))


def test_a_failure_inside_a_reranker_of_ones_own_names_its_line() -> None:
    class Failing:
        def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
            raise KeyError("weights")

    reranker = wrap_reranker("mine", Failing(), Resources())

    with pytest.raises(DataError, match=r"mine: predict failed in .*test_scores\.py, line \d+"):
        reranker.rerank([Candidates("q", "query", ("d",), ("text",))])


def test_an_identity_that_another_run_cannot_compare_is_refused() -> None:
    class Unsaid(Lengths):
        identity = object()  # type: ignore[assignment]

    with pytest.raises(UsageError, match=r"mine: Unsaid\.identity is .* expected a text"):
        wrap_reranker("mine", Unsaid(), Resources())


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
    run = reorder_run(FIRST, SCORES, 2, "keep")

    assert [ids(run, query) for query in ("q1", "q2", "q3")] == [["b", "a", "c", "d"], [], ["x"]]


def test_drop_returns_the_reranked_documents_only() -> None:
    run = reorder_run(FIRST, SCORES, 2, "drop")

    assert [ids(run, query) for query in ("q1", "q2", "q3")] == [["b", "a"], [], ["x"]]


def test_equal_scores_are_ordered_as_trec_eval_does() -> None:
    scores = [floats(2, 2), floats(), floats(0)]

    run = reorder_run(FIRST, scores, 2, "keep")

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

    run = reorder_run(first, [floats(*scores)], len(scores), tail)  # type: ignore[arg-type]

    assert ids(sort_lists(run, "trec"), "q") == ids(run, "q")
    assert ids(run, "q")[len(scores) :] == [
        f"d{n:04}" for n in range(len(scores), total if tail == "keep" else len(scores))
    ]


def test_the_smallest_float32_leaves_ranks_for_the_whole_list() -> None:
    run = reorder_run(FIRST, [floats(LOWEST, 5), floats(), floats(3)], 2, "keep")

    assert run.ranking("q1") == [("b", 4.0), ("a", 3.0), ("c", 2.0), ("d", 1.0)]


@pytest.mark.parametrize("tail", ["keep", "drop"])
def test_a_depth_beyond_the_list_reranks_all_of_it(tail: str) -> None:
    scores = [floats(1, 2, 3, 4), floats(), floats(1)]

    run = reorder_run(FIRST, scores, 50, tail)  # type: ignore[arg-type]

    assert ids(run, "q1") == ["d", "c", "b", "a"]
