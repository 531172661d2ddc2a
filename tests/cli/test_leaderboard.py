"""`r2med leaderboard` as a reader sees it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_the_board_fits_and_a_long_name_costs_only_its_own_row(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    shown = run("leaderboard")

    assert shown.code == 0
    assert widest(shown.out) <= columns
    lines = shown.out.splitlines()
    for system in ("hyde:r1-llama-70b | nv", "diver | grouprank-32b@100", "medcpt"):
        assert any(f" {system} " in line for line in lines)
    assert sum(line.split()[:1] == ["openai"] for line in lines) <= 12


def test_a_hundred_columns_show_every_task_and_eighty_the_families(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    wide = run("leaderboard")
    monkeypatch.delenv("COLUMNS")
    narrow = run("leaderboard")

    assert "mean rest span     Δ Biol Binf MedS Exam Diag Trea  PMC IIYi" in wide.out
    assert "41.65           +10.2 37.0" in wide.out
    assert "32.23 33.7 10.7       39.3 51.7" in wide.out
    assert "evidence" in narrow.out


def test_the_reader_is_told_which_mean_which_origin_and_what_gains() -> None:
    shown = " ".join(run("leaderboard", "--legend").out.split())

    assert "task mean over 8 tasks (each task counts once)" in shown
    assert "expansion: 73 of 73 rows gain, median +9.38" in shown
    assert "classical rerankers: 0 of 11 rows gain, median -8.65" in shown
    assert "reasoning rerankers: 15 of 17 rows gain, median +8.46" in shown
    assert "R2MED@62b7074" in shown and "arXiv 2511.11653" in shown
    assert "Averages only, so not ranked: CuRLRank-4B 48.85" in shown


def test_one_system_is_shown_with_what_differs_in_the_protocols_of_its_figures() -> None:
    shown = " ".join(run("leaderboard", "--only", "E5-mistral-7B").out.split())

    assert "1 of 154 rows, ranks among all" in shown
    assert "e5: 3 figures" in shown and "24.92" in shown and "23.84" in shown and "24.86" in shown
    assert "Unknown for ReasonRank: everything but checkpoint." in shown
    assert "document max length 2048 unknown the model's own" in shown


def test_what_is_unknown_of_a_protocol_is_said_where_no_known_setting_differs() -> None:
    shown = " ".join(run("leaderboard", "--only", "diver").out.split())

    assert "The known settings are equal" in shown or "All settings are equal" in shown
    assert "Unknown for GroupRank: everything but checkpoint." in shown


def test_measured_rows_are_labelled_and_partial_ones_footnoted() -> None:
    run("eval", "bm25", "bm25-lucene", "--task", "demo")
    run("eval", "bm25[k1=1.2]", "--task", "demo/biology")

    shown = run("leaderboard", "--suite", "demo", "--ties")

    assert "bm25[k1=1.2] [1]" in shown.out
    mark = "[1] 1 of 8 tasks measured: no mean, no rank; on these tasks"
    assert mark in " ".join(shown.out.split())
    assert "here" in shown.out and "tie bounds" in shown.out
    assert widest(shown.out) <= 80


def test_costs_are_shown_where_known() -> None:
    run("eval", "bm25", "--task", "demo/biology")

    shown = run("leaderboard", "--suite", "demo", "--cost")

    assert "ms/query" in shown.out


def test_json_is_all_there_is_on_standard_output() -> None:
    shown = run("leaderboard", "--json", "--kind", "base", "--top", "3")

    rows = json.loads(shown.out)["rows"]
    assert [(row["system"], row["origin"]) for row in rows] == [
        ("reasonembed-8b", "later"),
        ("reasonembed-llama", "later"),
        ("reasonembed-basic-8b", "later"),
    ]


def test_systems_are_chosen_with_commas() -> None:
    rows = json.loads(run("leaderboard", "--json", "--only", "bm25,e5").out)["rows"]

    assert sorted(row["system"] for row in rows) == ["bm25", "e5"]


def test_the_legend_of_the_first_rows_explains_only_what_they_use() -> None:
    whole, first = (run("leaderboard", "--legend", *rows).out for rows in ((), ("--top", "3")))

    assert "Averages only" in whole and "Averages only" not in first
    assert "NanoR2MED" not in first
    assert first.count(" is ") < whole.count(" is ")
    assert "`--only SYSTEM`" not in run("leaderboard", "--legend", "--only", "e5").out


def test_the_legend_has_two_lines_unless_it_is_asked_for() -> None:
    short, full = (
        run("leaderboard", "--top", "3").out,
        run("leaderboard", "--top", "3", "--legend").out,
    )
    legend = short[short.index("Δ: gain") : short.index("--legend.")]

    assert legend.count("\n") < 2
    assert "Printed means have no interval and no test." in " ".join(full.split())


def test_an_empty_demo_board_says_what_to_try() -> None:
    shown = run("leaderboard", "--suite", "demo")

    assert shown.code == 0
    assert "r2med eval bm25 --task demo" in shown.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kind", "rerank"], "'rerank' is not one of 'base', 'gar', 'reranker'"),
        (["--mean", "queries"], "--mean 'queries'"),
        (["--metric", "recall"], "needs a cutoff"),
        (["--suite", "ful"], "'ful' is not one of 'full'"),
        (["--method", "hide"], "--method 'hide' is not known. Did you mean 'hyde'?"),
        (["--llm", "gpt5"], "Did you mean 'gpt4'?"),
        (["--first-stage", "nv2"], "Did you mean 'nv'?"),
        (
            ["--kind", "base", "--method", "hyde"],
            "none of the 154 rows meets all filters (--kind base, --method hyde).",
        ),
        (["--suite", "nano", "--llm", "gpt4"], "No row has any"),
        (["--only", "e55"], "--only e55: no row of that name. Did you mean 'e5'?"),
        (["--only", "grouprank"], "no row of that name. Known: diver | grouprank-32b@100, "),
        (["--suite", "nano", "--task", "Biology"], "one suite at a time"),
        (["--task", ""], "No task was named"),
        (["--json", "--format", "csv"], "choose one"),
        (["--format", "tex"], "'tex' is not one of 'table', 'markdown', 'latex'"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], told: str) -> None:
    shown = run("leaderboard", *arguments)

    assert (shown.code, shown.out) == (2, "")
    assert told in shown.err


def test_a_result_with_damaged_scores_is_named_and_has_no_interval() -> None:
    run("eval", "bm25", "--task", "demo")
    damaged = next(Path("r2med-results/demo/demo-biology").glob("*/scores.parquet"))
    damaged.write_bytes(b"broken")

    shown = run("leaderboard", "--suite", "demo")

    assert shown.code == 0
    text = shown.out.replace("\n", "")
    assert "scores.parquet: its checksum differs" in text
    assert "No interval and no test" in text
    [row] = json.loads(run("leaderboard", "--suite", "demo", "--json").out)["rows"]
    assert row["rank"] == 1 and row["mean"] and row["interval"] is None
    run("eval", "bm25-lucene", "--task", "demo")
    refused = run("compare", "bm25", "bm25-lucene", "--task", "demo")
    assert refused.code != 0
    assert "scores.parquet: its checksum differs" in refused.err.replace("\n", " ")


def test_costs_of_published_rows_alone_say_where_your_own_are() -> None:
    nothing = run("leaderboard", "--cost", "--top", "3")
    run("eval", "bm25", "--task", "demo/biology")
    elsewhere = run("leaderboard", "--cost", "--top", "3")

    assert "--suite" not in nothing.err
    assert "results with --suite demo." in elsewhere.err
    assert "stored here" not in run("leaderboard", "--suite", "demo", "--cost").err


def test_the_command_that_measures_a_missing_metric_works_in_a_shell() -> None:
    words = ("--suite", "demo", "--metric", "ndcg(judged_only=True)@10")
    command = run("leaderboard", *words).out.splitlines()[-1].partition("r2med ")[2]

    assert run(*shlex.split(command)).code == 0
    assert " bm25 " in run("leaderboard", *words).out
