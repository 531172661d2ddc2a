"""Queries of one task across systems: hard for all, dividing them, won by one over another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from r2med.results.record import Result

Order = Literal["task", "difficulty", "division", "gain", "loss"]
ORDERS: Mapping[Order, str] = {
    "difficulty": "hardest first",
    "division": "most divided first",
    "gain": "largest gain of the first system over the second",
    "loss": "largest loss of the first system to the second",
    "task": "as the task lists them",
}


@dataclass(frozen=True)
class QueryScores:
    """One query under several systems; scores are in the order of the systems."""

    query_id: str
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Low where the query is hard for all."""
        return fmean(self.scores)

    @property
    def division(self) -> float:
        """The best score minus the worst."""
        return max(self.scores) - min(self.scores)

    @property
    def gain(self) -> float:
        """The first system's score minus the second's; 0 where there is one."""
        return self.scores[0] - self.scores[1] if len(self.scores) > 1 else 0.0


def query_scores(results: Sequence[Result], metric: str) -> list[QueryScores]:
    """The judged queries that all results scored, in the first one's order.

    The results are of one task's same data.
    """
    tables = [
        dict(zip(each.scores.query_ids.to_pylist(), each.scores[metric].tolist(), strict=True))
        for each in results
    ]
    return [
        QueryScores(query, tuple(table[query] for table in tables))
        for query in (tables[0] if tables else {})
        if all(query in table for table in tables)
    ]


def in_order(queries: Sequence[QueryScores], order: Order) -> list[QueryScores]:
    """Queries by difficulty, division, gain or loss; of equals, in the task's order."""
    if order == "task":
        return list(queries)
    if order == "difficulty":
        return sorted(queries, key=lambda query: query.mean)
    if order == "division":
        return sorted(queries, key=lambda query: -query.division)
    sign = -1 if order == "gain" else 1
    return sorted(queries, key=lambda query: sign * query.gain)
