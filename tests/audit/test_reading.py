"""Training data in any common form gives the same texts, and bad rows are named and counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.csv import write_csv

from r2med.audit.files import chunks, training_files
from r2med.audit.reading import ReadingCounts, Row, rows
from r2med.errors import DataError, MissingError, UsageError
from r2med.tasks.reading import lines

RECORDS = [
    {"query": f'question "{n}"\nof two lines', "positive": f"answer, {n}", "negative": f"other {n}"}
    for n in range(40)
]


def read(path: Path, *fields: str) -> tuple[list[Row], ReadingCounts]:
    reading = ReadingCounts()
    (file,) = training_files([str(path)])
    return [row for chunk in chunks(file) for row in rows(chunk, reading, fields)], reading


def write(folder: Path, form: str) -> Path:
    path = folder / f"train.{form}"
    jsonl = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()
    if form == "jsonl":
        path.write_bytes(jsonl)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress(jsonl))
    elif form == "jsonl.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(jsonl)
    elif form == "json":
        path.write_text(json.dumps(RECORDS))
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=7)
    elif form == "arrow":
        table = pa.Table.from_pylist(RECORDS)
        with pa.ipc.new_stream(str(path), table.schema) as stream:
            stream.write_table(table, max_chunksize=9)
    else:
        write_csv(pa.Table.from_pylist(RECORDS), path)
    return path


@pytest.mark.parametrize(
    "form", ["jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "parquet", "arrow"]
)
def test_every_form_gives_the_same_texts_however_it_is_cut(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 100)

    read_rows, reading = read(write(tmp_path, form))

    texts = [dict(row.texts) for row in read_rows]
    assert texts == RECORDS
    assert (reading.rows, reading.texts, reading.unreadable) == (40, 120, 0)


def test_tables_without_a_header_are_read_by_column(tmp_path: Path) -> None:
    path = tmp_path / "triples.tsv"
    path.write_text('what is "this" about\ta long text about it\tanother long text\n' * 2)

    (row, _), _ = read(path)

    assert row.texts == (
        ("column 1", 'what is "this" about'),
        ("column 2", "a long text about it"),
        ("column 3", "another long text"),
    )


def test_plain_text_is_read_by_paragraph_or_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n")
    (tmp_path / "b.txt").write_text("one\ntwo\nthree")

    paragraphs, _ = read(tmp_path / "a.txt")
    each_line, _ = read(tmp_path / "b.txt")

    assert [(row.number, row.texts[0][1]) for row in paragraphs] == [
        (1, "one\ntwo"),
        (5, "three"),
    ]
    assert [row.number for row in each_line] == [1, 2, 3]


def test_chats_and_nested_passages_are_read_by_the_path_of_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    records = [
        {
            "messages": [
                {"role": "user", "content": "asked"},
                {"role": "assistant", "content": "said"},
            ]
        },
        {"query": "q", "positive_passages": [{"docid": "PMC7_1", "text": "p", "title": "t"}]},
        ["first", "second"],
        "bare",
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))

    chat, nested, pair, bare = read(path)[0]

    assert chat.texts == (("messages.content", "asked"), ("messages.content", "said"))
    assert nested.texts[1:] == (("positive_passages.text", "p"), ("positive_passages.title", "t"))
    assert nested.marks == ("PMC7_1", "t")
    assert pair.texts == (("column 1", "first"), ("column 2", "second"))
    assert bare.texts == (("text", "bare"),)


def test_fields_can_be_chosen(tmp_path: Path) -> None:
    chosen, reading = read(write(tmp_path, "jsonl"), "negative")

    assert {field for row in chosen for field, _ in row.texts} == {"negative"}
    assert list(reading.fields) == ["query", "positive", "negative"] and reading.texts == 40


def test_a_file_of_json_lines_may_end_in_json(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl").rename(tmp_path / "train.json")

    assert [dict(row.texts) for row in read(path)[0]] == RECORDS


def test_rows_that_cannot_be_read_are_named_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(
        b'{"text": "good"}\n{"text": \n\xff\xfe\n17\n{"number": 3}\n{"text": "good"}\n'
    )

    read_rows, reading = read(path)

    assert [row.number for row in read_rows] == [1, 6]
    assert (reading.rows, reading.unreadable, reading.texts) == (6, 3, 2)
    assert "line 2" in reading.problems[0] and "not UTF-8" in reading.problems[1]
    assert "the number 17" in reading.problems[2]
    assert "number" in reading.fields


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab\0cd\n")
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    (tmp_path / "a.json").write_text('[{"text": "whole"}, {"text": ')

    for name in ("a.txt", "a.parquet", "a.json"):
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)


def test_files_folders_globs_and_datasets_of_the_hub_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub" / "datasets--me--set" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    write(snapshot, "parquet")
    (snapshot / "README.md").write_text("not data")
    write(tmp_path, "jsonl")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))

    def names(*wanted: str) -> list[str]:
        return [file.name for file in training_files(wanted)]

    assert names("me/set") == ["abc/train.parquet"]
    assert names(str(tmp_path / "*.jsonl")) == ["train.jsonl"]
    assert sorted(names(str(tmp_path))) == [
        f"{tmp_path.name}/hub/datasets--me--set/snapshots/abc/train.parquet",
        f"{tmp_path.name}/train.jsonl",
    ]
    for nowhere in ("nowhere/set", "me/s**t", "me/s*", str(snapshot / "README.md"), "no/**"):
        with pytest.raises(MissingError, match=r"names no training data.* that end in \.jsonl"):
            names(nowhere)
    with pytest.raises(UsageError, match="No training data"):
        names()


def test_of_a_folder_that_holds_a_task_no_judgements_are_read(tmp_path: Path) -> None:
    for name in ("corpus", "query", "qrels"):
        (tmp_path / f"{name}.jsonl").write_text("{}")

    files = training_files([str(tmp_path)])

    assert [file.path.stem for file in files] == ["corpus", "query"]


def test_a_json_array_is_not_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 100)
    monkeypatch.setattr("r2med.audit.files._RECORDS", 10)
    path = write(tmp_path, "json")
    path.write_text(path.read_text()[:-1] + ", broken")
    (file,) = training_files([str(path)])

    cut = chunks(file)

    assert [next(cut).first for _ in range(4)] == [1, 11, 21, 31]
    with pytest.raises(DataError, match="not valid JSON after row 40"):
        next(cut)
