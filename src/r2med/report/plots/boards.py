"""Plots of many systems: heatmap, means with intervals, quality against cost and against date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

import altair as alt

from r2med.errors import MissingError
from r2med.report.plots.theme import DEMO, Theme, encode_marks
from r2med.results.frontier import CostPoint, find_frontier
from r2med.results.leaderboard import Leaderboard
from r2med.results.standings import ORIGINS, Standing
from r2med.systems.registry import KIND_TITLES
from r2med.tasks.registry import group_by_suite

_FROM = {"later": "later", "measured": "here"}
#: Fields that decide the mark of a point.
_TITLES = {"origin": [*ORIGINS.values()], "kind": [*KIND_TITLES.values()]}
_MARKS = 2
#: Pixels of a cell.
_CELL = (72, 24)
#: Above this part of the colour range the text changes its colour.
_TURN = 0.55
_STEP = 22
#: Costs of a query, and the axis titles of the plot.
MEASURES = {
    "seconds": "seconds per query (the corpus is indexed), log scale",
    "tokens": "tokens per query, log scale",
    "money": "US dollars per query, log scale",
}
_LEAST = 1e-9
#: Room beside the points of a scatter for their names, and how much of a name is drawn, in pixels.
_ROOM, _NAME_LIMIT = 110, 240
_Point = dict[str, Any]


def draw(board: Leaderboard, figure: str, theme: Theme, *, top: int, by: str = "seconds") -> Any:
    """A heatmap, means, cost or dates; the first two show the `top` systems."""
    if figure == "cost":
        return cost(board, theme, by=by)
    if figure == "dates":
        return dates(board, theme)
    return (heatmap if figure == "heatmap" else means)(board, theme, top=top)


def _rows_with(
    board: Leaderboard, requirement: str, has: Callable[[Standing], object]
) -> list[Standing]:
    """The rows that have a mean and something more that a figure needs; never none."""
    rows = [row for row in board.rows if row.mean is not None and has(row) is not None]
    if not rows:
        tasks = ",".join(group_by_suite([task.name for task in board.tasks]))
        raise MissingError(
            f"No system of the {board.suite.name} suite has {board.metric} on all the tasks and "
            f"{requirement}.\nRun some first: r2med eval bm25 bm25-lucene --task {quote(tasks)}"
        )
    return rows


def _ranked_rows(board: Leaderboard, top: int) -> tuple[list[Standing], list[str]]:
    """The rows that have a mean, best first, and a line on systems below the last one shown."""
    ranked = _rows_with(board, "a mean", lambda row: row.mean)
    rows = [row for row in replace(board, top=top).shown if row.mean is not None]
    return rows, [f"{len(rows)} of {len(ranked)} systems"] if len(ranked) > len(rows) else []


def _points(rows: Sequence[Standing]) -> list[_Point]:
    """What every plot knows of a system; a star where a mark below the title qualifies it."""
    mixed = len({row.origin for row in rows}) > 1
    return [
        {
            "system": row.name
            + (f" ({_FROM[row.origin]})" if mixed and row.origin != "published" else "")
            + (" *" if row.marks else ""),
            "origin": ORIGINS[row.origin],
            "mean": 100 * (row.mean or 0),
        }
        for row in rows
    ]


def _color_and_shape(field: str, theme: Theme, points: list[_Point]) -> list[Any]:
    present = {point[field] for point in points}
    return encode_marks(
        field, _TITLES[field], theme, [title for title in _TITLES[field] if title in present]
    )


def _title(board: Leaderboard, text: str, rows: Sequence[Standing], *more: str) -> dict[str, Any]:
    """What every such plot must say: which mean, whose figures, and what qualifies some."""
    origins = {row.origin for row in rows}
    whose = " and ".join(name for origin, name in ORIGINS.items() if origin in origins)
    lines = [f"{board.mean_title}; {whose}"]
    if board.suite.name == "demo":
        lines.append(DEMO)
    flagged = [row for row in rows if row.flags]
    if flagged:
        tasks = ", ".join(dict.fromkeys(flag.task for row in flagged for flag in row.flags))
        held = f"{len(flagged)} of these systems declare training data that holds {tasks}"
        lines.append(f"{held} (or a part of it)")
    marks = [f"* {mark}" for mark in sorted({mark for row in rows for mark in row.marks})]
    if len(marks) > _MARKS:
        marks[_MARKS:] = ["* more marks: r2med leaderboard lists them"]
    return {"text": f"{board.suite.title}: {text}", "subtitle": [*lines, *more, *marks]}


def heatmap(board: Leaderboard, theme: Theme, *, top: int) -> Any:
    """One cell per system and task, the best system on top, the ranking mean apart at the right."""
    rows, left_out = _ranked_rows(board, top)
    cells: list[_Point] = []
    for row, point in zip(rows, _points(rows), strict=True):
        for task in board.tasks:
            if (value := row.values.get(task.name)) is not None:
                cells.append({"task": task.source, "value": 100 * value, "part": 0, **point})
        cells.append({"task": "mean", "value": point["mean"], "part": 1, **point})
    most = max(cell["value"] for cell in cells if cell["part"] == 0)
    bare: dict[str, Any] = {"ticks": False, "domain": False}
    order = list(dict.fromkeys(cell["system"] for cell in cells))
    columns = [*(task.source for task in board.tasks), "mean"]
    top_axis = alt.Axis(orient="top", labelAngle=-30, labelPadding=6, **bare)
    x = alt.X("task:N", sort=columns, title=None, axis=top_axis)
    y = alt.Y("system:N", sort=order, title=None, axis=alt.Axis(labelPadding=8, **bare))
    ramp = alt.Scale(domain=[0, most], range=list(theme.ramp), interpolate="lab")
    dark = f"datum.value > {_TURN * most}"
    base = alt.Chart({"values": cells}).encode(x=x, y=y)
    squares = base.mark_rect(stroke=theme.paper, strokeWidth=1.5)
    figures = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".1f"),
        color=alt.condition(dark, alt.value(theme.high_ink), alt.value(theme.low_ink)),
    )
    coloured = squares.encode(color=alt.Color("value:Q", scale=ramp, legend=None))
    chart = alt.layer(coloured, figures, width=alt.Step(_CELL[0]), height=alt.Step(_CELL[1]))
    parts = alt.Column("part:O", header=alt.Header(labels=False, title=None))
    title = _title(board, f"{board.metric} × 100 by system and task", rows, *left_out)
    apart = chart.facet(column=parts, spacing=10, title=title)
    return apart.resolve_scale(x="independent")


def means(board: Leaderboard, theme: Theme, *, top: int) -> Any:
    """One dot per system, best on top, with its 95 % interval where queries are stored."""
    rows, lines = _ranked_rows(board, top)
    points = _points(rows)
    for row, point in zip(rows, points, strict=True):
        bar, mean = row.interval or row.spread, point["mean"]
        low, high = (100 * bar.low, 100 * bar.high) if bar else (mean, mean)
        point |= {"zero": 0, "low": low, "high": high}
    lines.append("bars: 95 % intervals over queries; of printed figures, all that works print")
    order = [point["system"] for point in points]
    y = alt.Y("system:N", sort=order, title=None, axis=alt.Axis(ticks=False, labelPadding=8))
    colour, shape = _color_and_shape("origin", theme, points)
    x = alt.X(
        "mean:Q",
        title=f"{board.metric} × 100",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=8, grid=False),
    )
    base = alt.Chart({"values": points})
    leading = base.mark_rule(color=theme.grid).encode(y=y, x=alt.X("zero:Q"), x2="low:Q")
    bars = base.mark_rule(strokeWidth=2.5, opacity=0.55)
    bars = bars.encode(y=y, x=alt.X("low:Q"), x2="high:Q", color=colour)
    dots = base.mark_point(filled=True, size=85, opacity=1)
    dots = dots.encode(y=y, x=x, color=colour, shape=shape)
    figures = base.mark_text(align="left", dx=8, fontSize=11, color=theme.muted)
    figures = figures.encode(y=y, x=alt.X("high:Q"), text=alt.Text("mean:Q", format=".1f"))
    drawn = (leading, bars, dots, figures)
    title = _title(board, f"mean {board.metric}", rows, *lines)
    return alt.layer(*drawn).properties(width=520, height=_STEP * len(order), title=title)


def dates(board: Leaderboard, theme: Theme) -> Any:
    """One point per system whose date is known; a line joins the best so far, which are named."""
    rows = _rows_with(board, "a known date", lambda row: row.date or None)
    points = _points(rows)
    for row, point in zip(rows, points, strict=True):
        point["x"] = row.date[:7]
    x = alt.X(
        "x:T",
        title="month of the report",
        scale=alt.Scale(nice="month", padding=_ROOM),
        axis=alt.Axis(format="%b %Y", tickCount="month", labelAngle=-30, grid=False),
    )
    dashed = "dashed: the best so far, named where it changed"
    title = _title(board, "quality against date", rows, dashed)
    return _scatter(points, x, "origin", board, theme).properties(title=title)


def cost(board: Leaderboard, theme: Theme, *, by: str = "seconds") -> Any:
    """One point per measured system; a line joins those that nothing beats on both axes."""
    requirement = f"{by} recorded (published figures come without cost)"
    rows = _rows_with(board, requirement, lambda row: _spent(row, by))
    points = _points(rows)
    for row, point in zip(rows, points, strict=True):
        point |= {"kind": KIND_TITLES[row.kind], "x": max(_LEAST, _spent(row, by) or 0.0)}
        if _has_given_generations(row):
            point["system"] += " †"
    x = alt.X(
        "x:Q",
        title=MEASURES[by],
        scale=alt.Scale(type="log", nice=False, padding=_ROOM),
        axis=alt.Axis(format="~g", tickCount=4, grid=False),
    )
    dashed = "dashed: best mean at that cost or less; cached work as recorded"
    file_note = "† generations were read from a file, so their cost is not counted"
    notes = [dashed, file_note] if any(map(_has_given_generations, rows)) else [dashed]
    title = _title(board, f"quality against {by}", rows, *notes)
    return _scatter(points, x, "kind", board, theme, label_all=True).properties(title=title)


def _scatter(
    points: list[_Point],
    x: Any,
    field: str,
    board: Leaderboard,
    theme: Theme,
    *,
    label_all: bool = False,
) -> Any:
    """Plot means along an axis; a dashed line joins the frontier, whose systems are labelled.

    The line never falls, so it crosses no label: those of the frontier are above it at the left,
    the others below it at the right.
    """
    best = _frontier(points)
    dominated = [point for point in points if label_all and point not in best]
    scale = alt.Scale(zero=False, nice=False, padding=30)
    mean = f"{board.metric} × 100, mean"
    y = alt.Y("mean:Q", title=mean, scale=scale, axis=alt.Axis(tickCount=6))

    def layer(some: list[_Point]) -> Any:
        return alt.Chart({"values": some}).encode(x=x, y=y)

    def names(some: list[_Point], **position: Any) -> Any:
        look = {"fontSize": 11, "color": theme.ink, "limit": _NAME_LIMIT}
        return layer(some).mark_text(**look, **position).encode(text="system:N")

    colour, shape = _color_and_shape(field, theme, points)
    line = layer(best).mark_line(interpolate="step-after", strokeDash=[4, 3], color=theme.muted)
    dots = layer(points).mark_point(filled=True, size=80, opacity=0.8)
    above = names(best, align="right", dx=-8, dy=-8)
    below = names(dominated, align="left", dx=9, dy=12)
    dots = dots.encode(color=colour, shape=shape)
    return alt.layer(line, dots, above, below).properties(width=620, height=380)


def _has_given_generations(row: Standing) -> bool:
    """Whether an expander of a measured system read its generations from a file."""
    return any(
        stage.generations is not None and stage.generations.source == "file"
        for result in row.results.values()
        for stage in result.record.system.stage.walk()
    )


def _spent(row: Standing, by: str) -> float | None:
    """The cost of one query; None where it was not recorded."""
    if row.cost is None or not row.cost.queries:
        return None
    if by == "money":
        return None if row.cost.money is None else row.cost.money / row.cost.queries
    return row.cost.seconds_per_query if by == "seconds" else row.cost.tokens_per_query


def cost_points(board: Leaderboard, by: str = "seconds") -> list[CostPoint]:
    """The systems with a mean and a recorded cost per query."""
    costs = [(row, _spent(row, by)) for row in board.rows]
    return [
        CostPoint(row.name, cost, row.mean)
        for row, cost in costs
        if cost is not None and row.mean is not None
    ]


def _frontier(points: list[_Point]) -> list[_Point]:
    """The points that no other one beats on both axes."""
    by_point = {
        CostPoint(str(index), point["x"], point["mean"]): point
        for index, point in enumerate(points)
    }
    return [by_point[point] for point in find_frontier(by_point)]
