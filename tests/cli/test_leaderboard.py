"""`r2med leaderboard` as a reader sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_the_published_board_fits_and_gives_every_system_one_line(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    shown = run("leaderboard")

    assert shown.code == 0
    assert widest(shown.out) <= columns
    for system in ("search-r1:qwen-3b-ins | bm25", "nv | bge-reranker@100", "medcpt"):
        assert any(f" {system} " in line for line in shown.out.splitlines())


def test_a_hundred_columns_show_every_task_and_eighty_the_families(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    wide = run("leaderboard")
    monkeypatch.delenv("COLUMNS")
    narrow = run("leaderboard")

    assert "Biol  Binf  MedS  Exam  Diag  Trea   PMC  IIYi" in wide.out
    assert "41.65 +10.22 37.01" in wide.out
    assert "evidence" in narrow.out


def test_the_reader_is_told_which_mean_which_origin_and_what_gains() -> None:
    shown = run("leaderboard").out.replace("\n", " ")

    assert "task mean over 8 tasks (each task counts once)" in shown
    assert "reranking: 0 of 6 gain" in shown
    assert "expansion: 57 of 57 gain" in shown
    assert "R2MED@62b7074" in shown


def test_measured_rows_are_labelled_and_partial_ones_footnoted() -> None:
    run("eval", "bm25", "bm25-lucene", "--task", "demo")
    run("eval", "bm25[k1=1.2]", "--task", "demo/biology")

    shown = run("leaderboard", "--suite", "demo", "--ties")

    assert "bm25[k1=1.2] [1]" in shown.out
    assert "[1] 1 of 8 tasks measured: no mean, no rank." in shown.out
    assert "here" in shown.out and "tie bounds" in shown.out
    assert widest(shown.out) <= 80


def test_costs_are_shown_where_known() -> None:
    run("eval", "bm25", "--task", "demo/biology")

    shown = run("leaderboard", "--suite", "demo", "--cost")

    assert "ms/query" in shown.out


def test_json_is_all_there_is_on_standard_output() -> None:
    shown = run("leaderboard", "--json", "--kind", "base", "--top", "3")

    assert [row["system"] for row in json.loads(shown.out)["rows"]] == ["nv", "grit", "sfr"]


def test_an_empty_demo_board_says_what_to_try() -> None:
    shown = run("leaderboard", "--suite", "demo")

    assert shown.code == 0
    assert "r2med eval bm25 --task demo" in shown.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kind", "rerank"], "--kind 'rerank' is not known. Did you mean 'reranker'?"),
        (["--mean", "queries"], "--mean 'queries'"),
        (["--metric", "recall"], "needs a cutoff"),
        (["--suite", "ful"], "Did you mean 'full'?"),
        (["--json", "--format", "csv"], "choose one"),
        (["--format", "tex"], "--format 'tex' is not known"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], told: str) -> None:
    shown = run("leaderboard", *arguments)

    assert (shown.code, shown.out) == (2, "")
    assert told in shown.err


def test_a_damaged_result_is_named_and_left_out() -> None:
    run("eval", "bm25", "--task", "demo")
    damaged = next(Path("r2med-results/demo/demo-biology").glob("*/scores.parquet"))
    damaged.write_bytes(b"broken")

    shown = run("leaderboard", "--suite", "demo")

    assert shown.code == 0
    assert "scores.parquet" in shown.err.replace("\n", "")
    assert "7 of 8 tasks" in shown.out
