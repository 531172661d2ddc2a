"""Results side by side: what an evaluation says, as a value that can be shown and tabulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from r2med.measure.metrics import HEADLINE
from r2med.results.record import Result
from r2med.tabular import Tabular, table_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Evaluation(Tabular):
    """Results of any mix of systems and tasks."""

    results: Sequence[Result]
    asked: Sequence[str] = ()
    """Metrics that were asked for; without any, the headline metrics are shown."""

    drawn_by = "r2med.report.scores"

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics shown."""
        return self.asked or HEADLINE

    def to_arrow(self) -> pa.Table:
        """One row per result; metrics 0 to 1."""
        named = dict.fromkeys(("system", "task", "suite"), str)
        columns = {**named, "queries": int, **dict.fromkeys(self.metrics, float), "seconds": float}
        rows = [
            {**row, **row["metrics"], "seconds": sum(row["seconds"].values())}
            for row in self.to_json()
        ]
        return table_of({**columns, "result": str}, rows)

    def to_json(self) -> list[dict[str, Any]]:
        """One record per result; metrics 0 to 1."""
        return [self._record(result) for result in self.results]

    def _record(self, result: Result) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "system": result.name,
            "spec": result.system,
            "task": result.task,
            "suite": result.suite,
            "queries": result.record.task.judged_queries,
            "metrics": {name: result.metrics[name] for name in self.metrics},
            "seconds": dict(result.seconds),
            "result": str(result.folder),
        }
        if reranking := result.record.reranking:
            ceiling = {name: reranking.ceiling[name] for name in self.metrics}
            facts |= {"reranked": reranking.depth, "tail": reranking.tail, "ceiling": ceiling}
        return facts
