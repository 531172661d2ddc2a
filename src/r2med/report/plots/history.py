"""The plot of scores over time, for nightly runs on data that changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import altair as alt

from r2med.errors import plural
from r2med.report.plots.theme import DEMO, Theme, encode_marks
from r2med.report.table import task_label
from r2med.results.history import HistoryPoint

_COLUMNS = 2
#: Over a longer time the axis shows dates, else hours.
_HOURS_SHOWN = timedelta(days=2)
_ONE_PANEL, _SMALL_PANEL = (600, 320), (360, 180)


def history(points: Sequence[HistoryPoint], metric: str, theme: Theme) -> Any:
    """Draw one panel per task with one line per version of a system, by time of evaluation."""
    systems = list(dict.fromkeys(point.system for point in points))
    tasks = list(dict.fromkeys(point.task for point in points))
    newest = {point.task: point.data for point in points}
    panels = {task: _describe_panel(task, points) for task in tasks}
    rows = [
        {
            "panel": panels[point.task],
            "system": point.system,
            "version": point.version,
            "created": point.created,
            "score": 100 * point.score,
            "is_newest": point.data == newest[point.task],
        }
        for point in points
    ]
    colour, shape = encode_marks("system", systems, theme, systems)
    times = [datetime.fromisoformat(point.created) for point in points]
    time_format = "%Y-%m-%d" if max(times) - min(times) > _HOURS_SHOWN else "%H:%M:%S"
    x = alt.X(
        "created:T",
        title="evaluated (UTC)",
        scale=alt.Scale(type="utc", padding=16),
        axis=alt.Axis(format=time_format, tickCount=6, grid=False),
    )
    y = alt.Y("score:Q", title=f"{metric} × 100", scale=alt.Scale(zero=False, nice=True))
    base = alt.Chart().encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=1.5).encode(detail="version:N")
    marks = base.mark_point(size=60, opacity=1, strokeWidth=1.5).encode(
        shape=shape,
        fill=alt.condition("datum.is_newest", colour, alt.value(theme.paper)),
    )
    width, height = _ONE_PANEL if len(tasks) == 1 else _SMALL_PANEL
    title = {
        "text": f"{metric} over time",
        "subtitle": [
            "one mark per stored result; filled: on the newest data of the task",
            "compare systems on the same data: scores on different data are not comparable",
            "a line ends where the settings or weights of the system have changed",
            *([DEMO] if any(point.suite == "demo" for point in points) else []),
        ],
    }
    header = alt.Header(title=None, labelFontSize=12, labelLimit=width)
    panel = alt.Facet("panel:N", sort=[*panels.values()], header=header)
    return (
        alt.layer(lines, marks, data={"values": rows})
        .properties(width=width, height=height)
        .facet(panel, columns=_COLUMNS, spacing=26)
        .resolve_scale(x="independent", y="independent")
        .properties(title=title)
    )


def _describe_panel(task: str, points: Sequence[HistoryPoint]) -> str:
    on_task = [point for point in points if point.task == task]
    documents = plural(on_task[-1].documents, "document")
    states = len({point.data for point in on_task})
    return f"{task_label(task)}: {plural(states, 'state')} of the data, now {documents}"
