"""The results folder: whole results under addresses of their own, whatever happens to the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r2med.atomic import seal, unseal
from r2med.errors import DamagedError
from r2med.results.lookup import all_results
from r2med.results.record import RECORD_FILE, Result, result_key
from r2med.results.store import Store, read_result
from tests.results.storing import ranks, run_of, store

TASK = "demo/biology"


def stored(root: Path, system: str = "bm25") -> Result:
    return store(root, system, TASK, ranks(1, 2, 0))


def rewritten(result: Result, **changes: Any) -> None:
    """The record with some fields changed by a writer that knows about checksums."""
    path = result.folder / RECORD_FILE
    record = unseal(path.read_text(), path) | changes
    path.write_text(seal({key: value for key, value in record.items() if value != "gone"}))


def test_a_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = stored(tmp_path)

    read = read_result(written.folder)

    assert read.record == written.record
    assert read.scores.to_arrow().equals(written.scores.to_arrow())
    assert read.run.to_table().equals(run_of(ranks(1, 2, 0)).to_table())
    assert (written.reused, read.reused) == (False, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('dense:"a b"', 'dense:"a-b"'),
        ("x" * 90 + "1", "x" * 90 + "2"),
        ("hyde:a | bm25", "hyde:a + bm25"),
        ("日本", "中国"),
    ],
)
def test_two_identities_never_share_a_folder(one: str, other: str, tmp_path: Path) -> None:
    key_one, key_other = (result_key("data", {"name": name}, "trec") for name in (one, other))
    places = [
        Store(tmp_path).place(TASK, "demo", s, k) for s, k in ((one, key_one), (other, key_other))
    ]

    assert places[0] != places[1]
    assert all(
        key[:32] in place.name for key, place in zip((key_one, key_other), places, strict=True)
    )
    assert all(len(place.name) < 128 for place in places)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"system": "gone"}, "not a readable result \\('system'\\)"),
        ({"system": {"spec": "bm25"}}, "missing .* 'identity'"),
        ({"system": None}, "not a readable result"),
        ({"task": [1]}, "missing .* 'name'"),
        ({"created": "gone"}, "missing .* 'created'"),
        ({"files": {}}, r"run\.parquet: its checksum differs"),
        ({"reranking": {"first": "bm25"}}, "missing .* 'depth'"),
        ({"schema": 1}, "a result of schema 1, expected 2"),
    ],
)
def test_a_record_that_lacks_something_is_named_and_stops_nothing(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    rewritten(stored(tmp_path), **changes)
    sound = stored(tmp_path, "bm25-nano")
    told: list[str] = []

    results = all_results(tmp_path, told.append)

    assert [result.folder for result in results] == [sound.folder]
    assert len(told) == 1
    with pytest.raises(DamagedError, match=problem):
        raise DamagedError(told[0])


@pytest.mark.parametrize("text", ["", "null", "[]", '{"schema": 7}', "[" * 100_000, "\x00", '"x"'])
def test_a_file_that_is_no_record_is_damaged(text: str, tmp_path: Path) -> None:
    result = stored(tmp_path)
    (result.folder / RECORD_FILE).write_text(text)

    with pytest.raises(DamagedError, match=r"result\.json"):
        read_result(result.folder)


def test_a_result_of_another_schema_says_so(tmp_path: Path) -> None:
    result = stored(tmp_path)
    newer = replace(result.record, schema=3)
    (result.folder / RECORD_FILE).write_text(newer.to_json())

    with pytest.raises(DamagedError, match="schema 3, expected 2"):
        read_result(result.folder)


def test_a_table_that_changed_after_its_record_was_read_is_not_mixed_with_it(
    tmp_path: Path,
) -> None:
    before = read_result(stored(tmp_path).folder)
    after = Store(tmp_path).write(before.record, run_of(ranks(3, 3, 3)), before.scores)

    with pytest.raises(DamagedError, match="its checksum differs"):
        _ = before.run
    assert read_result(after.folder).run.to_table().equals(run_of(ranks(3, 3, 3)).to_table())
