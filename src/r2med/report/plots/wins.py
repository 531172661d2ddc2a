"""Win and loss per query: whether a difference comes from many queries or from a few."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from r2med.report.plots.theme import Theme
from r2med.report.table import task_label
from r2med.results.compare import Aligned

_TIE = 1e-9
_ACROSS = 2
_ROOM = 1.06


def wins(sides: Aligned, metric: str, theme: Theme) -> Any:
    """One bar per query, sorted by A minus B; one panel per task."""
    a, b = sides.systems
    differences = {
        task: np.sort(100 * (scores[:, 0] - scores[:, 1]))[::-1]
        for task, scores in sides.tasks.items()
    }
    ends = [float(end) for each in differences.values() for end in (each[0], each[-1])]
    span = [_ROOM * min(0.0, *ends), _ROOM * max(0.0, *ends)]
    panels = [
        _panel(task, values, span, theme, alone=len(sides.tasks) == 1)
        for task, values in differences.items()
    ]
    told = ["one bar per query, sorted; bars up: the first named is better"]
    if sides.suite == "demo":
        told.append("demo suite: not comparable with published figures")
    return alt.concat(*panels, columns=_ACROSS, spacing=26).properties(
        title={
            "text": f"{metric} × 100 query by query: {a} minus {b}",
            "subtitle": told,
        }
    )


def _panel(
    task: str, differences: NDArray[np.float64], span: list[float], theme: Theme, *, alone: bool
) -> Any:
    """One task; all panels share the span of the vertical axis, so that they compare."""
    rows = [
        {"place": place + 1, "end": place + 2, "difference": float(value), "side": _side(value)}
        for place, value in enumerate(differences)
    ]
    sides = ["better", "worse", "equal"]
    colours = alt.Scale(domain=sides, range=[theme.series[0], theme.series[1], theme.muted])
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
    better, worse = (int(np.sum(sign * differences > _TIE)) for sign in (1, -1))
    told = (
        f"{better} better, {len(rows) - better - worse} equal, {worse} worse; "
        f"mean {differences.mean():+.1f}"
    )
    return alt.layer(bars, zero.encode(y="zero:Q")).properties(
        width=600 if alone else 330,
        height=320 if alone else 150,
        title={"text": task_label(task), "subtitle": [told], "fontSize": 13},
    )


def _side(value: float) -> str:
    if abs(value) <= _TIE:
        return "equal"
    return "better" if value > 0 else "worse"
