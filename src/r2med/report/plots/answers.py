"""The plot of answers: answer score against a retrieval measure, between floor and ceiling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from r2med.answer.relation import Relation, RelationPoint
from r2med.answer.reporting import AnswerReport
from r2med.errors import DataError, UsageError, nearest
from r2med.measure.intervals import mean_interval
from r2med.report.plots.theme import DEMO, Theme, encode_marks

_GROUPS = 4
#: Pixels between the marks of two systems with the same value of the measure.
_APART = 8
#: Pixels between the outermost points and the axes, so that no mark covers a label of an axis.
_PADDING = 12
_WIDTH, _HEIGHT = 560, 380
#: Pixels that a label takes, and points of score below which two labels would overlap.
_LABEL_HEIGHT, _CLOSE = 14, 4


def relation_plot(report: AnswerReport, theme: Theme, measure: str | None = None) -> Any:
    """Plot answer score against a retrieval measure.

    Faint marks are queries; means of groups of queries have intervals.

    Args:
        report: Answers with retrieved passages.
        theme: Light or dark.
        measure: The retrieval measure; by default the one that predicts answers best.

    Raises:
        DataError: There are no answers with retrieved passages.
        UsageError: The measure was not stored with the answers.
    """
    relation = report.relation
    if relation is None:
        raise DataError(f"{report.name} has no answers with retrieved passages to draw.")
    chosen = _choose_measure(relation, measure)
    systems = list(dict.fromkeys(point.system for point in relation.points))
    colour, shape = encode_marks("system", systems, theme, systems)
    padding = _PADDING + _APART * (len(systems) - 1) / 2
    x = alt.X(
        "measure:Q",
        title=f"{chosen} × 100 of the query",
        scale=alt.Scale(zero=False, nice=False, padding=padding),
    )
    y_scale = alt.Scale(domain=[0, 100], nice=False, padding=_PADDING)
    y = alt.Y("score:Q", title="answer score × 100", scale=y_scale)
    size = alt.Size("queries:Q", legend=None, scale=alt.Scale(rangeMin=24, rangeMax=240))
    faint = alt.Chart({"values": _count_points(relation.points, chosen)})
    layers = [
        faint.mark_point(opacity=0.4, strokeWidth=1.2).encode(
            x=x, y=y, color=colour, shape=shape, size=size
        )
    ]
    for index, system in enumerate(systems):
        aside = _APART * (index - (len(systems) - 1) / 2)
        base = alt.Chart({"values": _groups(relation.points, system, chosen)}).encode(
            x=x, color=colour
        )
        layers += [
            base.mark_rule(strokeWidth=2, xOffset=aside).encode(y=alt.Y("low:Q"), y2="high:Q"),
            base.mark_line(strokeWidth=2.5, xOffset=aside).encode(y=y),
            base.mark_point(filled=True, size=110, opacity=1, xOffset=aside).encode(
                y=y, shape=shape
            ),
        ]
    layers += _limits(report, theme)
    return alt.layer(*layers).properties(
        width=_WIDTH,
        height=_HEIGHT,
        title={"text": f"Answers of {report.llm} against retrieval", "subtitle": _notes(report)},
    )


def _choose_measure(relation: Relation, measure: str | None) -> str:
    names = [item.measure for item in relation.correlations]
    if measure is None:
        return names[0]
    if measure not in names:
        raise UsageError(f"--measure {measure!r} was not stored. {nearest(measure, names)}")
    return measure


def _count_points(points: Sequence[RelationPoint], measure: str) -> list[dict[str, Any]]:
    """Return the distinct points with the number of queries at each."""
    counts = Counter((point.system, point.measures[measure], point.score) for point in points)
    return [
        {"system": system, "measure": 100 * value, "score": 100 * score, "queries": count}
        for (system, value, score), count in counts.items()
    ]


def _groups(points: Sequence[RelationPoint], system: str, measure: str) -> list[dict[str, Any]]:
    """Return means of groups of nearly equal size; points with equal values share a group."""
    of_system = sorted(
        (point for point in points if point.system == system),
        key=lambda point: point.measures[measure],
    )
    values = np.array([point.measures[measure] for point in of_system])
    scores = np.array([point.score for point in of_system])
    edges = np.quantile(values, np.linspace(0, 1, _GROUPS + 1)[1:-1])
    group_of = np.searchsorted(np.unique(edges), values, side="left")
    means = []
    for group in np.unique(group_of):
        in_group = group_of == group
        interval = mean_interval(scores[in_group])
        means.append(
            {
                "system": system,
                "measure": 100 * float(values[in_group].mean()),
                "score": 100 * float(scores[in_group].mean()),
                "low": 100 * interval.low,
                "high": 100 * interval.high,
            }
        )
    return means


def _limits(report: AnswerReport, theme: Theme) -> list[Any]:
    """Return a labelled line for the floor and one for the ceiling."""
    names = {"closed-book": "closed-book (floor)", "oracle": "oracle (ceiling)"}
    rows = [row for row in report.rows if row.condition in names]
    rows.sort(key=lambda row: row.score)
    is_close = len(rows) == 2 and 100 * (rows[1].score - rows[0].score) < _CLOSE
    layers = []
    for index, row in enumerate(rows):
        limit = {"label": f"{names[row.condition]} {100 * row.score:.0f}", "score": 100 * row.score}
        base = alt.Chart({"values": [limit]}).encode(y=alt.Y("score:Q"))
        aside = (_LABEL_HEIGHT / 2 if index == 0 else -_LABEL_HEIGHT / 2) if is_close else 0
        text = base.mark_text(align="left", dx=6, dy=aside, color=theme.muted)
        layers += [
            base.mark_rule(strokeDash=[6, 4], color=theme.muted),
            text.encode(x=alt.value(_WIDTH), text="label:N"),  # outside, where no mark can be
        ]
    return layers


def _notes(report: AnswerReport) -> list[str]:
    tasks = [figures.task for figures in report.tasks]
    where = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    queries = sum(figures.queries for figures in report.tasks)
    return [
        f"{where}, {queries} queries: a faint mark for a query and a system, larger for several",
        "solid marks: means of groups, with 95 % intervals",
        *([DEMO] if any(task.startswith("demo/") for task in tasks) else []),
    ]
