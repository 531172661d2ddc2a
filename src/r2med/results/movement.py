"""What changed between two rankings of one task: queries by how far their score moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r2med.measure import measure
from r2med.results.ranking import Ranking, grades, listed
from r2med.runs import Run
from r2med.tasks.task import Task

_LAST = 1 << 30


@dataclass(frozen=True)
class Shift:
    """A positive in both rankings; None is not listed."""

    document_id: str
    rank_a: int | None
    rank_b: int | None


@dataclass(frozen=True)
class QueryMovement:
    """One query under A and under B."""

    query_id: str
    score_a: float
    score_b: float
    first_a: str | None
    """What A ranks first; None for an empty list."""
    first_b: str | None
    positives: tuple[Shift, ...]

    @property
    def moved(self) -> float:
        """B minus A."""
        return self.score_b - self.score_a


def movements(a: Ranking, b: Ranking, task: Task, metric: str) -> list[QueryMovement]:
    """Every judged query, those that moved most first; of equal ones, in the task's order."""
    scores_a, scores_b = (_scores(each.run, task, metric) for each in (a, b))
    judged = grades(task)
    positives = {
        query: [name for name, grade in own.items() if grade > 0] for query, own in judged.items()
    }
    order = [query for query in task.queries.ids.to_pylist() if positives.get(query)]
    found = []
    for query in order:
        ranks_a, ranks_b = _ranks(a.run, query), _ranks(b.run, query)
        shifts = [Shift(name, ranks_a.get(name), ranks_b.get(name)) for name in positives[query]]
        shifts.sort(key=lambda shift: min(shift.rank_a or _LAST, shift.rank_b or _LAST))
        found.append(
            QueryMovement(
                query_id=query,
                score_a=scores_a[query],
                score_b=scores_b[query],
                first_a=next(iter(ranks_a), None),
                first_b=next(iter(ranks_b), None),
                positives=tuple(shifts),
            )
        )
    return sorted(found, key=lambda each: -abs(each.moved))


def _scores(run: Run, task: Task, metric: str) -> Mapping[str, float]:
    scores = measure(run, task.judgements, [metric], ties="list")
    return dict(zip(scores.query_ids.to_pylist(), scores[metric].tolist(), strict=True))


def _ranks(run: Run, query: str) -> dict[str, int]:
    """Rank by document, in list order."""
    return {name: rank for rank, name in enumerate(listed(run, query), start=1)}
