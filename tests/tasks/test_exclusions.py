"""Documents that a query excludes are in no list and no judgement of a task."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r2med import evaluate, load_task
from r2med.errors import DataError

DOCUMENTS = {
    "a": "fever and rash after travel",
    "b": "fever and rash",
    "c": "rash",
    "d": "a broken wrist",
}
JUDGED = [("1", "a", 1), ("1", "b", 1), ("2", "c", 1)]


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_task(folder: Path, excluded: dict[str, object]) -> Path:
    folder.mkdir()
    texts = {"1": "fever with rash after travel", "2": "rash"}
    write_rows(folder / "corpus.jsonl", [{"id": i, "text": t} for i, t in DOCUMENTS.items()])
    queries: list[dict[str, object]] = []
    for query_id, text in texts.items():
        row: dict[str, object] = {"id": query_id, "text": text}
        if query_id in excluded:
            row["excluded_ids"] = excluded[query_id]
        queries.append(row)
    write_rows(folder / "query.jsonl", queries)
    judged = [{"q_id": q, "p_id": d, "score": score} for q, d, score in JUDGED]
    write_rows(folder / "qrels.jsonl", judged)
    return folder


def test_an_excluded_document_is_neither_retrieved_nor_judged(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "mine", {"1": ["a"], "2": ["N/A"]})

    task = load_task(folder)
    result = evaluate("bm25", task)

    assert task.exclusions == {"1": {"a"}}
    assert result.run.ranked_documents("1")[0] == "b"
    assert "a" not in result.run.ranked_documents("1")
    assert "a" in result.run.ranked_documents("2")
    assert result.scores.by_query("recall@10") == {"1": 1.0, "2": 1.0}
    assert any("1 excluded document" in notice for notice in task.notices)


def test_lists_are_as_long_as_without_exclusions(tmp_path: Path) -> None:
    plain = load_task(make_task(tmp_path / "plain", {}))
    excluding = load_task(make_task(tmp_path / "excluding", {"1": ["a"]}))

    lists = [evaluate("bm25@2", task).run.ranked_documents("1") for task in (plain, excluding)]

    assert lists == [["a", "b"], ["b", "c"]]


def test_a_reranker_never_reads_an_excluded_document(tmp_path: Path) -> None:
    task = load_task(make_task(tmp_path / "mine", {"1": ["a"]}))

    result = evaluate("bm25 + bm25-lucene", task)

    assert result.run.ranked_documents("1")[:2] == ["b", "c"]


def test_exclusions_change_the_key_of_a_result(tmp_path: Path) -> None:
    plain = load_task(make_task(tmp_path / "plain", {}))
    excluding = load_task(make_task(tmp_path / "excluding", {"2": ["d"]}))

    assert plain.hash != excluding.hash


def test_a_file_beside_the_data_adds_exclusions(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "mine", {"1": ["a"]})
    rows: list[dict[str, object]] = [
        {"id": "1", "excluded_ids": ["b"]},
        {"id": "9", "excluded_ids": ["b"]},
    ]
    write_rows(folder / "excluded_ids.jsonl", rows)

    task = load_task(folder)

    assert task.exclusions == {"1": {"a", "b"}}
    assert any("1 query in" in notice and "ignored" in notice for notice in task.notices)


def test_a_run_file_is_measured_without_excluded_documents(tmp_path: Path) -> None:
    folder = make_task(tmp_path / "mine", {"1": ["a"]})
    (tmp_path / "r.trec").write_text("1 Q0 a 1 3 r\n1 Q0 b 2 2 r\n2 Q0 c 1 1 r\n")

    result = evaluate(f"run:{tmp_path / 'r.trec'}", folder)

    assert result.metrics["mrr"] == 1.0
    assert result.run.ranked_documents("1") == ["b"]


def test_parquet_lists_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    tables = {
        "corpus": {"_id": list(DOCUMENTS), "text": list(DOCUMENTS.values())},
        "queries": {"_id": ["1"], "text": ["fever with rash"], "excluded_ids": [["a"]]},
        "qrels": {"query-id": ["1"], "corpus-id": ["b"]},
    }
    for name, columns in tables.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / name / "test.parquet")

    assert load_task(folder).exclusions == {"1": {"a"}}


@pytest.mark.parametrize("excluded", [{"a": 1}, [1]])
def test_a_wrong_list_is_named_by_line(tmp_path: Path, excluded: object) -> None:
    folder = make_task(tmp_path / "mine", {"2": excluded})

    with pytest.raises(DataError, match=r"query\.jsonl, line 2.*excluded_ids.*list of strings"):
        load_task(folder)
