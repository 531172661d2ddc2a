"""The leaderboard: published and measured systems in one ranking, never confused.

A row without all tasks has no mean and no rank. A row on other data than the manifest's is marked
and tested against none. A gain is taken against the same kind of figure, or says that it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pyarrow as pa

from r2med.errors import R2MedError, UsageError, nearest
from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging, Interval, pooled_interval
from r2med.measure.scores import Aggregates, aggregate
from r2med.results.cost import Cost, cost_of
from r2med.results.entrants import Entrant, Separation, entrants, separated
from r2med.results.lookup import stored_results
from r2med.results.published import is_micro, published_systems
from r2med.results.record import Result
from r2med.results.reproduction import measured_value, tie_range
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.systems.registry import KINDS, Kind, first_stage
from r2med.systems.spec import parse
from r2med.tabular import Tabular, columns_of, table_of
from r2med.tasks.load import load_task
from r2med.tasks.registry import Suite, TaskEntry, find_suite

Origin = Literal["published", "measured"]
Bounds = tuple[float, float]
_BoundsOf = Callable[[Result], Bounds | None]


def leaderboard(
    suite: str = "full",
    *,
    metric: str = "ndcg@10",
    kind: str | None = None,
    family: str | None = None,
    mean: str | None = None,
    top: int | None = None,
    ties: bool = False,
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Tell = log,
) -> Leaderboard:
    """Rank the published systems of a suite and those measured in `results`, best first.

    `kind` keeps systems of one kind (base, gar, reranker), `family` the tasks of one. `mean` is
    task or query; by default R2MED counts tasks and NanoR2MED queries. `top` shows the first rows
    only and changes nothing else. `ties` adds the bounds by the order of equal scores, where the
    task's data is here or under `root`.
    """
    entries = find_suite(suite)
    name = str(parse_metric(metric))
    averaging: Averaging = _one_of(mean, ("task", "query"), "mean") or (
        "query" if entries.name == "nano" else "task"
    )
    frame = _Frame(entries, name, averaging, _tasks(entries, family))
    rows, notes = frame.published()
    own = [each for each in _results(results, entries.name, tell) if each.suite == entries.name]
    measured, passed_over = entrants(own, [task.name for task in frame.tasks])
    known = {entrant.system: entrant for entrant in measured}
    rows += [frame.measured(entrant) for entrant in measured]
    bounds = _bounds_of(name, root) if ties else None
    placed = [
        row if row.origin == "published" else frame.with_doubt(row, known[row.system], bounds)
        for row in _ranked(_with_gains(rows, _one_of(kind, KINDS, "kind")))
    ]
    able = [known[row.system] for row in placed if row.interval is not None]
    names, separation = separated(able, name, averaging)
    placed = [
        replace(row, letters=names[row.system]) if row.interval and row.system in names else row
        for row in placed
    ]
    return Leaderboard(
        suite=entries,
        metric=name,
        averaging=averaging,
        tasks=frame.tasks,
        rows=tuple(placed),
        notes=(*notes, *passed_over),
        separation=separation,
        top=top,
    )


@dataclass(frozen=True)
class Standing:
    """One system's row; values are 0 to 1, by task."""

    system: str
    kind: Kind
    origin: Origin
    source: str
    """Where a published figure was printed; where a measured result is stored."""
    values: Mapping[str, float]
    aggregates: Aggregates
    mean: float | None
    """The mean that ranks: None when a task is missing."""
    rank: int | None = None
    interval: Interval | None = None
    ties: Bounds | None = None
    """The mean with every tie resolved against the system, and for it."""
    letters: str = ""
    """Rows that share a letter could not be separated; empty where no test was made."""
    gain: float | None = None
    gain_over: str = ""
    marks: tuple[str, ...] = ()
    cost: Cost | None = None
    label: str | None = None

    @property
    def name(self) -> str:
        """What tables and plots call the system: its label, or its text."""
        return self.label or self.system


@dataclass(frozen=True)
class Gains:
    """Gains of the systems of one kind over their own first stages."""

    kind: Kind
    systems: int
    better: int
    median: float


@dataclass(frozen=True)
class Leaderboard(Tabular):
    """A ranking and what a reader must know of it."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    rows: tuple[Standing, ...]
    notes: tuple[str, ...] = ()
    separation: Separation | None = None
    """None where no two measured rows were tested."""
    top: int | None = None
    """How many rows to show; None is all."""

    drawn_by = "r2med.report.leaderboard"

    @property
    def shown(self) -> tuple[Standing, ...]:
        """The rows that tables and data show."""
        return self.rows[: self.top]

    @property
    def gains(self) -> tuple[Gains, ...]:
        """What expansion and reranking bring, over all rows."""
        found = []
        for kind in KINDS:
            gains = [row.gain for row in self.rows if row.kind == kind and row.gain is not None]
            if gains:
                better = sum(gain > 0 for gain in gains)
                found.append(Gains(kind, len(gains), better, median(gains)))
        return tuple(found)

    @property
    def is_micro(self) -> bool:
        """Whether the figures are over all positives at once, not means over queries."""
        return is_micro(self.suite.name, self.metric)

    @property
    def mean_title(self) -> str:
        """Which mean ranks the rows."""
        many = f"{len(self.tasks)} tasks" if len(self.tasks) > 1 else self.tasks[0].name
        if self.averaging == "task":
            return f"task mean over {many} (each task counts once)"
        if self.is_micro:
            return (
                f"micro mean over {many} (positives found / positives: each positive counts once)"
            )
        return f"query-weighted mean over {many} (each query counts once)"

    @property
    def weighted_name(self) -> str:
        """What data calls the mean that is not by task."""
        return "micro_mean" if self.is_micro else "query_weighted_mean"

    def to_arrow(self) -> pa.Table:
        """One row per system: both means, family means and every task, values 0 to 1."""
        means = dict.fromkeys(("task_mean", self.weighted_name, "low", "high"), float)
        families = dict.fromkeys((task.family for task in self.tasks), float)
        tasks = dict.fromkeys((task.name for task in self.tasks), float)
        own = {"rank": int, **columns_of(Standing), **means, **columns_of(Cost), "marks": str}
        return table_of(own | families | tasks, [self._flat(row) for row in self.shown])

    def to_json(self) -> dict[str, Any]:
        """Every row with full digits, values 0 to 1."""
        return {
            "suite": self.suite.name,
            "metric": self.metric,
            "ranked_by": self.mean_title,
            "tasks": [
                {"name": task.name, "family": task.family, "scenario": task.scenario}
                for task in self.tasks
            ],
            "rows": [self._row(row) for row in self.shown],
            "gains": [asdict(gains) for gains in self.gains],
            "separation": self.separation and asdict(self.separation),
            "notes": list(self.notes),
        }

    def _row(self, row: Standing) -> dict[str, Any]:
        """A row as JSON."""
        data, found = asdict(row), row.aggregates
        data |= {"task_mean": found.task_mean, self.weighted_name: found.weighted_mean}
        data |= {"families": data.pop("aggregates")["families"], "queries": found.queries}
        data["tie_bounds"] = data.pop("ties")
        if row.cost:
            data["cost"]["seconds_per_query"] = row.cost.seconds_per_query
        return data

    def _flat(self, row: Standing) -> dict[str, Any]:
        """A row of plain values."""
        data = self._row(row)
        parts = (data["families"], data["values"], data["cost"] or {}, data["interval"] or {})
        for part in parts:
            data |= part
        return {**data, "queries": row.aggregates.queries, "marks": "; ".join(row.marks)}


@dataclass(frozen=True)
class _Frame:
    """The tasks, metric and mean that every row is built with."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]

    def standing(
        self,
        system: str,
        kind: Kind,
        origin: Origin,
        source: str,
        values: Mapping[str, float],
        queries: Mapping[str, int] | None = None,
    ) -> Standing:
        """A row with its means; `queries` are the counts of measured tasks."""
        asked = {
            task.name: (queries or {}).get(task.name, task.counts.get("queries", 1))
            for task in self.tasks
        }
        known = {task.name: values[task.name] for task in self.tasks if task.name in values}
        positives = {task.name: task.counts.get("judgements", 1) for task in self.tasks}
        weights = positives if is_micro(self.suite.name, self.metric) else asked
        families = {task.name: task.family for task in self.tasks}
        found = replace(
            aggregate(known, weights, families), queries=sum(asked[task] for task in known)
        )
        mean = found.task_mean if self.averaging == "task" else found.weighted_mean
        return Standing(system, kind, origin, source, known, found, mean)

    def published(self) -> tuple[list[Standing], list[str]]:
        """The published rows, and a note on systems without this metric."""
        rows, without = [], 0
        for system in published_systems(self.suite.name).values():
            values = {
                task.name: value
                for task in self.tasks
                if (value := system.value(task.name, self.metric)) is not None
            }
            without += not values
            if values:
                source = ", ".join(dict.fromkeys(system.origins[task] for task in values))
                rows.append(self.standing(system.spec, system.kind, "published", source, values))
        known = len(rows) + without
        note = f"{without} of {known} published systems have no figure for {self.metric}."
        return rows, [note] if without else []

    def measured(self, entrant: Entrant) -> Standing:
        """The row of a measured system, marked where its data or coverage is not the suite's."""
        values = {
            task: value
            for task, result in entrant.results.items()
            if (value := measured_value(result, self.metric)) is not None
        }
        source = str(Path(*next(iter(entrant.results.values())).folder.parts[:-3]))
        row = self.standing(
            entrant.system, entrant.kind, "measured", source, values, entrant.queries
        )
        marks = entrant.marks
        if row.aggregates.tasks < len(self.tasks):
            few = f"{row.aggregates.tasks} of {len(self.tasks)} tasks measured: no mean, no rank"
            marks = (*marks, few)
        return replace(
            row, marks=marks, cost=cost_of(entrant.results.values()), label=entrant.label
        )

    def with_doubt(self, row: Standing, entrant: Entrant, bounds: _BoundsOf | None) -> Standing:
        """A measured row with its interval, which micro recall has not, and its tie bounds."""
        if row.mean is None:
            return row
        if not is_micro(self.suite.name, self.metric):
            columns = entrant.columns(self.metric)
            row = replace(row, interval=pooled_interval(columns, by=self.averaging))
        return row if bounds is None else replace(row, ties=self._tie_bounds(entrant, bounds))

    def _tie_bounds(self, entrant: Entrant, bounds: _BoundsOf) -> Bounds | None:
        found = {task: bounds(result) for task, result in entrant.results.items()}
        sides = [{task: bound[side] for task, bound in found.items() if bound} for side in (0, 1)]
        worst, best = (
            self.standing("", "base", "measured", "", values, entrant.queries).mean
            for values in sides
        )
        return None if worst is None or best is None else (worst, best)


def _results(results: str | Path | Sequence[Result], suite: str, tell: Tell) -> Sequence[Result]:
    if not isinstance(results, str | Path):
        return sorted(results, key=lambda result: result.record.created, reverse=True)
    folder = Path(results)
    return stored_results(folder, tell, suite=suite) if (folder / suite).is_dir() else []


def _one_of(word: str | None, allowed: Sequence[Any], option: str) -> Any:
    if word is not None and word not in allowed:
        raise UsageError(f"--{option} {word!r} is not known. {nearest(word, allowed)}")
    return word


def _tasks(suite: Suite, family: str | None) -> tuple[TaskEntry, ...]:
    if family is None:
        return suite.entries
    known = {_key(entry.family): entry.family for entry in suite.entries}
    if _key(family) not in known:
        raise UsageError(f"--family {family!r} is not known. {nearest(family, known.values())}")
    return tuple(entry for entry in suite.entries if _key(entry.family) == _key(family))


def _key(family: str) -> str:
    return "".join(letter for letter in family.lower() if letter.isalnum())


def _with_gains(rows: Sequence[Standing], kind: Kind | None) -> list[Standing]:
    """Rows of a kind with their gains, from the same origin where that is possible."""
    known = {(row.system, row.origin): row for row in rows}
    return [_with_gain(row, known) for row in rows if kind in (None, row.kind)]


def _with_gain(row: Standing, rows: Mapping[tuple[str, Origin], Standing]) -> Standing:
    below = first_stage(parse(row.system), row.kind)
    if below is None or row.mean is None:
        return row
    same = rows.get((str(below), row.origin))
    if same is not None and same.mean is not None and same.marks == row.marks:
        return replace(row, gain=row.mean - same.mean, gain_over=str(below))
    other = rows.get((str(below), "published"))
    if row.marks or other is None or other.mean is None:
        return row
    mark = f"Δ is against the published figure of {below}, which is not measured here"
    return replace(row, gain=row.mean - other.mean, gain_over=f"{below} (published)", marks=(mark,))


def _ranked(rows: Sequence[Standing]) -> list[Standing]:
    """Best first; equal means share a rank; rows without a mean come last, unranked."""
    full = sorted((row for row in rows if row.mean is not None), key=lambda row: -(row.mean or 0))
    placed: list[Standing] = []
    for place, row in enumerate(full, start=1):
        tied = placed and placed[-1].mean == row.mean
        placed.append(replace(row, rank=placed[-1].rank if tied else place))
    return [*placed, *(row for row in rows if row.mean is None)]


def _bounds_of(metric: str, root: str | Path | None) -> _BoundsOf:
    """Tie bounds of a result, from its task's judgements; None when they are not the same."""

    def bounds(result: Result) -> Bounds | None:
        try:
            task = load_task(result.task, root=root)
        except R2MedError:
            return None
        same = task.hash == result.record.task.hash
        return tie_range(result, task.judgements, metric) if same else None

    return bounds
