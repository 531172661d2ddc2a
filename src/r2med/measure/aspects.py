"""Measure how many aspects of a query the first documents cover.

A judgement may name the aspect that its document supports, such as `evidence` and `gold`, or one of
several parts of an answer, with a weight. A document can support several aspects. The measures are
those of TREC's diversity track, with weights: without them they equal ndeval's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.measure.intervals import Interval, mean_interval
from r2med.runs import Run
from r2med.runs.run import TieOrder, sort_lists
from r2med.tables import Tabular, make_table
from r2med.tasks.reading.aspects import AspectJudgement

#: The documents that are looked at.
CUTOFF = 10
#: Part of a gain that is lost with each earlier document on the same aspect.
ALPHA = 0.5
MEASURES = ("aspect_recall", "alpha_ndcg", "p_ia", "err_ia")


@dataclass(frozen=True)
class AspectCoverage:
    """The coverage of one aspect, over all queries that have the aspect."""

    aspect: str
    queries: int
    covered: int
    """Number of queries with a document that supports the aspect, among the first documents."""

    @property
    def missed(self) -> int:
        """Number of queries whose first documents do not support the aspect."""
        return self.queries - self.covered


@dataclass(frozen=True, eq=False)
class AspectScores(Tabular):
    """Scores over aspects; as a table, one row per query."""

    cutoff: int
    query_ids: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]
    """The scores of all queries, by measure."""
    coverage: tuple[AspectCoverage, ...]
    missed: Mapping[str, tuple[str, ...]]
    """The aspects that none of the first documents supports, by query; queries that miss none are
    left out."""

    @cached_property
    def means(self) -> dict[str, float]:
        """The mean of every measure, as in `alpha_ndcg@10`."""
        return {f"{name}@{self.cutoff}": float(v.mean()) for name, v in self.columns.items()}

    def interval(self, measure: str) -> Interval:
        """The 95 % interval of the mean of a measure."""
        return mean_interval(self.columns[measure.partition("@")[0]])

    def to_arrow(self) -> pa.Table:
        """One row per query, with a column per measure."""
        rows = [
            {"query_id": query_id, **{name: float(v[row]) for name, v in self.columns.items()}}
            for row, query_id in enumerate(self.query_ids)
        ]
        return make_table({"query_id": str, **dict.fromkeys(self.columns, float)}, rows)

    def to_json(self) -> dict[str, Any]:
        """Means, coverage of each aspect, and the aspects that each query misses."""
        coverage = [{**asdict(row), "missed": row.missed} for row in self.coverage]
        missed = {query_id: list(aspects) for query_id, aspects in self.missed.items()}
        return {"metrics": self.means, "aspects": coverage, "missed": missed}


def measure_aspects(
    run: Run,
    judgements: Sequence[AspectJudgement],
    *,
    cutoff: int = CUTOFF,
    ties: TieOrder = "trec",
) -> AspectScores:
    """Score a run by the aspects that its first documents cover.

    Args:
        run: The ranked lists; queries without a list score 0.
        judgements: Judgements with aspects; scores of 0 or below do not count.
        cutoff: Number of documents that are looked at.
        ties: The order of equal scores.
    """
    ordered = sort_lists(run, ties)
    by_query = group_by_query(judgements)
    rows: dict[str, list[float]] = {name: [] for name in MEASURES}
    covering: dict[str, list[bool]] = {}
    missed: dict[str, tuple[str, ...]] = {}
    for query_id, query in by_query.items():
        ranked = ordered.ranked_documents(query_id)[:cutoff]
        for name, value in query.score(ranked, cutoff).items():
            rows[name].append(value)
        covered = {aspect for document in ranked for aspect in query.aspects_of(document)}
        for aspect in query.weights:
            covering.setdefault(aspect, []).append(aspect in covered)
        if left := tuple(aspect for aspect in query.weights if aspect not in covered):
            missed[query_id] = left
    return AspectScores(
        cutoff,
        tuple(by_query),
        {name: np.array(values) for name, values in rows.items()},
        tuple(AspectCoverage(a, len(c), sum(c)) for a, c in sorted(covering.items())),
        missed,
    )


@dataclass(frozen=True)
class QueryAspects:
    """The aspects of one query."""

    weights: Mapping[str, float]
    """The weight of each aspect."""
    documents: Mapping[str, frozenset[str]]
    """The aspects that each document supports."""

    def aspects_of(self, document_id: str) -> frozenset[str]:
        """The aspects that a document supports."""
        return self.documents.get(document_id, frozenset())

    def score(self, ranked: Sequence[str], cutoff: int) -> dict[str, float]:
        """Score a list by every measure."""
        total = sum(self.weights.values())
        covered = frozenset().union(*map(self.aspects_of, ranked)) if ranked else frozenset()
        ideal = self._alpha_dcg(self._ideal_order(cutoff))
        gain = self._alpha_dcg(ranked)
        return {
            "aspect_recall": sum(self.weights[aspect] for aspect in covered) / total,
            "alpha_ndcg": gain / ideal if ideal else 0.0,
            "p_ia": self._precision(ranked, cutoff) / total,
            "err_ia": self._err(ranked) / (total * _ideal_err(cutoff)),
        }

    def _gain(self, document_id: str, seen: Mapping[str, int]) -> float:
        return sum(
            self.weights[aspect] * (1 - ALPHA) ** seen.get(aspect, 0)
            for aspect in self.aspects_of(document_id)
        )

    def _alpha_dcg(self, ranked: Sequence[str]) -> float:
        seen: dict[str, int] = {}
        total = 0.0
        for rank, document_id in enumerate(ranked, start=1):
            total += self._gain(document_id, seen) / float(np.log2(rank + 1))
            for aspect in self.aspects_of(document_id):
                seen[aspect] = seen.get(aspect, 0) + 1
        return total

    def _ideal_order(self, cutoff: int) -> list[str]:
        """Return documents in the greedy best order, as ndeval does; the exact one takes too long.

        Of documents with equal gain, ndeval takes the one with the largest id first.
        """
        left = sorted(self.documents, reverse=True)
        order: list[str] = []
        seen: dict[str, int] = {}
        while left and len(order) < cutoff:
            best = max(left, key=lambda document_id: self._gain(document_id, seen))
            left.remove(best)
            order.append(best)
            for aspect in self.aspects_of(best):
                seen[aspect] = seen.get(aspect, 0) + 1
        return order

    def _precision(self, ranked: Sequence[str], cutoff: int) -> float:
        supported = (self.aspects_of(document_id) for document_id in ranked)
        return sum(self.weights[a] for aspects in supported for a in aspects) / cutoff

    def _err(self, ranked: Sequence[str]) -> float:
        """Expected reciprocal rank, where a document satisfies half of the readers left."""
        left = dict.fromkeys(self.weights, 1.0)
        total = 0.0
        for rank, document_id in enumerate(ranked, start=1):
            for aspect in self.aspects_of(document_id):
                total += self.weights[aspect] * left[aspect] * 0.5 / rank
                left[aspect] *= 0.5
        return total


def _ideal_err(cutoff: int) -> float:
    """ERR of a list whose documents all support the aspect; ndeval divides by this value."""
    return sum(0.5**rank / rank for rank in range(1, cutoff + 1))


def group_by_query(judgements: Sequence[AspectJudgement]) -> dict[str, QueryAspects]:
    """Return the aspects of every query that has one, in the order of the judgements."""
    weights: dict[str, dict[str, float]] = {}
    documents: dict[str, dict[str, set[str]]] = {}
    for row in judgements:
        if row.score <= 0:
            continue
        weights.setdefault(row.query_id, {}).setdefault(row.aspect, row.weight)
        documents.setdefault(row.query_id, {}).setdefault(row.document_id, set()).add(row.aspect)
    return {
        query_id: QueryAspects(
            weights[query_id],
            {name: frozenset(aspects) for name, aspects in documents[query_id].items()},
        )
        for query_id in weights
    }
