"""Plots of single queries: score against lexical overlap, and win and loss between two systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from r2med.measure.intervals import mean_interval
from r2med.report.plots.theme import DEMO, Theme, encode_marks
from r2med.report.table import task_label
from r2med.results.compare import Comparison
from r2med.results.diagnosis.findings import TaskDiagnosis
from r2med.results.published_data import NOT_PUBLISHED

_GROUPS = 4
#: Pixels between the marks of two systems at the same overlap.
_APART = 8
_TIE = 1e-9
_ACROSS = 2


def overlap(diagnoses: Sequence[TaskDiagnosis], theme: Theme) -> Any:
    """Draw a faint mark per query, and means with intervals of groups of queries of equal size."""
    systems = list(dict.fromkeys(diagnosis.system for diagnosis in diagnoses))
    points = [
        {"system": system, "overlap": 100 * query.overlap, "score": 100 * query.score}
        for system in systems
        for diagnosis in diagnoses
        for query in (diagnosis.queries if diagnosis.system == system else ())
    ]
    tasks = [diagnosis for diagnosis in diagnoses if diagnosis.system == systems[0]]
    metric = tasks[0].metric
    where = tasks[0].task_title if len(tasks) == 1 else f"{len(tasks)} tasks"
    differing = [task.task for task in tasks if task.data_note and len(tasks) > 1]
    alone = f"{systems[0]} on " if len(systems) == 1 else ""
    subtitle = [
        f"{alone}{where}, {sum(len(task.queries) for task in tasks)} queries: one faint mark each",
        "solid marks: means of groups of equal size, with 95 % intervals",
        *([DEMO] if any(task.suite == "demo" for task in tasks) else []),
        *([f"not the published data of {', '.join(differing)}"] if differing else []),
    ]
    colour, shape = encode_marks("system", systems, theme, systems)
    x = alt.X(
        "overlap:Q",
        title="share of the query's terms that its best matching positive holds, % by weight",
        scale=alt.Scale(zero=False, nice=True),
    )
    y = alt.Y("score:Q", title=f"{metric} × 100")
    marks = alt.Chart({"values": points}).mark_point(size=28, opacity=0.4, strokeWidth=1.2)
    layers = [marks.encode(x=x, y=y, color=colour, shape=shape)]
    for index, system in enumerate(systems):
        aside = _APART * (index - (len(systems) - 1) / 2)
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
    ordered_points = sorted(
        (p for p in points if p["system"] == system), key=lambda p: p["overlap"]
    )
    means = []
    for part in np.array_split(
        np.arange(len(ordered_points)), min(_GROUPS, max(1, len(ordered_points) // 4))
    ):
        scores = np.array([ordered_points[index]["score"] for index in part])
        interval = mean_interval(scores / 100)
        means.append(
            {
                "system": system,
                "overlap": float(np.mean([ordered_points[index]["overlap"] for index in part])),
                "score": float(scores.mean()),
                "low": 100 * interval.low,
                "high": 100 * interval.high,
            }
        )
    return means


def wins(comparison: Comparison, theme: Theme) -> Any:
    """Draw a panel per task with a bar per query, sorted by A minus B; all have the same scale."""
    a, b = comparison.systems
    panels: list[str] = []
    rows: list[dict[str, Any]] = []
    for task, queries in comparison.tasks.items():
        gains = np.sort([100 * query.gain for query in queries])[::-1]
        won, lost = int((gains > _TIE).sum()), int((gains < -_TIE).sum())
        counts = f"{won} better, {len(gains) - won - lost} equal, {lost} worse"
        title = f"{task_label(task)} {NOT_PUBLISHED}" if task in comparison.other_data else None
        panels.append(f"{title or task_label(task)}: {counts}; mean {gains.mean():+.1f}")
        rows += [
            {"panel": panels[-1], "place": index, "difference": gain}
            for index, gain in enumerate(gains.tolist())
        ]
    bare = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    up, down = alt.value(theme.series[0]), alt.value(theme.loss)
    bars = (
        alt.Chart({"values": rows})
        .mark_bar()
        .encode(
            x=alt.X("place:O", title="queries", axis=bare),
            y=alt.Y("difference:Q", axis=alt.Axis(tickCount=5)),
            color=alt.condition("datum.difference > 0", up, down),
        )
    )
    size = {"width": 600, "height": 320} if len(panels) == 1 else {"width": 360, "height": 150}
    header = alt.Header(title=None, labelFontSize=12, labelLimit=size["width"])
    subtitle = [f"one bar per query, sorted; up: {a} is better, down: {b} is better"]
    text = f"{comparison.metric} × 100 query by query: {a} minus {b}"
    return (
        bars.properties(**size)
        .facet(alt.Facet("panel:N", sort=panels, header=header), columns=_ACROSS, spacing=26)
        .resolve_scale(x="independent")
        .properties(
            title={
                "text": text,
                "subtitle": subtitle + [DEMO] * (comparison.suite == "demo"),
            }
        )
    )
