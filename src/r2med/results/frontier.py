"""Which systems are worth their cost: the frontier of quality against cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
    """Say in a sentence which systems are below the frontier; empty if none is."""
    parts = []
    for dominated in find_dominated(points):
        better = f"{dominated.better.system} scores at least as high with no more {unit}"
        parts.append(f"{dominated.point.system} ({better})")
    return f"Below the frontier: {', '.join(parts)}." if parts else ""
