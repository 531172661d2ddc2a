"""Every way a file can be wrong ends in a message that says where, what, and what was expected."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from r2med.errors import DataError
from r2med.tasks.load import load_task
from tests.tasks.writing import (
    Row,
    write_beir,
    write_bytes,
    write_lines,
    write_nano,
    write_parquet,
    write_r2med,
)

GOOD = {
    "corpus.jsonl": '{"id": "d0", "text": "fine"}',
    "query.jsonl": '{"id": "q0", "text": "fine"}',
    "qrels.jsonl": '{"q_id": "1", "p_id": "d2", "score": 1}',
}


def message(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        load_task(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "line", "expected"),
    [
        (
            "corpus.jsonl",
            '{"id": "a", "text": "cut',
            "not valid JSON (Unterminated string starting at, column 21",
        ),
        ("corpus.jsonl", '{"id": "a", "text": "x"},', "not valid JSON (Extra data, column 25)"),
        ("corpus.jsonl", '{"id": "a", "text": "tab\t"}', "not valid JSON (Invalid control char"),
        (
            "corpus.jsonl",
            '{"id": "\\ud800", "text": ""}',
            'field "id" contains half a surrogate',
        ),
        ("corpus.jsonl", '["a", "x"]', "the line is a list, expected an object"),
        ("corpus.jsonl", "null", "the line is null, expected an object"),
        ("corpus.jsonl", "17", "the line is the number 17, expected an object"),
        ("corpus.jsonl", '{"id": "a"}', 'field "text" is missing (the line has "id")'),
        ("corpus.jsonl", "{}", 'field "id" is missing (the line has no fields)'),
        (
            "corpus.jsonl",
            '{"_id": "a", "text": ""}',
            'field "id" is missing (the line has "_id", "t',
        ),
        ("corpus.jsonl", '{"id": "a", "text": null}', 'field "text" is null, expected a string'),
        ("corpus.jsonl", '{"id": "a", "text": ["x"]}', 'field "text" is a list, expected a string'),
        ("corpus.jsonl", '{"id": "a", "text": {}}', 'field "text" is an object, expected a string'),
        ("corpus.jsonl", '{"id": "a", "text": 5}', 'field "text" is the number 5, expected a stri'),
        ("corpus.jsonl", '{"id": "", "text": "x"}', 'field "id" is empty, expected a string or an'),
        ("corpus.jsonl", '{"id": 1.5, "text": "x"}', 'field "id" is the number 1.5, expected a st'),
        ("corpus.jsonl", '{"id": true, "text": "x"}', 'field "id" is true, expected a string or a'),
        ("query.jsonl", '{"id": null, "text": "x"}', 'field "id" is null, expected a string or an'),
        ("query.jsonl", '{"id": "q9"}', 'field "text" is missing (the line has "id")'),
        (
            "qrels.jsonl",
            '{"q_id": "1", "score": 1}',
            'field "p_id" is missing (the line has "q_id"',
        ),
        ("qrels.jsonl", '{"q_id": "", "p_id": "a"}', 'field "q_id" is empty, expected'),
        (
            "qrels.jsonl",
            '{"q_id": "1", "p_id": "d1", "score": 0.5}',
            '"score" is the number 0.5, e',
        ),
        (
            "qrels.jsonl",
            '{"q_id": "1", "p_id": "d1", "score": "1"}',
            '"score" is the string "1", ex',
        ),
        (
            "qrels.jsonl",
            '{"q_id": "1", "p_id": "d1", "score": true}',
            '"score" is true, expected a',
        ),
        (
            "qrels.jsonl",
            '{"q_id": "1", "p_id": "d1", "score": NaN}',
            '"score" is the number nan, e',
        ),
        (
            "qrels.jsonl",
            '{"q_id": "1", "p_id": "d1", "score": 1e12}',
            "expected a whole number.",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_wrong_line_is_named_with_its_field(
    tmp_path: Path, file: str, line: str, expected: str, suffix: str
) -> None:
    write_r2med(tmp_path)
    (tmp_path / file).unlink()
    write_lines(tmp_path / f"{file}{suffix}", [GOOD[file], "", line])

    told = message(tmp_path)

    assert told.startswith(f"{tmp_path / file}{suffix}, line 3: ")
    assert expected in told


def test_the_second_line_of_an_error_shows_a_good_line(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    write_lines(tmp_path / "corpus.jsonl", ['{"id": "a", "text": []}'])

    assert message(tmp_path) == (
        f'{tmp_path / "corpus.jsonl"}, line 1: field "text" is a list, expected a string.\n'
        'Each line is {"id": "...", "text": "..."}; see docs/data.md.'
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"id": "a", "text": "caf\xe9"}', "line 2: byte 25 of the line (0xe9) is not UTF-8"),
        (b'{"id": "a", "text": "\xed\xa0\x80"}', "line 2: byte 22 of the line (0xed) is not UTF-8"),
        (
            b'{"id": "a", "text": "\x00"}',
            "line 2: not valid JSON (Invalid control character at, column 22)",
        ),
    ],
)
def test_a_wrong_encoding_is_named_with_its_byte(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    write_r2med(tmp_path)
    write_bytes(tmp_path / "corpus.jsonl", b'{"id": "d0", "text": "x"}\n' + content)

    assert f"{tmp_path / 'corpus.jsonl'}, {expected}" in message(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf_16_is_refused(tmp_path: Path, encoding: str) -> None:
    write_r2med(tmp_path)
    write_bytes(tmp_path / "corpus.jsonl", '{"id": "d1", "text": "x"}'.encode(encoding))

    assert f"{tmp_path / 'corpus.jsonl'}, line 1: " in message(tmp_path)


def test_a_line_far_into_a_large_file_is_named(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    rows: list[Row] = [{"id": f"d{i}", "text": "word " * 200} for i in range(9000)]
    rows[8499] = {"id": "d8499", "text": None}
    write_lines(tmp_path / "corpus.jsonl.gz", rows)
    (tmp_path / "corpus.jsonl").unlink()

    assert 'corpus.jsonl.gz, line 8500: field "text" is null' in message(tmp_path)


def test_a_gzip_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    write_r2med(tmp_path, suffix=".gz")
    file = tmp_path / "corpus.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-12])

    assert message(tmp_path).startswith(f"{file}: the gzip data is cut off or damaged (")


@pytest.mark.parametrize("damage", [slice(10, 20), slice(-8, -4)], ids=["body", "checksum"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage: slice) -> None:
    write_r2med(tmp_path, suffix=".gz")
    file = tmp_path / "query.jsonl.gz"
    content = bytearray(gzip.compress(b'{"id": "1", "text": "a"}\n{"id": "2", "text": "b"}\n'))
    content[damage] = bytes(255 - byte for byte in content[damage])
    file.write_bytes(bytes(content))

    assert message(tmp_path).startswith(f"{file}: the gzip data is ")


def test_a_repeated_query_id_is_named_with_both_lines(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    file = write_lines(
        tmp_path / "query.jsonl", [{"id": q, "text": ""} for q in ("1", "2", "3", "2", "3")]
    )

    assert f'{file}, line 4: query id "2" was already used in {file}, line 2.' in message(tmp_path)


def test_judgements_that_contradict_are_named_with_both_lines(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    rows = [{"q_id": "1", "p_id": "d1", "score": 1}, {"q_id": "2", "p_id": "d1", "score": 1}]
    file = write_lines(tmp_path / "qrels.jsonl", [*rows, {"q_id": "1", "p_id": "d1", "score": 2}])

    assert (
        f'{file}, line 3: query "1" and document "d1" are judged 2 here, '
        f"but 1 in {file}, line 1." in message(tmp_path)
    )


@pytest.mark.parametrize(
    ("file", "what"),
    [("corpus.jsonl", "documents"), ("query.jsonl", "queries"), ("qrels.jsonl", "judgements")],
)
@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_named(tmp_path: Path, file: str, what: str, content: bytes) -> None:
    write_r2med(tmp_path)
    write_bytes(tmp_path / file, content)

    assert message(tmp_path) == f"{tmp_path / file} holds no {what}."


def test_judgements_for_no_query_of_the_task_are_an_error(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    write_lines(tmp_path / "qrels.jsonl", [{"q_id": "99", "p_id": "d1"}])

    assert "qrels.jsonl, line 1: no judgement is for a query of this task" in message(tmp_path)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    (tmp_path / "corpus.jsonl").unlink()
    (tmp_path / "corpus.jsonl").mkdir()

    assert message(tmp_path) == f"{tmp_path / 'corpus.jsonl'} cannot be read: Is a directory."


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    (tmp_path / "corpus.jsonl").chmod(0)

    assert message(tmp_path) == f"{tmp_path / 'corpus.jsonl'} cannot be read: Permission denied."


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 0 d1", "line 2: 3 fields, expected 4"),
        ("1 0 d1 high", 'line 2: field "score" is the string "high", expected a whole number'),
        ("1 0 d1 -1.5", 'line 2: field "score" is the number -1.5, expected'),
        ("1 0 d1 1.5", 'line 2: field "score" is the number 1.5, expected'),
        ("1 0 d1 1_0", 'line 2: field "score" is the string "1_0", expected'),
        ("1 0 d1 nan", 'line 2: field "score" is the string "nan", expected'),
    ],
)
def test_a_wrong_trec_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    write_r2med(tmp_path)
    (tmp_path / "qrels.jsonl").unlink()
    file = write_lines(tmp_path / "qrels.txt", ["1 0 d2 1.0", line])

    told = message(tmp_path)

    assert told.startswith(f"{file}, {expected}")
    assert "A line is `query 0 document score` (TREC)" in told


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1\td1"], "line 1: 2 fields, expected 4"),
        (
            ["topic\tdoc no\tgrade", "1\td1\t1"],
            'line 1: field "score" is the string "grade", expected',
        ),
        (["query-id\tcorpus-id\tscore", "1\t\t1"], 'line 2: field "p_id" is empty'),
        (["query-id\tcorpus-id\tscore", "1\td1"], "line 2: 2 fields, expected 3"),
    ],
)
def test_a_wrong_tsv_line_is_named(tmp_path: Path, lines: list[str], expected: str) -> None:
    write_beir(tmp_path)
    file = write_lines(tmp_path / "qrels" / "test.tsv", lines)

    assert message(tmp_path).startswith(f"{file}, {expected}")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"_id": ["a"]}, ': column "text" is missing (the file has "_id")'),
        (
            {"_id": [1.5], "text": ["x"]},
            ': column "_id" holds double, expected strings or integers',
        ),
        ({"_id": ["a"], "text": [["x"]]}, ': column "text" holds list<'),
        ({"_id": ["a", None], "text": ["x", "y"]}, ', row 2: column "_id" is null'),
        ({"_id": ["a", ""], "text": ["x", "y"]}, ', row 2: column "_id" is empty'),
        ({"_id": ["a"], "text": [None]}, ': column "text" holds null, expected strings'),
    ],
)
def test_a_wrong_parquet_column_is_named(
    tmp_path: Path, columns: dict[str, object], expected: str
) -> None:
    write_nano(tmp_path)
    file = write_parquet(tmp_path / "corpus" / "NanoTask-00000-of-00001.parquet", **columns)

    assert f"{file}{expected}" in message(tmp_path)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1, -1.5], ', row 2: column "score" is -1.5, expected a whole number'),
        ([0.5, 1], ', row 1: column "score" is 0.5, expected a whole number'),
        (["1", "1"], ': column "score" holds string, expected numbers'),
    ],
)
def test_a_wrong_parquet_score_is_named(
    tmp_path: Path, scores: list[object], expected: str
) -> None:
    write_nano(tmp_path)
    shard = tmp_path / "qrels" / "NanoTask-00000-of-00001.parquet"
    write_parquet(shard, query__id=["1", "2"], corpus__id=["d1", "d2"], score=scores)

    assert f"{shard}{expected}" in message(tmp_path)


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    write_nano(tmp_path)
    shard = write_bytes(tmp_path / "corpus" / "NanoTask-00000-of-00001.parquet", b"PAR1 no PAR1")

    assert message(tmp_path).startswith(f"{shard}: not a readable Parquet file (")
