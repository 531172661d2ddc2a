"""Cost of results: time for indexing and for queries, tokens and money if known.

Cached work counts with the cost recorded when it was done, and is marked, so that a warm cache does
not make a system look cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from r2med.results.record import Result
from r2med.systems.output import StageCost

Number = TypeVar("Number", int, float)

#: Steps of an evaluation that are not work of the system.
_NOT_OF_SYSTEM = ("load", "measure", "read")
_INDEXING = "index"


@dataclass(frozen=True)
class Cost:
    """Costs added up over tasks; None is unknown, never zero."""

    queries: int
    index_seconds: float
    """Time for indexing or encoding the corpus."""
    query_seconds: float
    """Wall time of expanding, searching, fusing and reranking; answers of language models that came
    from a cache count as recorded."""
    index_tokens: int | None
    query_tokens: int | None
    money: float | None
    """US dollars at the prices when the work was done, for queries and corpus; cached answers
    count."""
    index_cached: bool
    """Whether some of the indexing came from a cache or from stored results of members."""
    query_cached: bool
    """Whether some of the work for queries came from a cache or from stored results."""
    request_p50: float | None = None
    """Median seconds of one request to a language model, in the slowest stage and task."""
    request_p95: float | None = None

    @property
    def seconds_per_query(self) -> float:
        """Seconds per query, without the time for indexing the corpus."""
        return self.query_seconds / self.queries if self.queries else 0.0

    @property
    def tokens_per_query(self) -> float | None:
        """Tokens that are encoded or sent to a model, per query."""
        if self.query_tokens is None or not self.queries:
            return None
        return self.query_tokens / self.queries


def cost_of(results: Iterable[Result]) -> Cost:
    """Add up the recorded costs of all stages of some results."""
    records = [result.record for result in results]
    costs = [
        cost for record in records for cost in record.costs if cost.stage not in _NOT_OF_SYSTEM
    ]
    indexing = [cost for cost in costs if cost.stage == _INDEXING]
    querying = [cost for cost in costs if cost.stage != _INDEXING]
    return Cost(
        queries=sum(record.task.queries for record in records),
        index_seconds=sum(cost.seconds for cost in indexing),
        query_seconds=sum(
            cost.seconds if cost.answer_seconds is None else cost.answer_seconds
            for cost in querying
        ),
        index_tokens=_sum_known(_tokens(indexing)),
        query_tokens=_sum_known(_tokens(querying)),
        money=_sum_known([value for cost in costs for value in (cost.money, cost.cached_money)]),
        index_cached=_is_cached(indexing),
        query_cached=_is_cached(querying),
        request_p50=_largest_known(cost.request_p50 for cost in costs),
        request_p95=_largest_known(cost.request_p95 for cost in costs),
    )


def _tokens(costs: Iterable[StageCost]) -> list[int | None]:
    return [value for cost in costs for value in (cost.tokens, cost.cached_tokens)]


def _is_cached(costs: Iterable[StageCost]) -> bool:
    return any(cost.cached or cost.reused for cost in costs)


def _largest_known(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sum_known(values: Iterable[Number | None]) -> Number | None:
    """The sum of the known values; None if none is known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers[1:], numbers[0]) if numbers else None
