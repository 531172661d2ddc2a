"""A column that grows by chunks holds their strings, in memory and in a file."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.storage import release_memory
from r2med.tasks.reading import text_column
from r2med.tasks.reading.text_column import TextColumn
from tests.building import texts


@settings(deadline=None)
@given(st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=4)))
def test_the_column_has_the_strings_of_all_chunks(chunks: list[list[str]]) -> None:
    column = TextColumn()
    for chunk in chunks:
        column.append(texts("before", *chunk, "after").slice(1, len(chunk)))

    finished = column.finish()

    finished.validate(full=True)
    assert finished.to_pylist() == [text for chunk in chunks for text in chunk]


def test_large_texts_are_mapped_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_column, "LARGE_BYTES", 10)
    strings = [f"text {number}" for number in range(100)]
    column = TextColumn()
    before = pa.total_allocated_bytes()
    for string in strings:
        column.append(texts(string))

    finished = column.finish()
    release_memory()

    assert finished.to_pylist() == strings
    assert pa.total_allocated_bytes() == before


def test_texts_stay_in_memory_if_no_file_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(text_column, "LARGE_BYTES", 10)
    monkeypatch.setenv("R2MED_HOME", "/dev/null/no-folder")
    column = TextColumn()
    for string in ("one long text", "another text"):
        column.append(texts(string))

    assert column.finish().to_pylist() == ["one long text", "another text"]
