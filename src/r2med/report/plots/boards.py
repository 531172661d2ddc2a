"""Plots of many systems: heatmap, means with intervals, quality against cost and against date."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log
from shlex import quote
from typing import Any, Literal

import altair as alt

from r2med.errors import MissingError
from r2med.report.plots.labels import Label, line_boxes, place_labels
from r2med.report.plots.theme import DEMO, Theme, encode_marks, encode_origin
from r2med.results.frontier import CostPoint, find_frontier
from r2med.results.leaderboard import Leaderboard
from r2med.results.parameters import count_active_parameters
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
Spent = Literal["seconds", "tokens", "money", "parameters"]


@dataclass(frozen=True)
class CostAxis:
    """The cost axis of a plot of quality against cost, for one unit of cost."""

    unit: str
    """The name of the unit in sentences."""
    title: str
    requirement: str
    """The value that a system needs to be shown, as text for the error if no system has it."""
    least: float
    """The least cost on the axis; smaller costs are drawn here, because a log scale has no 0."""
    notes: tuple[str, ...]


_RECORDED = "recorded (published figures come without cost)"
_AT_THAT_COST = "dashed: best mean at that cost or less; cached work as recorded"
COST_AXES: Mapping[Spent, CostAxis] = {
    "seconds": CostAxis(
        "seconds",
        "seconds per query (latency; the corpus is indexed), log scale",
        f"seconds {_RECORDED}",
        1e-9,
        (_AT_THAT_COST,),
    ),
    "tokens": CostAxis(
        "tokens", "tokens per query, log scale", f"tokens {_RECORDED}", 1e-9, (_AT_THAT_COST,)
    ),
    "money": CostAxis(
        "money", "US dollars per query, log scale", f"money {_RECORDED}", 1e-9, (_AT_THAT_COST,)
    ),
    "parameters": CostAxis(
        "active parameters",
        "active parameters of all stages, in billions, log scale",
        "models of known size",
        1e-3,
        (
            "dashed: best mean with this many active parameters or fewer",
            "word matching has none and is drawn at the left",
        ),
    ),
}
#: Room beside the points of a scatter for their names, and how much of a name is drawn, in pixels.
_ROOM, _NAME_LIMIT = 110, 240
#: Pixels of a scatter, and between its points and the upper and lower edge.
_SIZE, _PADDING = (620, 380), 30
_Point = dict[str, Any]


def draw(board: Leaderboard, figure: str, theme: Theme, *, top: int, by: Spent = "seconds") -> Any:
    """Draw a heatmap, means, cost or dates; the first two show the `top` systems."""
    if figure == "cost":
        return cost(board, theme, by=by)
    if figure == "dates":
        return dates(board, theme)
    return (heatmap if figure == "heatmap" else means)(board, theme, top=top)


def _rows_with(
    board: Leaderboard, requirement: str, has: Callable[[Standing], object]
) -> list[Standing]:
    """Return rows with a mean and another required value; raise MissingError if none has both."""
    rows = [row for row in board.rows if row.mean is not None and has(row) is not None]
    if not rows:
        tasks = ",".join(group_by_suite([task.name for task in board.tasks]))
        raise MissingError(
            f"No system of the {board.suite.name} suite has {board.metric} on all the tasks and "
            f"{requirement}.\nRun some first: r2med eval bm25 bm25-lucene --task {quote(tasks)}"
            f"{board.metrics_option}"
        )
    return rows


def _ranked_rows(board: Leaderboard, top: int) -> tuple[list[Standing], list[str]]:
    """Return the rows to show, best first, and a line with the total if some are not shown."""
    ranked = _rows_with(board, "a mean", lambda row: row.mean)
    rows = [row for row in replace(board, top=top).shown if row.mean is not None]
    return rows, [f"{len(rows)} of {len(ranked)} systems"] if len(ranked) > len(rows) else []


def _points(rows: Sequence[Standing]) -> list[_Point]:
    """Return the fields of each system; a star in its name refers to a note below the title."""
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


def _encode_points(field: str, theme: Theme, points: list[_Point]) -> list[Any]:
    """Return how points look: by origin (measured filled, published hollow) or by system type."""
    present = {point[field] for point in points}
    titles = _TITLES[field]
    legend = [title for title in titles if title in present]
    if field == "origin":
        return encode_origin(theme, titles, legend)
    return encode_marks(field, titles, theme, legend)


def _title(board: Leaderboard, text: str, rows: Sequence[Standing], *more: str) -> dict[str, Any]:
    """Return the title with the mean that is shown, the source of the figures, and notes."""
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
    """Draw a cell per system and task, the best system on top and the ranking mean at the right."""
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
    """Draw one dot per system, best on top, with its 95 % interval if its queries are stored."""
    rows, lines = _ranked_rows(board, top)
    points = _points(rows)
    for row, point in zip(rows, points, strict=True):
        bar, mean = row.interval or row.spread, point["mean"]
        low, high = (100 * bar.low, 100 * bar.high) if bar else (mean, mean)
        point |= {"zero": 0, "low": low, "high": high}
    lines.append("bars: 95 % intervals over queries; of printed figures, all that works print")
    order = [point["system"] for point in points]
    y = alt.Y("system:N", sort=order, title=None, axis=alt.Axis(ticks=False, labelPadding=8))
    x = alt.X(
        "mean:Q",
        title=f"{board.metric} × 100",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=8, grid=False),
    )
    base = alt.Chart({"values": points})
    leading = base.mark_rule(color=theme.grid).encode(y=y, x=alt.X("zero:Q"), x2="low:Q")
    bars = base.mark_rule(strokeWidth=1.5, color=theme.muted)
    bars = bars.encode(y=y, x=alt.X("low:Q"), x2="high:Q")
    dots = base.mark_point(size=60, opacity=1, strokeWidth=1.5)
    dots = dots.encode(*_encode_points("origin", theme, points), y=y, x=x)
    figures = base.mark_text(align="left", dx=8, fontSize=11, color=theme.muted)
    figures = figures.encode(y=y, x=alt.X("high:Q"), text=alt.Text("mean:Q", format=".1f"))
    drawn = (leading, bars, dots, figures)
    title = _title(board, f"mean {board.metric}", rows, *lines)
    return alt.layer(*drawn).properties(width=520, height=_STEP * len(order), title=title)


def dates(board: Leaderboard, theme: Theme) -> Any:
    """Draw one point per system of known date; a line joins and names those that were the best."""
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
    chart = _scatter(points, x, "origin", board, theme, best=_frontier(points))
    return chart.properties(title=title)


def cost(board: Leaderboard, theme: Theme, *, by: Spent = "seconds") -> Any:
    """Draw one point per system of known cost; a line joins those not beaten on both axes."""
    axis = COST_AXES[by]
    rows = _rows_with(board, axis.requirement, lambda row: _spent(row, by))
    points = _points(rows)
    for row, point in zip(rows, points, strict=True):
        point |= {"kind": KIND_TITLES[row.kind], "x": max(axis.least, _spent(row, by) or 0.0)}
    x = alt.X(
        "x:Q",
        title=axis.title,
        scale=alt.Scale(type="log", nice=False, padding=_ROOM),
        axis=alt.Axis(format="~g", tickCount=4, grid=False),
    )
    notes = list(axis.notes)
    counted = points
    if by != "parameters":  # the size of a model is known even if its generations are given
        reads_file = [_has_given_generations(row) for row in rows]
        counted = [point for point, is_free in zip(points, reads_file, strict=True) if not is_free]
        if any(reads_file):
            notes.append("† generations were read from a file, so their cost is not counted")
        for point, is_free in zip(points, reads_file, strict=True):
            point["system"] += " †" if is_free else ""
    ranked = sum(row.mean is not None for row in board.rows)
    if by == "parameters" and len(rows) < ranked:
        notes.append(f"{len(rows)} of {ranked} systems; the size of the others is not known")
    title = _title(board, f"quality against {axis.unit}", rows, *notes)
    chart = _scatter(points, x, "kind", board, theme, best=_frontier(counted), label_all=True)
    return chart.properties(title=title)


def _scatter(
    points: list[_Point],
    x: Any,
    field: str,
    board: Leaderboard,
    theme: Theme,
    *,
    best: list[_Point],
    label_all: bool = False,
) -> Any:
    """Plot means along an axis; a dashed line joins the `best`, whose systems are labelled.

    The line never falls, so it crosses no label: labels of the best systems are above the line at
    the left, labels of other systems below the line, where there is room.
    """
    dominated = [point for point in points if label_all and point not in best]
    scale = alt.Scale(zero=False, nice=False, padding=_PADDING)
    mean = f"{board.metric} × 100, mean"
    y = alt.Y("mean:Q", title=mean, scale=scale, axis=alt.Axis(tickCount=6))

    def layer(some: list[_Point]) -> Any:
        return alt.Chart({"values": some}).encode(x=x, y=y)

    def names(some: list[_Point], label: Label) -> Any:
        look = {"fontSize": 11, "color": theme.ink, "limit": _NAME_LIMIT}
        position = {"align": label.align, "dx": label.dx, "dy": label.dy}
        return layer(some).mark_text(**look, **position).encode(text="system:N")

    line = layer(best).mark_line(interpolate="step-after", strokeDash=[4, 3], color=theme.muted)
    is_filled = field != "origin"
    dots = layer(points).mark_point(filled=is_filled, size=70, opacity=1, strokeWidth=1.5)
    dots = dots.encode(*_encode_points(field, theme, points))
    labels = [
        names([point], label) for point, label in _label_points(points, best, dominated) if label
    ]
    return alt.layer(line, dots, *labels).properties(width=_SIZE[0], height=_SIZE[1])


def _label_points(
    points: Sequence[_Point], best: Sequence[_Point], dominated: Sequence[_Point]
) -> list[tuple[_Point, Label | None]]:
    """Return points with the place of their name; None if every place would cover something."""
    width, height = _SIZE
    is_date = isinstance(points[0]["x"], str)
    xs = [
        datetime.fromisoformat(f"{point['x']}-01").timestamp() if is_date else log(point["x"])
        for point in points
    ]
    ys = [point["mean"] for point in points]

    def scale(value: float, values: Sequence[float], room: float, length: float) -> float:
        low, high = min(values), max(values)
        return room + (length - 2 * room) * ((value - low) / (high - low) if high > low else 0.5)

    positions = [
        (scale(x, xs, _ROOM, width), height - scale(y, ys, _PADDING, height))
        for x, y in zip(xs, ys, strict=True)
    ]
    chosen = [*best, *dominated]
    indices = [points.index(point) for point in chosen]
    texts = [str(points[index]["system"]) for index in indices]
    line = line_boxes([positions[points.index(point)] for point in best])
    labels = place_labels(positions, indices, texts, above=len(best), obstacles=line)
    return list(zip(chosen, labels, strict=True))


def _has_given_generations(row: Standing) -> bool:
    """Whether an expander of a measured system read its generations from a file."""
    return any(
        stage.generations is not None and stage.generations.source == "file"
        for result in row.results.values()
        for stage in result.record.system.stage.walk()
    )


def _spent(row: Standing, by: Spent) -> float | None:
    """Return the cost of one query; None if it is unknown."""
    if by == "parameters":
        return count_active_parameters(row.system)
    if row.cost is None or not row.cost.queries:
        return None
    if by == "money":
        return None if row.cost.money is None else row.cost.money / row.cost.queries
    return row.cost.seconds_per_query if by == "seconds" else row.cost.tokens_per_query


def cost_points(board: Leaderboard, by: Spent = "seconds") -> list[CostPoint]:
    """Return the systems that have a mean and a known cost per query."""
    costs = [(row, _spent(row, by)) for row in board.rows]
    return [
        CostPoint(row.name, cost, row.mean)
        for row, cost in costs
        if cost is not None and row.mean is not None
    ]


def _frontier(points: list[_Point]) -> list[_Point]:
    """Return the points that no other point beats on both axes."""
    by_point = {
        CostPoint(str(index), point["x"], point["mean"]): point
        for index, point in enumerate(points)
    }
    return [by_point[point] for point in find_frontier(by_point)]
