"""Scores by body system on a terminal."""

from __future__ import annotations

from r2med.errors import plural
from r2med.number_format import format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName
from r2med.results.body_systems import BodySystemScore, BodySystemScores
from r2med.results.published_data import describe_other_tasks

_DEMO = " · demo suite, not comparable with published figures"
_CAPTION = "Every query counts once, over all tasks. ±: half the 95 % interval."


@draw_registered.register
def draw_body_systems(value: BodySystemScores, out: Paper) -> None:
    """Print a row per body system and a column per system; for one body system, a ranking."""
    label = _DEMO if value.suite == "demo" else ""
    if len(value.body_systems) == 1:
        queries = max(score.queries for score in value.scores)
        title = f"{value.metric} × 100 on {plural(queries, 'query')}: {value.body_systems[0]}"
        out.print(f"{title}{label}", style="bold")
        out.print(_ranking(value))
    else:
        out.print(f"{value.metric} × 100 by body system{label}", style="bold")
        out.print(_body_systems_by_system(value))
    for note in describe_other_tasks(value.other_data):
        out.print(note, style="yellow")


def _ranking(value: BodySystemScores) -> Grid:
    columns = [
        Column("#", cell=lambda row: str(row[0])),
        Column("system", right=False, cell=lambda row: SystemName(row[1].system)),
        Column("queries", cell=lambda row: str(row[1].queries)),
        Column(value.metric, cell=lambda row: _format_score(row[1])),
    ]
    return Grid.of(columns, enumerate(value.scores, start=1), caption=_CAPTION)


def _body_systems_by_system(value: BodySystemScores) -> Grid:
    scores = {(score.body_system, score.system): score for score in value.scores}
    rows: list[list[Cell]] = []
    for body_system in value.body_systems:
        row_scores = [scores.get((body_system, system)) for system in value.systems]
        queries = max(score.queries for score in row_scores if score)
        cells = [None if score is None else _format_score(score) for score in row_scores]
        rows.append([SystemName(body_system), str(queries), *cells])
    columns = [Column("body system", right=False), Column("queries", repeat=True)]
    columns += [Column(SystemName(system)) for system in value.systems]
    return Grid(columns, rows, caption=_CAPTION)


def _format_score(score: BodySystemScore) -> str:
    half = (score.interval.high - score.interval.low) / 2
    return f"{format_points(score.mean, 1)} ± {format_points(half, 1)}"
