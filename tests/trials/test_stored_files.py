"""A bit flipped in a stored file of a task or run is named or made good, and changes no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.paths import cache_folder
from r2med.tasks.fetch.provenance import install, origin_of, read_provenance
from r2med.tasks.load import load_task
from r2med.tasks.reading import arrow_copy
from r2med.tasks.reading.collection import read_task
from r2med.tasks.reading.source import find_source
from tests.tasks.writing import write_r2med
from tests.trials.flipping import flipped_files

FLIPS = 8


def test_no_bit_of_an_arrow_copy_changes_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: int
) -> None:
    monkeypatch.setattr(arrow_copy, "SETTLED_NS", -1)
    source = find_source(write_r2med(tmp_path))
    collection = read_task(source)
    arrow_copy.store_copy(source, collection, arrow_copy.fingerprint(source))
    assert arrow_copy.load_copy(source) is not None

    (copy,) = cache_folder("arrow").iterdir()
    loads = [arrow_copy.load_copy(source) for _ in flipped_files(copy, FLIPS * trials)]

    assert loads == [None] * (FLIPS * trials)
    assert load_task(tmp_path).corpus.hash == collection.corpus.hash


def test_no_bit_of_a_provenance_record_changes_what_it_says(tmp_path: Path, trials: int) -> None:
    staged, folder = tmp_path / "staged", tmp_path / "task"
    staged.mkdir()
    (staged / "corpus.jsonl").write_text("{}", encoding="utf-8")
    origin = origin_of(staged / "corpus.jsonl", "hub:R2MED/Biology", "0" * 40)
    install(staged, folder, {"corpus.jsonl": origin})
    assert read_provenance(folder) == {"corpus.jsonl": origin}

    flips = flipped_files(folder / "provenance.json", FLIPS * trials)

    assert all(read_provenance(folder) in ({}, {"corpus.jsonl": origin}) for _ in flips)
