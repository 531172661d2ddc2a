"""The measured part of a leaderboard: which results count, how sure their means are, and who ties.

Only rows on the same data of the same tasks are tested against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

import numpy as np

from r2med.errors import UsageError
from r2med.measure.intervals import Column, Interval, Matrix, task_mean_intervals
from r2med.measure.pooled import task_mean_p
from r2med.report.standing import Averaging, BoundsOf, Standing
from r2med.results.lineage import Kind, kind_of
from r2med.results.lookup import other_data
from r2med.results.published import is_micro
from r2med.results.record import Result
from r2med.systems.spec import parse

#: Two neighbours with a p-value from here on cannot be told apart.
SIGNIFICANCE = 0.05


@dataclass(frozen=True, eq=False)
class Entrant:
    """One measured system: its newest result on each task, and what sets its data apart."""

    system: str
    kind: Kind
    results: Mapping[str, Result]
    marks: tuple[str, ...]

    @property
    def queries(self) -> Mapping[str, int]:
        """Judged queries by task."""
        return {task: result.record.task.judged_queries for task, result in self.results.items()}

    @property
    def data(self) -> tuple[tuple[str, str], ...]:
        """Tasks and the hashes of their data: rows are paired only when these are equal."""
        return tuple((task, result.record.task.hash) for task, result in self.results.items())

    def columns(self, metric: str) -> list[Column]:
        """Per-query scores, a column a task, in the order of the tasks."""
        tables = [result.scores for result in self.results.values()]
        return [table.at(table.query_ids.sort())[metric] for table in tables]


def entrants(results: Sequence[Result], tasks: Sequence[str]) -> tuple[list[Entrant], list[str]]:
    """The systems among results (newest first), and notes on results passed over."""
    chosen: dict[str, dict[str, Result]] = {}
    older: Counter[str] = Counter()
    for result in results:
        if result.task not in tasks:
            continue
        by_task = chosen.setdefault(result.system, {})
        if result.task in by_task:
            older[result.system] += 1
        by_task.setdefault(result.task, result)
    usual = _usual_data(chosen)
    found = []
    notes = []
    for system, by_task in chosen.items():
        try:
            kind = kind_of(parse(system))
        except UsageError:
            folder = next(iter(by_task.values())).folder
            notes.append(f"{folder}: {system!r} is no system's text; it is not shown.")
            continue
        ordered = {task: by_task[task] for task in tasks if task in by_task}
        marks = tuple(dict.fromkeys(m for r in ordered.values() if (m := _data_mark(r, usual))))
        found.append(Entrant(system, kind, ordered, marks))
    notes += [
        f"{system}: {count} older result(s) of other data or settings are not shown."
        for system, count in older.items()
    ]
    return found, notes


def with_intervals(
    rows: Sequence[Standing], entrants: Sequence[Entrant], metric: str, averaging: Averaging
) -> list[Standing]:
    """Bootstrap intervals for measured rows that have a mean; systems on equal data share draws."""
    wanted = {row.system for row in rows if row.origin == "measured" and row.mean is not None}
    found: dict[str, Interval] = {}
    for members in _by_data([entrant for entrant in entrants if entrant.system in wanted]):
        if is_micro(members[0].results[members[0].data[0][0]].suite, metric):
            continue
        columns = [member.columns(metric) for member in members]
        tasks: list[Matrix] = [np.column_stack(task) for task in zip(*columns, strict=True)]
        if averaging == "query":
            tasks = [np.vstack(tasks)]
        intervals = task_mean_intervals(tasks)
        found.update(zip((member.system for member in members), intervals, strict=True))
    return [
        replace(row, interval=found.get(row.system)) if row.origin == "measured" else row
        for row in rows
    ]


def with_groups(
    rows: Sequence[Standing], entrants: Sequence[Entrant], metric: str, averaging: Averaging
) -> list[Standing]:
    """Letters for measured neighbours that a paired randomisation test cannot tell apart.

    A row joins while it cannot be told apart from the group's *first* row, so that a chain of
    small steps never ties the best with the worst.
    """
    known = {entrant.system: entrant for entrant in entrants}
    tested = [row for row in rows if row.origin == "measured" and row.interval is not None]
    groups: list[list[str]] = []
    for row in tested:
        leader = known[groups[-1][0]] if groups else None
        if leader and _alike(leader, known[row.system], metric, averaging):
            groups[-1].append(row.system)
        else:
            groups.append([row.system])
    letters = iter(ascii_lowercase)
    letter_of = {
        system: letter
        for group in groups
        if len(group) > 1 and (letter := next(letters, "z"))
        for system in group
    }
    return [
        replace(row, group=letter_of.get(row.system, "")) if row.origin == "measured" else row
        for row in rows
    ]


def with_tie_bounds(
    rows: Sequence[Standing],
    entrants: Sequence[Entrant],
    bounds: BoundsOf,
    mean: Callable[[Mapping[str, float], Mapping[str, int]], float | None],
) -> list[Standing]:
    """The means under the worst and the best order of equal scores, where the data is here."""
    known = {entrant.system: entrant for entrant in entrants}
    return [
        replace(row, ties=_bounds(known[row.system], bounds, mean))
        if row.origin == "measured" and row.mean is not None
        else row
        for row in rows
    ]


def _bounds(
    entrant: Entrant,
    bounds: BoundsOf,
    mean: Callable[[Mapping[str, float], Mapping[str, int]], float | None],
) -> tuple[float, float] | None:
    found = {task: bounds(result) for task, result in entrant.results.items()}
    worst = {task: bound[0] for task, bound in found.items() if bound}
    best = {task: bound[1] for task, bound in found.items() if bound}
    low, high = mean(worst, entrant.queries), mean(best, entrant.queries)
    return None if low is None or high is None else (low, high)


def _alike(a: Entrant, b: Entrant, metric: str, averaging: Averaging) -> bool:
    if a.data != b.data:
        return False
    pairs = zip(a.columns(metric), b.columns(metric), strict=True)
    differences = [first - second for first, second in pairs]
    if averaging == "query":
        differences = [np.concatenate(differences)]
    return task_mean_p(differences) >= SIGNIFICANCE


def _by_data(entrants: Sequence[Entrant]) -> list[list[Entrant]]:
    groups: dict[tuple[tuple[str, str], ...], list[Entrant]] = {}
    for entrant in entrants:
        groups.setdefault(entrant.data, []).append(entrant)
    return list(groups.values())


def _usual_data(chosen: Mapping[str, Mapping[str, Result]]) -> Mapping[str, str]:
    """For every task the data that most systems ran on."""
    seen: dict[str, Counter[str]] = {}
    for by_task in chosen.values():
        for task, result in by_task.items():
            seen.setdefault(task, Counter())[result.record.task.hash] += 1
    return {task: hashes.most_common(1)[0][0] for task, hashes in seen.items()}


def _data_mark(result: Result, usual: Mapping[str, str]) -> str | None:
    mark = other_data(result)
    if mark is None and result.record.task.hash != usual[result.task]:
        mark = f"ran on other data of {result.task} than the other measured rows"
    return mark
