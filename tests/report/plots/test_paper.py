"""Figures for papers have no title and the width of a column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from r2med import evaluate_all
from tests.cli.running import run

pytestmark = pytest.mark.extra("plots")


@pytest.mark.parametrize(("figure", "width"), [("means", 240), ("heatmap", 504)])
def test_a_figure_for_a_paper_has_a_column_or_page_width_and_no_title(
    tmp_path: Path, figure: str, width: int
) -> None:
    evaluate_all(["bm25", "bm25-lucene"], "demo")
    path = tmp_path / f"{figure}.svg"

    printed = run("plot", figure, "--suite", "demo", "--paper", "--out", str(path))

    svg = path.read_text()
    size = re.search(r'width="([0-9.]+)" height="[0-9.]+" viewBox', svg)
    assert size is not None
    assert float(size[1]) <= width
    assert "Caption: Demo suite" in printed.out
    assert "each task counts once" not in svg
