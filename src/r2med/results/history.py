"""The scores of systems over time, one point per stored result.

A result is stored per system and state of the data, so a results folder that is kept between runs
is a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from r2med.errors import MissingError
from r2med.measure.metrics import parse_metric
from r2med.results.select import ResultSet


@dataclass(frozen=True)
class HistoryPoint:
    """The score of one system on one state of a task's data."""

    task: str
    suite: str | None
    system: str
    version: str
    """Key of the system; another key means that settings or weights have changed."""
    created: str
    """Time of the evaluation, in ISO format."""
    data: str
    """Hash of the task's data."""
    documents: int
    score: float


def collect_history(
    result_set: ResultSet, systems: Sequence[str], tasks: Sequence[str], metric: str
) -> list[HistoryPoint]:
    """Collect every stored score of some systems, oldest first.

    Args:
        result_set: The stored results.
        systems: Specs, labels or keys; without any, all systems of the results.
        tasks: Without any, all tasks of the results.
        metric: Results without this metric are left out.

    Raises:
        MissingError: No result has these systems, tasks and metric.
    """
    name = str(parse_metric(metric))
    versions = (
        [version for system in systems for version in result_set.require_versions(system, tasks)]
        if systems
        else result_set.versions
    )
    points = [
        HistoryPoint(
            task=result.task,
            suite=result.suite,
            system=version.name,
            version=version.key,
            created=result.created,
            data=result.data,
            documents=result.summary.documents,
            score=result.metrics[name],
        )
        for version in versions
        for result in version.results
        if name in result.metrics and (not tasks or result.task in tasks)
    ]
    if not points:
        where = f" on {', '.join(tasks)}" if tasks else ""
        raise MissingError(
            f"no result in {result_set.source} has {name}{where}.\n"
            "Run a system first: r2med eval bm25 --task TASK"
        )
    return sorted(points, key=lambda point: (point.created, point.system))
