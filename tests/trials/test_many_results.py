"""A results folder with tens of thousands of results: the index says what the records say."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from bench.store import PROGRAM, commands, make_results, measure_pages, run

from r2med.results import index
from r2med.results.index import FolderContent, read_results
from r2med.storage import seal
from tests.trials.counting import counted

#: 50,000 with `--trials 25`.
RESULTS = 2_000
CHANGES = 30
MEGABYTES = 500


def list_summaries(content: FolderContent) -> dict[str, tuple[str, str | None, float]]:
    return {
        result.folder.name: (result.system, result.label, result.metrics["ndcg@10"])
        for result in content.results
    }


def read_without_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> FolderContent:
    with monkeypatch.context() as patch:
        patch.setattr(index, "_WORTH_INDEXING", 10**9)
        return read_results(root)


def change_record(path: Path, label: str) -> None:
    record = json.loads(path.read_text())
    del record["checksum"]
    record["system"]["label"] = label
    path.write_text(seal(record))


def test_the_index_of_many_results_says_what_their_records_say(
    tmp_path: Path, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_SETTLED_NS", 0)
    root, chance = tmp_path / "results", random.Random(12)
    make_results(root, RESULTS * trials)
    records = sorted(root.rglob("result.json"))
    assert len(read_results(root).results) == len(records) == RESULTS * trials

    chosen = chance.sample(records, 3 * CHANGES)
    for number, path in enumerate(chosen[:CHANGES]):
        change_record(path, f"label {number}")
    for path in chosen[CHANGES : 2 * CHANGES]:
        shutil.rmtree(path.parent)
    for path in chosen[2 * CHANGES :]:
        path.write_text(path.read_text()[:-40])

    through_index = read_results(root)
    assert len(through_index.results) == RESULTS * trials - 2 * CHANGES
    assert set(through_index.damaged) == {path.parent for path in chosen[2 * CHANGES :]}
    truth = read_without_index(root, monkeypatch)
    assert list_summaries(through_index) == list_summaries(truth)
    for command in commands(root).values():
        _, _, megabytes = run(command)
        assert megabytes < MEGABYTES, [*PROGRAM, *command]
    *_, megabytes = measure_pages(root)
    assert megabytes < MEGABYTES
    counted("results in one folder", RESULTS * trials)
