"""Plots of single queries: score against lexical overlap, and win and loss between two systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from r2med.measure.intervals import mean_interval
from r2med.report.plots.theme import DEMO, Theme, marked
from r2med.report.table import task_label
from r2med.results.compare import Comparison
from r2med.results.diagnosis.findings import TaskDiagnosis

_GROUPS = 4
#: Pixels between the marks of two systems at the same overlap.
_APART = 8
_TIE = 1e-9
_ACROSS = 2
_ROOM = 1.06


def overlap(diagnoses: Sequence[TaskDiagnosis], theme: Theme) -> Any:
    """One faint mark per query, and means of groups of equal size with their intervals."""
    systems = list(dict.fromkeys(each.system for each in diagnoses))
    points = [
        {"system": system, "overlap": 100 * query.overlap, "score": 100 * query.score}
        for system in systems
        for each in diagnoses
        for query in (each.queries if each.system == system else ())
    ]
    tasks = [each for each in diagnoses if each.system == systems[0]]
    metric = tasks[0].metric
    where = tasks[0].task if len(tasks) == 1 else f"{len(tasks)} tasks"
    alone = f"{systems[0]} on " if len(systems) == 1 else ""
    subtitle = [
        f"{alone}{where}, {sum(len(task.queries) for task in tasks)} queries: one faint mark each",
        "solid marks: means of groups of equal size, with 95 % intervals",
        *([DEMO] if any(task.suite == "demo" for task in tasks) else []),
    ]
    colour, shape = marked("system", systems, theme, systems)
    x = alt.X(
        "overlap:Q",
        title="share of the query's terms that its best matching positive holds, % by weight",
        scale=alt.Scale(zero=False, nice=True),
    )
    y = alt.Y("score:Q", title=f"{metric} × 100")
    marks = alt.Chart({"values": points}).mark_point(size=28, opacity=0.4, strokeWidth=1.2)
    layers = [marks.encode(x=x, y=y, color=colour, shape=shape)]
    for place, system in enumerate(systems):
        aside = _APART * (place - (len(systems) - 1) / 2)
        base = alt.Chart({"values": _groups(system, points)}).encode(x=x, color=colour)
        layers += [
            base.mark_rule(strokeWidth=2, xOffset=aside).encode(y=alt.Y("low:Q"), y2="high:Q"),
            base.mark_line(strokeWidth=2.5, xOffset=aside).encode(y=y),
            base.mark_point(filled=True, size=110, opacity=1, xOffset=aside).encode(
                y=y, shape=shape
            ),
        ]
    return alt.layer(*layers).properties(
        width=600,
        height=380,
        title={"text": f"{metric} against lexical overlap", "subtitle": subtitle},
    )


def _groups(system: str, points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    own = sorted((p for p in points if p["system"] == system), key=lambda p: p["overlap"])
    means = []
    for part in np.array_split(np.arange(len(own)), min(_GROUPS, max(1, len(own) // 4))):
        scores = np.array([own[place]["score"] for place in part])
        interval = mean_interval(scores / 100)
        means.append(
            {
                "system": system,
                "overlap": float(np.mean([own[place]["overlap"] for place in part])),
                "score": float(scores.mean()),
                "low": 100 * interval.low,
                "high": 100 * interval.high,
            }
        )
    return means


def wins(comparison: Comparison, theme: Theme) -> Any:
    """One panel per task with one bar per query, sorted by A minus B."""
    a, b = comparison.systems
    differences = {
        task: np.sort([100 * query.gain for query in queries])[::-1]
        for task, queries in comparison.tasks.items()
    }
    ends = [float(end) for each in differences.values() for end in (each[0], each[-1])]
    span = [_ROOM * min(0.0, *ends), _ROOM * max(0.0, *ends)]
    panels = [
        _panel(task, values, span, theme, alone=len(differences) == 1)
        for task, values in differences.items()
    ]
    subtitle = [
        f"one bar per query, sorted; up: {a} is better, down: {b} is better",
        *([DEMO] if comparison.suite == "demo" else []),
    ]
    title = {
        "text": f"{comparison.metric} × 100 query by query: {a} minus {b}",
        "subtitle": subtitle,
    }
    return alt.concat(*panels, columns=_ACROSS, spacing=26).properties(title=title)


def _panel(
    task: str, differences: NDArray[np.float64], span: list[float], theme: Theme, *, alone: bool
) -> Any:
    """One task; all panels share the span of the vertical axis, so that they compare."""
    sides = np.where(differences > _TIE, "better", np.where(differences < -_TIE, "worse", "equal"))
    rows = [
        {"place": place + 1, "end": place + 2, "difference": float(value), "side": str(side)}
        for place, (value, side) in enumerate(zip(differences, sides, strict=True))
    ]
    ranges = [theme.series[0], theme.series[1], theme.muted]
    colours = alt.Scale(domain=["better", "worse", "equal"], range=ranges)
    x = alt.X(
        "place:Q",
        title=f"{len(rows)} queries",
        scale=alt.Scale(domain=[1, len(rows) + 1], nice=False),
        axis=alt.Axis(labels=False, ticks=False, grid=False, domain=False),
    )
    base = alt.Chart({"values": rows})
    bars = base.mark_bar(stroke=theme.paper, strokeWidth=0 if len(rows) > 120 else 1).encode(
        x=x,
        x2="end:Q",
        y=alt.Y(
            "difference:Q",
            title="difference",
            scale=alt.Scale(domain=span),
            axis=alt.Axis(tickCount=5),
        ),
        y2=alt.Y2Datum(0),
        color=alt.Color("side:N", scale=colours, legend=None),
    )
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(color=theme.muted)
    better, equal, worse = (int(np.sum(sides == side)) for side in ("better", "equal", "worse"))
    counts = f"{better} better, {equal} equal, {worse} worse; mean {differences.mean():+.1f}"
    return alt.layer(bars, zero.encode(y="zero:Q")).properties(
        width=600 if alone else 330,
        height=320 if alone else 150,
        title={"text": task_label(task), "subtitle": [counts], "fontSize": 13},
    )
