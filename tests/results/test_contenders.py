"""What can be compared meets on the same data and queries; what cannot says what to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import DataError, MissingError, UsageError
from r2med.results.contenders import Contender, aligned, contender
from r2med.results.record import Result
from tests.results.storing import ranks, store

ROOT = Path("kept")


def found(text: str, results: list[Result]) -> Contender:
    return contender(text, results, [], "ndcg@10", ROOT)


def test_systems_are_aligned_by_query_whatever_their_order() -> None:
    a = store(ROOT, "bm25", "demo/biology", {"q1": 1, "q2": 0})
    b = store(ROOT, "bm25-lucene", "demo/biology", {"q2": 1, "q1": 0})
    sides = [found("bm25", [a, b]), found(" bm25-lucene ", [a, b])]

    suite, columns = aligned(sides, None, "ndcg@10")

    assert suite == "demo"
    assert [list(column) for column in columns["demo/biology"]] == [[1.0, 0.0], [0.0, 1.0]]


def test_tasks_in_common_come_in_the_order_of_the_suite() -> None:
    names = ["demo/pmc-clinical", "demo/biology", "demo/medqa-diag"]
    results = [store(ROOT, s, t, ranks(1)) for s in ("bm25", "bm25-nano") for t in names]
    only = store(ROOT, "bm25", "demo/iiyi-clinical", ranks(1))

    _, columns = aligned(
        [found("bm25", [*results, only]), found("bm25-nano", results)], None, "ndcg@10"
    )

    assert list(columns) == ["demo/biology", "demo/medqa-diag", "demo/pmc-clinical"]


def test_the_newest_data_that_both_ran_on_is_compared() -> None:
    old = [
        store(ROOT, s, "demo/biology", ranks(1), data="old", created="2025-01-01T00:00:00+00:00")
        for s in ("bm25", "bm25-nano")
    ]
    new = store(ROOT, "bm25", "demo/biology", ranks(0), data="new")
    newest_first = [new, *old]

    _, columns = aligned(
        [found("bm25", newest_first), found("bm25-nano", newest_first)], None, "ndcg@10"
    )

    assert [list(column) for column in columns["demo/biology"]] == [[1.0], [1.0]]


def test_different_data_is_never_paired() -> None:
    results = [
        store(ROOT, "bm25", "demo/biology", ranks(1), data="one"),
        store(ROOT, "bm25-nano", "demo/biology", ranks(1), data="two"),
    ]

    with pytest.raises(DataError, match="different data"):
        aligned([found("bm25", results), found("bm25-nano", results)], None, "ndcg@10")


def test_suites_are_never_pooled() -> None:
    results = [
        store(ROOT, system, task, ranks(1))
        for system in ("bm25", "bm25-nano")
        for task in ("demo/biology", "Biology")
    ]

    with pytest.raises(UsageError, match="never pooled"):
        aligned([found("bm25", results), found("bm25-nano", results)], None, "ndcg@10")


def test_a_system_that_never_ran_names_the_command_that_runs_it() -> None:
    with pytest.raises(MissingError, match=r"r2med eval 'bm25\[k1=2\]' --task"):
        found("bm25[k1=2]", [])


def test_a_missing_task_names_the_command_that_runs_it() -> None:
    results = [
        store(ROOT, "bm25", "demo/biology", ranks(1)),
        store(ROOT, "bm25-nano", "demo/medqa-diag", ranks(1)),
    ]
    sides = [found("bm25", results), found("bm25-nano", results)]

    with pytest.raises(MissingError, match="r2med eval bm25-nano --task demo/biology"):
        aligned(sides, ["demo/biology"], "ndcg@10")
    with pytest.raises(MissingError, match="no task in common"):
        aligned(sides, None, "ndcg@10")


def test_a_metric_that_is_not_stored_names_the_command_that_adds_it() -> None:
    results = [store(ROOT, s, "demo/biology", ranks(1)) for s in ("bm25", "bm25-nano")]
    sides = [found("bm25", results), found("bm25-nano", results)]

    with pytest.raises(UsageError, match="--metrics ndcg@20"):
        aligned(sides, None, "ndcg@20")


def test_other_queries_are_refused() -> None:
    results = [
        store(ROOT, "bm25", "demo/biology", {"q1": 1}),
        store(ROOT, "bm25-nano", "demo/biology", {"q2": 1}),
    ]

    with pytest.raises(DataError, match="different queries"):
        aligned([found("bm25", results), found("bm25-nano", results)], None, "ndcg@10")


def test_a_folder_of_a_stored_result_is_a_contender() -> None:
    kept = store(ROOT, "bm25", "demo/biology", ranks(1))

    side = found(str(kept.folder), [])

    assert [trial.task for trial in side.trials] == ["demo/biology"]


@pytest.mark.parametrize("text", ["gone.trec", "./gone", "/gone/run.txt"])
def test_a_file_that_is_not_there_is_not_taken_for_a_system(text: str) -> None:
    with pytest.raises(MissingError, match="no such run file"):
        found(text, [])
