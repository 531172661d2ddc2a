"""What a text names among stored results and files, and what is said when it is not unique."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from r2med.errors import MissingError
from r2med.results.lookup import distinct_results, find_named, is_file, newest_by_system
from r2med.results.record import Result
from r2med.results.store import Store
from tests.results.storing import ranks, store

TASK = "demo/biology"


def variant(root: Path, result: Result, created: str, **settings: object) -> Result:
    """The same name with other settings behind it."""
    system = replace(result.record.system, identity={"name": "bm25", "settings": settings})
    record = replace(result.record, system=system, created=created)
    return Store(root).write(record, result.run, result.scores)


@pytest.mark.parametrize("text", ["BM25", "bm25", " Bm25 ", "(bm25)"])
def test_a_system_is_found_however_it_is_written(text: str, tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", TASK, ranks(1))

    assert find_named(text, [result], tmp_path).results == (result,)


def test_a_folder_of_a_result_and_a_run_file_are_found_by_their_path(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", TASK, ranks(1))
    file = tmp_path / "mine.trec"
    file.write_text("")

    assert find_named(str(result.folder), [], tmp_path).results[0].record == result.record
    assert find_named(str(file), [], tmp_path).file == file


def test_a_system_without_results_names_the_nearest_and_the_command(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25-nano", TASK, ranks(1))

    with pytest.raises(MissingError, match=r"'bm25-nano'.*\n.*r2med eval bm25 --task TASK"):
        find_named("bm25", [result], tmp_path)


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "\x00"])
def test_a_name_that_no_file_system_could_hold_is_no_file(name: str) -> None:
    assert not is_file(name)


def test_the_newest_of_systems_that_share_a_name_is_not_taken_silently(tmp_path: Path) -> None:
    first = store(tmp_path, "bm25", TASK, ranks(1, 0))
    older = variant(tmp_path, first, "2026-01-02", k1=0.9, prompts="a")
    newer = variant(tmp_path, first, "2026-01-03", k1=1.2, prompts="a")
    told: list[str] = []

    assert newest_by_system([newer, older], told.append) == {"bm25": newer}
    assert "2 stored systems share this name" in told[0]
    assert "They differ in settings.k1 (1.2 and 0.9)." in told[0]
    assert str(newer.folder) in told[0]


def test_one_system_stored_twice_needs_no_word(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", TASK, ranks(1))
    told: list[str] = []

    assert newest_by_system([result, result], told.append) == {"bm25": result}
    assert told == []


def test_results_of_one_text_stand_apart_by_label_or_by_what_differs(tmp_path: Path) -> None:
    first = store(tmp_path, "bm25", TASK, ranks(1, 0))
    older = variant(tmp_path, first, "2026-01-02", k1=0.9, prompts="a")
    newer = variant(tmp_path, first, "2026-01-03", k1=1.2, prompts="a")
    system = replace(older.record.system, label="before")
    labelled = replace(older, record=replace(older.record, system=system))

    assert [each.name for each in distinct_results([newer, older])] == [
        "bm25",
        "bm25 (settings.k1 0.9)",
    ]
    assert [each.name for each in distinct_results([newer, labelled])] == ["bm25", "before"]
    assert distinct_results([newer, newer]) == [newer]
