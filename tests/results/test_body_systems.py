"""Scores by body system are means over the queries that name it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.errors import MissingError
from r2med.results.body_systems import score_body_systems
from tests.cli.running import run

TASK = "demo/pmc-treatment"


def test_each_body_system_has_the_mean_of_its_queries(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", TASK, results=tmp_path)
    task = r2med.load_task(TASK)
    names = dict(
        zip(task.queries.ids.to_pylist(), task.queries.body_systems.to_pylist(), strict=True)
    )
    values: dict[str, list[float]] = {}
    for query, value in result.scores.by_query("ndcg@10").items():
        values.setdefault(names[query] or "not named", []).append(value)

    scores = score_body_systems([result])

    assert {score.body_system: score.queries for score in scores.scores} == {
        name: len(column) for name, column in values.items()
    }
    for score in scores.scores:
        assert score.mean == pytest.approx(np.mean(values[score.body_system]))
        assert score.mean in score.interval
    assert sum(score.queries for score in scores.scores) == len(result.scores)


def test_the_command_shows_and_exports_the_table(tmp_path: Path) -> None:
    settings = ("bm25", "--task", TASK, "--by", "body-system", "--results", str(tmp_path))
    table, data = run("eval", *settings), run("eval", *settings, "--json")

    assert table.code == 0, table.err
    assert max(map(len, table.out.splitlines())) <= 80
    names = [score["body_system"] for score in json.loads(data.out)["scores"]]
    assert names and all(name in table.out for name in names)


def test_tasks_without_body_systems_say_so(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "iron"}\n')
    (folder / "query.jsonl").write_text('{"id": "1", "text": "iron"}\n')
    (folder / "qrels.jsonl").write_text('{"q_id": "1", "p_id": "a", "score": 1}\n')
    result = r2med.evaluate("bm25", folder, results=tmp_path / "results")

    with pytest.raises(MissingError, match="no query names a body system"):
        score_body_systems([result])


def test_other_data_than_the_published_one_is_named(tmp_path: Path) -> None:
    result = r2med.evaluate("bm25", TASK, results=tmp_path)
    summary = replace(result.summary, differences=("documents 50 instead of 60",))
    changed = replace(result, summary=summary)

    scores = score_body_systems([changed])

    assert f"{TASK} (not the published data): The data differs" in str(scores)
    assert "documents 50 instead of 60" in scores.to_json()["data_notes"][TASK]


def test_the_leaderboard_ranks_the_queries_about_one_body_system(tmp_path: Path) -> None:
    r2med.evaluate_all(["bm25", "bm25-lucene"], TASK, results=tmp_path)
    scores = score_body_systems(r2med.list_results(tmp_path).results)
    name = scores.body_systems[0]
    expected = {s.system: s.mean for s in scores.scores if s.body_system == name}
    settings = ("leaderboard", "--task", TASK, "--results", str(tmp_path))

    table = run(*settings, "--body-system", name.lower())
    data = run(*settings, "--body-system", name, "--json")
    wrong = run(*settings, "--body-system", "Elbow")

    rows = json.loads(data.out)["scores"]
    assert {row["system"]: row["mean"] for row in rows} == pytest.approx(expected)
    assert [row["mean"] for row in rows] == sorted(expected.values(), reverse=True)
    words = " ".join(table.out.split())
    assert f": {name} · demo suite, not comparable with published figures" in words
    assert wrong.code == 2 and "no query of these tasks names the body system" in wrong.err


def test_a_leaderboard_without_own_results_says_what_to_run(tmp_path: Path) -> None:
    done = run("leaderboard", "--body-system", "Nervous", "--results", str(tmp_path))

    assert done.code == 1 and "r2med eval bm25 bm25-lucene --task full" in done.err


@pytest.mark.extra("plots")
def test_the_strip_has_the_mean_n_and_interval_of_every_body_system(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    result = r2med.evaluate("bm25", TASK, results=tmp_path / "results")
    path = tmp_path / "strip.svg"
    settings = ("--task", TASK, "--results", str(tmp_path / "results"), "--out", str(path))

    done = run("plot", "body-systems", *settings)

    assert done.code == 0, done.err
    texts = re.findall(r">([^<>]+)</(?:text|tspan)>", path.read_text())
    for score in score_body_systems([result]).scores:
        assert f"{score.body_system}, n = {score.queries}" in texts
        assert f"{100 * score.mean:.1f}" in texts
        assert f"± {50 * (score.interval.high - score.interval.low):.0f}" in texts
