"""Scores of a run file on a terminal."""

from __future__ import annotations

from r2med.errors import plural
from r2med.measure.run_scores import RunScores
from r2med.number_format import format_points
from r2med.report.aspects import aspect_grids
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, score_cell


@draw_registered.register
def draw_run_scores(value: RunScores, out: Paper) -> None:
    """Print every metric with its interval, then the counts that need attention."""
    out.print(f"{value.run} · {plural(len(value.scores), 'query', 'queries')}", style="bold")
    rows: list[list[Cell]] = []
    for name, mean in value.means.items():
        interval = value.interval(name)
        bounds = f"{format_points(interval.low)} to {format_points(interval.high)}"
        rows.append([name, score_cell(mean), bounds])
    columns = [Column("metric", right=False), Column("mean"), Column("95 % interval")]
    out.print(Grid(columns, rows, caption="Scores × 100."))
    if value.aspects is not None:
        for grid in aspect_grids(value.aspects):
            out.print(grid)
    if value.missing:
        missing = plural(value.missing, "judged query", "judged queries")
        out.print(f"{missing} not in the run: scored 0.")
    if value.unjudged:
        unjudged = plural(value.unjudged, "query of the run", "queries of the run")
        out.print(f"{unjudged} without judgements: not scored.")
    if value.excluded:
        excluded = plural(value.excluded, "excluded document")
        out.print(f"{excluded} removed from the lists before measuring.")
    if value.repeated:
        repeated = plural(value.repeated, "repeated document")
        out.print(f"{repeated} in the run: one line of each is used.")
