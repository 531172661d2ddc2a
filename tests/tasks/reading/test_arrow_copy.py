"""The Arrow copy: never wrong, never in the way, gone when it is outdated."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from r2med.paths import cache_folder
from r2med.storage import release_memory
from r2med.tasks.load import load_task
from r2med.tasks.reading import arrow_copy
from r2med.tasks.reading.arrow_copy import load_copy
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.source import find_source
from r2med.tasks.task import Task, column_hash
from tests.tasks.writing import LAYOUTS, Written, write_lines, write_r2med


@pytest.fixture(autouse=True)
def every_task_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files of this very moment are copied too."""
    monkeypatch.setattr(arrow_copy, "SMALLEST_BYTES", 0)
    monkeypatch.setattr(arrow_copy, "SETTLED_NS", -1)


def finish_copies() -> None:
    for thread in threading.enumerate():
        if thread.name == arrow_copy.THREAD:
            thread.join()


def load(folder: Path) -> Task:
    task = load_task(folder)
    finish_copies()
    return task


def copies() -> list[Path]:
    return sorted(cache_folder("arrow").glob("*"))


def columns(task: Task) -> list[list[object]]:
    queries, judged = task.queries, task.judgements
    texts = [task.corpus.ids, task.corpus.texts, queries.ids, queries.texts, queries.answers]
    texts += [queries.body_systems, queries.reasonings, judged.query_ids, judged.document_ids]
    return [*(column.to_pylist() for column in texts), judged.scores.tolist()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_holds_what_was_read(tmp_path: Path, layout: str) -> None:
    strays = (("1", "d1", 1), ("1", "gone", 1), ("9", "d1", 1), ("2", "d2", 1))
    folder = LAYOUTS[layout](tmp_path / "task", Written(judgements=strays))
    parsed = load(folder)

    copied = load_copy(find_source(folder))
    again = load(folder)

    assert copied is not None
    assert columns(again) == columns(parsed)
    assert again.notices == parsed.notices
    assert again.hash == parsed.hash


def test_a_copy_carries_the_hash_of_its_corpus(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    load(tmp_path)

    corpus = load(tmp_path).corpus

    assert corpus.stored_hash is not None
    assert corpus.hash == corpus.stored_hash.value == column_hash([corpus.ids, corpus.texts])


def test_a_corpus_changed_after_loading_has_another_hash(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    load(tmp_path)
    task = load(tmp_path)
    texts = pa.array([f"{text}!" for text in task.corpus.texts.to_pylist()], pa.large_string())

    changed = replace(task, corpus=replace(task.corpus, texts=texts))

    assert task.corpus.stored_hash is not None
    assert changed.corpus.hash == column_hash([task.corpus.ids, texts])
    assert changed.hash != task.hash


def test_a_large_task_is_mapped_by_the_process_that_parsed_it_and_its_memory_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_copy, "LARGE_BYTES", 0)
    write_r2med(tmp_path)

    mapped = load_task(tmp_path)
    release_memory()

    assert mapped.corpus.stored_hash is not None, "the texts are not those of the copy"
    assert columns(mapped) == columns(load_task(tmp_path, use_copy=False))


def test_a_changed_file_is_read_again_and_its_old_copy_dropped(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    load(tmp_path)
    before = copies()
    changed = tmp_path / "corpus.jsonl"
    times = changed.stat()
    changed.write_bytes(changed.read_bytes().replace(b"one", b"ONE"))
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))

    task = load(tmp_path)

    assert task.corpus.texts.to_pylist() == ["ONE", "two", "three"]
    assert len(copies()) == len(before) == 1
    assert copies() != before


def test_a_file_that_changed_a_moment_ago_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_copy, "SETTLED_NS", 3600 * 10**9)
    write_r2med(tmp_path)

    load(tmp_path)

    assert copies() == []


def test_a_file_that_changes_while_it_is_read_is_not_copied(tmp_path: Path) -> None:
    source = find_source(write_r2med(tmp_path))
    state = arrow_copy.fingerprint(source)
    collection = read_task(source)
    write_lines(tmp_path / "query.jsonl", [{"id": "1", "text": "changed"}])

    arrow_copy.store_copy(source, collection, state)

    assert copies() == []


@pytest.mark.parametrize("damage", ["cut", "emptied", "overwritten"])
def test_a_damaged_copy_is_replaced(tmp_path: Path, damage: str) -> None:
    write_r2med(tmp_path)
    parsed = load(tmp_path)
    file = copies()[0]
    content = file.read_bytes()
    file.write_bytes(
        {"cut": content[:-20], "emptied": b"", "overwritten": b"x" * len(content)}[damage]
    )

    again = load(tmp_path)

    assert columns(again) == columns(parsed)
    assert load_copy(find_source(tmp_path)) is not None


def test_loading_works_where_no_copy_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "home"
    blocked.write_text("a file where the folder should be", encoding="utf-8")
    monkeypatch.setenv("R2MED_HOME", str(blocked))
    write_r2med(tmp_path / "task")

    assert len(load(tmp_path / "task").corpus) == 3
    assert len(load(tmp_path / "task").corpus) == 3


def test_a_load_without_copy_neither_writes_nor_reads_one(tmp_path: Path) -> None:
    write_r2med(tmp_path)

    load_task(tmp_path, use_copy=False)
    finish_copies()

    assert copies() == []


def test_a_small_task_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    write_r2med(tmp_path / "task")

    load(tmp_path / "task")

    assert copies() == []
