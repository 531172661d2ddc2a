"""Quality against cost: what a better score takes in seconds, tokens or money."""

from __future__ import annotations

from typing import Any, Literal

import altair as alt

from r2med.errors import MissingError
from r2med.report.plots.boards import labels, subtitle
from r2med.report.plots.theme import Theme
from r2med.report.standing import Leaderboard, Standing
from r2med.results.lineage import KIND_TITLES

Measure = Literal["seconds", "tokens", "money"]
MEASURES: tuple[Measure, ...] = ("seconds", "tokens", "money")
_TITLES = {
    "seconds": "seconds per query (indexing included), log scale",
    "tokens": "tokens per query, log scale",
    "money": "US dollars per query, log scale",
}
_LEAST = 1e-9
#: Names closer than this part of the height, at costs within this factor, would overlap.
_CLOSE, _NEAR = 0.06, 3.0
_SHAPES = ("circle", "square", "triangle-up")


def cost(board: Leaderboard, theme: Theme, *, by: Measure = "seconds") -> Any:
    """A point a measured system; those that nothing beats on both axes are joined by a line."""
    rows = [row for row in board.rows if row.mean is not None and _spent(row, by) is not None]
    if not rows:
        remedy = (
            f"Run some first: r2med eval bm25 bm25-lucene --task {board.suite.name}"
            if by == "seconds"
            else "Systems that call models record it; --spent seconds works for all."
        )
        raise MissingError(
            f"No measured system of the {board.suite.name} suite has a mean over all its tasks "
            f"and {by} recorded; published figures come without cost.\n{remedy}"
        )
    names_of = labels(rows)
    points: list[dict[str, Any]] = [
        {
            "system": names_of[row.system, row.origin],
            "kind": KIND_TITLES[row.kind],
            "cost": max(_LEAST, _spent(row, by) or 0.0),
            "mean": 100 * (row.mean or 0),
        }
        for row in rows
    ]
    _part_names(points)
    kinds = [title for title in KIND_TITLES.values() if any(p["kind"] == title for p in points)]
    domain = _room([point["cost"] for point in points])
    x = alt.X(
        "cost:Q",
        title=_TITLES[by],
        scale=alt.Scale(type="log", domain=domain),
        axis=alt.Axis(format="~g", tickCount=4, grid=False),
    )
    y = alt.Y(
        "mean:Q",
        title=f"{board.metric} × 100, mean",
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(tickCount=6),
    )
    base = alt.Chart({"values": points}).encode(x=x, y=y)
    titles = list(KIND_TITLES.values())
    legend = alt.Legend(title=None, values=kinds) if len(kinds) > 1 else None
    dots = base.mark_point(filled=True, size=110, opacity=1).encode(
        color=alt.Color(
            "kind:N", scale=alt.Scale(domain=titles, range=list(theme.series[:3])), legend=legend
        ),
        shape=alt.Shape(
            "kind:N", scale=alt.Scale(domain=titles, range=list(_SHAPES)), legend=legend
        ),
    )
    names = [
        base.transform_filter(f"datum.below == {str(below).lower()}")
        .mark_text(align="left", dx=9, dy=12 if below else -7, fontSize=11, color=theme.ink)
        .encode(text="system:N")
        for below in (False, True)
    ]
    edge = (
        alt.Chart({"values": _frontier(points, domain[1])})
        .mark_line(interpolate="step-after", strokeDash=[4, 3], color=theme.muted)
        .encode(x=x, y=y)
    )
    told = "dashed: the best mean at that cost or less; without indexing, cached work as recorded"
    return alt.layer(edge, dots, *names).properties(
        width=600,
        height=380,
        title={
            "text": f"{board.suite.title}: quality against {by}",
            "subtitle": subtitle(board, rows, told),
        },
    )


def _spent(row: Standing, by: Measure) -> float | None:
    """The cost of one query; None where it was not recorded."""
    if row.cost is None or not row.cost.queries:
        return None
    if by == "seconds":
        return row.cost.seconds_per_query
    if by == "tokens":
        return row.cost.tokens_per_query
    return None if row.cost.money is None else row.cost.money / row.cost.queries


def _room(costs: list[float]) -> list[float]:
    """A domain with room for the names at the right."""
    return [min(costs) / 1.8, max(costs) * 4]


def _part_names(points: list[dict[str, Any]]) -> None:
    """Put a name below its point where one just above would write over it."""
    ordered = sorted(points, key=lambda point: -point["mean"])
    span = max(1.0, ordered[0]["mean"] - ordered[-1]["mean"])
    for place, point in enumerate(ordered):
        point["below"] = any(
            above["mean"] - point["mean"] < _CLOSE * span
            and max(above["cost"], point["cost"]) < _NEAR * min(above["cost"], point["cost"])
            and not above["below"]
            for above in ordered[:place]
        )


def _frontier(points: list[dict[str, Any]], end: float) -> list[dict[str, Any]]:
    """The points that nothing cheaper beats, and on to the right edge."""
    best: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: (p["cost"], -p["mean"])):
        if not best or point["mean"] > best[-1]["mean"]:
            best.append(point)
    return [*best, {**best[-1], "cost": end}]
