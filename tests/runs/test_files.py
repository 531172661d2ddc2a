"""Runs survive their files: what is written is read back equal, and bad files are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError
from r2med.runs import Run

ids = st.from_regex(r"[A-Za-z0-9_:./é-]{1,6}", fullmatch=True)
scores = st.floats(allow_nan=False, allow_infinity=False, width=32)


def ranked(found: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(found.items(), key=lambda pair: -pair[1])


lists = st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1).map(ranked), min_size=1)


def as_lists(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: run.ranking(query) for query in run.query_ids.to_pylist()}


@given(lists)
def test_a_trec_file_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, list[tuple[str, float]]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec.gz"

    Run.from_lists(found).to_trec(path)

    assert as_lists(Run.from_trec(path)) == found


@given(st.dictionaries(ids, st.dictionaries(ids, scores).map(ranked)))
def test_a_parquet_file_reads_back_equal_with_its_empty_lists(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, list[tuple[str, float]]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.parquet"

    Run.from_lists(found).to_parquet(path)

    assert as_lists(Run.from_parquet(path)) == found


def test_scores_decide_the_order_of_a_trec_file_not_its_ranks(tmp_path: Path) -> None:
    path = tmp_path / "run.trec"
    path.write_text("1 Q0 low 1 0.5 x\n1 Q0 high 2 0.9 x\n")

    assert [document for document, _ in Run.from_trec(path).ranking("1")] == ["high", "low"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 Q0 d1 1\n", "line 1: 4 fields, expected 6"),
        ("1 Q0 d1 1 0.5 x\n\n1 Q0 d2 2 high x\n", "line 3: score 'high' is not a number"),
        ("1 Q0 d1 1 nan x\n", "line 1: score 'nan' is not a finite number"),
        ("1 Q0 a 1 2 x\n2 Q0 a 1 2 x\n1 Q0 a 2 1 x\n", "line 3: document 'a' appears twice"),
        ("", "the file holds no run"),
    ],
)
def test_a_bad_trec_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.trec"
    path.write_text(text)

    with pytest.raises(DataError, match=r"bad\.trec") as caught:
        Run.from_trec(path)

    assert message in str(caught.value)


def test_a_missing_or_cut_run_file_is_named(tmp_path: Path) -> None:
    cut = tmp_path / "cut.trec.gz"
    cut.write_bytes(gzip.compress(b"1 Q0 d1 1 0.5 x\n" * 100)[:-9])

    with pytest.raises(MissingError, match=r"none\.trec"):
        Run.from_trec(tmp_path / "none.trec")
    with pytest.raises(DataError, match=r"cut\.trec\.gz"):
        Run.from_trec(cut)


def test_an_id_with_a_space_is_refused_by_trec_files_only(tmp_path: Path) -> None:
    run = Run.from_lists({"1": [("a b", 1.0)]})

    run.to_parquet(tmp_path / "run.parquet")

    with pytest.raises(DataError, match="document id 'a b'"):
        run.to_trec(tmp_path / "run.trec")
    assert not (tmp_path / "run.trec").exists()


def test_a_parquet_file_without_the_columns_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query_id": ["1"], "document_id": ["a"]}), tmp_path / "x.parquet")
    (tmp_path / "text.parquet").write_text("no")

    with pytest.raises(DataError, match=r"x\.parquet: column 'score' is missing"):
        Run.from_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"text\.parquet: not a readable Parquet"):
        Run.from_parquet(tmp_path / "text.parquet")


def test_a_truncated_run_keeps_the_head_of_every_list() -> None:
    run = Run.from_lists({"1": [("a", 3.0), ("b", 2.0)], "2": [], "3": [("c", 1.0)]})

    assert as_lists(run.truncated(1)) == {"1": [("a", 3.0)], "2": [], "3": [("c", 1.0)]}
