"""Tables of results, from an evaluation or a whole results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from r2med.execution.resources import Warn, log_warning
from r2med.measure import Scores
from r2med.measure.metrics import HEADLINE, JUDGED, condense, parse_metric
from r2med.results.index import folder_size
from r2med.results.published_data import describe_other_data
from r2med.results.record import Result, added_judgements
from r2med.results.select import ResultSet
from r2med.results.store import DEFAULT_FOLDER
from r2med.tables import Tabular, make_table
from r2med.tasks.registry import in_suite_order

if TYPE_CHECKING:
    from r2med.measure.verdicts import JudgedCoverage, Verdict


@dataclass(frozen=True, eq=False)
class Evaluation(Tabular):
    """Results of an evaluation, of one or more systems and tasks."""

    results: Sequence[Result]
    requested_metrics: Sequence[str] = ()
    """Metrics to show; if empty, the headline metrics are shown."""

    is_drawn = True

    @property
    def judgements(self) -> str:
        """The name of the added judgements; empty if scores are from the benchmark's judgements."""
        return added_judgements(self.results)

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics shown."""
        return self.requested_metrics or HEADLINE

    @property
    def systems(self) -> list[str]:
        """The systems, in the order of the results."""
        return list(dict.fromkeys(result.name for result in self.results))

    @property
    def tasks(self) -> list[str]:
        """The tasks, in the order of the suites."""
        return in_suite_order(dict.fromkeys(result.task for result in self.results))

    def column(self, system: str, metric: str, *, ceiling: bool = False) -> dict[str, float | None]:
        """The scores of a system by task.

        With `ceiling`, those of a perfect reranker of its candidates.
        """
        column: dict[str, float | None] = dict.fromkeys(self.tasks)
        for result in reversed(self.results):  # the newest of each name wins, and comes first
            reranking = result.record.reranking
            values = (reranking.ceiling if reranking else {}) if ceiling else result.metrics
            if result.name == system:
                column[result.task] = values.get(metric)
        return column

    def reranked(self, system: str) -> bool:
        """Whether a system has a ceiling on any task."""
        return any(result.name == system and result.record.reranking for result in self.results)

    def verdicts(self, tasks: Sequence[str], metric: str) -> dict[str, Verdict]:
        """Return the verdicts between the best system and each other system, by the other's name.

        Means are task means. Systems that lack one of the `tasks` are left out. The result is empty
        if the queries differ, and for Judged@k, which does not measure quality. Holm's correction
        covers all pairs of these systems, as in a comparison and on the leaderboard.
        """
        columns = {system: self.column(system, metric) for system in self.systems}
        systems = [name for name, column in columns.items() if None not in map(column.get, tasks)]
        if parse_metric(metric).family == "judged" or len(systems) < 2:
            return {}
        # one system, the most frequent case, needs no tests
        from r2med.measure.significance import compare_systems
        from r2med.measure.verdicts import all_pairs, decide

        tables: list[list[Scores]] = []
        for task in tasks:
            newest = {
                result.name: result for result in reversed(self.results) if result.task == task
            }
            tables.append([newest[system].scores for system in systems])
        if not all(_have_same_queries(row, metric) for row in tables):
            return {}
        aligned = [[table.at(row[0].query_ids) for table in row] for row in tables]
        scores = [np.column_stack([table[metric] for table in row]) for row in aligned]
        means = np.mean([matrix.mean(axis=0) for matrix in scores], axis=0)
        best = int(np.argmax(means))
        compared = compare_systems(dict(zip(tasks, scores, strict=True)), best=best)
        family = all_pairs(len(systems))
        return {
            systems[pair.b]: decide(
                systems[best],
                systems[pair.b],
                pair.by_task,
                tasks=pair.tasks,
                p_corrected=pair.p_holm,
                family=family,
                heterogeneity=pair.heterogeneity,
                coverage=_coverage(aligned, best, pair.b, metric),
                skipped=self.skipped_queries(tasks),
                columns=[matrix[:, best] - matrix[:, pair.b] for matrix in scores],
            )
            for pair in compared
        }

    def skipped_queries(self, tasks: Sequence[str]) -> int:
        """Number of queries of these tasks without judgements."""
        skipped = {result.task: result.record.task.skipped_queries for result in self.results}
        return sum(skipped[task] for task in tasks)

    def to_arrow(self) -> pa.Table:
        """One row per result; metrics are fractions (0 to 1)."""
        return _table(self.results, self.metrics)

    def to_json(self) -> list[dict[str, Any]]:
        """One record per result; metrics are fractions (0 to 1)."""
        records = []
        for result in self.results:
            row, reranking = _row(result), result.record.reranking
            facts = {
                name: row[name]
                for name in ("system", "spec", "task", "suite", "data", "data_note", "queries")
            }
            if self.judgements:
                facts["judgements"] = result.judgements
            facts["metrics"] = {name: result.metrics[name] for name in self.metrics}
            facts["seconds"] = dict(result.seconds)
            facts |= {name: row[name] for name in ("reused", "created", "result")}
            if (answers := result.summary.answers) is not None:
                facts["answers"] = asdict(answers)
            if (samples := result.record.samples) is not None:
                facts["samples"] = asdict(samples)
            if reranking:
                ceiling = {name: reranking.ceiling[name] for name in self.metrics}
                facts |= {"reranked": reranking.depth, "tail": reranking.tail, "ceiling": ceiling}
            records.append(facts)
        return records


class ResultList(list[Result]):
    """A list of results that notebooks show as one table."""

    def _repr_html_(self) -> str:
        """For notebooks: the table of `r2med eval`."""
        return Evaluation(self)._repr_html_()


@dataclass(frozen=True, eq=False)
class Stored(Tabular):
    """The content of a results folder, one row per result: keys, all metrics, sizes and ages."""

    results: Sequence[Result]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per result; metrics are fractions (0 to 1).

        A metric that a result lacks is null.
        """
        names = dict.fromkeys(name for result in self.results for name in result.metrics)
        return _table(self.results, [*names])


def list_results(folder: str | Path = DEFAULT_FOLDER, *, tell: Warn = log_warning) -> Stored:
    """List the results in a folder.

    Args:
        folder: The results folder.
        tell: Callback for user-facing warnings.

    Returns:
        One row per result; print it, or convert it with `to_pandas()` or `to_polars()`.

    Example:
        >>> list_results("no-such-folder").to_arrow().num_rows
        0

    """
    return Stored(ResultSet.open(folder, tell).results)


def _have_same_queries(tables: Sequence[Scores], metric: str) -> bool:
    queries = {frozenset(table.query_ids.to_pylist()) for table in tables}
    return len(queries) == 1 and all(metric in table and len(table) for table in tables)


def _coverage(
    aligned: Sequence[Sequence[Scores]], a: int, b: int, metric: str
) -> JudgedCoverage | None:
    """Return Judged@10 of two systems, and their difference on condensed lists if both have it."""
    tables = [[row[a], row[b]] for row in aligned]
    if not all(JUDGED in table for row in tables for table in row):
        return None
    from r2med.measure.significance import compare_systems
    from r2med.measure.verdicts import JudgedCoverage

    judged = [float(np.mean([row[side][JUDGED].mean() for row in tables])) for side in (0, 1)]
    name = str(condense(parse_metric(metric)))
    if not all(name in table for row in tables for table in row):
        return JudgedCoverage(judged[0], judged[1])
    scores = {str(i): np.column_stack([t[name] for t in row]) for i, row in enumerate(tables)}
    (condensed,) = compare_systems(scores)
    return JudgedCoverage(judged[0], judged[1], condensed.by_task)


def size(result: Result) -> int:
    """The total size of a result's files in bytes."""
    counted = result.summary.size
    return folder_size(result.folder) if counted is None else counted


def _table(results: Sequence[Result], metrics: Sequence[str]) -> pa.Table:
    names = ("key", "system", "spec", "task", "suite", "data", "data_note", "created", "result")
    texts = dict.fromkeys(names, str)
    numbers = {"queries": int, "documents": int, "bytes": int, "seconds": float, "reused": bool}
    if added_judgements(results):
        texts["judgements"] = str
    if any(result.summary.answers for result in results):
        numbers |= dict.fromkeys(("answers", "answers_with_problems", "answers_fallen_back"), int)
    return make_table(texts | numbers | dict.fromkeys(metrics, float), map(_row, results))


def _row(result: Result) -> dict[str, Any]:
    summary, answers = result.summary, result.summary.answers
    return {
        "answers": answers.total if answers else None,
        "answers_with_problems": answers.problems if answers else None,
        "answers_fallen_back": answers.fallen_back if answers else None,
        "system": result.name,
        "judgements": result.judgements,
        "spec": result.system,
        "task": result.task,
        "suite": result.suite,
        "data": result.data,
        "data_note": (describe_other_data(result) or "") if result.suite else "",
        "queries": summary.judged_queries,
        "documents": summary.documents,
        **result.metrics,
        "bytes": size(result),
        "seconds": summary.seconds,
        "reused": result.reused,
        "created": result.created,
        "key": result.key,
        "result": str(result.folder),
    }
