"""Rows of a leaderboard: one per system, from what was printed and from what was measured here.

A row never mixes the two. What several works print for one system is one row: figures that agree
at two decimals have several sources, figures that differ are `others` of the row, with a spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from r2med.errors import R2MedError
from r2med.measure.intervals import Averaging, Interval, pooled_interval
from r2med.measure.scores import Aggregates, aggregate
from r2med.results.cost import Cost, cost_of
from r2med.results.entrants import Entrant
from r2med.results.lookup import own_tasks
from r2med.results.overlap import Flag, StoredAudit, flags_of
from r2med.results.protocols import works_beside
from r2med.results.published import (
    METRIC,
    Printed,
    RerankerClass,
    is_micro,
    models,
    printed_figures,
    published_systems,
)
from r2med.results.reproduction import Bounds, measured_value, tie_range
from r2med.systems.registry import Kind, entries, first_stage
from r2med.systems.spec import Unit, parse
from r2med.tasks.load import load_task
from r2med.tasks.registry import Suite, TaskEntry

Origin = Literal["published", "later", "measured"]
"""R2MED's or NanoR2MED's own figures, those of other works, and results stored here."""
#: Classes of rerankers by their engine, for those of which models.toml says nothing.
_CLASSES: Mapping[str, RerankerClass] = {
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
class Source:
    """Where a figure was printed: the part of a `Work` that a row carries."""

    work: str
    name: str
    short: str
    revision: str
    table: str
    date: str
    """As far as it is known: 2025-08; empty where it is not."""


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
    kind: Kind
    origin: Origin
    source: str
    """Where a printed figure stands; where a measured result is stored."""
    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    """The mean that ranks: None when a task is missing."""
    rank: int | None = None
    sources: tuple[Source, ...] = ()
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


@dataclass(frozen=True)
class Frame:
    """The tasks, metric and mean that every row is built with."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    audits: tuple[StoredAudit, ...] = ()

    @property
    def is_micro(self) -> bool:
        """Whether figures are over all positives at once, not means over queries."""
        return is_micro(self.suite.name, self.metric)

    def printed(self) -> tuple[list[Standing], list[str]]:
        """The rows of all works, and a note on published systems without this metric."""
        known = published_systems(self.suite.name)
        if not known:
            return [], []
        rows = []
        for figures in printed_figures(self.suite.name, self.metric).values():
            first, *others = (self._printed(each) for each in figures)
            means = [row.mean for row in (first, *others) if row.mean is not None]
            spread = Spread(min(means), max(means), len(means)) if len(means) > 1 else None
            rows.append(replace(first, others=tuple(others), spread=spread))
        notes = []
        without = len(known.keys() - {row.system for row in rows})
        if without and self.metric != METRIC:
            notes.append(
                f"{without} of {len(known)} published systems have no figure for {self.metric}."
            )
        if self.suite.name == "full" and self.metric != METRIC:
            notes.append(f"Later works report {METRIC} only, so none of them stands here.")
        return rows, notes

    def _printed(self, figures: Printed) -> Standing:
        work = figures.works[0]
        origin: Origin = "published" if work.id in ("r2med", "page", "nano") else "later"
        cited = "; ".join(map(str, figures.works))
        row = self._standing(figures.system, figures.kind, origin, cited, figures.values)
        sources = [
            Source(each.id, each.name, each.short, each.revision, each.table, each.date)
            for each in figures.works
        ]
        return replace(row, sources=tuple(sources), variant=figures.variant, date=work.date)

    def measured(self, entrant: Entrant) -> Standing:
        """The row of a measured system, marked where its data is not the suite's."""
        values = {
            task: value
            for task, result in entrant.results.items()
            if (value := measured_value(result, self.metric)) is not None
        }
        results = entrant.results.values()
        source = str(Path(*next(iter(results)).folder.parts[:-3]))
        row = self._standing(
            entrant.system, entrant.kind, "measured", source, values, entrant.queries
        )
        comparable = self.suite.name == "full" and self.metric == METRIC
        return replace(
            row,
            marks=entrant.marks,
            cost=cost_of(results),
            date=max(result.record.created for result in results)[:10],
            beside=works_beside(entrant.system) if comparable else (),
            label=entrant.label,
        )

    def _standing(
        self,
        system: str,
        kind: Kind,
        origin: Origin,
        source: str,
        values: Mapping[str, float],
        queries: Mapping[str, int] | None = None,
    ) -> Standing:
        """A row with its means; `queries` are the counts of measured tasks."""
        flags = flags_of(system, self.tasks, self.audits)
        flagged = {flag.task for flag in flags}
        left = replace(self, tasks=tuple(each for each in self.tasks if each.name not in flagged))
        below, depth = _below(system, kind)
        return Standing(
            system=system,
            kind=kind,
            origin=origin,
            source=source,
            values={task.name: values[task.name] for task in self.tasks if task.name in values},
            aggregates=self._aggregates(values, queries),
            mean=self._mean(values, queries),
            first_stage=below,
            depth=depth,
            flags=flags,
            clean=left._mean(values, queries) if flags and left.tasks else None,
        )

    def _aggregates(
        self, values: Mapping[str, float], queries: Mapping[str, int] | None = None
    ) -> Aggregates:
        asked = {task.name: task.counts.get("queries", 1) for task in self.tasks}
        asked.update(queries or {})
        positives = {task.name: task.counts.get("judgements", 1) for task in self.tasks}
        families = {task.name: task.family for task in self.tasks}
        means = aggregate(values, positives if self.is_micro else asked, families)
        return replace(means, queries=sum(asked[task] for task in families if task in values))

    def _mean(
        self, values: Mapping[str, float], queries: Mapping[str, int] | None = None
    ) -> float | None:
        means = self._aggregates(values, queries)
        return means.task_mean if self.averaging == "task" else means.weighted_mean

    def with_doubt(
        self, row: Standing, entrant: Entrant, ties: bool, root: str | Path | None
    ) -> Standing:
        """A measured row with its interval, which micro recall has not, and if asked tie bounds."""
        if row.mean is None:
            return row
        if not self.is_micro:
            columns = entrant.columns(self.metric)
            row = replace(row, interval=pooled_interval(columns, by=self.averaging))
        return replace(row, ties=self._tie_bounds(entrant, root)) if ties else row

    def _tie_bounds(self, entrant: Entrant, root: str | Path | None) -> Bounds | None:
        """The means by worst and best order; None where a task's judgements are not here."""
        worst, best = {}, {}
        for name, result in entrant.results.items():
            with suppress(R2MedError):
                task = load_task(own_tasks([result]).get(name, name), root=root)
                if task.hash == result.data:
                    worst[name], best[name] = tie_range(result, task.judgements, self.metric)
        low, high = (self._mean(values, entrant.queries) for values in (worst, best))
        return None if low is None or high is None else (low, high)

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


def _below(system: str, kind: Kind) -> tuple[str, int | None]:
    """What the outermost stage stands on, and how deep a reranker goes."""
    if kind == "base":
        return "", None
    spec = parse(system)
    last = spec.stages[-1] if kind == "reranker" else None
    return str(first_stage(spec, kind) or ""), last.depth if isinstance(last, Unit) else None


def with_gains(rows: Sequence[Standing]) -> list[Standing]:
    """Rows with their gains over their own first stages, never across works unless said."""
    printed = {row.system: row for row in rows if row.origin != "measured"}
    measured = {row.system: row for row in rows if row.origin == "measured"}
    return [
        _over_measured(row, measured, printed)
        if row.origin == "measured"
        else replace(
            _over_printed(row, printed),
            others=tuple(_over_printed(other, printed) for other in row.others),
        )
        for row in rows
    ]


def _over_printed(row: Standing, printed: Mapping[str, Standing]) -> Standing:
    """The gain over the figure that a work of the row prints for its first stage."""
    below = printed.get(row.first_stage)
    if below is None or row.mean is None:
        return row
    own = {source.work for source in row.sources}
    for figure in (below, *below.others):
        if figure.mean is not None and own & {source.work for source in figure.sources}:
            return replace(row, gain=row.mean - figure.mean, gain_over=below.system)
    return row


def _over_measured(
    row: Standing, measured: Mapping[str, Standing], printed: Mapping[str, Standing]
) -> Standing:
    below = measured.get(row.first_stage)
    if not row.first_stage or row.mean is None:
        return row
    if below is not None and below.mean is not None and below.marks == row.marks:
        return replace(row, gain=row.mean - below.mean, gain_over=below.system)
    other = printed.get(row.first_stage)
    if row.marks or other is None or other.mean is None or other.origin != "published":
        return row
    mark = f"Δ is against the published figure of {other.system}, which is not measured here"
    over = f"{other.system} (published)"
    return replace(row, gain=row.mean - other.mean, gain_over=over, marks=(mark,))


def ranked(rows: Sequence[Standing]) -> list[Standing]:
    """Best first; equal means share a rank; rows without a mean come last, unranked."""
    full = sorted((row for row in rows if row.mean is not None), key=lambda row: -(row.mean or 0))
    placed: list[Standing] = []
    for place, row in enumerate(full, start=1):
        tied = placed and placed[-1].mean == row.mean
        placed.append(replace(row, rank=placed[-1].rank if tied else place))
    return [*placed, *(row for row in rows if row.mean is None)]
