"""Score against lexical overlap: does a system understand, or does it only match words?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from r2med.measure.intervals import mean_interval
from r2med.report.plots.theme import Theme
from r2med.results.diagnosis import Diagnosis

_GROUPS = 4
#: Pixels between the marks of two systems at the same overlap.
_APART = 8
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")


def overlap(diagnoses: Mapping[str, Sequence[Diagnosis]], theme: Theme) -> Any:
    """A faint mark a query, and means of groups of equal size with their intervals, by system."""
    points = [
        {"system": system, "overlap": 100 * query.overlap, "score": 100 * query.score}
        for system, found in diagnoses.items()
        for diagnosis in found
        for query in diagnosis.queries
    ]
    groups = [group for system in diagnoses for group in _groups(system, points)]
    systems = list(diagnoses)
    metric = next(iter(diagnoses.values()))[0].metric
    colours = [theme.series[place % len(theme.series)] for place in range(len(systems))]
    legend = alt.Legend(title=None, symbolOpacity=1) if len(systems) > 1 else None
    colour = alt.Color("system:N", scale=alt.Scale(domain=systems, range=colours), legend=legend)
    shapes = [_SHAPES[place % len(_SHAPES)] for place in range(len(systems))]
    shape = alt.Shape("system:N", scale=alt.Scale(domain=systems, range=shapes), legend=legend)
    x = alt.X(
        "overlap:Q",
        title="share of the query's terms that its best matching positive holds, % by weight",
        scale=alt.Scale(zero=False, nice=True),
    )
    y = alt.Y("score:Q", title=f"{metric} × 100")
    marks = (
        alt.Chart({"values": points})
        .mark_point(size=28, opacity=0.4, strokeWidth=1.2)
        .encode(x=x, y=y, color=colour, shape=shape)
    )
    layers = [marks]
    for place, system in enumerate(systems):
        aside = _APART * (place - (len(systems) - 1) / 2)
        own = [group for group in groups if group["system"] == system]
        base = alt.Chart({"values": own}).encode(x=x, color=colour)
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
        title={"text": f"{metric} against lexical overlap", "subtitle": _told(diagnoses)},
    )


def _groups(system: str, points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    own = sorted((p for p in points if p["system"] == system), key=lambda p: p["overlap"])
    found = []
    for part in np.array_split(np.arange(len(own)), min(_GROUPS, max(1, len(own) // 4))):
        scores = np.array([own[place]["score"] for place in part])
        interval = mean_interval(scores)
        found.append(
            {
                "system": system,
                "overlap": float(np.mean([own[place]["overlap"] for place in part])),
                "score": float(scores.mean()),
                "low": interval.low,
                "high": interval.high,
            }
        )
    return found


def _told(diagnoses: Mapping[str, Sequence[Diagnosis]]) -> list[str]:
    first = next(iter(diagnoses.values()))
    tasks = [diagnosis.task for diagnosis in first]
    queries = sum(len(diagnosis.queries) for diagnosis in first)
    where = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    alone = f"{next(iter(diagnoses))} on " if len(diagnoses) == 1 else ""
    lines = [
        f"{alone}{where}, {queries} queries: a faint mark each",
        "solid marks: means of groups of equal size, with 95 % intervals",
    ]
    if any(diagnosis.suite == "demo" for diagnosis in first):
        lines.append("demo suite: not comparable with published figures")
    return lines
