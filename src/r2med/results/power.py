"""The smallest difference that the queries of tasks can detect, estimated from stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.errors import MissingError
from r2med.execution.resources import Warn, log_warning
from r2med.measure.intervals import Column
from r2med.measure.power import POWER, detectable_difference, queries_needed
from r2med.results.compare import Comparison, compare
from r2med.results.record import Result
from r2med.results.select import ResultSet
from r2med.results.store import DEFAULT_FOLDER
from r2med.results.versions import group_systems
from r2med.tables import Tabular, make_table
from r2med.tasks.load import task_names
from r2med.tasks.registry import resolve

#: Differences, 0 to 1, for which the number of queries is given.
DIFFERENCES = (0.01, 0.02, 0.05)
#: With more stored pairs, this number of them is taken, evenly over the list.
_PAIRS = 10


@dataclass(frozen=True)
class PowerRow:
    """The power of comparisons on one task, or on the mean over all tasks."""

    over: str
    queries: int
    spread: float
    """Median over the pairs of systems of the standard deviation of paired differences."""
    detectable: float | None
    """Median over the pairs of the smallest difference that is detected; None if no pair detects
    any."""
    lowest: float | None
    """The lowest value of `detectable` over the pairs of systems; `highest` is the highest."""
    highest: float | None
    needed: Mapping[float, int | None]
    """Median number of queries that detect a difference, by difference."""


@dataclass(frozen=True, eq=False)
class PowerTable(Tabular):
    """The power of comparisons on tasks, over pairs of systems."""

    metric: str
    pairs: tuple[tuple[str, str], ...]
    rows: tuple[PowerRow, ...]
    power: float = POWER
    other_data: Mapping[str, str] = field(default_factory=dict)
    """How the data of each task differs from the published data; only tasks where it differs."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per task, then the task mean; differences are fractions (0 to 1)."""
        names: dict[str, type] = {"over": str, "queries": int}
        names |= dict.fromkeys(("spread", "detectable", "lowest", "highest"), float)
        needed = {f"queries_for_{difference:g}": int for difference in DIFFERENCES}
        rows = [
            {**vars(row), **dict(zip(needed, row.needed.values(), strict=True))}
            for row in self.rows
        ]
        return make_table(names | needed, rows)

    def to_json(self) -> dict[str, Any]:
        """All fields of the table; differences are fractions (0.01), not points (1)."""
        return {
            "metric": self.metric,
            "power": self.power,
            **({"data_notes": dict(self.other_data)} if self.other_data else {}),
            "pairs": [list(pair) for pair in self.pairs],
            "rows": self.to_arrow().to_pylist(),
        }


def compare_power(comparison: Comparison) -> PowerTable:
    """Measure the power of a comparison, from its first two systems.

    Args:
        comparison: Two systems on the same queries, from `compare`.
    """
    pair = comparison.pairs[0]
    columns = dict(zip(comparison.tasks, comparison.differences(pair), strict=True))
    names = comparison.systems[pair.a], comparison.systems[pair.b]
    table = _power_table(comparison.metric, [names], [columns])
    return replace(table, other_data=comparison.other_data)


def measure_power(
    task: str,
    *,
    metric: str = "ndcg@10",
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    tell: Warn = log_warning,
) -> PowerTable:
    """Measure the smallest difference that queries detect, from pairs of stored systems.

    Args:
        task: A task or suite, as in `evaluate`.
        metric: The metric of the comparison.
        results: The results folder, or results.
        tell: Callback for warnings.

    Raises:
        MissingError: Fewer than two systems have results on all of the tasks.
    """
    stored = ResultSet.open(results, tell)
    tasks = task_names(resolve(task, stored.local_tasks), stored.local_tasks)
    on_tasks = [result for result in stored.results if result.task in tasks]
    systems = [
        system.spec
        for system in group_systems(on_tasks, tasks)
        if system.chosen.tasks >= frozenset(tasks)
    ]
    if len(systems) < 2:
        raise MissingError(
            f"{task}: the spread of differences needs two systems with results on every task; "
            f"{len(systems)} found.\n"
            f"Run two first: r2med eval bm25 wordllama --task {task}"
        )
    every_pair = list(combinations(systems, 2))
    step = max(1, len(every_pair) // _PAIRS)
    pairs = every_pair[::step][:_PAIRS]
    columns = []
    other_data: dict[str, str] = {}
    for pair in pairs:
        comparison = compare(*pair, task=task, metric=metric, results=on_tasks, tell=tell)
        differences = comparison.differences(comparison.pairs[0])
        columns.append(dict(zip(comparison.tasks, differences, strict=True)))
        other_data |= comparison.other_data
    return replace(_power_table(metric, pairs, columns), other_data=other_data)


def _power_table(
    metric: str,
    pairs: Sequence[tuple[str, str]],
    columns: Sequence[Mapping[str, Column]],
) -> PowerTable:
    """Return one row per task, and one for the mean over several tasks."""
    tasks = list(columns[0])
    rows = [_power_row(task, [[pair[task]] for pair in columns]) for task in tasks]
    if len(tasks) > 1:
        rows.append(_power_row("task mean", [list(pair.values()) for pair in columns]))
    return PowerTable(metric, tuple(pairs), tuple(rows))


def _power_row(over: str, pairs: Sequence[Sequence[Column]]) -> PowerRow:
    by_pair = [detectable_difference(tasks) for tasks in pairs]
    detectable = [value for value in by_pair if value is not None]
    needed: dict[float, int | None] = {}
    for difference in DIFFERENCES:
        counts = [queries_needed(tasks, difference) for tasks in pairs]
        numbers = [count for count in counts if count is not None]
        needed[difference] = round(median(numbers)) if numbers else None
    spreads = [float(np.concatenate(tasks).std(ddof=1)) for tasks in pairs]
    return PowerRow(
        over=over,
        queries=sum(len(task) for task in pairs[0]),
        spread=median(spreads),
        detectable=median(detectable) if detectable else None,
        lowest=min(detectable, default=None),
        highest=max(detectable, default=None),
        needed=needed,
    )
