"""Scores (one row per judged query, one column per metric), their bounds by tie order, and means.

The two means over tasks answer different questions: the task mean counts every task once (R2MED's
headline), the query-weighted mean counts every query once (NanoR2MED's). A mean is None if one of
its tasks is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.measure.metrics import (
    HEADLINE,
    Column,
    Gains,
    Metric,
    gains,
    parse_metric,
    score_column,
    stored_metrics,
)
from r2med.runs import Run
from r2med.runs.run import TieOrder, find_positions, sort_lists
from r2med.tables import Tabular
from r2med.tasks.task import Judgements


@dataclass(frozen=True, eq=False)
class Scores(Tabular):
    """Per-query scores; `scores["ndcg@10"]` is one metric's column, in the order of the queries."""

    query_ids: pa.LargeStringArray
    positives: NDArray[np.int64]
    """Number of positives of each query."""
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.query_ids)

    def __getitem__(self, metric: str) -> Column:
        return self.columns[metric]

    def __contains__(self, metric: str) -> bool:
        return metric in self.columns

    def __repr__(self) -> str:
        return f"Scores({len(self)} queries, {len(self.columns)} metrics)"

    def by_query(self, metric: str) -> dict[str, float]:
        """The scores of one metric, by query id."""
        return dict(zip(self.query_ids.to_pylist(), self.columns[metric].tolist(), strict=True))

    def means(self) -> dict[str, float]:
        """The mean of every metric over the judged queries."""
        return {
            name: float(column.mean()) if len(self) else 0.0
            for name, column in self.columns.items()
        }

    def micro_recall(self, cutoff: int) -> float:
        """The share of all positives of all queries that is found (recall in Nano profiles).

        The scores must have `recall@{cutoff}`.
        """
        total = int(self.positives.sum())
        retrieved = float(self.columns[f"recall@{cutoff}"] @ self.positives)
        return retrieved / total if total else 0.0

    def at(self, query_ids: pa.Array) -> Scores:
        """Return the scores of these queries only, in the given order."""
        indices = find_positions(query_ids, self.query_ids)
        if (indices < 0).any():
            first = query_ids[int(indices.argmin())]
            raise DataError(f"{(indices < 0).sum()} queries have no scores, the first is {first}.")
        columns = {name: column[indices] for name, column in self.columns.items()}
        return Scores(self.query_ids.take(pa.array(indices)), self.positives[indices], columns)

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns query_id and positives, and one column per metric."""
        return pa.table(
            {"query_id": self.query_ids, "positives": self.positives, **dict(self.columns)}
        )

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Scores:
        """Read the scores from a table that `to_arrow` returned."""
        columns = {name: table[name].to_numpy() for name in table.column_names}
        del columns["query_id"]
        query_ids = table["query_id"].cast(pa.large_string()).combine_chunks()
        return cls(query_ids, columns.pop("positives"), columns)


def measure(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[str | Metric] | None = None,
    *,
    ties: TieOrder = "trec",
) -> Scores:
    """Score a run.

    Judged queries without retrieved documents score zero. Queries without judgements are not
    scored, as in trec_eval.

    Args:
        run: The run to score.
        judgements: Relevance judgements, such as `task.judgements`.
        metrics: Metrics such as "ndcg@10"; by default those of the benchmark.
        ties: The order of documents with equal scores.

    Returns:
        One row per judged query, and means.

    Examples:
        >>> import r2med
        >>> task = r2med.load_task("demo/biology")
        >>> run = r2med.evaluate("bm25", task).run
        >>> scores = r2med.score(run, task.judgements, ["ndcg@10"])
    """
    metrics_to_score = _parse_metrics(metrics) if metrics is not None else stored_metrics()
    return _score(gains(sort_lists(run, ties), judgements), metrics_to_score)


def _score(joined: Gains, metrics: Sequence[Metric]) -> Scores:
    """Score a run that is already joined with its judgements."""
    columns = {str(metric): score_column(joined, metric) for metric in metrics}
    return Scores(joined.query_ids, joined.at_least(1), columns)


def _parse_metrics(names: Iterable[str | Metric]) -> list[Metric]:
    """Metrics from their names."""
    return [parse_metric(name) if isinstance(name, str) else name for name in names]


def tie_bounds(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[str | Metric] = HEADLINE,
    *,
    ties: TieOrder = "trec",
) -> tuple[Scores, Scores]:
    """Score a run twice: with tied documents in the worst order, and in the best order.

    What counts as equal follows `ties`: float32 for trec, float64 for id-ascending, nothing for a
    list. Documents that tie with the last one but were cut off are not in the run, so the bounds
    say nothing about them.
    """
    metrics_to_score, ordered_run = _parse_metrics(metrics), sort_lists(run, ties)
    joined = gains(ordered_run, judgements)
    if ties == "list" or not joined.levels.size:
        scores = _score(joined, metrics_to_score)
        return scores, scores
    ordered_run = ordered_run.over(
        joined.query_ids, find_positions(ordered_run.query_ids, joined.query_ids)
    )
    precision = np.float32 if ties == "trec" else np.float64
    values = np.full(joined.levels.shape, -np.inf, dtype=precision)
    values[ordered_run.query_rows, ordered_run.ranks - 1] = ordered_run.scores
    # For every rank a number that equal scores share, ascending.
    groups = np.zeros(values.shape, dtype=np.int64)
    groups[:, 1:] = np.cumsum(values[:, 1:] != values[:, :-1], axis=1)
    rows = np.repeat(np.arange(len(joined.levels)), joined.levels.shape[1])
    bounds = []
    for sign in (1.0, -1.0):
        order = np.lexsort((sign * joined.levels.ravel(), groups.ravel(), rows))
        levels = joined.levels.ravel()[order].reshape(joined.levels.shape)
        bounds.append(_score(replace(joined, levels=levels), metrics_to_score))
    return bounds[0], bounds[1]


def ceiling(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[Metric],
    *,
    depth: int,
    ties: TieOrder = "trec",
) -> Scores:
    """Score a run after sorting its first `depth` documents by their judgements, best first.

    This is the score of a perfect reranker. The run can be the reranked one, because reranking
    changes the order of the first documents, but not which documents these are.
    """
    joined = gains(sort_lists(run, ties), judgements)
    levels = joined.levels.copy()
    levels[:, :depth] = -np.sort(-levels[:, :depth], axis=1)
    return _score(replace(joined, levels=levels), metrics)


@dataclass(frozen=True)
class Aggregates:
    """Means of one system over tasks; a mean is None if one of its tasks has no score."""

    tasks: int
    """Number of tasks with a score."""
    queries: int
    """Number of queries of the tasks with a score."""
    task_mean: float | None
    weighted_mean: float | None
    """The query-weighted mean. For a micro metric, tasks are weighted by their positives, which
    gives the value over all tasks at once."""
    families: Mapping[str, float | None]


def aggregate(
    values: Mapping[str, float], weights: Mapping[str, int], families: Mapping[str, str]
) -> Aggregates:
    """Compute means of scores by task; `families` has the tasks that a mean must cover."""
    present = [task for task in families if task in values]
    complete = len(present) == len(families) > 0
    total = sum(weights[task] for task in present)
    weighted = sum(values[task] * weights[task] for task in present)
    groups: dict[str, list[str]] = {}
    for task, family in families.items():
        groups.setdefault(family, []).append(task)
    return Aggregates(
        tasks=len(present),
        queries=total,
        task_mean=_mean_over(values, present) if complete else None,
        weighted_mean=weighted / total if complete and total else None,
        families={
            family: _mean_over(values, tasks) if values.keys() >= set(tasks) else None
            for family, tasks in groups.items()
        },
    )


def _mean_over(values: Mapping[str, float], tasks: Collection[str]) -> float:
    return fsum(values[task] for task in tasks) / len(tasks)
