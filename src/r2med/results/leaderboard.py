"""The leaderboard: published and measured systems in one ranking, never confused.

A row without all tasks has no mean and no rank. A row on other data than the manifest's is marked
and tested against none. A gain is taken against the same kind of figure, or says that it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.errors import R2MedError, UsageError, nearest
from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging, Column, Interval, pooled_interval
from r2med.measure.scores import Aggregates, aggregate
from r2med.measure.significance import SIGNIFICANT, draws_for, holm, letters, pairwise_p
from r2med.results.cost import Cost, cost_of
from r2med.results.lookup import stored_results
from r2med.results.published import is_micro, published_systems
from r2med.results.record import Result
from r2med.results.reproduction import measured_value, other_data, tie_range
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.systems.registry import KINDS, Kind, first_stage, kind_of
from r2med.systems.spec import parse
from r2med.tabular import Tabular, table_of
from r2med.tasks.load import load_task
from r2med.tasks.registry import Suite, TaskEntry, find_suite

Origin = Literal["published", "measured"]
Bounds = tuple[float, float]


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
    entrants, passed_over = _entrants(own, [task.name for task in frame.tasks])
    rows += [frame.measured(entrant) for entrant in entrants]
    only = _one_of(kind, KINDS, "kind")
    placed = _ranked(_with_gains(rows, only))
    separation = None
    if entrants:
        known = {entrant.system: entrant for entrant in entrants}
        bounds = _bounds_of(name, root) if ties else None
        placed = [frame.with_doubt(row, known, bounds) for row in placed]
        placed, separation = _lettered(placed, known, name, averaging)
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


@dataclass(frozen=True)
class Separation:
    """The tests behind the letters: how many rows and pairs, and how many pairs differ."""

    rows: int
    pairs: int
    different: int


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
        families = dict.fromkeys((task.family for task in self.tasks), float)
        tasks = dict.fromkeys((task.name for task in self.tasks), float)
        means = {"task_mean": float, self.weighted_name: float}
        columns = _NAMES | means | _COLUMNS | families | tasks
        return table_of(columns, [self._flat(row) for row in self.shown])

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
        interval, cost = row.interval, row.cost
        return {
            "rank": row.rank,
            "system": row.system,
            "kind": row.kind,
            "origin": row.origin,
            "source": row.source,
            "task_mean": row.aggregates.task_mean,
            self.weighted_name: row.aggregates.weighted_mean,
            "families": dict(row.aggregates.families),
            "queries": row.aggregates.queries,
            "interval": interval and asdict(interval),
            "tie_bounds": row.ties and {"worst": row.ties[0], "best": row.ties[1]},
            "letters": row.letters or None,
            "gain": row.gain,
            "gain_over": row.gain_over or None,
            "values": dict(row.values),
            "cost": cost and {**asdict(cost), "seconds_per_query": cost.seconds_per_query},
            "marks": list(row.marks),
        }

    def _flat(self, row: Standing) -> dict[str, Any]:
        whole = self._row(row)
        interval, cost = whole["interval"] or {}, whole["cost"] or {}
        return {
            **whole,
            **whole["families"],
            **whole["values"],
            **{name: value for name, value in cost.items() if name in _COLUMNS},
            "queries": row.aggregates.queries,
            "interval_low": interval.get("low"),
            "interval_high": interval.get("high"),
            "marks": "; ".join(row.marks),
        }


_NAMES: dict[str, type] = {"rank": int, "system": str, "kind": str, "origin": str, "source": str}
_COLUMNS: dict[str, type] = {
    "interval_low": float,
    "interval_high": float,
    "letters": str,
    "gain": float,
    "gain_over": str,
    "queries": int,
    "index_seconds": float,
    "seconds_per_query": float,
    "index_tokens": int,
    "query_tokens": int,
    "money": float,
    "marks": str,
}


@dataclass(frozen=True, eq=False)
class _Entrant:
    """One measured system: its newest result on each task, and what sets its data apart."""

    system: str
    kind: Kind
    results: Mapping[str, Result]
    marks: tuple[str, ...]

    @property
    def queries(self) -> Mapping[str, int]:
        """Judged queries by task."""
        return {task: result.record.task.judged_queries for task, result in self.results.items()}

    @cached_property
    def data(self) -> tuple[tuple[str, str], ...]:
        """Tasks and the hashes of their data: rows are paired only when these are equal."""
        return tuple((task, result.record.task.hash) for task, result in self.results.items())

    def columns(self, metric: str) -> list[Column]:
        """Per-query scores, one column per task, in the order of the tasks."""
        tables = [result.scores for result in self.results.values()]
        return [table.at(table.query_ids.sort())[metric] for table in tables]


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

    def measured(self, entrant: _Entrant) -> Standing:
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
        return replace(row, marks=marks, cost=cost_of(entrant.results.values()))

    def with_doubt(
        self,
        row: Standing,
        entrants: Mapping[str, _Entrant],
        bounds: Callable[[Result], Bounds | None] | None,
    ) -> Standing:
        """A measured row with its interval, which micro recall has not, and its tie bounds."""
        if row.origin == "published" or row.mean is None:
            return row
        entrant = entrants[row.system]
        if not is_micro(self.suite.name, self.metric):
            columns = entrant.columns(self.metric)
            row = replace(row, interval=pooled_interval(columns, by=self.averaging))
        return row if bounds is None else replace(row, ties=self._tie_bounds(entrant, bounds))

    def _tie_bounds(
        self, entrant: _Entrant, bounds: Callable[[Result], Bounds | None]
    ) -> Bounds | None:
        found = {task: bounds(result) for task, result in entrant.results.items()}
        worst, best = (
            self.standing(
                "",
                "base",
                "measured",
                "",
                {task: bound[side] for task, bound in found.items() if bound},
                entrant.queries,
            ).mean
            for side in (0, 1)
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


def _entrants(results: Sequence[Result], tasks: Sequence[str]) -> tuple[list[_Entrant], list[str]]:
    """The systems among results (newest first), and notes on results passed over."""
    chosen: dict[str, dict[str, Result]] = {}
    older: Counter[str] = Counter()
    for result in results:
        if result.task in tasks:
            by_task = chosen.setdefault(result.system, {})
            older[result.system] += result.task in by_task
            by_task.setdefault(result.task, result)
    proper = _proper_data(chosen)
    found, notes = [], []
    for system, by_task in chosen.items():
        try:
            kind = kind_of(parse(system))
        except UsageError:
            folder = next(iter(by_task.values())).folder
            notes.append(f"{folder}: {system!r} is no system's text; it is not shown.")
            continue
        ordered = {task: by_task[task] for task in tasks if task in by_task}
        marks = [mark for each in ordered.values() if (mark := _data_mark(each, proper))]
        found.append(_Entrant(system, kind, ordered, tuple(dict.fromkeys(marks))))
    notes += [
        f"{system}: {count} older result(s) of other data or settings are not shown."
        for system, count in older.items()
        if count
    ]
    return found, notes


def _proper_data(chosen: Mapping[str, Mapping[str, Result]]) -> Mapping[str, str]:
    """By task the hash of the data that conforms to the manifest; the usual one of several."""
    seen: dict[str, Counter[str]] = {}
    for by_task in chosen.values():
        for task, result in by_task.items():
            if other_data(result) is None:
                seen.setdefault(task, Counter())[result.record.task.hash] += 1
    return {task: hashes.most_common(1)[0][0] for task, hashes in seen.items()}


def _data_mark(result: Result, proper: Mapping[str, str]) -> str | None:
    mark = other_data(result)
    if mark is None and result.record.task.hash != proper[result.task]:
        mark = f"ran on other data of {result.task} than the other measured rows"
    return mark


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


def _lettered(
    rows: Sequence[Standing], entrants: Mapping[str, _Entrant], metric: str, averaging: Averaging
) -> tuple[list[Standing], Separation | None]:
    """Letters for measured rows: two share one exactly when no test separates them.

    Every pair of rows on one form of the data is tested, with Holm's correction over all pairs; of
    several forms the one that conforms to the manifest counts, or that most rows share.
    """
    able = [entrants[row.system] for row in rows if row.origin == "measured" and row.interval]
    groups: dict[tuple[tuple[str, str], ...], list[_Entrant]] = {}
    for entrant in able:
        groups.setdefault(entrant.data, []).append(entrant)
    tested = max(groups.values(), key=lambda group: (not group[0].marks, len(group)), default=[])
    if len(tested) < 2:
        return list(rows), None
    tasks = [
        np.column_stack(task)
        for task in zip(*(entrant.columns(metric) for entrant in tested), strict=True)
    ]
    upper = np.triu_indices(len(tested), 1)
    p_values = pairwise_p(tasks, averaging, resamples=draws_for(len(upper[0])))
    different = np.zeros((len(tested), len(tested)), dtype=bool)
    different[upper] = np.array(holm(list(p_values[upper]))) < SIGNIFICANT
    systems = [entrant.system for entrant in tested]
    names = dict(zip(systems, letters(different | different.T), strict=True))
    lettered = [
        replace(row, letters=names.get(row.system, "")) if row.origin == "measured" else row
        for row in rows
    ]
    return lettered, Separation(len(tested), len(upper[0]), int(different.sum()))


def _bounds_of(metric: str, root: str | Path | None) -> Callable[[Result], Bounds | None]:
    """Tie bounds of a result, from its task's judgements; None when they are not the same."""

    def bounds(result: Result) -> Bounds | None:
        try:
            task = load_task(result.task, root=root)
        except R2MedError:
            return None
        same = task.hash == result.record.task.hash
        return tie_range(result, task.judgements, metric) if same else None

    return bounds
