from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import DataError, MissingError
from r2med.results.movement import Shift, movements
from r2med.results.ranking import find_ranking
from tests.results.diagnosis.collections import ranking_of, task_of

CORPUS = {name: f"text {name}" for name in "abcd"}
QUERIES = {"q1": "one", "q2": "two", "q3": "three"}
JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1, "d": 0}}


def test_queries_come_by_how_far_they_moved_in_either_direction(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    before = ranking_of({"q1": ["a", "b"], "q2": ["b", "a"], "q3": ["a", "b"]})
    after = ranking_of({"q1": ["a", "b"], "q2": ["a", "b"], "q3": ["c", "b"]})

    found = movements(before, after, task, "ndcg@10")

    assert [(each.query_id, each.moved > 0) for each in found] == [
        ("q3", True),
        ("q2", False),
        ("q1", False),
    ]
    assert found[0].positives == (Shift("c", None, 1),)
    assert (found[0].first_a, found[0].first_b) == ("a", "c")


def test_a_run_file_is_a_ranking(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    file = tmp_path / "mine.trec"
    ranking_of({"q1": ["a", "b"]}).run.to_trec(file)

    found = find_ranking(str(file), [], task, tmp_path)

    assert found.result is None
    assert [name for name, _ in found.run.ranking("q1")] == ["a", "b"]


def test_a_system_that_has_not_run_names_the_command(tmp_path: Path) -> None:
    task = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)

    with pytest.raises(MissingError, match="r2med eval bm25 --task task"):
        find_ranking("bm25", [], task, tmp_path)


def test_a_result_of_other_data_is_refused(tmp_path: Path) -> None:
    import r2med

    older = task_of(tmp_path / "task", CORPUS, QUERIES, JUDGED)
    result = r2med.evaluate("bm25", older, results=tmp_path / "results")
    newer = task_of(tmp_path / "task", {**CORPUS, "e": "more"}, QUERIES, JUDGED)

    with pytest.raises(DataError, match="Run it again"):
        find_ranking("bm25", [result], newer, tmp_path / "results")
