"""Score tables: what a reader sees after an evaluation, labelled so that no mean is mistaken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from r2med.errors import R2MedError
from r2med.results import Result
from r2med.tasks.registry import TaskEntry, find_task

Grouping = Literal["task", "scenario", "family"]

_LABELS = {
    "full": "R2MED",
    "nano": "NanoR2MED",
    "demo": "demo suite, not comparable with published figures",
    None: "your data",
}


_SHORT = {
    "ndcg": "nDCG",
    "map": "MAP",
    "recall": "R",
    "precision": "P",
    "hit": "hit",
    "mrr": "MRR",
}
_LABEL_WIDTH = 40


@dataclass(frozen=True)
class _Row:
    """One line of a table: a task or a group of tasks, and what each column scored on it."""

    label: str
    section: str
    values: tuple[float | None, ...]


def score_tables(
    results: Sequence[Result], metrics: Sequence[str], *, by: Grouping = "task"
) -> Iterator[Table]:
    """Tables for any mix of systems and tasks; data of different suites is never averaged."""
    for suite, group in groupby(sorted(results, key=_suite_order), key=lambda result: result.suite):
        yield from _suite_tables(list(group), suite, metrics, by)


def _suite_order(result: Result) -> int:
    return list(_LABELS).index(result.suite)


def _suite_tables(
    results: list[Result], suite: str | None, metrics: Sequence[str], by: Grouping
) -> Iterator[Table]:
    systems = list(dict.fromkeys(result.system for result in results))
    tasks = list(dict.fromkeys(result.task for result in results))
    label = _LABELS[suite]
    cells = {(result.task, result.system): result.metrics for result in results}
    if len(tasks) == 1 and len(systems) > 1:
        rows = [
            _Row(system, "", tuple(cells[tasks[0], system].get(metric) for metric in metrics))
            for system in systems
        ]
        yield _table(f"{tasks[0]} · {label}", "system", metrics, rows, best_in="column")
    elif len(systems) == 1:
        one = [[cells.get((task, systems[0]), {}) for task in tasks] for metric in metrics]
        columns = [
            [cell.get(metric) for cell in column]
            for metric, column in zip(metrics, one, strict=True)
        ]
        rows = _task_rows(tasks, columns, by)
        yield _table(f"{systems[0]} · {label}", "task", metrics, rows, best_in=None)
    else:
        for metric in metrics[:1]:
            columns = [
                [cells.get((task, system), {}).get(metric) for task in tasks] for system in systems
            ]
            rows = _task_rows(tasks, columns, by)
            yield _table(f"{metric} · {label}", "task", systems, rows, best_in="row")


def _task_rows(
    tasks: Sequence[str], columns: Sequence[Sequence[float | None]], by: Grouping
) -> list[_Row]:
    """Rows by task or by group of tasks, then the mean over tasks when there is more than one."""
    single = [
        _Row(task, _group(task, "family"), tuple(column[place] for column in columns))
        for place, task in enumerate(tasks)
    ]
    rows = single if by == "task" else _grouped(tasks, single, by)
    if len(tasks) > 1:
        means = tuple(_mean(column) for column in columns)
        rows = [*rows, _Row(f"mean of {len(tasks)} tasks", "mean", means)]
    return rows


def _grouped(tasks: Sequence[str], single: Sequence[_Row], by: Grouping) -> list[_Row]:
    members: dict[str, list[_Row]] = {}
    for task, row in zip(tasks, single, strict=True):
        members.setdefault(_group(task, by), []).append(row)
    return [
        _Row(
            f"{group} (mean of {len(rows)})" if len(rows) > 1 else group,
            "",
            tuple(_mean(column) for column in zip(*(row.values for row in rows), strict=True)),
        )
        for group, rows in members.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _group(task: str, by: Grouping) -> str:
    entry = _entry(task)
    if entry is None:
        return ""
    return {"family": entry.family, "scenario": entry.scenario, "task": task}[by]


def _entry(task: str) -> TaskEntry | None:
    try:
        return find_task(task)
    except R2MedError:
        return None


def _table(
    title: str,
    first: str,
    columns: Sequence[str],
    rows: Sequence[_Row],
    *,
    best_in: Literal["row", "column"] | None,
) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption="all values × 100",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_style="bold",
    )
    table.add_column(first, no_wrap=max(len(row.label) for row in rows) <= _LABEL_WIDTH)
    for column in columns:
        table.add_column(_heading(column), justify="right", overflow="fold")
    best = _best(rows, best_in)
    for place, row in enumerate(rows):
        last = place + 1 == len(rows) or rows[place + 1].section != row.section
        style = "italic" if row.section == "mean" else ""
        texts = [_cell(value, (place, at) in best) for at, value in enumerate(row.values)]
        table.add_row(Text(row.label), *texts, end_section=last, style=style)
    return table


def _heading(column: str) -> str:
    """A metric's usual short name, so that six of them fit beside the tasks; others as they are."""
    kind, at, cutoff = column.partition("@")
    return f"{_SHORT[kind]}{at}{cutoff}" if kind in _SHORT else column


def _best(rows: Sequence[_Row], best_in: str | None) -> set[tuple[int, int]]:
    """Places of the best values: within each row, or within each column."""
    values: Mapping[tuple[int, int], float] = {
        (place, at): value
        for place, row in enumerate(rows)
        for at, value in enumerate(row.values)
        if value is not None
    }
    if best_in is None:
        return set()
    axis = 0 if best_in == "row" else 1
    lines: dict[int, list[float]] = {}
    for where, value in values.items():
        lines.setdefault(where[axis], []).append(round(value, 4))
    return {
        where
        for where, value in values.items()
        if len(lines[where[axis]]) > 1 and round(value, 4) == max(lines[where[axis]])
    }


def _cell(value: float | None, best: bool) -> Text:
    if value is None:
        return Text("-", style="dim")
    return Text(f"{100 * value:.2f}", style="bold" if best else "")
