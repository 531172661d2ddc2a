"""Find the systems that are worth their cost: the frontier of quality against cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Systems below one system of the frontier that a sentence names.
_MOST_NAMED = 5


@dataclass(frozen=True)
class CostPoint:
    """The cost and the mean score of one system."""

    system: str
    cost: float
    mean: float


@dataclass(frozen=True)
class Dominated:
    """A system below the frontier, and one that scores at least as high and costs no more."""

    point: CostPoint
    better: CostPoint


def find_frontier(points: Iterable[CostPoint]) -> list[CostPoint]:
    """The systems that no other one beats on both axes, cheapest first."""
    frontier: list[CostPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.mean)):
        if not frontier or point.mean > frontier[-1].mean:
            frontier.append(point)
    return frontier


def find_dominated(points: Sequence[CostPoint]) -> list[Dominated]:
    """The systems below the frontier, each with the best system that costs no more."""
    frontier = find_frontier(points)
    below = []
    for point in points:
        if point not in frontier:
            affordable = [candidate for candidate in frontier if candidate.cost <= point.cost]
            below.append(Dominated(point, affordable[-1]))
    return below


def describe_dominated(points: Sequence[CostPoint], unit: str) -> str:
    """A sentence that lists the systems below the frontier, and why; empty if there are none."""
    below: dict[str, list[str]] = {}
    for dominated in sorted(find_dominated(points), key=lambda row: -row.point.mean):
        below.setdefault(dominated.better.system, []).append(dominated.point.system)
    parts = [
        f"{_list_names(names)} ({better} scores at least as high with no more {unit})"
        for better, names in below.items()
    ]
    return f"Below the frontier: {'; '.join(parts)}." if parts else ""


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
