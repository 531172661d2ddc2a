"""What moved between two systems: every query under both, with the ranks of its positives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from r2med.errors import UsageError
from r2med.measure.intervals import TIE
from r2med.results.compare import compare
from r2med.results.lookup import find_ranking, own_tasks, stored_results
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import Tabular
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task

_NOT_LISTED = 1 << 30


@dataclass(frozen=True)
class QueryMovement:
    """One query under A and under B."""

    task: Task
    query_id: str
    score_a: float
    score_b: float
    first_a: str | None
    """What A ranks first; None for an empty list."""
    first_b: str | None
    positives: Mapping[str, tuple[int | None, int | None]]
    """Their ranks under A and B, the best first; None is not listed."""

    @property
    def difference(self) -> float:
        """A minus B."""
        return self.score_a - self.score_b

    @property
    def text(self) -> str:
        """What was asked."""
        return self.task.query(self.query_id)


@dataclass(frozen=True, eq=False)
class Movement(Tabular):
    """Every judged query of some tasks under two systems, the largest difference first."""

    a: str
    b: str
    metric: str
    queries: tuple[QueryMovement, ...]

    drawn_by = "r2med.report.comparison"

    @property
    def moved(self) -> tuple[QueryMovement, ...]:
        """The queries whose scores differ."""
        return tuple(query for query in self.queries if abs(query.difference) > TIE)

    def to_arrow(self) -> pa.Table:
        """One row per query, with the ranks of its positives as lists."""
        return pa.Table.from_pylist(self.to_json()["queries"])

    def to_json(self) -> dict[str, Any]:
        """Every query, not only those that moved."""
        named = ("query_id", "text", "score_a", "score_b", "difference", "first_a", "first_b")
        rows = [
            {
                "task": query.task.name,
                **{name: getattr(query, name) for name in named},
                "positives": [
                    {"document_id": document, "rank_a": rank_a, "rank_b": rank_b}
                    for document, (rank_a, rank_b) in query.positives.items()
                ],
            }
            for query in self.queries
        ]
        return {"a": self.a, "b": self.b, "metric": self.metric, "queries": rows}


def what_moved(
    *systems: str | Path,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Tell = log,
) -> Movement:
    """The queries that moved between two systems; named as in `compare`.

    The largest move comes first, of equal ones in the tasks' order.
    """
    if len(systems) != 2:
        raise UsageError(f"what moved is between two systems, A and B; {len(systems)} are given.")
    compared = compare(*systems, task=task, metric=metric, results=results, root=root, tell=tell)
    stored = stored_results(results, lambda message: None)
    queries, tasks = [], list(compared.tasks)
    for loaded in load_tasks(task or ",".join(tasks), root=root, own=own_tasks(results)):
        a, b = (
            find_ranking(str(each), stored, loaded, Path(results), lambda message: None).run
            for each in systems
        )
        judged = loaded.judgements.by_query()
        for query in compared.tasks[loaded.name]:
            name = query.query_id
            ranks_a, ranks_b = a.ranks_of(name), b.ranks_of(name)
            positives = [
                (document, (ranks_a.get(document), ranks_b.get(document)))
                for document, grade in judged.get(name, {}).items()
                if grade > 0
            ]
            positives.sort(key=lambda each: min(rank or _NOT_LISTED for rank in each[1]))
            scores = (query.scores[0], query.scores[1])
            firsts = (next(iter(ranks_a), None), next(iter(ranks_b), None))
            queries.append(QueryMovement(loaded, name, *scores, *firsts, dict(positives)))
    queries.sort(key=lambda query: (-abs(query.difference), tasks.index(query.task.name)))
    return Movement(compared.systems[0], compared.systems[1], compared.metric, tuple(queries))
