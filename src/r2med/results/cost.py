"""What a result cost: indexing and answering queries apart, tokens and money where they are known.

What came from a cache counts at the cost that was recorded with it, and is marked, so that a warm
cache does not make a system look cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from r2med.results.record import Result

#: Stages that are no work of the system.
_AROUND = ("load", "measure", "read")
_INDEXING = "index"


@dataclass(frozen=True)
class Cost:
    """Totals over tasks; None is unknown, never zero."""

    queries: int
    index_seconds: float
    """Indexing or encoding the corpus."""
    query_seconds: float
    """Expanding, searching, fusing and reranking, as if queries came one at a time: answers of
    language models count with the time each took, cached ones as recorded."""
    index_tokens: int | None
    query_tokens: int | None
    money: float | None
    """US dollars at the prices of their days, for queries and corpus, cached answers included."""
    index_cached: bool
    """Whether some of the indexing came from a cache or from stored results of members."""
    query_cached: bool
    """Whether some of the work for queries did."""

    @property
    def seconds_per_query(self) -> float:
        """How long a query takes; the corpus is ready."""
        return self.query_seconds / self.queries if self.queries else 0.0

    @property
    def tokens_per_query(self) -> float | None:
        """Tokens of the queries' side: what is encoded or asked for each."""
        if self.query_tokens is None or not self.queries:
            return None
        return self.query_tokens / self.queries


def cost_of(results: Iterable[Result]) -> Cost:
    """Add up what the stages of some results recorded."""
    records = [result.record for result in results]
    stages = [each for record in records for each in record.stages if each["stage"] not in _AROUND]
    indexing = [stage for stage in stages if stage["stage"] == _INDEXING]
    querying = [stage for stage in stages if stage["stage"] != _INDEXING]
    return Cost(
        queries=sum(record.task.queries for record in records),
        index_seconds=sum(stage["seconds"] for stage in indexing),
        query_seconds=sum(
            stage["seconds"] if stage.get("answer_seconds") is None else stage["answer_seconds"]
            for stage in querying
        ),
        index_tokens=_sum(indexing, "tokens", "cached_tokens"),
        query_tokens=_sum(querying, "tokens", "cached_tokens"),
        money=_sum(stages, "money", "cached_money"),
        index_cached=_cached(indexing),
        query_cached=_cached(querying),
    )


def _cached(stages: Iterable[Mapping[str, Any]]) -> bool:
    return any(stage.get("cached") or stage.get("reused") for stage in stages)


def _sum(stages: Iterable[Mapping[str, Any]], *names: str) -> Any:
    """The sum of what the stages say under these names; None where none of them says anything."""
    values = [stage[name] for stage in stages for name in names if stage.get(name) is not None]
    return sum(values) if values else None
