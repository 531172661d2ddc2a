"""Exports: what other tools read, equal to what is stored."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import r2med
from r2med.results.export import export_csv, export_mteb, export_trec
from r2med.tasks.load import load_task
from tests.results.storing import store


@pytest.fixture
def result() -> r2med.Result:
    return r2med.evaluate("bm25", "demo/biology")


def test_trec_files_hold_the_run(result: r2med.Result, tmp_path: Path) -> None:
    [path] = export_trec([result], tmp_path)

    assert r2med.Run.from_trec(path).ranking("1") == result.run.ranking("1")


def test_csv_tables_hold_means_and_queries(result: r2med.Result, tmp_path: Path) -> None:
    task = load_task("demo/biology")

    means, queries = export_csv([result], tmp_path)

    with means.open() as handle:
        found = {row["metric"]: float(row["value"]) for row in csv.DictReader(handle)}
    assert found == pytest.approx(dict(result.metrics))
    with queries.open() as handle:
        rows = list(csv.DictReader(handle))
    assert sorted(row["query_id"] for row in rows) == sorted(task.queries.ids.to_pylist())


def test_an_mteb_cache_has_one_revision_per_system_and_says_whose_it_is(tmp_path: Path) -> None:
    results = r2med.evaluate_all(["bm25", "bm25[k1=1.2]"], ["demo/biology", "demo/medqa-diag"])

    paths = export_mteb(results, tmp_path)

    folders = {path.parent for path in paths}
    assert len(paths) == 4 and len(folders) == 2
    for folder in folders:
        model = json.loads((folder / "model_meta.json").read_text())
        assert folder.name == model["revision"]
        assert folder.parent.name == model["name"].replace("/", "__")
        assert folder.parent.parent == tmp_path / "results"
        assert {path.stem for path in folder.glob("demo-*.json")} == {
            "demo-biology",
            "demo-medqa-diag",
        }
    names = {folder.parent.name for folder in folders}
    assert "r2med__bm25" in names and len(names) == 2


def test_an_mteb_file_has_the_scores_under_mtebs_names(
    result: r2med.Result, tmp_path: Path
) -> None:
    [path] = export_mteb([result], tmp_path)

    content = json.loads(path.read_text())
    [scores] = content["scores"]["test"]
    assert scores["main_score"] == scores["ndcg_at_10"] == result.metrics["ndcg@10"]
    assert scores["hit_rate_at_10"] == result.metrics["hit@10"]
    assert {"hf_subset", "languages"} <= set(scores)
    assert {"task_name", "dataset_revision", "evaluation_time", "mteb_version"} <= set(content)


def test_a_revision_stays_when_more_tasks_are_exported(
    result: r2med.Result, tmp_path: Path
) -> None:
    more = r2med.evaluate_all("bm25", "demo")

    [alone], *_ = (export_mteb([result], tmp_path / "one"),)
    together = export_mteb(more, tmp_path / "all")

    assert {path.parent.name for path in together} == {alone.parent.name}


def test_own_data_is_never_exported_as_the_task_whose_name_it_has(tmp_path: Path) -> None:
    own = store(tmp_path, "bm25", "biology", {"1": 1}, suite=None)

    [path] = export_mteb([own], tmp_path / "out")

    assert path.stem == "biology"
    assert json.loads(path.read_text())["dataset_revision"] == own.data
