"""Means with their intervals: how far apart systems are, and how sure that is."""

from __future__ import annotations

from typing import Any

import altair as alt

from r2med.report.plots.boards import ORIGINS, labels, left_out, ranked_rows, subtitle
from r2med.report.plots.theme import Theme
from r2med.report.standing import Leaderboard

_STEP = 22


def means(board: Leaderboard, theme: Theme, *, top: int | None = 30) -> Any:
    """A dot a system, best on top, with a bar over the 95 % interval where queries are stored."""
    rows = ranked_rows(board, top)
    names = labels(rows)
    order = [names[row.system, row.origin] for row in rows]
    points = [
        {
            "system": names[row.system, row.origin],
            "origin": ORIGINS[row.origin],
            "mean": 100 * (row.mean or 0),
            "low": 100 * row.interval.low if row.interval else None,
            "high": 100 * row.interval.high if row.interval else None,
        }
        for row in rows
    ]
    known = [name for name in ORIGINS.values() if any(p["origin"] == name for p in points)]
    told = left_out(board, rows)
    if any(row.interval for row in rows):
        told.append("bars: 95 % bootstrap interval over queries")
    if any(row.origin == "published" for row in rows):
        told.append("published figures come without queries, so without an interval")
    y = alt.Y(
        "system:N", sort=order, title=None, axis=alt.Axis(grid=True, ticks=False, labelPadding=8)
    )
    scale = alt.Scale(domain=list(ORIGINS.values()), range=[theme.series[1], theme.series[0]])
    colour = alt.Color("origin:N", scale=scale, legend=_legend(known))
    shape = alt.Shape(
        "origin:N",
        scale=alt.Scale(domain=list(ORIGINS.values()), range=["diamond", "circle"]),
        legend=_legend(known),
    )
    x = alt.X(
        "mean:Q",
        title=f"{board.metric} × 100",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(tickCount=8, grid=False),
    )
    base = alt.Chart({"values": points})
    bars = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2.5, opacity=0.55)
        .encode(y=y, x=alt.X("low:Q"), x2="high:Q", color=colour)
    )
    dots = base.mark_point(filled=True, size=85, opacity=1).encode(
        y=y, x=x, color=colour, shape=shape
    )
    figures = (
        base.mark_text(align="left", dx=8, fontSize=11, color=theme.muted)
        .encode(
            y=y,
            x=alt.X("end:Q"),
            text=alt.Text("mean:Q", format=".1f"),
        )
        .transform_calculate(end="isValid(datum.high) ? datum.high : datum.mean")
    )
    return alt.layer(bars, dots, figures).properties(
        width=520,
        height=_STEP * len(order),
        title={
            "text": f"{board.suite.title}: mean {board.metric}",
            "subtitle": subtitle(board, rows, *told),
        },
    )


def _legend(known: list[str]) -> Any:
    """A legend only where there is something to tell apart."""
    return alt.Legend(title=None, values=known, symbolOpacity=1) if len(known) > 1 else None
