"""The leaderboard as values: published and measured systems in one ranking, never confused.

A row without all tasks has no mean and no rank; a row on other data is marked; a gain is taken
against the same kind of figure, or says that it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from r2med.errors import UsageError, nearest
from r2med.measure.intervals import Averaging
from r2med.measure.scores import aggregate
from r2med.report.standing import BoundsOf, Leaderboard, Origin, Standing
from r2med.results.lineage import Kind, first_stage
from r2med.results.published import is_micro, published_systems
from r2med.systems.spec import parse
from r2med.tasks.registry import Suite, TaskEntry, find_suite

if TYPE_CHECKING:
    from r2med.report.leaderboard_measured import Entrant
    from r2med.results.record import Result


@dataclass(frozen=True)
class Selection:
    """What a leaderboard is asked for."""

    suite: str = "full"
    metric: str = "ndcg@10"
    kind: Kind | None = None
    family: str | None = None
    averaging: Averaging | None = None
    """None: as the suite publishes it, by task for R2MED and by query for NanoR2MED."""

    @property
    def averaged(self) -> Averaging:
        """The mean that ranks."""
        return self.averaging or ("query" if self.suite == "nano" else "task")


def leaderboard(
    selection: Selection, results: Sequence[Result] = (), *, bounds: BoundsOf | None = None
) -> Leaderboard:
    """Rank published systems and stored results; `bounds` gives the tie bounds of a result."""
    suite = find_suite(selection.suite)
    tasks = _tasks(suite, selection.family)
    frame = _Frame(suite.name, selection.metric, selection.averaged, tasks)
    rows, notes = frame.published()
    ours = [result for result in results if result.suite == suite.name]
    tested = None
    if not ours:
        placed = _ranked(_with_gains(rows, selection.kind))
    else:
        from r2med.report import leaderboard_measured as measured

        entrants, told = measured.entrants(ours, [task.name for task in tasks])
        notes += told
        rows += [frame.measured(entrant) for entrant in entrants]
        placed = _ranked(_with_gains(rows, selection.kind))
        placed = measured.with_intervals(placed, entrants, selection.metric, selection.averaged)
        placed, tested = measured.with_groups(
            placed, entrants, selection.metric, selection.averaged
        )
        if bounds is not None:
            placed = measured.with_tie_bounds(placed, entrants, bounds, frame.mean)
    return Leaderboard(
        suite, selection.metric, selection.averaged, tasks, tuple(placed), tuple(notes), tested
    )


@dataclass(frozen=True)
class _Frame:
    """The tasks, metric and mean that every row is built with."""

    suite: str
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
        asked = {task.name: self._queries(task, queries) for task in self.tasks}
        families = {task.name: task.family for task in self.tasks}
        known = {task.name: values[task.name] for task in self.tasks if task.name in values}
        positives = {task.name: task.counts.get("judgements", 1) for task in self.tasks}
        weights = positives if is_micro(self.suite, self.metric) else asked
        found = replace(
            aggregate(known, weights, families), queries=sum(asked[task] for task in known)
        )
        mean = found.task_mean if self.averaging == "task" else found.weighted_mean
        return Standing(system, kind, origin, source, known, found, mean)

    def measured(self, entrant: Entrant) -> Standing:
        """The row of a measured system, marked where its data or coverage is not the suite's."""
        from r2med.results.cost import cost_of
        from r2med.results.lookup import measured_value

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

    def mean(self, values: Mapping[str, float], queries: Mapping[str, int]) -> float | None:
        """The ranking mean of some task values."""
        return self.standing("", "base", "measured", "", values, queries).mean

    def published(self) -> tuple[list[Standing], list[str]]:
        """The published rows, and a note on systems without this metric."""
        rows, without = [], 0
        for system in published_systems(self.suite).values():
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

    def _queries(self, task: TaskEntry, queries: Mapping[str, int] | None) -> int:
        measured = queries.get(task.name) if queries else None
        return measured if measured is not None else task.counts.get("queries", 1)


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
    told = f"Δ is against the published figure of {below}, which is not measured here"
    return replace(row, gain=row.mean - other.mean, gain_over=f"{below} (published)", marks=(told,))


def _ranked(rows: Sequence[Standing]) -> list[Standing]:
    """Best first; equal means share a rank; rows without a mean come last, unranked."""
    full = sorted((row for row in rows if row.mean is not None), key=lambda row: -_mean(row))
    partial = [row for row in rows if row.mean is None]
    placed: list[Standing] = []
    for place, row in enumerate(full, start=1):
        tied = placed and _mean(placed[-1]) == _mean(row)
        placed.append(replace(row, rank=placed[-1].rank if tied else place))
    return [*placed, *partial]


def _mean(row: Standing) -> float:
    return row.mean if row.mean is not None else float("-inf")
