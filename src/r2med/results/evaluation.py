"""Results side by side: those of an evaluation, and all that a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.measure.metrics import HEADLINE, parse_metric
from r2med.measure.significance import SIGNIFICANT, Matrix, draws_for, holm, pairwise_p
from r2med.results.lookup import stored_results
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import Tabular, table_of
from r2med.tasks.registry import in_suite_order


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

    @property
    def systems(self) -> list[str]:
        """The systems, in the order of the results."""
        return list(dict.fromkeys(result.name for result in self.results))

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the suites."""
        return in_suite_order(dict.fromkeys(result.task for result in self.results))

    def column(self, system: str, metric: str, *, ceiling: bool = False) -> dict[str, float | None]:
        """By task what a system scored, or what a perfect reranker of its candidates would."""
        column: dict[str, float | None] = dict.fromkeys(self.tasks)
        for result in reversed(self.results):  # of one name the newest, which stands first
            reranking = result.record.reranking
            values = (reranking.ceiling if reranking else {}) if ceiling else result.metrics
            if result.name == system:
                column[result.task] = values.get(metric)
        return column

    def reranked(self, system: str) -> bool:
        """Whether a system has a ceiling on any task."""
        return any(each.name == system and each.record.reranking for each in self.results)

    def behind(self, tasks: Sequence[str], metric: str) -> frozenset[str]:
        """The systems that the best one beats by the task mean, of those that have all the tasks.

        By the paired randomisation test, Holm's correction over the systems; none where queries
        differ. Nobody is behind in how much was judged, which is no quality.
        """
        columns = {system: self.column(system, metric) for system in self.systems}
        systems = [name for name, own in columns.items() if None not in map(own.get, tasks)]
        if parse_metric(metric).kind == "judged" or len(systems) < 2:
            return frozenset()
        scores: list[Matrix] = []
        for task in tasks:
            newest = {each.name: each for each in reversed(self.results) if each.task == task}
            tables = [newest[system].scores for system in systems]
            same = len({frozenset(table.query_ids.to_pylist()) for table in tables}) == 1
            if not same or any(metric not in table or not len(table) for table in tables):
                return frozenset()
            ids = tables[0].query_ids
            scores.append(np.column_stack([table.at(ids)[metric] for table in tables]))
        best = int(np.argmax(np.mean([matrix.mean(axis=0) for matrix in scores], axis=0)))
        others = [place for place in range(len(systems)) if place != best]
        p_values = pairwise_p(scores, "task", resamples=draws_for(len(others)))[best]
        corrected = holm([float(p_values[place]) for place in others])
        below = zip(others, corrected, strict=True)
        return frozenset(systems[place] for place, p in below if p < SIGNIFICANT)

    def to_arrow(self) -> pa.Table:
        """One row per result; metrics 0 to 1."""
        return _table(self.results, self.metrics)

    def to_json(self) -> list[dict[str, Any]]:
        """One record per result; metrics 0 to 1."""
        records = []
        for result in self.results:
            row, reranking = _row(result), result.record.reranking
            facts = {name: row[name] for name in ("system", "spec", "task", "suite", "queries")}
            facts["metrics"] = {name: result.metrics[name] for name in self.metrics}
            facts["seconds"] = dict(result.seconds)
            facts |= {name: row[name] for name in ("reused", "created", "result")}
            if reranking:
                ceiling = {name: reranking.ceiling[name] for name in self.metrics}
                facts |= {"reranked": reranking.depth, "tail": reranking.tail, "ceiling": ceiling}
            records.append(facts)
        return records


@dataclass(frozen=True, eq=False)
class Stored(Tabular):
    """What a results folder holds, one row per result: keys, all metrics, sizes and ages."""

    results: Sequence[Result]

    drawn_by = "r2med.report.scores"

    def to_arrow(self) -> pa.Table:
        """One row per result, metrics 0 to 1; a metric that a result lacks is a missing value."""
        names = dict.fromkeys(name for result in self.results for name in result.metrics)
        return _table(self.results, [*names])


def stored(folder: str | Path = DEFAULT_FOLDER, *, tell: Tell = log) -> Stored:
    """The results in a folder as one value: print it, or take it as one frame of all metrics."""
    return Stored(stored_results(folder, tell))


def size(result: Result) -> int:
    """The bytes of a result's files."""
    return sum(file.stat().st_size for file in result.folder.iterdir())


def _table(results: Sequence[Result], metrics: Sequence[str]) -> pa.Table:
    texts = dict.fromkeys(("key", "system", "spec", "task", "suite", "created", "result"), str)
    others = {"queries": int, "documents": int, "bytes": int, "seconds": float, "reused": bool}
    return table_of(texts | others | dict.fromkeys(metrics, float), map(_row, results))


def _row(result: Result) -> dict[str, Any]:
    record = result.record
    return {
        "system": result.name,
        "spec": result.system,
        "task": result.task,
        "suite": result.suite,
        "queries": record.task.judged_queries,
        "documents": record.task.documents,
        **result.metrics,
        "bytes": size(result),
        "seconds": sum(result.seconds.values()),
        "reused": result.reused,
        "created": record.created,
        "key": result.key,
        "result": str(result.folder),
    }
