"""A strip of scores by body system: one cell per system and body system, with n and interval."""

from __future__ import annotations

from typing import Any

import altair as alt

from r2med.report.plots.theme import DEMO, Theme
from r2med.results.body_systems import BodySystemScores

#: Pixels of a cell.
_CELL = (64, 40)
#: Above this part of the colour range the text changes its colour.
_TURN = 0.55
#: Pixels from the middle of a cell to its two lines of text.
_LINE = 7


def body_system_strip(scores: BodySystemScores, title: str, theme: Theme) -> Any:
    """Draw a table of means with half the 95 % interval; column titles have the number of queries.

    Args:
        scores: Scores of one or several systems, drawn from top to bottom.
        title: Title of the figure.
        theme: Light or dark.
    """
    queries = {
        name: max(score.queries for score in scores.scores if score.body_system == name)
        for name in scores.body_systems
    }
    headings = {name: f"{name}, n = {count}" for name, count in queries.items()}
    cells = [
        {
            "system": score.system,
            "body_system": headings[score.body_system],
            "value": 100 * score.mean,
            "reach": f"± {50 * (score.interval.high - score.interval.low):.0f}",
        }
        for score in scores.scores
    ]
    most = max(100 * score.mean for score in scores.scores) or 1.0
    bare: dict[str, Any] = {"ticks": False, "domain": False}
    top_axis = alt.Axis(orient="top", labelAngle=-40, labelPadding=6, labelLimit=240, **bare)
    x = alt.X("body_system:N", sort=list(headings.values()), title=None, axis=top_axis)
    y_axis = alt.Axis(labelPadding=8, labelLimit=260, **bare)
    y = alt.Y("system:N", sort=list(scores.systems), title=None, axis=y_axis)
    ramp = alt.Scale(domain=[0, most], range=list(theme.ramp), interpolate="lab")
    ink = alt.condition(
        f"datum.value > {_TURN * most}", alt.value(theme.high_ink), alt.value(theme.low_ink)
    )
    base = alt.Chart({"values": cells}).encode(x=x, y=y)
    squares = base.mark_rect(stroke=theme.paper, strokeWidth=1.5)
    means = base.mark_text(fontSize=11, dy=-_LINE).encode(
        text=alt.Text("value:Q", format=".1f"), color=ink
    )
    reaches = base.mark_text(fontSize=9, dy=_LINE).encode(text="reach:N", color=ink)
    subtitle = [
        "mean and half the 95 % interval; every query counts once, over all tasks",
        *([DEMO] if scores.suite == "demo" else []),
    ]
    return alt.layer(
        squares.encode(color=alt.Color("value:Q", scale=ramp, legend=None)),
        means,
        reaches,
        width=alt.Step(_CELL[0]),
        height=alt.Step(_CELL[1]),
    ).properties(title={"text": title, "subtitle": subtitle})
