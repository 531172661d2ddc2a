"""Score tables: what a reader sees after an evaluation, labelled so that no mean is mistaken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Literal

from rich.text import Text

from r2med.errors import R2MedError
from r2med.measure.metrics import HEADLINE, parse_metric
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, points
from r2med.results.evaluation import Evaluation
from r2med.results.record import Result
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
    "rprec": "Rprec",
    "bpref": "Bpref",
    "judged": "judged",
}
_LABEL_WIDTH = 40
_MEAN = "mean"
_CEILING = "ceiling"
_Cells = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True)
class _Row:
    """One line of a table: a task or a group of tasks, and what each column scored on it."""

    label: str
    section: str
    values: tuple[float | None, ...]


def draw(value: Evaluation, out: Paper, *, by: Grouping = "task") -> None:
    """Print the grids, then what a reader of them must know."""
    for grid in score_grids(value.results, value.asked, by=by):
        out.print(grid)
        out.print()
    for note in reranking_notes(value.results, value.metrics):
        out.print(note)


def score_grids(
    results: Sequence[Result], asked: Sequence[str] = (), *, by: Grouping = "task"
) -> Iterator[Grid]:
    """Grids for any mix of systems and tasks; data of different suites is never averaged.

    Every metric that was asked for is shown, in a grid of its own where systems and tasks are
    several. Without any, the headline metrics are, or the first of them where they are several.
    """
    for suite, group in groupby(sorted(results, key=_suite_order), key=lambda result: result.suite):
        yield from _suite_grids(list(group), suite, asked, by)


def _suite_order(result: Result) -> int:
    return list(_LABELS).index(result.suite)


def _suite_grids(
    results: list[Result], suite: str | None, asked: Sequence[str], by: Grouping
) -> Iterator[Grid]:
    metrics = asked or HEADLINE
    systems = list(dict.fromkeys(result.name for result in results))
    tasks = list(dict.fromkeys(result.task for result in results))
    label = _LABELS[suite]
    cells = {(result.task, result.name): result.metrics for result in results}
    ceilings = {
        (result.task, result.name): reranking.ceiling
        for result in results
        if (reranking := result.record.reranking)
    }
    if len(tasks) == 1 and len(systems) > 1:
        rows = list(_system_rows(tasks[0], systems, metrics, cells, ceilings))
        yield _grid(f"{tasks[0]} · {label}", "system", metrics, rows, best_in="column")
    elif len(systems) == 1:
        columns = [
            [cells.get((task, systems[0]), {}).get(metric) for task in tasks] for metric in metrics
        ]
        headings = list(metrics)
        if ceilings:
            best = [ceilings.get((task, systems[0]), {}).get(metrics[0]) for task in tasks]
            columns.insert(1, best)
            headings.insert(1, _CEILING)
        rows = _task_rows(tasks, columns, by)
        yield _grid(f"{systems[0]} · {label}", "task", headings, rows, best_in=None)
    else:
        for metric in asked or HEADLINE[:1]:
            columns, headings = [], []
            for system in systems:
                columns.append([cells.get((task, system), {}).get(metric) for task in tasks])
                headings.append(system)
                if any((task, system) in ceilings for task in tasks):
                    best = [ceilings.get((task, system), {}).get(metric) for task in tasks]
                    columns.append(best)
                    headings.append(_CEILING)
            rows = _task_rows(tasks, columns, by)
            yield _grid(f"{metric} · {label}", "task", headings, rows, best_in="row")


def _system_rows(
    task: str, systems: Sequence[str], metrics: Sequence[str], cells: _Cells, ceilings: _Cells
) -> Iterator[_Row]:
    """One row per system; below a reranked one, what its candidates would have allowed."""
    for system in systems:
        yield _Row(system, "", tuple(cells[task, system].get(metric) for metric in metrics))
        best = ceilings.get((task, system))
        if best:
            yield _Row(f"  {_CEILING}", "", tuple(best.get(metric) for metric in metrics))


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
        rows = [*rows, _Row(f"mean of {len(tasks)} tasks", _MEAN, means)]
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


def _grid(
    title: str,
    first: str,
    columns: Sequence[str],
    rows: Sequence[_Row],
    *,
    best_in: Literal["row", "column"] | None,
) -> Grid:
    longest = max(len(row.label) for row in rows)
    fixed = longest <= min(_LABEL_WIDTH, 80 - 10 * len(columns))
    headings = [
        Column(heading, fixed=True)
        if (heading := _heading(column)) != column or column == _CEILING
        else Column(SystemName(column))
        for column in columns
    ]
    reached = {at for at, column in enumerate(columns) if column != _CEILING}
    best = _best(rows, best_in, reached)
    lines: list[list[Cell]] = []
    ends = []
    for place, row in enumerate(rows):
        named = row.section not in ("", _MEAN)
        if named and (not place or rows[place - 1].section != row.section):
            lines.append([Text(row.section, style="italic")])
        if place + 1 == len(rows) or rows[place + 1].section != row.section:
            ends.append(len(lines))
        ceiling = "dim" if row.label.strip() == _CEILING else ""
        label: Cell = Text(row.label, ceiling) if ceiling else SystemName(" " * named + row.label)
        cells = (
            points(value, style="bold" if (place, at) in best else ceiling)
            for at, value in enumerate(row.values)
        )
        lines.append([label, *cells])
    return Grid(
        [Column(first, right=False, fixed=fixed), *headings],
        lines,
        ends=frozenset(ends[:-1]),
        title=title,
        caption="all values × 100",
    )


def _heading(column: str) -> str:
    """A metric's usual short name, so that six of them fit beside the tasks; others as they are."""
    kind, at, cutoff = column.partition("@")
    return f"{_SHORT[kind]}{at}{cutoff}" if kind in _SHORT else column


def _best(rows: Sequence[_Row], best_in: str | None, reached: set[int]) -> set[tuple[int, int]]:
    """Places of the best values that a system reached: within each row, or each column."""
    values: Mapping[tuple[int, int], float] = {
        (place, at): value
        for place, row in enumerate(rows)
        for at, value in enumerate(row.values)
        if value is not None and at in reached and row.label.strip() != _CEILING
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


def reranking_notes(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    """What a reader of reranked scores must know; each sentence only where it applies."""
    if any(result.record.reranking for result in results):
        yield "ceiling: what a perfect reranker of the same candidates would score."
    yield from dict.fromkeys(_deeper(results, metrics))
    for result in results:
        yield from _safeguard(result, metrics)


def _deeper(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    for result in results:
        reranking = result.record.reranking
        if reranking is None:
            continue
        deeper = [name for name in metrics if (parse_metric(name).cutoff or 0) > reranking.depth]
        if deeper:
            below = (
                "below them stands the first stage's order"
                if reranking.tail == "keep"
                else "the list ends there"
            )
            read = "reads" if len(deeper) == 1 else "read"
            yield (
                f"{', '.join(deeper)} {read} deeper than the {reranking.depth} documents that "
                f"{result.name} reranks: {below} (tail={reranking.tail})."
            )


def _safeguard(result: Result, metrics: Sequence[str]) -> Iterator[str]:
    safeguard = result.record.safeguard
    if safeguard is None:
        return
    name, count = metrics[0], safeguard.queries
    queries = "1 query has a positive" if count == 1 else f"{count} queries have one"
    yield (
        f"{result.task}, {result.name}: safeguard on, {queries} put at rank 101; without it "
        f"{name} is {100 * safeguard.metrics_without[name]:.2f}, "
        f"not {100 * result.metrics[name]:.2f}."
    )
