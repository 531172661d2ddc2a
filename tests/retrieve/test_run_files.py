"""Run files as first stages: every form is read, every oddity is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r2med.errors import DataError, MissingError
from r2med.retrieve.run_files import locate_run
from r2med.runs import Run


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_trec_file_is_read_by_score(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a 1 0.5 x\nq Q0 b 2 0.25 x\n")

    run, findings = locate_run(path).read()

    assert run.ranking("q") == [("a", 0.5), ("b", 0.25)]
    assert findings.notices() == []


def test_ranks_that_contradict_the_scores_are_told_and_scores_decide(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a 1 0.1 x\nq Q0 b 2 0.9 x\n")

    run, findings = locate_run(path).read()

    assert [document for document, _ in run.ranking("q")] == ["b", "a"]
    assert findings.notices() == [
        "lists whose ranks repeat or contradict the scores: 1; the order follows the scores."
    ]


def test_a_rank_given_twice_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a 1 0.9 x\nq Q0 b 1 0.8 x\nr Q0 a 1 1 x\n")

    _, findings = locate_run(path).read()

    assert findings.notices() == [
        "lists whose ranks repeat or contradict the scores: 1; the order follows the scores."
    ]


def test_a_file_without_scores_goes_by_rank(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a 2\nq Q0 b 1\n")

    run, findings = locate_run(path).read()

    assert [document for document, _ in run.ranking("q")] == ["b", "a"]
    assert findings.notices() == ["the file has no scores; the order follows the ranks."]


def test_one_missing_score_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a 1 0.9 x\nq Q0 b 2\n")

    with pytest.raises(DataError, match=r"a\.trec, line 2: the score is missing"):
        locate_run(path).read()


@pytest.mark.parametrize("score", ["nan", "inf", "high"])
def test_a_score_that_is_no_number_is_an_error_that_names_the_line(
    tmp_path: Path, score: str
) -> None:
    path = written(tmp_path / "a.trec", f"q Q0 a 1 {score} x\n")

    with pytest.raises(DataError, match=r"line 1: (rank or )?score"):
        locate_run(path).read()


def test_a_rank_that_is_no_number_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trec", "q Q0 a first 0.3 x\n")

    with pytest.raises(DataError, match="line 1: rank or score is not a number: 'first"):
        locate_run(path).read()


@pytest.mark.parametrize("form", ["trec", "parquet"])
def test_a_document_twice_in_a_list_is_an_error(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    if form == "trec":
        written(path, "q Q0 a 1 0.9 x\nq Q0 a 2 0.8 x\n")
    else:
        rows = {"query_id": ["q", "q"], "document_id": ["a", "a"], "score": [0.9, 0.8]}
        pq.write_table(pa.table(rows), path)

    with pytest.raises(DataError, match=r"document 'a' appears twice for query 'q'"):
        locate_run(str(path)).read()


def test_parquet_is_read_with_and_without_scores(tmp_path: Path) -> None:
    rows = {"query_id": ["q", "q"], "document_id": ["a", "b"], "rank": [2, 1]}
    pq.write_table(pa.table(rows), tmp_path / "ranks.parquet")
    Run.from_lists({"q": [("b", 2.0), ("a", 1.0)]}).to_parquet(tmp_path / "scores.parquet")

    read = {
        name: locate_run(str(tmp_path / name)).read()
        for name in ("ranks.parquet", "scores.parquet")
    }

    assert [[d for d, _ in run.ranking("q")] for run, _ in read.values()] == [["b", "a"]] * 2
    assert [findings.without_scores for _, findings in read.values()] == [True, False]


def test_a_missing_score_in_parquet_is_named_with_its_row(tmp_path: Path) -> None:
    rows = {"query_id": ["q"], "document_id": ["a"], "score": pa.array([None], pa.float64())}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")

    with pytest.raises(DataError, match=r"a\.parquet, row 1: column \"score\" is null"):
        locate_run(str(tmp_path / "a.parquet")).read()


def test_what_is_not_there_is_named_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no such file, expected a TREC run file"):
        locate_run(str(tmp_path / "nothing.trec"))
    with pytest.raises(MissingError, match=r"contains no run\.parquet"):
        locate_run(str(tmp_path))


def test_equal_content_has_an_equal_fingerprint_whatever_the_name(tmp_path: Path) -> None:
    names = [written(tmp_path / name, "q Q0 a 1 0.5 x\n") for name in ("a.trec", "b.trec")]
    other = written(tmp_path / "c.trec", "q Q0 a 1 0.6 x\n")

    prints = [locate_run(name).fingerprint() for name in (*names, other)]

    assert prints[0] == prints[1] != prints[2]
