"""Runs survive their files: what is written is read back equal, and bad files are named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import DataError
from r2med.runs import Run
from r2med.runs.files import read_run

ids = st.from_regex(r"[A-Za-z0-9_:./é-]{1,6}", fullmatch=True)
scores = st.floats(allow_nan=False, allow_infinity=False, width=32)


def ranked(found: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(found.items(), key=lambda pair: -pair[1])


lists = st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1).map(ranked), min_size=1)


def as_lists(run: Run) -> dict[str, list[tuple[str, float]]]:
    return {query: run.ranking(query) for query in run.query_ids.to_pylist()}


@settings(max_examples=40)
@given(lists)
def test_a_trec_file_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, list[tuple[str, float]]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec.gz"

    Run.from_lists(found).to_trec(path)

    assert as_lists(Run.from_trec(path)) == found


@settings(max_examples=40)
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
        ("1 Q0 d1\n", "line 1: 3 fields, expected 6"),
        ("1 Q0 d1 1 2 x\n1 Q0 d2 2\n", "line 2: the score is missing"),
        ("1 Q0 d1 first 2 x\n", "line 1: rank or score is not a number: 'first 2'"),
        (f"1 Q0 d1 {'9' * 400} 2 x\n", "line 1: rank or score is not a number: '999"),
        (
            "1 Q0 d1 1 0.5 x\n\n1 Q0 d2 2 high x\n",
            "line 3: rank or score is not a number: '2 high'",
        ),
        ("1 Q0 d1 1 nan x\n", "line 1: score nan is not a finite number"),
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

    with pytest.raises(DataError, match=r"none\.trec cannot be read: No such file"):
        Run.from_trec(tmp_path / "none.trec")
    with pytest.raises(DataError, match=r"cut\.trec\.gz"):
        Run.from_trec(cut)


any_ids = st.text(max_size=4)


@given(
    st.dictionaries(any_ids, st.dictionaries(any_ids, scores, min_size=1).map(ranked), min_size=1)
)
def test_trec_files_refuse_every_id_that_would_not_read_back(
    tmp_path_factory: pytest.TempPathFactory, found: dict[str, list[tuple[str, float]]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.trec"

    try:
        Run.from_lists(found).to_trec(path)
    except DataError:
        return
    assert as_lists(Run.from_trec(path)) == found


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_no_run_file_can_hold_is_refused(tmp_path: Path, score: float) -> None:
    with pytest.raises(DataError, match="finite"):
        Run.from_lists({"1": [("a", score)]}).to_trec(tmp_path / "run.trec")


def test_a_document_twice_in_a_list_is_refused_however_a_run_is_made(tmp_path: Path) -> None:
    rows: dict[str, Any] = {"query_id": ["1", "1"], "document_id": ["a", "a"], "score": [2.0, 1.0]}
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")

    with pytest.raises(DataError, match=r"x\.parquet, row 2: document 'a' appears twice"):
        Run.from_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="document 'a' appears twice for query '1'"):
        Run.from_lists({"1": [("a", 2.0), ("a", 1.0)]})
    with pytest.raises(DataError, match="document 'a' appears twice for query '1'"):
        Run.from_columns(*rows.values())


@pytest.mark.parametrize("form", ["trec", "parquet"])
def test_of_a_document_listed_twice_the_first_or_last_line_can_be_kept(
    tmp_path: Path, form: str
) -> None:
    entries = [("1", "a", 1.0), ("1", "b", 3.0), ("1", "a", 5.0), ("2", "a", 1.0)]
    path = tmp_path / f"run.{form}"
    if form == "trec":
        path.write_text("".join(f"{q} Q0 {d} 1 {score} x\n" for q, d, score in entries))
    else:
        columns = zip(*entries, strict=True)
        names = ("query_id", "document_id", "score")
        pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)

    first, oddities = read_run(path, repeats="first")
    last, _ = read_run(path, repeats="last")

    assert dict(first.ranking("1")) == {"b": 3.0, "a": 1.0}
    assert dict(last.ranking("1")) == {"a": 5.0, "b": 3.0}
    assert oddities.repeated_documents == 1


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"document_id": pa.array(["a", None])}, 'row 2: column "document_id" is null'),
        ({"query_id": pa.array([["1"], ["2"]])}, 'column "query_id" holds list'),
        ({"document_id": pa.array([1.5, 2])}, 'column "document_id" holds double'),
        ({"document_id": pa.array([b"a", b"\xff"])}, 'column "document_id" holds binary'),
        ({"score": pa.array([1.0, None])}, 'row 2: column "score" is null'),
        ({"score": pa.array([1.0, float("nan")])}, "row 2: score nan is not a finite number"),
        ({"score": pa.array(["high", "low"])}, 'column "score" holds string'),
        ({"score": pa.array([{"x": 1}, {"x": 2}])}, 'column "score" holds struct'),
        ({"rank": pa.array([1, None])}, 'row 2: column "rank" is null'),
        ({"rank": pa.array([1.0, float("inf")])}, "row 2: rank inf"),
    ],
)
def test_a_parquet_file_with_wrong_values_is_named_with_its_column(
    tmp_path: Path, columns: dict[str, pa.Array], message: str
) -> None:
    usual = {"query_id": ["1", "2"], "document_id": ["a", "b"], "score": [1.0, 2.0]}
    pq.write_table(pa.table({**usual, **columns}), tmp_path / "x.parquet")

    with pytest.raises(DataError, match=r"x\.parquet") as caught:
        Run.from_parquet(tmp_path / "x.parquet")

    assert message in str(caught.value)


def test_whole_numbers_and_dictionaries_are_ids_too(tmp_path: Path) -> None:
    documents = pa.array(["a", "b"]).dictionary_encode()
    table = pa.table({"query_id": [7, 7], "document_id": documents, "score": [1, 2]})
    pq.write_table(table, tmp_path / "x.parquet")

    assert Run.from_parquet(tmp_path / "x.parquet").ranking("7") == [("a", 1.0), ("b", 2.0)]


def test_a_packed_run_that_unpacks_beyond_measure_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.trec.gz").write_bytes(
        gzip.compress(b"1 Q0 a 1 2 x" + b" " * 4_000_000 + b"\n") * 40
    )

    with pytest.raises(DataError, match="is refused: it unpacks to more than"):
        Run.from_trec(tmp_path / "run.trec.gz")


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

    assert as_lists(run.truncate(1)) == {"1": [("a", 3.0)], "2": [], "3": [("c", 1.0)]}


def test_an_id_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.trec"
    path.write_bytes("1 Q0 fi\xe8vre 1 0.5 x\n".encode("latin-1"))

    with pytest.raises(DataError, match=r"latin\.trec: the id b'fi\\xe8vre' is not UTF-8 text"):
        Run.from_trec(path)
