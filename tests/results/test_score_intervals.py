"""Scores with intervals equal those of the measures, task by task and as the task mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import r2med
from r2med.errors import UsageError
from r2med.measure.intervals import mean_interval, pooled_interval
from r2med.results.score_intervals import score_intervals
from tests.cli.running import run

TASKS = "demo/biology,demo/medqa-diag"


def test_every_score_has_the_interval_of_its_queries(tmp_path: Path) -> None:
    results = r2med.evaluate_all(["bm25", "bm25-lucene"], TASKS, results=tmp_path)

    table = score_intervals(results, "recall@100")

    by_pair = {(score.task, score.system): score for score in table.scores}
    assert len(by_pair) == 6
    for result in results:
        score = by_pair[result.task, result.system]
        assert score.mean == pytest.approx(result.metrics["recall@100"])
        assert score.interval == mean_interval(result.scores["recall@100"])
    columns = [result.scores["recall@100"] for result in results if result.system == "bm25"]
    mean = by_pair[None, "bm25"]
    assert mean.interval == pooled_interval(columns)
    assert mean.queries == sum(map(len, columns))


def test_a_system_without_all_tasks_has_no_mean(tmp_path: Path) -> None:
    results = r2med.evaluate_all(["bm25"], TASKS, results=tmp_path)
    results += r2med.evaluate_all(["bm25-lucene"], "demo/biology", results=tmp_path)

    table = score_intervals(results)

    assert [score.system for score in table.scores if score.task is None] == ["bm25"]


def test_other_data_than_the_published_one_is_named(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", "demo/biology", results=tmp_path)
    summary = replace(result.summary, differences=("documents 50 instead of 60",))

    table = score_intervals([replace(result, summary=summary)])

    assert "demo/biology (not the published data)" in str(table)
    assert "documents 50 instead of 60" in table.to_json()["data_notes"]["demo/biology"]


def test_suites_are_not_averaged_together(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "iron"}\n')
    (folder / "query.jsonl").write_text('{"id": "1", "text": "iron"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "1", "p_id": "a", "score": 1}\n')
    results = [r2med.evaluate("bm25", task) for task in (folder, "demo/biology")]

    with pytest.raises(UsageError, match="one suite at a time"):
        score_intervals(results)


def test_the_command_writes_a_latex_table_with_intervals(tmp_path: Path) -> None:
    settings = ("eval", "bm25", "--task", TASKS, "--results", str(tmp_path), "--intervals")

    latex, data = run(*settings, "--format", "latex"), run(*settings, "--json")

    assert latex.code == 0, latex.err
    rows = json.loads(data.out)["scores"]
    for row in rows:
        half = 50 * (row["high"] - row["low"])
        assert f"{100 * row['mean']:.2f} $\\pm$ {half:.1f}" in latex.out
    assert len(rows) == 3
