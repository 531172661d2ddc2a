"""The index of a results folder never shows anything else than the records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.paths import cache_folder
from r2med.results import index
from r2med.results.index import EditCheck, folder_times, read_results
from r2med.results.record import Result, Summary
from r2med.results.stage_record import AnswerCounts
from r2med.results.store import Store
from tests.results.storing import ranks, store

TASK = "demo/biology"


@pytest.fixture(autouse=True)
def small_and_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder has an index, and files count as settled at once."""
    monkeypatch.setattr(index, "_WORTH_INDEXING", 1)
    monkeypatch.setattr(index, "_SETTLED_NS", 0)


@pytest.fixture
def results(tmp_path: Path) -> list[Result]:
    return [store(tmp_path, spec, TASK, ranks(1, 2)) for spec in ("bm25", "bm25-nano")]


def summaries(root: Path) -> dict[str, Summary]:
    return {result.system: result.summary for result in read_results(root).results}


def index_files() -> Iterator[Path]:
    return (cache_folder("indexes") / "results").glob("*.arrow")


def test_a_summary_from_the_index_equals_that_of_the_record(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = summaries(tmp_path)
    assert list(index_files())
    monkeypatch.setattr(index, "read_record", lambda folder: pytest.fail("read again"))

    assert summaries(tmp_path) == first
    for result in results:
        expected = Summary.of(result.record)
        assert replace(first[result.system], size=None) == expected


def test_counts_of_answers_survive_the_index(results: list[Result], tmp_path: Path) -> None:
    record = results[0].record
    counts = AnswerCounts(36, unread=30, refused=2)
    stage = replace(record.system.stage, answers=counts)
    changed = replace(record, system=replace(record.system, stage=stage))
    Store(tmp_path).write(changed, results[0].run, results[0].scores)

    read_results(tmp_path)

    assert summaries(tmp_path)["bm25"].answers == counts


def test_a_record_that_is_written_again_is_read_again(
    results: list[Result], tmp_path: Path
) -> None:
    read_results(tmp_path)

    Store(tmp_path).update_names(results[0], label="mine")

    assert summaries(tmp_path)["bm25"].label == "mine"


def test_a_result_that_is_deleted_leaves_the_index(results: list[Result], tmp_path: Path) -> None:
    read_results(tmp_path)

    Store(tmp_path).delete(results[0])

    assert list(summaries(tmp_path)) == ["bm25-nano"]


def test_a_damaged_index_is_made_again(results: list[Result], tmp_path: Path) -> None:
    first = summaries(tmp_path)
    [path] = index_files()
    path.write_bytes(path.read_bytes()[:-20])

    assert summaries(tmp_path) == first
    assert summaries(tmp_path) == first


def test_every_change_of_results_changes_the_times_of_folders(
    results: list[Result], tmp_path: Path
) -> None:
    seen = [folder_times(tmp_path)]

    Store(tmp_path).update_names(results[0], label="mine")
    seen.append(folder_times(tmp_path))
    store(tmp_path, "bm25-lucene", TASK, ranks(1))
    seen.append(folder_times(tmp_path))
    Store(tmp_path).delete(results[1])
    seen.append(folder_times(tmp_path))

    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("per_check", [1, 2, 100])
def test_a_record_edited_in_place_is_found_within_one_round_of_checks(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_check: int
) -> None:
    monkeypatch.setattr(index, "_RECORDS_PER_CHECK", per_check)
    times, checks = folder_times(tmp_path), EditCheck(read_results(tmp_path).stamps)
    assert not any(checks.is_edited() for _ in range(5))

    for result in results:
        record = result.folder / "result.json"
        whole = record.read_text(encoding="utf-8")
        record.write_text(whole[:-20], encoding="utf-8")
        assert folder_times(tmp_path) == times
        assert any(checks.is_edited() for _ in results)
        record.write_text(whole, encoding="utf-8")
        checks = EditCheck(read_results(tmp_path).stamps)


def test_folders_that_changed_a_moment_ago_are_looked_at_again(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_SETTLED_NS", 2_000_000_000)

    assert folder_times(tmp_path) is None
    for folder in (tmp_path, *results[0].folder.parents[:2]):
        os.utime(folder, (1, 1))
    assert folder_times(tmp_path) is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_without_permission_is_named(results: list[Result], tmp_path: Path) -> None:
    results[0].folder.parent.chmod(0)
    try:
        content = read_results(tmp_path)
    finally:
        results[0].folder.parent.chmod(0o755)

    assert content.results == ()
    [problem] = content.damaged.values()
    assert "Permission denied" in problem
