"""The measured systems of a leaderboard: which results count, on which data, and who ties whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from r2med.errors import UsageError
from r2med.measure.intervals import Averaging, Column
from r2med.measure.significance import SIGNIFICANT, draws_for, holm, letters, pairwise_p
from r2med.results.lookup import other_data
from r2med.results.record import Result
from r2med.systems.registry import Kind, kind_of
from r2med.systems.spec import parse


@dataclass(frozen=True, eq=False)
class Entrant:
    """One measured system: its newest result on each task, and what sets its data apart."""

    system: str
    kind: Kind
    results: Mapping[str, Result]
    marks: tuple[str, ...]
    label: str | None = None

    @property
    def queries(self) -> Mapping[str, int]:
        """Judged queries by task."""
        return {task: result.record.task.judged_queries for task, result in self.results.items()}

    @property
    def data(self) -> tuple[tuple[str, str], ...]:
        """Tasks and the hashes of their data: rows are paired only when these are equal."""
        return tuple((task, result.data) for task, result in self.results.items())

    def columns(self, metric: str) -> list[Column]:
        """Per-query scores, one column per task, in the order of the tasks."""
        tables = [result.scores for result in self.results.values()]
        return [table.at(table.query_ids.sort())[metric] for table in tables]


def entrants(results: Sequence[Result], tasks: Sequence[str]) -> tuple[list[Entrant], list[str]]:
    """The systems among results (newest first), and notes on results passed over."""
    chosen: dict[str, dict[str, Result]] = {}
    older: Counter[str] = Counter()
    for result in results:
        if result.task in tasks:
            by_task = chosen.setdefault(result.system, {})
            older[result.system] += result.task in by_task
            by_task.setdefault(result.task, result)
    proper = _proper_data([result for by_task in chosen.values() for result in by_task.values()])
    measured, notes = [], []
    for system, by_task in chosen.items():
        try:
            kind = kind_of(parse(system))
        except UsageError:
            folder = next(iter(by_task.values())).folder
            notes.append(f"{folder}: {system!r} is no system's text; it is not shown.")
            continue
        own = {task: by_task[task] for task in tasks if task in by_task}
        marks = dict.fromkeys(_data_mark(each, proper) for each in own.values())
        labels = [each.record.system.label for each in own.values()]
        label = next(filter(None, labels), None)
        measured.append(Entrant(system, kind, own, tuple(filter(None, marks)), label))
    holders = Counter(entrant.label for entrant in measured)
    measured = [
        replace(each, label=f"{each.label}: {each.system}")
        if each.label and holders[each.label] > 1
        else each
        for each in measured
    ]
    notes += [
        f"{system}: {count} older result(s) of other data or settings are not shown."
        for system, count in older.items()
        if count
    ]
    return measured, notes


def _proper_data(results: Iterable[Result]) -> Mapping[str, str]:
    """By task the hash of the data that conforms to its manifest, if it has one; the usual one."""
    hashes: dict[str, Counter[str]] = {}
    for result in results:
        if result.suite is None or other_data(result) is None:
            hashes.setdefault(result.task, Counter())[result.data] += 1
    return {task: counts.most_common(1)[0][0] for task, counts in hashes.items()}


def _data_mark(result: Result, proper: Mapping[str, str]) -> str | None:
    mark = other_data(result) if result.suite else None
    if mark is None and result.data != proper[result.task]:
        mark = f"ran on other data of {result.task} than the other measured rows"
    return mark


@dataclass(frozen=True)
class Separation:
    """The tests behind the letters: how many rows and pairs, and how many pairs differ."""

    rows: int
    pairs: int
    different: int


def separated(
    able: Sequence[Entrant], metric: str, averaging: Averaging
) -> tuple[dict[str, str], Separation | None]:
    """Letters by system, best first: two share one exactly when no test separates them.

    Every pair on one form of the data is tested, with Holm's correction over all pairs; of several
    forms the one that conforms to the manifest counts, or that most systems share. Systems on other
    data have no letter.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Entrant]] = {}
    for entrant in able:
        groups.setdefault(entrant.data, []).append(entrant)
    tested = max(groups.values(), key=lambda group: (not group[0].marks, len(group)), default=[])
    if len(tested) < 2:
        return {}, None
    columns = [entrant.columns(metric) for entrant in tested]
    tasks = [np.column_stack(task) for task in zip(*columns, strict=True)]
    upper = np.triu_indices(len(tested), 1)
    p_values = pairwise_p(tasks, averaging, resamples=draws_for(len(upper[0])))
    different = np.zeros((len(tested), len(tested)), dtype=bool)
    different[upper] = np.array(holm(list(p_values[upper]))) < SIGNIFICANT
    systems = [entrant.system for entrant in tested]
    names = dict(zip(systems, letters(different | different.T), strict=True))
    return names, Separation(len(tested), len(upper[0]), int(different.sum()))
