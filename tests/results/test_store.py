"""The results folder: whole results under addresses of their own, whatever happens to the files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import r2med
from r2med.errors import DamagedError, DataError
from r2med.results.overlap import stored_audits, write_audit
from r2med.results.record import RECORD_FILE, Result, result_key
from r2med.results.select import ResultSet
from r2med.results.store import Store, read_result
from r2med.runs.files import read_run
from r2med.storage import seal, unseal
from tests.results.storing import ranks, run_of, store

TASK = "demo/biology"


def stored(root: Path, system: str = "bm25") -> Result:
    return store(root, system, TASK, ranks(1, 2, 0))


def all_results(root: Path, warn: Callable[[str], None]) -> list[Result]:
    return list(ResultSet.open(root, warn).results)


def rewritten(result: Result, **changes: Any) -> None:
    """The record with some fields changed by a writer that knows about checksums."""
    path = result.folder / RECORD_FILE
    record = unseal(path.read_text(), path) | changes
    path.write_text(seal({key: value for key, value in record.items() if value != "gone"}))


def _nest(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


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
        Store(tmp_path).folder(TASK, "demo", s, k) for s, k in ((one, key_one), (other, key_other))
    ]

    assert places[0] != places[1]
    assert all(
        key[:32] in place.name for key, place in zip((key_one, key_other), places, strict=True)
    )
    assert all(len(place.name) < 128 for place in places)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"system": "gone"}, "field 'system' is missing"),
        ({"system": {"spec": "bm25"}}, "field 'system.identity' is missing"),
        ({"system": None}, "field 'system' is None, expected an object"),
        ({"task": [1]}, r"field 'task' is \[1\], expected an object"),
        ({"created": "gone"}, "field 'created' is missing"),
        ({"created": -1}, "field 'created' is -1, expected a text"),
        ({"metrics": "high"}, "field 'metrics' is 'high', expected an object"),
        ({"metrics": {"ndcg@10": "0.5"}}, "field 'metrics.ndcg@10' is '0.5', expected a number"),
        ({"metrics": {"ndcg@10": float("nan")}}, "field 'metrics.ndcg@10' is nan"),
        ({"metrics": {"ndcg@10": 10**400}}, "field 'metrics.ndcg@10' is 1000"),
        ({"facts": {"x": {"deep": _nest(900)}}}, "nested more than 250 levels deep"),
        ({"facts": {"bm25": 3}}, "field 'facts.bm25' is 3, expected an object"),
        ({"reranking": {"first": "bm25"}}, "field 'reranking.depth' is missing"),
        ({"costs": [{"part": 1}]}, r"field 'costs\[0\].part' is 1, expected a text"),
        ({"versions": {"python": "\ud800"}}, "not valid Unicode"),
        ({"schema": 7}, "schema 7, expected 1"),
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


def test_a_record_with_an_unknown_order_of_ties_is_damaged(tmp_path: Path) -> None:
    result = stored(tmp_path)
    rewritten(result, system=asdict(result.record.system) | {"ties": "random"})

    with pytest.raises(DamagedError, match=r"field 'system.ties' is 'random', expected one of"):
        read_result(result.folder)


@pytest.mark.parametrize("name", ["run", "scores"])
def test_a_damaged_table_is_found_when_it_is_read_and_not_before(name: str, tmp_path: Path) -> None:
    result = stored(tmp_path)
    (result.folder / f"{name}.parquet").write_bytes(b"damaged")

    [listed] = all_results(tmp_path, lambda message: pytest.fail(message))

    with pytest.raises(DamagedError, match=rf"{name}\.parquet: its checksum differs"):
        getattr(listed, name)


def test_six_processes_that_add_metrics_at_once_store_all_of_them(tmp_path: Path) -> None:
    r2med.evaluate("bm25", TASK, results=tmp_path)
    metrics = [f"recall@{cutoff}" for cutoff in (11, 12, 13, 14, 15, 16)]
    code = "import sys, r2med; r2med.evaluate('bm25', sys.argv[1], results=sys.argv[2], "
    code += "metrics=[sys.argv[3]])"

    processes = [
        subprocess.Popen([sys.executable, "-c", code, TASK, str(tmp_path), metric])
        for metric in metrics
    ]

    assert [process.wait() for process in processes] == [0] * 6
    [result] = all_results(tmp_path, lambda message: None)
    assert set(metrics) <= set(result.metrics)


def test_a_delete_after_a_killed_delete_works_and_removes_what_was_left(tmp_path: Path) -> None:
    store_ = Store(tmp_path)
    first, second = stored(tmp_path), stored(tmp_path, "bm25-nano")
    left = first.folder.with_name(f".{first.folder.name[:32]}.0123456789abcdef.draft")
    first.folder.rename(left)
    again = stored(tmp_path)

    store_.delete(again)

    assert [path.name for path in second.folder.parent.iterdir()] == [second.folder.name]


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [make_fifo, make_endless, make_huge])
def test_a_record_that_is_no_ordinary_file_is_named_and_not_read(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    odd, sound = stored(tmp_path), stored(tmp_path, "bm25-nano")
    (odd.folder / RECORD_FILE).unlink()
    make(odd.folder / RECORD_FILE)
    told: list[str] = []

    results = all_results(tmp_path, told.append)

    assert [result.folder for result in results] == [sound.folder]
    assert str(odd.folder) in told[0]


@pytest.mark.parametrize("make", [make_fifo, make_endless, make_huge])
def test_a_table_that_is_no_ordinary_file_is_damaged(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    result = stored(tmp_path)
    (result.folder / "run.parquet").unlink()
    make(result.folder / "run.parquet")
    [listed] = all_results(tmp_path, lambda message: None)

    with pytest.raises(DamagedError, match=r"run\.parquet"):
        _ = listed.run


def test_a_run_of_many_rows_in_a_small_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    rows = 60_000_000
    path = tmp_path / "run.parquet"
    piece = pa.table(
        {
            "query_id": pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000), ["q"]),
            "document_id": pa.DictionaryArray.from_arrays(pa.array([0] * 1_000_000), ["d"]),
            "score": pa.array([0.0] * 1_000_000),
        }
    )
    with pq.ParquetWriter(path, piece.schema) as writer:
        for _ in range(rows // len(piece)):
            writer.write_table(piece)

    with pytest.raises(DataError, match="decode to 60,000,000 rows"):
        read_run(path)


@pytest.mark.parametrize("text", ["", "null", "[]", '{"schema": 7}', "[" * 100_000, "\x00", '"x"'])
def test_a_file_that_is_no_record_is_damaged(text: str, tmp_path: Path) -> None:
    result = stored(tmp_path)
    (result.folder / RECORD_FILE).write_text(text)

    with pytest.raises(DamagedError, match=r"result\.json"):
        read_result(result.folder)


def test_a_result_of_another_schema_says_so(tmp_path: Path) -> None:
    result = stored(tmp_path)
    newer = replace(result.record, schema=2)
    (result.folder / RECORD_FILE).write_text(newer.to_json())

    with pytest.raises(DamagedError, match="schema 2, expected 1"):
        read_result(result.folder)


def test_a_table_that_changed_after_its_record_was_read_is_not_mixed_with_it(
    tmp_path: Path,
) -> None:
    before = read_result(stored(tmp_path).folder)
    after = Store(tmp_path).write(before.record, run_of(ranks(3, 3, 3)), before.scores)

    with pytest.raises(DamagedError, match="its checksum differs"):
        _ = before.run
    assert read_result(after.folder).run.to_table().equals(run_of(ranks(3, 3, 3)).to_table())


@pytest.mark.parametrize(
    "changes", [{"rows": "many"}, {"findings": 3}, {"created": -1}, {"verdict": None}]
)
def test_an_audit_with_a_wrong_type_is_named_and_left_out(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    values = {"task": TASK, "hash": "x", "training": "t", "verdict": "clean", "reason": "none"}
    values |= {"created": "2026-01-01"}
    write_audit(tmp_path, {**values, "rows": 3, "training": "sound"})
    write_audit(tmp_path, {**values, "rows": 3, **changes})
    told: list[str] = []

    audits = stored_audits(tmp_path, told.append)

    assert [audit.training for audit in audits] == ["sound"]
    assert len(told) == 1
    assert f"'{next(iter(changes))}'" in told[0]
