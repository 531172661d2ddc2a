"""The measured part of a leaderboard: which results count, how sure their means are, and who ties.

Only rows on the same data of the same tasks are tested against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from r2med.errors import UsageError
from r2med.measure.intervals import Averaging, Column, pooled_interval
from r2med.measure.significance import SIGNIFICANT, draws_for, holm, letters, pairwise_p
from r2med.report.standing import BoundsOf, Separation, Standing
from r2med.results.lineage import Kind, kind_of
from r2med.results.lookup import other_data
from r2med.results.published import is_micro
from r2med.results.record import Result
from r2med.systems.spec import parse


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

    @property
    def suite(self) -> str | None:
        """The suite of all its tasks."""
        return next(iter(self.results.values())).suite

    def columns(self, metric: str) -> list[Column]:
        """Per-query scores, one column per task, in the order of the tasks."""
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
    """Intervals for measured rows that have a mean; none for micro recall, which is no mean."""
    known = {entrant.system: entrant for entrant in entrants}
    return [
        replace(row, interval=pooled_interval(known[row.system].columns(metric), by=averaging))
        if row.origin == "measured"
        and row.mean is not None
        and not is_micro(known[row.system].suite, metric)
        else row
        for row in rows
    ]


def with_groups(
    rows: Sequence[Standing], entrants: Sequence[Entrant], metric: str, averaging: Averaging
) -> tuple[list[Standing], Separation | None]:
    """Letters for measured rows: two share one exactly when no test separates them.

    Every pair of rows on the data that most of them share is tested, with Holm's correction over
    all pairs; rows on other data have no letter.
    """
    known = {entrant.system: entrant for entrant in entrants}
    able = [known[row.system] for row in rows if row.origin == "measured" and row.interval]
    tested = max(_by_data(able), key=len, default=[])
    if len(tested) < 2:
        return list(rows), None
    columns = [entrant.columns(metric) for entrant in tested]
    tasks = [np.column_stack(task) for task in zip(*columns, strict=True)]
    size = len(tested)
    upper = np.triu_indices(size, 1)
    p_values = pairwise_p(tasks, averaging, resamples=draws_for(len(upper[0])))
    different = np.zeros((size, size), dtype=bool)
    different[upper] = np.array(holm(list(p_values[upper]))) < SIGNIFICANT
    names = dict(
        zip([each.system for each in tested], letters(different | different.T), strict=True)
    )
    found = [
        replace(row, group=names.get(row.system, "")) if row.origin == "measured" else row
        for row in rows
    ]
    return found, Separation(size, len(upper[0]), int(different.sum()))


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
