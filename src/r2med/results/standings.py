"""Rows of a leaderboard: one per system, either printed or measured.

A row never mixes the two. Figures of several works for one system form one row: figures that agree
at two decimals have several sources, figures that differ are its `other_figures`, with a spread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from r2med.errors import DamagedError, R2MedError, UsageError, plural
from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging, Column, Interval, pooled_interval
from r2med.measure.metrics import JUDGED
from r2med.measure.scores import Aggregates, aggregate, tie_bounds
from r2med.results.cost import Cost, cost_of
from r2med.results.overlap import Flag, StoredAudit, flags_of
from r2med.results.protocols import works_beside
from r2med.results.published import (
    METRIC,
    Printed,
    Publication,
    is_micro,
    models,
    printed_figures,
    published_systems,
)
from r2med.results.published_data import NOT_PUBLISHED, describe_other_data, has_published_data
from r2med.results.record import Result
from r2med.results.select import ResultSet
from r2med.results.stage_record import AnswerCounts
from r2med.results.versions import StoredSystem, Version, group_systems
from r2med.systems.registry import SystemKind, entries, first_stage, kind_of
from r2med.systems.spec import Unit, parse
from r2med.tasks.load import load_task
from r2med.tasks.registry import Suite, TaskEntry, in_suite_order
from r2med.tasks.task import Judgements

Bounds = tuple[float, float]
#: R2MED's or NanoR2MED's own figures, those of other works, and results stored here.
ORIGINS = {
    "published": "published figures",
    "later": "figures of later works",
    "measured": "measured here",
}
#: Works of R2MED's and NanoR2MED's authors.
_OWN_WORKS = ("r2med", "page", "nano")
#: Classes of rerankers by their backend, for rerankers that are not in models.toml.
_CLASSES: Mapping[str, str] = {
    "cross-encoder": "classical",
    "yes-no": "classical",
    "own-code": "classical",
    "listwise": "prompted",
    "pointwise": "prompted",
    "verdict": "reasoning",
    "setwise": "reasoning",
    "groupwise": "reasoning",
}


@dataclass(frozen=True)
class Spread:
    """The lowest and highest mean that were printed for one system, and the number of figures."""

    low: float
    high: float
    figures: int


@dataclass(frozen=True)
class Standing:
    """One system's row; values are 0 to 1, by task."""

    system: str
    kind: SystemKind
    origin: Literal["published", "later", "measured"]
    source: str
    """The work and table of a printed figure, or the folder of a measured result."""
    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    """The mean by which rows are ranked; None if a task is missing."""
    rank: int | None = None
    sources: tuple[Publication, ...] = ()
    """The works that print these figures; none for a measured row."""
    variant: str = ""
    """How the model was run, if a work reports it in more than one way."""
    first_stage: str = ""
    """Spec of the system without its expander or last reranker."""
    depth: int | None = None
    """Number of documents that a reranker reorders."""
    date: str = ""
    """Date of the first source, or of the newest measured result; empty if unknown."""
    spread: Spread | None = None
    """The spread of the printed means; None if all works agree."""
    other_figures: tuple[Standing, ...] = ()
    """Rows of the same system with different printed figures; they have no rank."""
    flags: tuple[Flag, ...] = ()
    """Overlaps of tasks with declared training data."""
    clean: float | None = None
    """The mean without flagged tasks; None if no task is flagged."""
    interval: Interval | None = None
    ties: Bounds | None = None
    """The mean with tied documents in the worst and in the best order."""
    letters: str = ""
    """Rows that share a letter do not differ significantly; empty if no test was made."""
    tests: int = 0
    """Number of tested pairs of rows, which the correction of the letters covers."""
    corrected_p: Mapping[str, float] = field(default_factory=dict, repr=False)
    """P-values against every other tested row, by its spec, corrected over all pairs."""
    judged: float | None = None
    """Mean Judged@10 of a measured row over its tasks."""
    skipped: int = 0
    """Number of queries of a measured row's tasks without judgements."""
    gain: float | None = None
    gain_over: str = ""
    marks: tuple[str, ...] = ()
    is_published_data: bool = True
    """False if a measured row is on data other than the published data, and so has no rank."""
    beside: tuple[str, ...] = ()
    """Works whose figures have a known protocol, equal to that of a measured row."""
    cost: Cost | None = None
    answers: AnswerCounts | None = None
    """Counts of language model answers that could not be used; None if a measured row has none."""
    label: str | None = None
    results: Mapping[str, Result] = field(default_factory=dict, repr=False)
    """The newest result of a measured row on each task."""

    @property
    def name(self) -> str:
        """Display name: the label, or the spec."""
        return self.label or self.system

    @property
    def group(self) -> str:
        """The group for summaries of gains: the kind, or the class of the reranker."""
        if self.kind != "reranker":
            return self.kind
        last = parse(self.system).stages[-1]
        name = last.name if isinstance(last, Unit) else ""
        entry = entries().get(name)
        by_backend = _CLASSES.get(entry.backend if entry else "", "reranker")
        return str(models().get(name, {}).get("reranker", by_backend))

    def columns(self, metric: str) -> list[Column]:
        """Scores of a measured row's queries, one column per task, in the order of the tasks."""
        tables = [result.scores_by(metric) for result in self.results.values()]
        return [table.at(table.query_ids.sort())[metric] for table in tables]


@dataclass(frozen=True)
class Frame:
    """The tasks, metric and mean that all rows of a leaderboard share."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    audits: tuple[StoredAudit, ...] = ()

    def make_printed_rows(self) -> tuple[list[Standing], list[str]]:
        """Return the rows of printed figures, and a note on systems without this metric."""
        rows = []
        for figures in printed_figures(self.suite.name, self.metric).values():
            main, *other_figures = [self._make_printed_row(figure) for figure in figures]
            means = [row.mean for row in (main, *other_figures) if row.mean is not None]
            spread = Spread(min(means), max(means), len(means)) if len(means) > 1 else None
            rows.append(replace(main, other_figures=tuple(other_figures), spread=spread))
        systems = published_systems(self.suite.name)
        without = len(systems.keys() - {row.system for row in rows})
        if not without:
            return rows, []
        note = f"{without} of {len(systems)} published systems have no figure for {self.metric}"
        if self.suite.name == "full":
            note += f"; later works report {METRIC} only"
        return rows, [f"{note}."]

    def make_measured_rows(
        self, results: Sequence[Result], *, all_versions: bool
    ) -> tuple[list[Standing], list[str]]:
        """Return the rows of measured systems, and notes on results that are not shown.

        `results` are sorted, newest first.

        A system has one row: its newest version with all tasks, or the one with the most tasks.
        A newer version with fewer tasks has a separate row; older versions are not shown unless
        `all_versions`.
        """
        tasks = [task.name for task in self.tasks]
        on_tasks = [result for result in results if result.task in tasks]
        newest_data: dict[str, str] = {}
        for result in on_tasks:
            if result.task in newest_data:
                continue
            if result.suite is None or has_published_data(result):
                newest_data[result.task] = result.data
        rows, notes = [], []
        for system in group_systems(on_tasks, tasks):
            try:
                rows.append(self._make_measured_row(system.name, system.chosen, newest_data))
                for version in system.newer:
                    name = system.name_version(version)
                    row = self._make_measured_row(name, version, newest_data)
                    rows.append(replace(row, marks=(*row.marks, _describe_newer(system, version))))
                for version in system.older if all_versions else ():
                    name = system.name_version(version)
                    rows.append(self._make_measured_row(name, version, newest_data))
            except UsageError:
                folder = system.chosen.results[0].folder
                notes.append(f"{folder}: {system.spec!r} is not a valid system spec; not shown.")
                continue
            hidden = 0 if all_versions else sum(len(older.results) for older in system.older)
            shown_tasks = {task for task in tasks if task in system.chosen.tasks}
            hidden += len(system.chosen.results) - len(shown_tasks)
            if hidden:
                notes.append(
                    f"{system.name}: {plural(hidden, 'older result')} of other data or settings "
                    "not shown."
                )
        return rows, notes

    def _make_printed_row(self, figures: Printed) -> Standing:
        basis = self._describe(figures.system, figures.kind, figures.values(self.metric), {})
        return Standing(
            system=figures.system,
            kind=figures.kind,
            origin="published" if figures.works[0].id in _OWN_WORKS else "later",
            source="; ".join(map(str, figures.works)),
            values=basis.values,
            aggregates=basis.aggregates,
            mean=basis.mean,
            sources=figures.works,
            variant=figures.variant,
            first_stage=basis.first_stage,
            depth=basis.depth,
            date=figures.works[0].date,
            flags=basis.flags,
            clean=basis.clean,
        )

    def _make_measured_row(
        self, name: str, version: Version, newest_data: Mapping[str, str]
    ) -> Standing:
        """Return the row of one version, with marks for tasks on other data."""
        chosen = {task.name: version.result(task.name) for task in self.tasks}
        results = {task: result for task, result in chosen.items() if result is not None}
        measured = {task: measured_value(result, self.metric) for task, result in results.items()}
        values = {task: value for task, value in measured.items() if value is not None}
        marks: dict[str, None] = {}
        is_published = True
        for task, result in results.items():
            if result.suite is not None and (difference := describe_other_data(result)):
                marks[f"{task} {NOT_PUBLISHED}: no rank. {difference}"] = None
                is_published = False
            elif result.data != newest_data[task]:
                marks[f"ran on other data of {task} than the newest measured row"] = None
        kind = kind_of(parse(version.spec))
        basis = self._describe(version.spec, kind, values, results)
        is_comparable = self.suite.name == "full" and self.metric == METRIC and is_published
        summaries = [result.summary for result in results.values()]
        return Standing(
            system=version.spec,
            kind=kind,
            origin="measured",
            source=str(version.results[0].root),
            values=basis.values,
            aggregates=basis.aggregates,
            mean=basis.mean,
            first_stage=basis.first_stage,
            depth=basis.depth,
            date=max(summary.created for summary in summaries)[:10],
            flags=basis.flags,
            clean=basis.clean,
            answers=AnswerCounts.sum_over(summary.answers for summary in summaries),
            judged=_mean_judged(results.values()),
            skipped=sum(max(0, item.queries - item.judged_queries) for item in summaries),
            marks=tuple(marks),
            is_published_data=is_published,
            beside=works_beside(version.spec) if is_comparable else (),
            label=name if name != version.spec else None,
            results=results,
        )

    def _describe(
        self,
        system: str,
        kind: SystemKind,
        values: Mapping[str, float],
        results: Mapping[str, Result],
    ) -> _Basis:
        """Compute the fields that printed and measured rows have in common."""
        flags = flags_of(system, self.tasks, self.audits)
        flagged = {flag.task for flag in flags}
        clean_tasks = tuple(task for task in self.tasks if task.name not in flagged)
        clean = None
        if flags and clean_tasks:
            clean = replace(self, tasks=clean_tasks)._mean(values, results)
        spec = parse(system)
        last = spec.stages[-1] if kind == "reranker" else None
        aggregates = self._aggregates(values, results)
        return _Basis(
            values={task.name: values[task.name] for task in self.tasks if task.name in values},
            aggregates=aggregates,
            mean=self._ranking_mean(aggregates),
            first_stage=str(first_stage(spec, kind) or "") if kind != "base" else "",
            depth=last.depth if isinstance(last, Unit) else None,
            flags=flags,
            clean=clean,
        )

    def _aggregates(
        self, values: Mapping[str, float], results: Mapping[str, Result] | None = None
    ) -> Aggregates:
        """Return the means of values by task; `results` have the numbers of judged queries."""
        query_counts = {task.name: task.counts.get("queries", 1) for task in self.tasks}
        query_counts |= {
            name: result.summary.judged_queries for name, result in (results or {}).items()
        }
        positives = {task.name: task.counts.get("judgements", 1) for task in self.tasks}
        families = {task.name: task.family for task in self.tasks}
        weights = positives if is_micro(self.suite.name, self.metric) else query_counts
        means = aggregate(values, weights, families)
        return replace(
            means, queries=sum(query_counts[task] for task in families if task in values)
        )

    def _mean(
        self, values: Mapping[str, float], results: Mapping[str, Result] | None = None
    ) -> float | None:
        return self._ranking_mean(self._aggregates(values, results))

    def _ranking_mean(self, aggregates: Aggregates) -> float | None:
        return aggregates.task_mean if self.averaging == "task" else aggregates.weighted_mean

    def add_details(self, row: Standing, ties: bool, root: str | Path | None) -> Standing:
        """Add cost and interval to a measured row; with `ties`, also its bounds by tie order.

        Micro recall has no interval. Bounds are None if the data of a task is not available.
        """
        if row.origin != "measured":
            return row
        try:
            row = replace(row, cost=cost_of(row.results.values()))
            if row.mean is not None and not is_micro(self.suite.name, self.metric):
                interval = pooled_interval(row.columns(self.metric), by=self.averaging)
                row = replace(row, interval=interval)
        except DamagedError as problem:
            marks = dict.fromkeys((*row.marks, f"{problem} No interval and no test"))
            return replace(row, marks=tuple(marks))
        if not ties or row.mean is None:
            return row
        worst: dict[str, float] = {}
        best: dict[str, float] = {}
        for name, result in row.results.items():
            with suppress(R2MedError):
                local_tasks = ResultSet((result,), "").local_tasks
                task = load_task(local_tasks.get(name, name), root=root)
                if task.hash == result.data:
                    worst[name], best[name] = tie_range(result, task.judgements, self.metric)
        low, high = self._mean(worst, row.results), self._mean(best, row.results)
        return row if low is None or high is None else replace(row, ties=(low, high))

    def mark_missing_tasks(self, rows: Sequence[Standing]) -> list[Standing]:
        """Mark each measured row that lacks tasks, with its rank on the tasks that it has."""
        means_on: dict[tuple[str, ...], list[float]] = {}
        return [
            self._mark_missing_tasks(row, rows, means_on) if self._lacks_tasks(row) else row
            for row in rows
        ]

    def _lacks_tasks(self, row: Standing) -> bool:
        return row.origin == "measured" and row.aggregates.tasks != len(self.tasks)

    def _mark_missing_tasks(
        self,
        row: Standing,
        rows: Sequence[Standing],
        means_on: dict[tuple[str, ...], list[float]],
    ) -> Standing:
        """Add the mark to one row; `means_on` caches the sorted means of all rows by tasks."""
        tasks = tuple(task for task in self.tasks if task.name in row.values)
        names = tuple(task.name for task in tasks)
        frame = replace(self, tasks=tasks)
        mark = f"{row.aggregates.tasks} of {len(self.tasks)} tasks measured: no mean, no rank"
        mean = frame._mean(row.values)
        if mean is not None and row.is_published_data:
            if names not in means_on:
                all_means = (frame._mean(other_row.values) for other_row in rows)
                means_on[names] = sorted(value for value in all_means if value is not None)
            means = means_on[names]
            if len(means) > 1:
                rank = 1 + len(means) - bisect_right(means, mean)
                mark += (
                    f"; on these tasks {100 * mean:.2f}, rank {rank} of {len(means)} "
                    f"(--task {','.join(row.values)})"
                )
        return replace(row, marks=(*row.marks, mark))


@dataclass(frozen=True)
class _Basis:
    """The fields that printed and measured rows have in common."""

    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    first_stage: str
    depth: int | None
    flags: tuple[Flag, ...]
    clean: float | None


def _describe_newer(system: StoredSystem, version: Version) -> str:
    tasks = ", ".join(in_suite_order(sorted(version.tasks)))
    return (
        f"a newer version of {system.name}, measured on {tasks} only; its results are never "
        f"averaged with those of {system.chosen.created[:16]}"
    )


def _mean_judged(results: Iterable[Result]) -> float | None:
    """Return the mean Judged@10 over the tasks; None if a result does not have it."""
    shares = [result.metrics.get(JUDGED) for result in results]
    measured = [share for share in shares if share is not None]
    return fmean(measured) if measured and len(measured) == len(shares) else None


def measured_value(result: Result, metric: str) -> float | None:
    """Return the value to compare with a published figure; micro recall for NanoR2MED's recall."""
    if is_micro(result.suite, metric):
        return result.summary.micro.get(metric)
    return result.metrics.get(metric)


def tie_range(result: Result, judgements: Judgements, metric: str) -> Bounds:
    """Return a result's metric with tied documents in the worst and in the best order."""
    ties = result.record.system.ties
    worst, best = tie_bounds(result.run, judgements, [metric], ties=ties)
    if is_micro(result.suite, metric):
        cutoff = parse_metric(metric).cutoff or 0
        return worst.micro_recall(cutoff), best.micro_recall(cutoff)
    return worst.means()[metric], best.means()[metric]
