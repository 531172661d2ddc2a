"""Scores: one row a judged query, one column a metric, and the means drawn from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from r2med.measure.gains import gains
from r2med.measure.metrics import score_column
from r2med.measure.names import Metric, parse_metric, stored_metrics
from r2med.measure.ordering import TieOrder, ordered
from r2med.runs import Run
from r2med.tasks.task import Judgements


@dataclass(frozen=True, eq=False)
class Scores:
    """Per-query scores; `table` has the columns query_id, positives and a column a metric."""

    table: pl.DataFrame

    def __len__(self) -> int:
        return len(self.table)

    @property
    def names(self) -> list[str]:
        """The metrics measured."""
        return self.table.columns[2:]

    def means(self) -> dict[str, float]:
        """The mean of every metric over the judged queries."""
        if not len(self):
            return dict.fromkeys(self.names, 0.0)
        return {name: float(self.table[name].mean()) for name in self.names}  # type: ignore[arg-type]

    def micro_recall(self, cutoff: int) -> float:
        """Positives found / positives, over all queries at once (the Nano profile figure)."""
        positives = self.table["positives"]
        total = int(positives.sum())
        found = float((self.table[f"recall@{cutoff}"] * positives).sum())
        return found / total if total else 0.0


def measure(
    run: Run,
    judgements: Judgements,
    metrics: Sequence[str | Metric] | None = None,
    *,
    ties: TieOrder = "trec",
) -> Scores:
    """Score a run; judged queries without retrieved documents count as zero.

    Queries without judgements do not count, as in trec_eval.
    """
    wanted = _metrics(metrics) if metrics is not None else stored_metrics()
    joined = gains(ordered(run, ties), judgements)
    columns = {str(metric): score_column(joined, metric) for metric in wanted}
    identity = {"query_id": joined.query_ids.to_pylist(), "positives": joined.positives}
    return Scores(pl.DataFrame({**identity, **columns}))


def _metrics(names: Iterable[str | Metric]) -> list[Metric]:
    return [parse_metric(name) if isinstance(name, str) else name for name in names]
