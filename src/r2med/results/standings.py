"""Rows of a leaderboard: one per system, from what was printed and from what was measured here.

A row never mixes the two. What several works print for one system is one row: figures that agree
at two decimals have several sources, figures that differ are `others` of the row, with a spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from r2med.errors import R2MedError, UsageError
from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging, Column, Interval, pooled_interval
from r2med.measure.scores import Aggregates, aggregate, tie_bounds
from r2med.measure.significance import SIGNIFICANT, draws_for, holm, letters, pairwise_p
from r2med.results.cost import Cost, cost_of
from r2med.results.lookup import other_data, own_tasks
from r2med.results.overlap import Flag, StoredAudit, flags_of
from r2med.results.protocols import works_beside
from r2med.results.published import (
    METRIC,
    Publication,
    is_micro,
    models,
    printed_figures,
    published_systems,
)
from r2med.results.record import Result
from r2med.runs.run import TieOrder
from r2med.systems.registry import SystemKind, entries, first_stage, kind_of
from r2med.systems.spec import Unit, parse
from r2med.tasks.load import load_task
from r2med.tasks.registry import Suite, TaskEntry
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
#: Classes of rerankers by their engine, for those of which models.toml says nothing.
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
    """The lowest and highest mean that were printed for one system, and how many differ."""

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
    """Where a printed figure stands; where a measured result is stored."""
    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    """The mean that ranks: None when a task is missing."""
    rank: int | None = None
    sources: tuple[Publication, ...] = ()
    """The works that print these figures; none for a measured row."""
    variant: str = ""
    """How the model was run, where a work reports it in more than one way."""
    first_stage: str = ""
    """What an expansion or a reranker stands on."""
    depth: int | None = None
    """How many documents a reranker puts in order."""
    date: str = ""
    """Of the first source, or of the newest measured result; empty where it is unknown."""
    spread: Spread | None = None
    """None where all works agree."""
    others: tuple[Standing, ...] = ()
    """Rows of the same system with other figures; they have no rank."""
    flags: tuple[Flag, ...] = ()
    """Tasks that overlap with declared training data."""
    clean: float | None = None
    """The mean without flagged tasks, where there are any."""
    interval: Interval | None = None
    ties: Bounds | None = None
    """The mean with every tie resolved against the system, and for it."""
    letters: str = ""
    """Rows that share a letter could not be separated; empty where no test was made."""
    gain: float | None = None
    gain_over: str = ""
    marks: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Of a measured row the works whose figures have the same protocol, as far as it is known."""
    cost: Cost | None = None
    label: str | None = None
    results: Mapping[str, Result] = field(default_factory=dict, repr=False)
    """Of a measured row its newest result on each task."""

    @property
    def name(self) -> str:
        """What tables and plots call the system: its label, or its text."""
        return self.label or self.system

    @property
    def group(self) -> str:
        """What a gain is counted under: expansion, or the class of the reranker."""
        if self.kind != "reranker":
            return self.kind
        last = parse(self.system).stages[-1]
        name = last.name if isinstance(last, Unit) else ""
        entry = entries().get(name)
        by_engine = _CLASSES.get(entry.engine if entry else "", "reranker")
        return str(models().get(name, {}).get("reranker", by_engine))

    def columns(self, metric: str) -> list[Column]:
        """Scores of a measured row's queries, one column per task, in the order of the tasks."""
        tables = [result.scores for result in self.results.values()]
        return [table.at(table.query_ids.sort())[metric] for table in tables]


@dataclass(frozen=True)
class Frame:
    """The tasks, metric and mean that every row is built with."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    audits: tuple[StoredAudit, ...] = ()

    def printed(self) -> tuple[list[Standing], list[str]]:
        """The rows of all works, and a note on published systems without this metric."""
        rows = []
        for figures in printed_figures(self.suite.name, self.metric).values():
            first, *others = (
                self._standing(
                    each.system,
                    each.kind,
                    each.values(self.metric),
                    source="; ".join(map(str, each.works)),
                    origin="published" if each.works[0].id in _OWN_WORKS else "later",
                    sources=each.works,
                    variant=each.variant,
                    date=each.works[0].date,
                )
                for each in figures
            )
            means = [row.mean for row in (first, *others) if row.mean is not None]
            spread = Spread(min(means), max(means), len(means)) if len(means) > 1 else None
            rows.append(replace(first, others=tuple(others), spread=spread))
        known = published_systems(self.suite.name)
        without = len(known.keys() - {row.system for row in rows})
        note = f"{without} of {len(known)} published systems have no figure for {self.metric}"
        only = f"; later works report {METRIC} only" if self.suite.name == "full" else ""
        return rows, [f"{note}{only}."] if without else []

    def measured(self, results: Sequence[Result]) -> tuple[list[Standing], list[str]]:
        """The rows of measured systems, and notes on results (newest first) that are not shown."""
        chosen: dict[tuple[str, str], dict[str, Result]] = {}
        usual: dict[str, str] = {}  # the newest data that conforms to its manifest, if it has one
        older: Counter[str] = Counter()
        tasks = [task.name for task in self.tasks]
        for result in (each for each in results if each.task in tasks):
            by_task = chosen.setdefault((result.system, result.alias), {})
            older[result.system] += result.task in by_task
            by_task.setdefault(result.task, result)
            if result.suite is None or other_data(result) is None:
                usual.setdefault(result.task, result.data)
        rows, notes = [], []
        for by_task in chosen.values():
            own = {task: by_task[task] for task in tasks if task in by_task}
            try:
                rows.append(self._measured(own, usual))
            except UsageError:
                first = next(iter(own.values()))
                notes.append(f"{first.folder}: {first.system!r} is no system's text; not shown.")
        holders = Counter(row.label for row in rows if row.label)
        for place, row in enumerate(rows):
            if row.label and holders[row.label] > 1:
                rows[place] = replace(row, label=f"{row.label}: {row.system}")
        return rows, notes + [
            f"{system}: older results of other data or settings are not shown ({count})."
            for system, count in older.items()
            if count
        ]

    def _measured(self, own: Mapping[str, Result], usual: Mapping[str, str]) -> Standing:
        """The row of one system's results by task, marked where their data is not the suite's."""
        first = next(iter(own.values()))
        values = {
            task: value
            for task, result in own.items()
            if (value := measured_value(result, self.metric)) is not None
        }
        marks: dict[str, None] = {}
        for task, result in own.items():
            if mark := other_data(result) if result.suite else None:
                marks[mark] = None
            elif result.data != usual[task]:
                marks[f"ran on other data of {task} than the newest measured row"] = None
        labels = (each.name for each in own.values() if each.name != each.system)
        comparable = self.suite.name == "full" and self.metric == METRIC
        return self._standing(
            first.system,
            kind_of(parse(first.system)),
            values,
            source=str(first.root),
            origin="measured",
            marks=tuple(marks),
            cost=cost_of(own.values()),
            date=max(result.record.created for result in own.values())[:10],
            beside=works_beside(first.system) if comparable else (),
            label=next(labels, None),
            results=own,
        )

    def _standing(
        self, system: str, kind: SystemKind, values: Mapping[str, float], **more: Any
    ) -> Standing:
        """A row with its means; `more` are further fields of it."""
        flags = flags_of(system, self.tasks, self.audits)
        flagged = {flag.task for flag in flags}
        left = replace(self, tasks=tuple(each for each in self.tasks if each.name not in flagged))
        last = parse(system).stages[-1] if kind == "reranker" else None
        results = more.get("results")
        return Standing(
            system=system,
            kind=kind,
            values={task.name: values[task.name] for task in self.tasks if task.name in values},
            aggregates=self._aggregates(values, results),
            mean=self._mean(values, results),
            first_stage=str(first_stage(parse(system), kind) or "") if kind != "base" else "",
            depth=last.depth if isinstance(last, Unit) else None,
            flags=flags,
            clean=left._mean(values, results) if flags and left.tasks else None,
            **more,
        )

    def _aggregates(
        self, values: Mapping[str, float], results: Mapping[str, Result] | None = None
    ) -> Aggregates:
        """Means of values by task; where there are results, these say how many queries count."""
        asked = {task.name: task.counts.get("queries", 1) for task in self.tasks}
        asked |= {name: own.record.task.judged_queries for name, own in (results or {}).items()}
        positives = {task.name: task.counts.get("judgements", 1) for task in self.tasks}
        families = {task.name: task.family for task in self.tasks}
        weights = positives if is_micro(self.suite.name, self.metric) else asked
        means = aggregate(values, weights, families)
        return replace(means, queries=sum(asked[task] for task in families if task in values))

    def _mean(
        self, values: Mapping[str, float], results: Mapping[str, Result] | None = None
    ) -> float | None:
        means = self._aggregates(values, results)
        return means.task_mean if self.averaging == "task" else means.weighted_mean

    def with_doubt(self, row: Standing, ties: bool, root: str | Path | None) -> Standing:
        """A measured row with its interval, which micro recall has not, and if asked tie bounds.

        Bounds are the means by worst and best order; None where a task's judgements are not here.
        """
        if row.mean is None or row.origin != "measured":
            return row
        if not is_micro(self.suite.name, self.metric):
            interval = pooled_interval(row.columns(self.metric), by=self.averaging)
            row = replace(row, interval=interval)
        if not ties:
            return row
        worst, best = dict[str, float](), dict[str, float]()
        for name, result in row.results.items():
            with suppress(R2MedError):
                task = load_task(own_tasks([result]).get(name, name), root=root)
                if task.hash == result.data:
                    worst[name], best[name] = tie_range(result, task.judgements, self.metric)
        low, high = (self._mean(values, row.results) for values in (worst, best))
        return row if low is None or high is None else replace(row, ties=(low, high))

    def on_fewer_tasks(self, row: Standing, rows: Iterable[Standing]) -> Standing:
        """A measured row that lacks tasks, marked with where it stands on those it has."""
        if row.origin != "measured" or row.aggregates.tasks == len(self.tasks):
            return row
        own = replace(self, tasks=tuple(task for task in self.tasks if task.name in row.values))
        few = f"{row.aggregates.tasks} of {len(self.tasks)} tasks measured: no mean, no rank"
        others = [own._mean(other.values) for other in rows if other is not row]
        means = [mean for mean in others if mean is not None]
        mean = own._mean(row.values)
        if mean is not None and means:
            place = 1 + sum(other > mean for other in means)
            few += (
                f"; on these alone {100 * mean:.2f}, rank {place} of {len(means) + 1} "
                f"(--task {','.join(row.values)})"
            )
        return replace(row, marks=(*row.marks, few))


def measured_value(result: Result, metric: str) -> float | None:
    """The figure that compares with a published one: NanoR2MED's recall is micro recall."""
    if is_micro(result.suite, metric):
        return result.record.micro.get(metric)
    return result.metrics.get(metric)


def tie_range(result: Result, judgements: Judgements, metric: str) -> Bounds:
    """The same figure with equal scores in the worst and in the best order."""
    ties = cast(TieOrder, result.record.system.ties)
    worst, best = tie_bounds(result.run, judgements, [metric], ties=ties)
    if is_micro(result.suite, metric):
        cutoff = parse_metric(metric).cutoff or 0
        return worst.micro_recall(cutoff), best.micro_recall(cutoff)
    return worst.means()[metric], best.means()[metric]


def with_gains(rows: Sequence[Standing]) -> list[Standing]:
    """Rows with their gains over their own first stages, never across works unless said.

    Of a printed row: over the figure that one of its works prints for the first stage. Of a
    measured row: over its measured first stage, else over the published one, with a mark.
    """
    printed = {row.system: row for row in rows if row.origin != "measured"}
    measured = {row.system: row for row in reversed(rows) if row.origin == "measured"}

    def gaining(row: Standing) -> Standing:
        below, own = printed.get(row.first_stage), measured.get(row.first_stage)
        figures = (below, *below.others) if below else ()
        marks, of = row.marks, ""
        if row.origin != "measured":
            works = {work.id for work in row.sources}
            figures = tuple(each for each in figures if works & {work.id for work in each.sources})
        elif own and own.mean is not None and own.marks == row.marks:
            figures = (own,)
        else:
            published = below and below.origin == "published" and not row.marks
            figures, of = figures[: bool(published)], " (published)"
            marks = (f"Δ is over the published figure of {row.first_stage}, not measured here",)
        for figure in figures:
            if row.mean is not None and figure.mean is not None:
                gain, over = row.mean - figure.mean, figure.system + of
                return replace(row, gain=gain, gain_over=over, marks=marks)
        return row

    return [replace(gaining(row), others=tuple(map(gaining, row.others))) for row in rows]


def ranked(rows: Sequence[Standing]) -> list[Standing]:
    """Best first; equal means share a rank; rows without a mean come last, unranked."""
    full = sorted((row for row in rows if row.mean is not None), key=lambda row: -(row.mean or 0))
    placed: list[Standing] = []
    for place, row in enumerate(full, start=1):
        tied = placed and placed[-1].mean == row.mean
        placed.append(replace(row, rank=placed[-1].rank if tied else place))
    return [*placed, *(row for row in rows if row.mean is None)]


def separated(rows: Sequence[Standing], metric: str, averaging: Averaging) -> list[Standing]:
    """Rows (best first) with letters: two share one exactly when no test separates them.

    Every pair on one form of the data is tested, with Holm's correction over all pairs; of several
    forms the one that conforms to the manifest counts, or that most systems share. Rows on other
    data have no letter.
    """
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for place, row in enumerate(rows):
        if row.interval is not None:
            data = tuple((task, result.data) for task, result in row.results.items())
            groups.setdefault(data, []).append(place)

    def weight(group: Sequence[int]) -> tuple[bool, int]:
        results = rows[group[0]].results.values()
        return all(other_data(result) is None for result in results), len(group)

    tested = max(groups.values(), key=weight, default=[])
    if len(tested) < 2:
        return list(rows)
    columns = [rows[place].columns(metric) for place in tested]
    tasks = [np.column_stack(task) for task in zip(*columns, strict=True)]
    upper = np.triu_indices(len(tested), 1)
    p_values = pairwise_p(tasks, averaging, resamples=draws_for(len(upper[0])))
    different = np.zeros((len(tested), len(tested)), dtype=bool)
    different[upper] = np.array(holm(list(p_values[upper]))) < SIGNIFICANT
    names = dict(zip(tested, letters(different | different.T), strict=True))
    return [replace(row, letters=names.get(place, "")) for place, row in enumerate(rows)]
