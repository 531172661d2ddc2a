"""Scores by body system on a terminal."""

from __future__ import annotations

from r2med.number_format import format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName
from r2med.results.body_systems import BodySystemScores
from r2med.results.published_data import describe_other_tasks


@draw_registered.register
def draw_body_systems(value: BodySystemScores, out: Paper) -> None:
    """Print one row per body system and one column per system, with intervals."""
    scores = {(score.body_system, score.system): score for score in value.scores}
    body_systems = dict.fromkeys(score.body_system for score in value.scores)
    rows: list[list[Cell]] = []
    for body_system in body_systems:
        row_scores = [scores.get((body_system, system)) for system in value.systems]
        queries = max(score.queries for score in row_scores if score)
        cells: list[Cell] = []
        for score in row_scores:
            half = 0.0 if score is None else (score.interval.high - score.interval.low) / 2
            cells.append(
                None
                if score is None
                else f"{format_points(score.mean, 1)} ± {format_points(half, 1)}"
            )
        rows.append([SystemName(body_system), str(queries), *cells])
    columns = [Column("body system", right=False), Column("queries")]
    columns += [Column(SystemName(system)) for system in value.systems]
    out.print(f"{value.metric} × 100 by body system", style="bold")
    caption = "Every query counts once, over all tasks. ±: half the 95 % interval."
    out.print(Grid(columns, rows, caption=caption))
    for note in describe_other_tasks(value.other_data):
        out.print(note, style="yellow")
