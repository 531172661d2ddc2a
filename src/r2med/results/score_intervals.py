"""Scores with their intervals, task by task and as the mean over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from r2med.errors import UsageError
from r2med.measure.intervals import Interval, pooled_interval
from r2med.results.evaluation import Evaluation
from r2med.results.published_data import find_other_data
from r2med.results.record import Result
from r2med.tables import Tabular, make_table


@dataclass(frozen=True)
class ScoreWithInterval:
    """The score of one system on one task, or its mean over all tasks."""

    task: str | None
    """The task; None for the mean over tasks, in which every task counts once."""
    system: str
    queries: int
    mean: float
    interval: Interval


@dataclass(frozen=True, eq=False)
class ScoreIntervals(Tabular):
    """Scores of systems with their 95 % intervals over queries."""

    metric: str
    suite: str | None
    tasks: tuple[str, ...]
    systems: tuple[str, ...]
    scores: tuple[ScoreWithInterval, ...]
    """Scores in the order of `tasks`, then the means; for each, in the order of `systems`."""
    other_data: Mapping[str, str] = field(default_factory=dict)
    """Tasks whose data is not the published one, and how it differs."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per task and system; scores are fractions (0 to 1)."""
        columns = {"task": str, "system": str, "queries": int, "mean": float}
        rows = [
            {**vars(score), "low": score.interval.low, "high": score.interval.high}
            for score in self.scores
        ]
        return make_table(columns | {"low": float, "high": float}, rows)

    def to_json(self) -> dict[str, Any]:
        """All fields; scores are fractions (0 to 1)."""
        facts = {"metric": self.metric, "suite": self.suite}
        notes = {"data_notes": dict(self.other_data)} if self.other_data else {}
        return {**facts, **notes, "scores": self.to_arrow().to_pylist()}


def score_intervals(results: Sequence[Result], metric: str = "ndcg@10") -> ScoreIntervals:
    """Return the scores of results with their intervals.

    Args:
        results: Results of one suite. If a system has several on a task, the first is used.
        metric: The metric.

    Raises:
        UsageError: The results are of several suites, which are never averaged together.
    """
    suites = {result.suite for result in results}
    if len(suites) > 1:
        names = " and ".join(sorted(str(suite or "your data") for suite in suites))
        raise UsageError(f"intervals are shown for one suite at a time, not for {names} together.")
    evaluation = Evaluation(results)
    newest = {(result.task, result.name): result for result in reversed(results)}
    columns = {pair: result.scores[metric] for pair, result in newest.items()}
    tasks, systems = evaluation.tasks, evaluation.systems
    scores = []
    for chosen in (*([task] for task in tasks), *([tasks] if len(tasks) > 1 else [])):
        for system in systems:
            if all((task, system) in columns for task in chosen):
                values = [columns[task, system] for task in chosen]
                scores.append(
                    ScoreWithInterval(
                        task=chosen[0] if len(chosen) == 1 else None,
                        system=system,
                        queries=sum(map(len, values)),
                        mean=sum(float(column.mean()) for column in values) / len(values),
                        interval=pooled_interval(values),
                    )
                )
    return ScoreIntervals(
        metric,
        suites.pop(),
        tuple(tasks),
        tuple(systems),
        tuple(scores),
        find_other_data(results),
    )
