"""Tables of the API: one Arrow table, and the frames that other libraries make of it."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from r2med.measure import Scores, measure
from r2med.runs import Run
from r2med.tables import csv_text
from tests.building import judgements_of


def scores() -> Scores:
    run = Run.from_lists({"1": [("a", 1.0)], "2": []})
    return measure(run, judgements_of({"1": {"a": 1}, "2": {"b": 1}}), ["ndcg@10", "mrr"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_becomes_a_frame_of_the_library_one_has(library: str) -> None:
    pytest.importorskip(library)

    frame = getattr(scores(), f"to_{library}")()

    assert list(frame.columns) == ["query_id", "positives", "ndcg@10", "mrr"]
    assert frame["ndcg@10"].to_list() == [1.0, 0.0]


def test_csv_quotes_only_what_needs_it_and_leaves_missing_values_empty() -> None:
    table = pa.table({"system": ["a,b", "c"], "value": [0.1, None]})

    assert csv_text(table) == 'system,value\n"a,b",0.1\nc,\n'


def test_scores_are_taken_by_query() -> None:
    assert scores().at(pa.array(["2", "1"]))["mrr"].tolist() == [0.0, 1.0]


def test_nothing_of_the_package_imports_polars_or_pandas() -> None:
    code = (
        "import pkgutil, importlib, sys, r2med\n"
        "for room in ('measure', 'results', 'report', 'retrieve', 'runs', 'nano', 'cli'):\n"
        "    folder = importlib.import_module(f'r2med.{room}')\n"
        "    for found in pkgutil.walk_packages(folder.__path__, folder.__name__ + '.'):\n"
        "        if 'plots' not in found.name:\n"
        "            importlib.import_module(found.name)\n"
        "print([name for name in ('polars', 'pandas') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr


def test_a_library_that_is_missing_is_named_with_the_line_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from r2med.tables import Tabular\n"
        "type('Table', (Tabular,), {'to_arrow': lambda self: None})().to_pandas()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "to_pandas() needs pandas: pip install pandas" in done.stderr


def test_a_notebook_shows_the_first_rows_of_a_table_that_no_command_draws() -> None:
    assert "<td>1</td><td>1</td><td>1.0000</td>" in scores()._repr_html_()


def test_a_run_is_made_of_the_columns_of_a_table() -> None:
    table = pa.table({"query": ["1", "1"], "document": ["a", "b"]})

    run = Run.from_columns(table["query"], table["document"], [2.0, 1.0])

    assert run.ranking("1") == [("a", 2.0), ("b", 1.0)]


def test_tables_of_notebooks_take_their_colours_from_the_notebook() -> None:
    page = scores()._repr_html_()

    assert page.startswith('<div class="r2med"><style>') and page.endswith("</div>")
    assert "color: inherit" in page and "currentColor" in page
