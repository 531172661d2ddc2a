"""Scores over aspects on a terminal."""

from __future__ import annotations

from r2med.measure.aspects import AspectScores
from r2med.number_format import format_points
from r2med.report.table import Column, Grid, score_cell


def aspect_grids(value: AspectScores) -> tuple[Grid, Grid]:
    """Return the measures with their intervals, and the coverage of each aspect."""
    measures = [
        Column("over aspects", right=False, cell=lambda name: name),
        Column("mean", cell=lambda name: score_cell(value.means[name])),
        Column("95 % interval", cell=lambda name: _interval(value, name)),
    ]
    coverage = [
        Column("aspect", right=False, cell=lambda row: row.aspect),
        Column("queries", cell=lambda row: f"{row.queries:,}"),
        Column("covered", cell=lambda row: f"{row.covered:,}"),
        Column("missed", cell=lambda row: f"{row.missed:,}"),
    ]
    caption = f"Covered: a document on it is among the first {value.cutoff}."
    return (
        Grid.of(measures, value.means, caption="Scores × 100."),
        Grid.of(coverage, value.coverage, caption=caption),
    )


def _interval(value: AspectScores, measure: str) -> str:
    interval = value.interval(measure)
    return f"{format_points(interval.low)} to {format_points(interval.high)}"
