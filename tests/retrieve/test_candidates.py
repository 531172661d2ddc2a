from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r2med.errors import DataError
from r2med.retrieve.run_files import Subset


def subset(folder: Path, queries: object, lists: object) -> Subset:
    file = folder / "lists.parquet"
    pq.write_table(pa.table({"query-id": queries, "corpus-ids": lists}), file)
    return Subset("bm25", (file,))


def test_whole_numbers_are_ids_and_empty_lists_are_lists(tmp_path: Path) -> None:
    run = subset(tmp_path, [1, 2], [[3, 4], []]).read(safeguard=False)

    assert run.ranking("1") == [("3", -1.0), ("4", -2.0)]


@pytest.mark.parametrize(
    ("queries", "lists", "message"),
    [
        (["1", None], [["a"], ["b"]], r"row 2 .*: a null"),
        (["1", "2"], [["a"], None], r"row 2 \(query '2'\): a null"),
        (["1", "2"], [["a"], ["b", None]], r"row 2 \(query '2'\): a null"),
        (["1"], [[["a"]]], r"query-id \(string\), corpus-ids \(list<.*list<"),
        (["1"], ["a"], r"corpus-ids \(string\)"),
        ([1.5], [["a"]], r"query-id \(double\)"),
        ([["1"]], [["a"]], r"query-id \(list<"),
        (["1", "1"], [["a"], ["b"]], r"row 2 \(query '1'\): a repeated id"),
        (["1", "2"], [["a"], ["b", "c", "b"]], r"row 2 \(query '2'\): a repeated id"),
    ],
)
def test_a_file_that_holds_no_candidate_lists_is_named_with_the_row_or_column(
    tmp_path: Path, queries: object, lists: object, message: str
) -> None:
    with pytest.raises(DataError, match=rf"lists\.parquet.*{message}.*candidates have the columns"):
        subset(tmp_path, queries, lists).read(safeguard=False)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    damaged = subset(tmp_path, ["1"], [["a"]])
    [file] = damaged.files
    file.write_bytes(file.read_bytes()[:-9])

    with pytest.raises(DataError, match=r"lists\.parquet: not a readable Parquet file"):
        damaged.read(safeguard=False)
