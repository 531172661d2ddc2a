"""Scores with the judgements that twins inherit, on a terminal."""

from __future__ import annotations

from r2med.audit.twins import TwinScores
from r2med.report.drawing import draw_registered
from r2med.report.table import Column, Grid, Paper, SystemName, difference_cell, score_cell


@draw_registered.register
def draw_twins(value: TwinScores, out: Paper) -> None:
    """Print one row per result: its score, and the score with inherited judgements."""
    columns = [
        Column("system", right=False),
        Column("task", right=False),
        Column("twins"),
        Column(value.metric),
        Column("with twins"),
        Column("change"),
    ]
    rows = [
        [
            SystemName(score.system),
            score.task,
            str(score.twins),
            score_cell(score.score),
            score_cell(score.with_twins),
            difference_cell(score.with_twins - score.score),
        ]
        for score in value.scores
    ]
    out.print(f"{value.metric} × 100 if twins inherit judgements", style="bold")
    caption = "Twins: unjudged documents with the text of a positive, or nearly (docs/audit.md)."
    out.print(Grid(columns, rows, caption=caption))
