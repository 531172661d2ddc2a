"""Quality against date: when each figure was reported, and what was best at the time."""

from __future__ import annotations

from typing import Any

import altair as alt

from r2med.errors import MissingError
from r2med.report.plots.boards import ORIGINS, labels, subtitle
from r2med.report.plots.theme import Theme
from r2med.results.leaderboard import Leaderboard

_SHAPES = ("diamond", "triangle-up", "circle")


def dates(board: Leaderboard, theme: Theme) -> Any:
    """One point per system whose date is known; a line joins the best so far, which are named."""
    rows = [row for row in board.rows if row.mean is not None and row.date]
    if not rows:
        raise MissingError(
            f"No system of the {board.suite.name} suite has both a mean over all its tasks and a "
            "known date."
        )
    names = labels(rows)
    points: list[dict[str, Any]] = [
        {
            "system": names[row.system, row.origin],
            "origin": ORIGINS[row.origin],
            "date": row.date[:7],
            "mean": 100 * (row.mean or 0),
        }
        for row in rows
    ]
    known = [name for name in ORIGINS.values() if any(p["origin"] == name for p in points)]
    legend = alt.Legend(title=None, values=known, symbolOpacity=1) if len(known) > 1 else None
    domain = list(ORIGINS.values())
    x = alt.X(
        "date:T",
        title="month of the report",
        scale=alt.Scale(nice="month", padding=60),
        axis=alt.Axis(format="%b %Y", tickCount="month", labelAngle=-30, grid=False),
    )
    y = alt.Y("mean:Q", title=f"{board.metric} × 100, mean", axis=alt.Axis(tickCount=6))
    base = alt.Chart({"values": points}).encode(x=x, y=y)
    dots = base.mark_point(filled=True, size=60, opacity=0.7).encode(
        color=alt.Color(
            "origin:N",
            scale=alt.Scale(domain=domain, range=[theme.series[i] for i in (1, 2, 0)]),
            legend=legend,
        ),
        shape=alt.Shape(
            "origin:N", scale=alt.Scale(domain=domain, range=list(_SHAPES)), legend=legend
        ),
    )
    best = best_so_far(points)
    edge = alt.Chart({"values": best}).encode(x=x, y=y)
    line = edge.mark_line(interpolate="step-after", strokeDash=[4, 3], color=theme.muted)
    text = edge.mark_text(align="right", dx=-8, dy=-8, fontSize=11, color=theme.ink, limit=260)
    return alt.layer(line, dots, text.encode(text="system:N")).properties(
        width=640,
        height=360,
        title={
            "text": f"{board.suite.title}: quality against date",
            "subtitle": subtitle(board, rows, "dashed: the best so far, named where it changed"),
        },
    )


def best_so_far(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points above everything of their month and before."""
    best: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda each: (each["date"], -each["mean"])):
        if not best or point["mean"] > best[-1]["mean"]:
            best.append(point)
    return best
