"""Exports: what other tools read, equal to what is stored."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import r2med
from r2med.results.export import export_csv, export_mteb, export_trec


@pytest.fixture
def result() -> r2med.Result:
    return r2med.evaluate("bm25", "demo/biology")


def test_trec_files_hold_the_run(result: r2med.Result, tmp_path: Path) -> None:
    [path] = export_trec([result], tmp_path)

    assert r2med.Run.from_trec(path).ranking("1") == result.run.ranking("1")


def test_csv_tables_hold_means_and_queries(result: r2med.Result, tmp_path: Path) -> None:
    means, queries = export_csv([result], tmp_path)

    with means.open() as handle:
        found = {row["metric"]: float(row["value"]) for row in csv.DictReader(handle)}
    assert found == pytest.approx(dict(result.metrics))
    with queries.open() as handle:
        assert len(list(csv.DictReader(handle))) == 13


def test_mteb_files_have_mtebs_shape(result: r2med.Result, tmp_path: Path) -> None:
    [path] = export_mteb([result], tmp_path)

    told = json.loads(path.read_text())
    scores = told["scores"]["test"][0]
    assert scores["main_score"] == scores["ndcg_at_10"] == result.metrics["ndcg@10"]
    assert {"task_name", "dataset_revision", "evaluation_time"} <= set(told)
