"""Scores with their intervals on a terminal: one row per task, one column per system."""

from __future__ import annotations

from r2med.number_format import format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, task_label
from r2med.results.published_data import describe_other_tasks
from r2med.results.score_intervals import ScoreIntervals, ScoreWithInterval

_DEMO = " · demo suite, not comparable with published figures"
_CAPTION = (
    "±: half the 95 % interval over queries; the interval of the mean draws queries within each "
    "task, and every task counts once."
)


@draw_registered.register
def draw_score_intervals(value: ScoreIntervals, out: Paper) -> None:
    """Print the scores of all tasks, then the means."""
    scores = {(score.task, score.system): score for score in value.scores}
    rows: list[list[Cell]] = []
    for task in dict.fromkeys(score.task for score in value.scores):
        row_scores = [scores.get((task, system)) for system in value.systems]
        queries = max(score.queries for score in row_scores if score)
        name = f"mean of {len(value.tasks)} tasks" if task is None else task_label(task)
        cells = [None if score is None else _format_score(score) for score in row_scores]
        rows.append([SystemName(name), f"{queries:,}", *cells])
    columns = [Column("task", right=False), Column("queries", repeat=True)]
    columns += [Column(SystemName(system)) for system in value.systems]
    ends = frozenset([len(rows) - 2]) if len(value.tasks) > 1 else frozenset[int]()
    label = _DEMO if value.suite == "demo" else ""
    title = f"{value.metric} × 100 with intervals{label}"
    out.print(Grid(columns, rows, ends=ends, title=title, caption=_CAPTION))
    for note in describe_other_tasks(value.other_data):
        out.print(note, style="yellow")


def _format_score(score: ScoreWithInterval) -> str:
    half = (score.interval.high - score.interval.low) / 2
    return f"{format_points(score.mean)} ± {format_points(half, 1)}"
