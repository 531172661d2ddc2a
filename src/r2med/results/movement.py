"""Compare the queries of two systems: the scores under both, and the ranks of the positives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from r2med.errors import UsageError
from r2med.execution.resources import Warn, log_warning
from r2med.measure.intervals import TIE
from r2med.results.compare import compare_selection, select_systems
from r2med.results.select import ResultSet, rank_system
from r2med.results.store import DEFAULT_FOLDER
from r2med.tables import Tabular
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task

_NOT_LISTED = 1 << 30

Order = Literal["contrast", "loss", "gain"]
"""The order of queries: largest difference first, largest loss of A first, or largest gain of A."""
_ORDERS: Mapping[Order, Callable[[float], float]] = {
    "contrast": lambda difference: -abs(difference),
    "loss": lambda difference: difference,
    "gain": lambda difference: -difference,
}


@dataclass(frozen=True)
class QueryMovement:
    """One query under A and under B."""

    task: Task
    query_id: str
    score_a: float
    score_b: float
    first_a: str | None
    """The document that A ranks first; None for an empty list."""
    first_b: str | None
    positives: Mapping[str, tuple[int | None, int | None]]
    """The ranks of each positive under A and B, best first; None if the positive is not listed."""

    @property
    def difference(self) -> float:
        """The score of A minus the score of B."""
        return self.score_a - self.score_b

    @property
    def text(self) -> str:
        """The text of the query."""
        return self.task.query(self.query_id)


@dataclass(frozen=True, eq=False)
class Movement(Tabular):
    """Every judged query of some tasks under two systems, the largest difference first."""

    a: str
    b: str
    metric: str
    queries: tuple[QueryMovement, ...]

    is_drawn = True

    @property
    def moved(self) -> tuple[QueryMovement, ...]:
        """The queries whose scores differ."""
        return tuple(query for query in self.queries if abs(query.difference) > TIE)

    def to_arrow(self) -> pa.Table:
        """One row per query, with the ranks of its positives as lists."""
        return pa.Table.from_pylist(self.to_json()["queries"])

    def to_json(self) -> dict[str, Any]:
        """Every query, not only those that moved."""
        fields = ("query_id", "text", "score_a", "score_b", "difference", "first_a", "first_b")
        rows = [
            {
                "task": query.task.name,
                **{name: getattr(query, name) for name in fields},
                "positives": [
                    {"document_id": document, "rank_a": rank_a, "rank_b": rank_b}
                    for document, (rank_a, rank_b) in query.positives.items()
                ],
            }
            for query in self.queries
        ]
        return {"a": self.a, "b": self.b, "metric": self.metric, "queries": rows}


def compare_queries(
    *systems: str | Path,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    order: Order = "contrast",
    tell: Warn = log_warning,
) -> Movement:
    """Compare the scores and the ranks of positives under two systems, query by query.

    Systems are named as in `compare`.

    `order` puts the largest difference, A's largest loss or A's largest gain first. Equal
    differences are in the order of the tasks.
    """
    if len(systems) != 2:
        raise UsageError(
            f"queries are compared between two systems, A and B; {len(systems)} are given."
        )
    selection = select_systems(
        *systems, task=task, metric=metric, results=results, root=root, tell=tell
    )
    comparison = compare_selection(selection, metric)
    local_tasks = ResultSet.open(results, lambda message: None).local_tasks
    queries: list[QueryMovement] = []
    tasks = list(comparison.tasks)
    for loaded in load_tasks(task or ",".join(tasks), root=root, local_tasks=local_tasks):
        run_a, run_b = (rank_system(system, loaded).run for system in selection.systems)
        judgements = loaded.judgements.by_query()
        for query in comparison.tasks[loaded.name]:
            query_id = query.query_id
            ranks_a, ranks_b = run_a.ranks_of(query_id), run_b.ranks_of(query_id)
            positives = [
                (document_id, (ranks_a.get(document_id), ranks_b.get(document_id)))
                for document_id, grade in judgements.get(query_id, {}).items()
                if grade > 0
            ]
            positives.sort(key=lambda positive: min(rank or _NOT_LISTED for rank in positive[1]))
            queries.append(
                QueryMovement(
                    task=loaded,
                    query_id=query_id,
                    score_a=query.scores[0],
                    score_b=query.scores[1],
                    first_a=next(iter(ranks_a), None),
                    first_b=next(iter(ranks_b), None),
                    positives=dict(positives),
                )
            )
    queries.sort(key=lambda query: (_ORDERS[order](query.difference), tasks.index(query.task.name)))
    name_a, name_b = comparison.systems
    return Movement(name_a, name_b, comparison.metric, tuple(queries))
