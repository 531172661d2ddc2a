"""What can be compared meets on the same data and queries; what cannot says what to run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.errors import DataError, MissingError, UsageError
from r2med.results.compare import Comparison, QueryScores, compare
from r2med.results.evaluation import Evaluation
from r2med.results.movement import compare_queries
from r2med.results.record import Result
from r2med.results.select import ResultSet
from r2med.results.store import Store
from tests.results.diagnosis.collections import ranking_of, task_of
from tests.results.storing import ranks, store

ROOT = Path("kept")
CORPUS = {name: f"text {name}" for name in "abcd"}
QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1, "d": 0}}


def met(*systems: str, task: str | None = None, metric: str = "ndcg@10") -> Comparison:
    return compare(*systems, task=task, metric=metric, results=ROOT)


def scores(comparison: Comparison, task: str = "demo/biology") -> list[tuple[float, ...]]:
    return [query.scores for query in comparison.tasks[task]]


def test_systems_are_aligned_by_query_whatever_their_order() -> None:
    store(ROOT, "bm25", "demo/biology", {"q1": 1, "q2": 0})
    store(ROOT, "bm25-lucene", "demo/biology", {"q2": 1, "q1": 0})

    found = met("bm25", " bm25-lucene ")

    assert (found.suite, found.systems) == ("demo", ("bm25", "bm25-lucene"))
    assert found.tasks["demo/biology"] == [
        QueryScores("q1", (1.0, 0.0)),
        QueryScores("q2", (0.0, 1.0)),
    ]


def test_tasks_in_common_come_in_the_order_of_the_suite() -> None:
    names = ["demo/pmc-clinical", "demo/biology", "demo/medqa-diag"]
    for system in ("bm25", "bm25-nano"):
        for task in names:
            store(ROOT, system, task, ranks(1))
    store(ROOT, "bm25", "demo/iiyi-clinical", ranks(1))

    found = met("bm25", "bm25-nano")

    assert list(found.tasks) == ["demo/biology", "demo/medqa-diag", "demo/pmc-clinical"]


def test_the_newest_data_that_both_ran_on_is_compared() -> None:
    for system in ("bm25", "bm25-nano"):
        old = "2025-01-01T00:00:00+00:00"
        store(ROOT, system, "demo/biology", ranks(1), data="old", created=old)
    store(ROOT, "bm25", "demo/biology", ranks(0), data="new")

    found = met("bm25", "bm25-nano")

    assert scores(found) == [(1.0, 1.0)]


def test_newest_is_the_data_of_the_newest_result_whenever_it_was_first_seen() -> None:
    for day, data, rank in ((1, "one", 1), (2, "two", 2), (3, "one", 1)):
        for system in ("bm25", "bm25-nano"):
            first = store(ROOT, system, "demo/biology", ranks(rank), data=data)
            identity = replace(first.record.system, identity={"name": system, "day": day})
            record = replace(first.record, system=identity, created=f"2026-01-0{day}")
            Store(ROOT).write(record, first.run, first.scores)
            shutil.rmtree(first.folder)

    assert scores(met("bm25", "bm25-nano")) == [(1.0, 1.0)]


def test_different_data_is_never_paired() -> None:
    store(ROOT, "bm25", "demo/biology", ranks(1), data="one")
    store(ROOT, "bm25-nano", "demo/biology", ranks(1), data="two")

    with pytest.raises(DataError, match="different data"):
        met("bm25", "bm25-nano")


def test_suites_are_never_pooled() -> None:
    for system in ("bm25", "bm25-nano"):
        for task in ("demo/biology", "Biology"):
            store(ROOT, system, task, ranks(1))

    with pytest.raises(UsageError, match="never pooled"):
        met("bm25", "bm25-nano")


def test_a_system_that_never_ran_names_the_command_that_runs_it() -> None:
    with pytest.raises(MissingError, match=r"r2med eval 'bm25\[k1=2\]' --task"):
        met("bm25[k1=2]", "bm25")


def test_a_missing_task_names_the_command_that_runs_it() -> None:
    store(ROOT, "bm25", "demo/biology", ranks(1))
    store(ROOT, "bm25-nano", "demo/medqa-diag", ranks(1))

    with pytest.raises(MissingError, match="r2med eval bm25-nano --task demo/biology"):
        met("bm25", "bm25-nano", task="demo/biology")
    with pytest.raises(MissingError, match="no task in common"):
        met("bm25", "bm25-nano")


def test_a_metric_that_is_not_stored_names_the_command_that_adds_it() -> None:
    for system in ("bm25", "bm25-nano"):
        store(ROOT, system, "demo/biology", ranks(1))

    with pytest.raises(UsageError, match="--metrics ndcg@20"):
        met("bm25", "bm25-nano", metric="ndcg@20")


def test_folders_and_results_are_compared_as_well_as_names() -> None:
    first = store(ROOT, "bm25", "demo/biology", ranks(1, 2, 0))
    second = store(ROOT, "bm25-nano", "demo/biology", ranks(1, 1, 0))

    by_name = compare("bm25", "bm25-nano", results=ROOT)
    others = [compare(first, second), compare(first.folder, "bm25-nano", results=ROOT)]

    assert [other.pairs for other in others] == [by_name.pairs] * 2


@pytest.mark.parametrize("text", ["gone.trec", "./gone", "/gone/run.txt"])
def test_a_file_that_is_not_there_is_not_taken_for_a_system(text: str) -> None:
    with pytest.raises(MissingError, match="no such run file"):
        met(text, "bm25")


@pytest.mark.parametrize("entry", [("9", "a"), ("q1", "elsewhere")])
def test_a_run_of_another_task_is_refused(tmp_path: Path, entry: tuple[str, str]) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    result = r2med.evaluate("bm25", task, results=tmp_path / "results")
    Path("wrong.trec").write_text(f"{entry[0]} Q0 {entry[1]} 1 2.0 mine\n")

    with pytest.raises(DataError, match=r"wrong\.trec: none of its 1 entries is for a query and"):
        compare("wrong.trec", result.folder, task=str(tmp_path / "task"))


def test_a_run_that_lacks_queries_is_told(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    result = r2med.evaluate("bm25", task, results=tmp_path / "results")
    Path("short.trec").write_text("q1 Q0 a 1 2.0 mine\nx Q0 a 1 2.0 mine\n")
    told: list[str] = []

    compare("short.trec", result.folder, task=str(tmp_path / "task"), tell=told.append)

    assert any("queries of the task without any document: 2" in note for note in told)
    assert any("queries not in this task: 1" in note for note in told)


def test_a_comparison_prints_as_on_the_command_line_and_is_a_table() -> None:
    for system, own in (("bm25", ranks(1, 2, 0)), ("bm25-nano", ranks(1, 1, 1))):
        for task in ("demo/biology", "demo/medqa-diag"):
            store(ROOT, system, task, own)

    found = compare("bm25", "bm25-nano", results=ROOT)

    assert "No significant difference between bm25 and bm25-nano" in " ".join(str(found).split())
    table = found.to_arrow().to_pylist()
    assert [row["over"] for row in table] == [
        "demo/biology",
        "demo/medqa-diag",
        "task mean",
        "all queries",
    ]
    assert table[2]["difference"] == pytest.approx(found.pairs[0].by_task.difference)


def test_holm_over_the_pairs_is_in_the_data() -> None:
    for number, system in enumerate(("bm25", "bm25-nano", "bm25-lucene")):
        store(ROOT, system, "demo/biology", ranks(*np.resize([1, 2, 3, 0], 8 + number)[:8]))

    found = compare("bm25", "bm25-nano", "bm25-lucene", results=ROOT).to_json()

    corrected = [pair["p_holm"] for pair in found["pairs"]]
    assert len(corrected) == 3
    assert all(
        p >= pair["pooled"]["task_mean"]["p_randomisation"]
        for p, pair in zip(corrected, found["pairs"], strict=True)
    )


def test_queries_come_by_how_far_they_moved_in_either_direction(tmp_path: Path) -> None:
    task = task_of(tmp_path / "deep" / "task", CORPUS, QUERIES, JUDGED)
    lists = {"q1": ["a", "b"], "q2": ["b", "a"], "q3": ["a", "b"]}
    others = {"q1": ["a", "b"], "q2": ["a", "b"], "q3": ["c", "b"]}
    ranking_of(lists).run.to_trec("a.trec")
    ranking_of(others).run.to_trec("b.trec")

    found = compare_queries("a.trec", "b.trec", task=str(task.source))

    assert [(each.query_id, np.sign(each.difference)) for each in found.queries] == [
        ("q3", -1),
        ("q2", 1),
        ("q1", 0),
    ]
    assert [each.query_id for each in found.moved] == ["q3", "q2"]
    assert found.queries[0].positives == {"c": (None, 1)}
    assert (found.queries[0].first_a, found.queries[0].first_b) == ("a", "c")


def test_a_run_file_is_a_ranking(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    file = tmp_path / "mine.trec"
    ranking_of({"q1": ["a", "b"]}).run.to_trec(file)

    found = ResultSet((), "").find_ranking(str(file), task)

    assert found.result is None
    assert [name for name, _ in found.run.ranking("q1")] == ["a", "b"]


def test_a_system_that_has_not_run_names_the_command(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)

    with pytest.raises(MissingError, match="r2med eval bm25 --task task"):
        ResultSet((), "").find_ranking("bm25", task)


def test_a_result_of_other_data_is_refused(tmp_path: Path) -> None:
    older = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    result = r2med.evaluate("bm25", older, results=tmp_path / "results")
    newer = task_of(tmp_path / "task", {**CORPUS, "e": "more"}, QUERIES, JUDGED)

    with pytest.raises(DataError, match="Run it again"):
        ResultSet((result,), "").find_ranking("bm25", newer)


def test_two_results_of_one_name_are_told_apart_by_key() -> None:
    first = store(ROOT, "bm25", "demo/biology", ranks(1, 2, 0, 3))
    system = replace(first.record.system, identity={"model": "another"})
    other = Result.from_record(first.folder, replace(first.record, system=system))

    assert compare(first, other).systems == (f"bm25 ({first.key})", f"bm25 ({other.key})")


def test_a_metric_that_is_not_stored_is_added_to_all_with_one_command() -> None:
    for system in ("bm25", "bm25-nano"):
        for task in ("demo/biology", "demo/medqa-diag"):
            store(ROOT, system, task, ranks(1))

    command = "eval bm25 bm25-nano --task demo/biology,demo/medqa-diag --metrics ndcg@11"
    with pytest.raises(UsageError, match=command):
        met("bm25", "bm25-nano", metric="ndcg@11")


def retrained(*tasks: str) -> None:
    """One text whose model changed in place, stored before as v1 and after as v2."""
    for task in tasks:
        for day, label, rank in ((1, "v1", 2), (2, "v2", 1)):
            first = store(ROOT, "dense:./model", task, ranks(rank, rank))
            system = replace(first.record.system, label=label, identity={"weights": label})
            record = replace(first.record, system=system, created=f"2026-02-0{day}")
            Store(ROOT).write(record, first.run, first.scores)
            shutil.rmtree(first.folder)


def test_labels_of_one_text_name_the_results_that_carry_them() -> None:
    retrained("demo/biology")
    store(ROOT, "bm25", "demo/biology", ranks(0, 0))

    found = met("v2", "v1")
    newest = met("dense:./model", "bm25")

    assert found.systems == ("v2", "v1")
    assert scores(found)[0] == pytest.approx((1.0, 1 / np.log2(3)))
    assert scores(newest)[0] == (1.0, 0.0)


@pytest.mark.parametrize("task", [None, "demo/biology,demo/medqa-diag"])
def test_versions_behind_one_name_are_noted_once_for_all_tasks(task: str | None) -> None:
    retrained("demo/biology", "demo/medqa-diag")
    for name in ("demo/biology", "demo/medqa-diag"):
        store(ROOT, "bm25", name, ranks(0, 0))
    made: tuple[Any, ...] = (compare, compare_queries)
    for make in made:
        notes: list[str] = []

        make("dense:./model", "bm25", task=task, results=ROOT, tell=notes.append)

        [note] = notes
        assert note.startswith("v2: 2 stored versions have this name")
        assert "demo/biology, demo/medqa-diag" in note


def test_of_two_results_of_one_system_on_a_task_the_one_that_is_shown_is_tested() -> None:
    low = store(ROOT, "bm25", "Biology", ranks(*[9] * 20), data="0" * 64)
    high = store(ROOT, "bm25", "Biology", ranks(*[1] * 20))
    between = store(ROOT, "bge", "Biology", ranks(*[4] * 20))

    table = Evaluation([high, between, low])

    assert table.column("bm25", "ndcg@10") == {"Biology": 1.0}
    assert [*table.verdicts(["Biology"], "ndcg@10")] == ["bge"]
    assert table.verdicts(["Biology"], "ndcg@10")["bge"].is_significant


def test_other_queries_are_refused() -> None:
    store(ROOT, "bm25", "demo/biology", {"q1": 1})
    store(ROOT, "bm25-nano", "demo/biology", {"q2": 1})

    with pytest.raises(DataError, match="of different queries"):
        met("bm25", "bm25-nano")


def test_one_system_under_two_texts_is_given_twice() -> None:
    for system in ("bm25", "bm25[k1=0.9,b=0.4]"):
        r2med.evaluate(system, "demo/biology", results=ROOT)

    with pytest.raises(UsageError, match=r"twice: bm25 and bm25\[k1=0.9,b=0.4\] are [0-9a-f]+"):
        met("bm25", "bm25[k1=0.9,b=0.4]")


def test_a_text_and_a_label_of_the_same_result_are_refused() -> None:
    retrained("demo/biology")

    with pytest.raises(UsageError, match=r"given twice: v2 and dense:\./model are"):
        met("v2", "dense:./model")
