"""Judgements as text: with and without a header, by tabs or by spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import read_judgements
from tests.tasks.writing import Written, write_lines, write_r2med


@pytest.mark.parametrize(
    "lines",
    [
        ["q1 0 x 0", "q2 Q0 y   2"],
        ["q1\t0\tx\t0", "q2\t0\ty\t2"],
        ["q1 x 0", "q2 y 2"],
        ["query-id\tcorpus-id\tscore", "q1\tx\t0", "q2\ty\t2.0"],
        ["score doc_id query_id", "0 x q1", "2 y q2"],
    ],
    ids=["spaces", "tabs", "three", "header", "reordered"],
)
def test_each_form_gives_the_same_rows(tmp_path: Path, lines: list[str]) -> None:
    rows = read_judgements(write_lines(tmp_path / "qrels.tsv", lines))

    assert [column.to_pylist() for column in rows.columns.values()] == [
        ["q1", "q2"],
        ["x", "y"],
        [0, 2],
    ]


def test_a_header_without_a_score_makes_every_row_positive(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "qrels.tsv", ["query-id\tcorpus-id", "1\ta b", "2\tc"])

    rows = read_judgements(file)

    assert rows.columns["document"].to_pylist() == ["a b", "c"]
    assert rows.columns["score"].to_pylist() == [1, 1]


def test_a_query_id_may_begin_like_an_object(tmp_path: Path) -> None:
    write_r2med(tmp_path, Written(queries=(("{1}", "one"),), judgements=(("{1}", "d1", 1),)))
    (tmp_path / "qrels.jsonl").unlink()
    write_lines(tmp_path / "qrels.txt", ["{1} 0 d1 1"])

    assert load_task(tmp_path).judgements.query_ids.to_pylist() == ["{1}"]
