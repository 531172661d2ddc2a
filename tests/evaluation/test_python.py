"""What Python users see: short forms, pages of notebooks, options in help, samples, one frame."""

from __future__ import annotations

import html
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

import r2med
from tests.building import texts
from tests.cli.running import run

TASK = "demo/medqa-diag"
TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"


def test_values_are_short_in_a_shell() -> None:
    task = r2med.load_task(TASK)
    result = r2med.evaluate("bm25", task)
    r2med.evaluate("bm25-nano", task)
    values = [
        *(task, task.corpus, task.queries, task.judgements, result, result.run, result.scores),
        *(r2med.leaderboard("demo"), r2med.compare("bm25", "bm25-nano", task=TASK)),
        *(r2med.diagnose(result), r2med.list_results()),
    ]

    for value in values:
        assert len(repr(value)) < 120 and "\n" not in repr(value), value


def test_pages_of_notebooks_show_any_text_as_it_is() -> None:
    evil = "<script>alert(1)</script>"
    task = r2med.load_task(TASK)
    queries = replace(task.queries, texts=texts(*[evil] * len(task.queries)))
    mine = replace(task, name="mine", suite=None, entry=None, queries=queries)
    result = r2med.evaluate(f'"{evil}"=bm25', mine)
    other = r2med.evaluate("bm25-nano", mine)
    values: list[Any] = [
        *(mine, result, result.run, r2med.compare(result, other), r2med.list_results()),
        *(r2med.diagnose(result, mine), r2med.leaderboard("demo")),
    ]

    for value in values:
        page = value._repr_html_()
        assert "<table" in page or "<p>" in page
        assert "<script" not in page
    assert html.escape(evil) in result._repr_html_() + mine._repr_html_()


def test_help_shows_every_option() -> None:
    parameters = inspect.signature(r2med.evaluate).parameters

    assert {"results", "metrics", "options", "engine"} < set(parameters)
    assert all(name in str(r2med.evaluate.__doc__) for name in parameters)
    assert str(parameters["results"].default) == "r2med-results"


def test_the_stored_results_are_one_frame() -> None:
    r2med.evaluate("mine=bm25", TASK, metrics=["AP@100"])
    r2med.evaluate("bm25-nano", "demo/biology")

    frame = r2med.list_results("r2med-results").to_pandas()

    named = sorted(zip(frame["task"], frame["system"], frame["spec"], strict=True))
    assert named == [("demo/biology", "bm25-nano", "bm25-nano"), (TASK, "mine", "bm25")]
    assert frame["map@100"].notna().tolist().count(True) == 2
    assert r2med.list_results("nowhere").to_arrow().num_rows == 0


def test_a_sample_is_some_of_the_queries_and_never_counts_as_the_task() -> None:
    task = r2med.load_task(TASK)
    five, nine = task.sample(5), task.sample(9)

    sampled = r2med.evaluate("bm25", TASK, sample=5)
    whole = r2med.evaluate("bm25", TASK)

    assert set(five.queries.ids.to_pylist()) < set(nine.queries.ids.to_pylist())
    assert len(five.queries) == len(sampled.scores) == 5 and five.corpus is task.corpus
    assert task.sample(1000) is task
    assert sampled.task == f"demo/medqa-diag (5 of {len(task.queries)} queries)"
    assert sampled.record.key != whole.record.key
    assert [row.values for row in r2med.leaderboard("demo").rows] == [
        {TASK: whole.metrics["ndcg@10"]}
    ]
    shown = run("eval", "bm25", "--task", "demo/biology,demo/medqa-diag", "--sample", "5").out
    assert "sample for a quick try" in shown and "mean of" not in shown


def test_a_sweep_comes_from_a_file_and_the_command_line_goes_before_it(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        'systems = ["bm25", "k{k}-{b}=bm25[k1={k},b={b}]"]\n'
        'tasks = ["demo/biology"]\n'
        "[values]\nk = [1.2, 2]\nb = [0.4, 0.8]\n"
        '[options]\nmetrics = "mrr"\nbatch-size = 4\n'
    )

    done = run("eval", "bm25-nano", "--from", str(sweep), "--metrics", "AP@20")

    table = done.out.partition("all values")[0].splitlines()
    names = [line.split()[0] for line in table if line.startswith(("bm25", "k"))]
    assert names == ["bm25", "k1.2-0.4", "k1.2-0.8", "k2-0.4", "k2-0.8", "bm25-nano"]
    assert "MAP@20" in done.out and "MRR" not in done.out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("system = []", "'system' is not a known key. Did you mean 'systems'?"),
        ("systems = [1]", "expected a list of strings"),
        ("systems = ['bm25']\n[options]\nbatch-size = 'x'", "--batch-size"),
        ("systems = ['bm25']\n[options]\nbatchsize = 1", "Did you mean 'batch-size'"),
        ("[options]\nmetrics = false", "options.metrics is False, expected one value"),
        ("[options]\nmetrics = ['mrr', 'map']", "options.metrics is ['mrr', 'map'], expected one"),
        ("[options]\nforce = 'yes'", "options.force is 'yes', expected true or false"),
        ("systems = ['bm25[k1={k}]']\n[values]\nk = 1", "values.k is 1, expected a list"),
        ("systems = ['bm25[k1={j}]']\n[values]\nk = [1]", "'bm25[k1={j}]' uses {j}"),
        ("= x", "this is not TOML"),
    ],
)
def test_a_wrong_sweep_says_where(text: str, why: str, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(text)

    done = run("eval", "--from", str(sweep))

    assert done.code in (1, 2) and why in done.err and "sweep.toml" in done.err


def test_the_tour_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "stored outputs go stale"

    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()

    shown = "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "tuned" in shown and "text/html" in shown
