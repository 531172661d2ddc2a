"""Scores by body system, for tasks whose queries name one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from r2med.errors import MissingError, UsageError, nearest
from r2med.measure.intervals import Interval, mean_interval
from r2med.results.published_data import find_other_data
from r2med.results.record import Result
from r2med.results.select import ResultSet
from r2med.results.versions import name_versions
from r2med.tables import Tabular, make_table
from r2med.tasks.load import load_task
from r2med.tasks.registry import group_by_suite

if TYPE_CHECKING:
    from r2med.results.leaderboard import Leaderboard

#: Queries whose data names no body system.
UNNAMED = "not named"


@dataclass(frozen=True)
class BodySystemScore:
    """The score of one system on the queries about one body system."""

    body_system: str
    system: str
    queries: int
    mean: float
    interval: Interval


@dataclass(frozen=True, eq=False)
class BodySystemScores(Tabular):
    """Scores by body system, over the queries of all tasks; every query counts once."""

    metric: str
    suite: str | None
    systems: tuple[str, ...]
    scores: tuple[BodySystemScore, ...]
    """One score per body system and system: the body system with most queries first, then by
    `systems`."""
    other_data: Mapping[str, str] = field(default_factory=dict)
    """Tasks whose data is not the published one, and how it differs."""

    is_drawn = True

    def of(self, body_system: str) -> BodySystemScores:
        """Return the scores on one body system alone, best system first.

        Raises:
            UsageError: No query names this body system.
        """
        names = {score.body_system.lower(): score.body_system for score in self.scores}
        name = names.get(body_system.lower())
        if name is None:
            raise UsageError(
                f"no query of these tasks names the body system {body_system!r}. "
                f"{nearest(body_system, names.values())}"
            )
        chosen = [score for score in self.scores if score.body_system == name]
        chosen.sort(key=lambda score: -score.mean)
        systems = tuple(score.system for score in chosen)
        return replace(self, systems=systems, scores=tuple(chosen))

    @property
    def body_systems(self) -> tuple[str, ...]:
        """The names of the body systems, the one with most queries first."""
        return tuple(dict.fromkeys(score.body_system for score in self.scores))

    def to_arrow(self) -> pa.Table:
        """One row per body system and system; scores are 0 to 1."""
        columns = {"body_system": str, "system": str, "queries": int, "mean": float}
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


def score_body_systems(
    results: Sequence[Result], metric: str = "ndcg@10", *, root: str | Path | None = None
) -> BodySystemScores:
    """Score systems by the body systems that their tasks' queries name.

    Args:
        results: Results of one suite.
        metric: The metric.
        root: Folder of the tasks' data.

    Raises:
        MissingError: No query of these tasks names a body system.
    """
    names = _name_body_systems(results, root)
    if not any(name != UNNAMED for by_query in names.values() for name in by_query.values()):
        tasks = ", ".join(sorted({result.task for result in results}))
        raise MissingError(
            f"{tasks}: no query names a body system.\n"
            'A query names it in the field "body_system"; see docs/data.md.'
        )
    values: dict[str, dict[str, list[float]]] = {}
    versions = name_versions(results)
    for name, version in versions.items():
        for task in version.tasks:
            result = version.result(task)
            scores_by_query = result.scores.by_query(metric) if result is not None else {}
            for query_id, value in scores_by_query.items():
                body_system = names[task].get(query_id, UNNAMED)
                values.setdefault(body_system, {}).setdefault(name, []).append(value)
    systems = tuple(versions)

    def count(body_system: str) -> int:
        return max(len(scores) for scores in values[body_system].values())

    ordered = sorted(values, key=lambda name: (name == UNNAMED, -count(name), name))
    scores = [
        _score(body_system, system, values[body_system][system])
        for body_system in ordered
        for system in systems
        if system in values[body_system]
    ]
    return BodySystemScores(
        metric, results[0].suite, systems, tuple(scores), find_other_data(results)
    )


def score_board_by_body_system(
    board: Leaderboard, *, top: int | None = None, root: str | Path | None = None
) -> BodySystemScores:
    """Score the ranked measured rows of a leaderboard by body system, in the order of the ranking.

    Published figures have no scores by query, and rows that lack a task would be means over other
    queries, so neither takes part.

    Args:
        board: A leaderboard.
        top: Score only the best `top` rows.
        root: Folder of the tasks' data.

    Raises:
        MissingError: No measured row covers the tasks, or no query names a body system.
    """
    rows = [row for row in board.rows if row.mean is not None and row.results]
    if not rows:
        tasks = ",".join(group_by_suite([task.name for task in board.tasks]))
        raise MissingError(
            f"No system has stored results on all tasks of the {board.suite.name} suite.\n"
            f"Run some first: r2med eval bm25 bm25-lucene --task {quote(tasks)}"
        )
    results = [result for row in rows[:top] for result in row.results.values()]
    return score_body_systems(results, board.metric, root=root)


def _name_body_systems(
    results: Sequence[Result], root: str | Path | None
) -> dict[str, dict[str, str]]:
    """Return the body system of each query, by task."""
    local_tasks = ResultSet.open(results).local_tasks
    names: dict[str, dict[str, str]] = {}
    for result in results:
        if result.task not in names:
            task = load_task(local_tasks.get(result.task, result.task), root=root)
            ids, body_systems = task.queries.ids, task.queries.body_systems
            pairs = zip(ids.to_pylist(), body_systems.to_pylist(), strict=True)
            names[result.task] = {query_id: name or UNNAMED for query_id, name in pairs}
    return names


def _score(body_system: str, system: str, values: Sequence[float]) -> BodySystemScore:
    column = np.array(values)
    return BodySystemScore(
        body_system, system, len(column), float(column.mean()), mean_interval(column)
    )
