"""Scores under several wordings on a terminal."""

from __future__ import annotations

from r2med.errors import plural
from r2med.evaluation.sensitivity import Sensitivity, VariationScore
from r2med.number_format import format_difference, format_p, format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, difference_cell, score_cell

#: Queries that are named as changing most.
_QUERIES_SHOWN = 5


@draw_registered.register
def draw_sensitivity(value: Sensitivity, out: Paper) -> None:
    """Print the spread in a sentence, then one row per wording."""
    out.print(f"{value.system} on {value.task}: {value.metric} × 100 by wording", style="bold")
    lowest = min(score.score for score in value.scores)
    highest = max(score.score for score in value.scores)
    out.print(
        f"From {format_points(lowest, 1)} to {format_points(highest, 1)} over "
        f"{plural(len(value.scores), 'wording')} of {plural(value.queries, 'query')}; the score "
        f"of a query varies by {format_points(value.stability, 1)} points (mean standard "
        "deviation)."
    )
    if value.against is not None:
        out.print(_describe_sign(value))
    out.print(_table(value))
    if value.unstable_queries:
        examples = ", ".join(
            f"{query_id} (± {format_points(deviation, 0)})"
            for query_id, deviation in value.unstable_queries[:_QUERIES_SHOWN]
        )
        out.print(f"Queries that change most: {examples}.")
    if value.rejected:
        out.print(
            f"{plural(value.rejected, 'reworded query')} not used: another meaning, or no text.",
            style="dim",
        )


def _describe_sign(value: Sensitivity) -> str:
    differences = [score.difference or 0.0 for score in value.scores]
    bounds = f"{format_difference(min(differences), 1)} to {format_difference(max(differences), 1)}"
    if value.changes_sign:
        return f"Which system is better depends on the wording: {bounds} against {value.against}."
    return f"The wording does not change which system is better: {bounds} against {value.against}."


def _table(value: Sensitivity) -> Grid:
    original = value.original.score
    columns = [
        Column("wording", right=False, cell=lambda row: SystemName(row.name)),
        Column(value.metric, cell=lambda row: score_cell(row.score)),
        Column("change", cell=lambda row: _change(row, original)),
        Column("queries changed", cell=lambda row: f"{row.changed_queries:,}"),
    ]
    if value.against is not None:
        columns += [
            Column("difference", cell=lambda row: difference_cell(row.difference)),
            Column("p", cell=lambda row: None if row.p is None else format_p(row.p)),
        ]
    return Grid.of(columns, value.scores, gap=2)


def _change(row: VariationScore, original: float) -> Cell:
    return None if row.type == "original" else difference_cell(row.score - original)
