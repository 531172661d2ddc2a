"""Systems by tasks: who is good at what, with the figure in every cell."""

from __future__ import annotations

from typing import Any

import altair as alt

from r2med.report.plots.boards import labels, left_out, ranked_rows, subtitle
from r2med.report.plots.theme import Theme
from r2med.report.standing import Leaderboard

_MEAN = "mean"
_CELL = 24
#: Above this part of the colour range the text changes its colour.
_TURN = 0.55


def heatmap(board: Leaderboard, theme: Theme, *, top: int | None = 30) -> Any:
    """A cell a system and task, the best system on top, the ranking mean apart at the right."""
    rows = ranked_rows(board, top)
    names = labels(rows)
    tasks = [task.source for task in board.tasks]
    cells: list[dict[str, Any]] = [
        {"system": names[row.system, row.origin], "task": task.source, "value": 100 * value}
        for row in rows
        for task in board.tasks
        if (value := row.values.get(task.name)) is not None
    ]
    means = [
        {"system": names[row.system, row.origin], "task": _MEAN, "value": 100 * (row.mean or 0)}
        for row in rows
    ]
    most = max(cell["value"] for cell in cells)
    order = [names[row.system, row.origin] for row in rows]
    parts = [
        _grid(cells, order, tasks, most, theme, named=True).properties(width=72 * len(tasks)),
        _grid(means, order, [_MEAN], most, theme, named=False).properties(width=64),
    ]
    return (
        alt.hconcat(*parts, spacing=10)
        .resolve_scale(color="shared", y="shared")
        .properties(
            title={
                "text": f"{board.suite.title}: {board.metric} × 100 by system and task",
                "subtitle": subtitle(board, rows, *left_out(board, rows)),
            }
        )
    )


def _grid(
    cells: list[dict[str, Any]],
    order: list[str],
    columns: list[str],
    most: float,
    theme: Theme,
    *,
    named: bool,
) -> Any:
    y = alt.Y(
        "system:N",
        sort=order,
        title=None,
        axis=alt.Axis(ticks=False, domain=False, labelPadding=8) if named else None,
    )
    x = alt.X(
        "task:N",
        sort=columns,
        title=None,
        axis=alt.Axis(orient="top", labelAngle=-30, ticks=False, domain=False, labelPadding=6),
    )
    base = alt.Chart({"values": cells}).encode(x=x, y=y)
    squares = base.mark_rect(stroke=theme.paper, strokeWidth=1.5).encode(
        color=alt.Color(
            "value:Q",
            scale=alt.Scale(domain=[0, most], range=list(theme.ramp), interpolate="lab"),
            legend=None,
        )
    )
    figures = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".1f"),
        color=alt.condition(
            f"datum.value > {_TURN * most}", alt.value(theme.high_ink), alt.value(theme.low_ink)
        ),
    )
    return alt.layer(squares, figures).properties(height=_CELL * len(order))
