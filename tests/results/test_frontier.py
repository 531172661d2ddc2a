"""The frontier holds every system that no other one beats in quality and cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from r2med.results.frontier import CostPoint, describe_dominated, find_dominated, find_frontier

VALUES = st.tuples(st.integers(0, 5), st.integers(0, 5))


def points_of(values: list[tuple[int, int]]) -> list[CostPoint]:
    return [CostPoint(f"s{i}", float(cost), mean / 5) for i, (cost, mean) in enumerate(values)]


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_a_system_is_on_the_frontier_or_below_a_better_one(values: list[tuple[int, int]]) -> None:
    points = points_of(values)
    frontier, below = find_frontier(points), find_dominated(points)

    assert {point.system for point in frontier} | {found.point.system for found in below} == {
        point.system for point in points
    }
    assert len(frontier) + len(below) == len(points)
    for found in below:
        assert found.better in frontier
        assert found.better.cost <= found.point.cost
        assert found.better.mean >= found.point.mean
    for point in frontier:
        assert not any(other.cost <= point.cost and other.mean > point.mean for other in points)


def test_the_sentence_names_the_dominated_systems() -> None:
    points = points_of([(1, 3), (2, 2), (3, 4)])

    assert describe_dominated(points, "seconds") == (
        "Below the frontier: s1 (s0 scores at least as high with no more seconds)."
    )
    assert describe_dominated(points[:1], "seconds") == ""
