"""What moved between two systems: every query under both, with the ranks of its positives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from r2med.errors import UsageError
from r2med.measure import measure
from r2med.measure.intervals import TIE
from r2med.results.compare import compare
from r2med.results.lookup import Ranking, find_ranking, own_tasks, stored_results
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import Tabular
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task

_NOT_LISTED = 1 << 30


@dataclass(frozen=True)
class Shift:
    """A positive in both rankings; None is not listed."""

    document_id: str
    rank_a: int | None
    rank_b: int | None


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
    positives: tuple[Shift, ...]

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
    tasks: tuple[str, ...]
    queries: tuple[QueryMovement, ...]

    drawn_by = "r2med.report.comparison"

    @property
    def moved(self) -> tuple[QueryMovement, ...]:
        """The queries whose scores differ."""
        return tuple(query for query in self.queries if abs(query.difference) > TIE)

    def counts(self, *tasks: str) -> tuple[int, int, int, int]:
        """How many queries these tasks have, and of them those that A won, tied and lost."""
        own = [query.difference for query in self.queries if query.task.name in tasks]
        won, lost = (sum(sign * each > TIE for each in own) for sign in (1, -1))
        return len(own), won, len(own) - won - lost, lost

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
                "positives": [asdict(shift) for shift in query.positives],
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
    queries: list[QueryMovement] = []
    tasks = list(compared.tasks)
    for loaded in load_tasks(task or ",".join(tasks), root=root, own=own_tasks(results)):
        a, b = (
            find_ranking(str(each), stored, loaded, Path(results), lambda message: None)
            for each in systems
        )
        queries += _movements(a, b, loaded, compared.metric)
    queries.sort(key=lambda query: (-abs(query.difference), tasks.index(query.task.name)))
    return Movement(a.name, b.name, compared.metric, tuple(tasks), tuple(queries))


def _movements(a: Ranking, b: Ranking, task: Task, metric: str) -> list[QueryMovement]:
    """The judged queries of a task under both rankings, in the task's order."""
    scores_a, scores_b = (
        measure(each.run, task.judgements, [metric], ties="list").by_query(metric)
        for each in (a, b)
    )
    judged = task.judgements.by_query()
    queries = []
    for query in task.queries.ids.to_pylist():
        positives = [name for name, grade in judged.get(query, {}).items() if grade > 0]
        if not positives:
            continue
        ranks_a, ranks_b = a.run.ranks_of(query), b.run.ranks_of(query)
        shifts = [Shift(name, ranks_a.get(name), ranks_b.get(name)) for name in positives]
        shifts.sort(key=lambda shift: min(shift.rank_a or _NOT_LISTED, shift.rank_b or _NOT_LISTED))
        queries.append(
            QueryMovement(
                task=task,
                query_id=query,
                score_a=scores_a[query],
                score_b=scores_b[query],
                first_a=next(iter(ranks_a), None),
                first_b=next(iter(ranks_b), None),
                positives=tuple(shifts),
            )
        )
    return queries
