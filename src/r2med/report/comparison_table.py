"""Comparisons on a terminal and as data: two systems task by task, more of them as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from r2med.measure.pooled import Pooled
from r2med.measure.significance import Comparison, holm
from r2med.report.table import Column, Grid, print_fitting, task_label
from r2med.tasks.registry import find_suite

_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Versus:
    """Two names and how the first differs from the second."""

    a: str
    b: str
    suite: str | None
    """The suite of all tasks; None for data of the user's own."""
    pooled: Pooled


def print_pair(versus: Versus, metric: str, out: Console) -> None:
    """One table: a row a task, then both poolings, each under its own name."""
    out.print(f"A = {versus.a}\nB = {versus.b}", style="bold")
    out.print(_data(versus))
    print_fitting((_pair_grid(versus, metric, narrow=narrow) for narrow in (False, True)), out)
    for line in _legend(versus):
        out.print(line, style="dim")


def _pair_grid(versus: Versus, metric: str, *, narrow: bool) -> Grid:
    pooled = versus.pooled
    named: list[tuple[str, Comparison, float | None]] = [
        (task_label(task.task), task.comparison, task.p_holm) for task in pooled.tasks
    ]
    ends = frozenset([len(named) - 1]) if len(named) > 1 else frozenset[int]()
    if len(named) > 1:
        named += [("task mean", pooled.by_task, None), ("all queries", pooled.by_query, None)]
    lines = [
        {metric: Text(name), **_cells(comparison, p_holm, digits=1 if narrow else 2)}
        for name, comparison, p_holm in named
    ]
    left_out = {*(["Holm"] if len(pooled.tasks) == 1 else []), *(["n"] if narrow else [])}
    titles = [title for title in lines[0] if title not in left_out]
    return Grid(
        [Column(title, right=title != metric) for title in titles],
        [[line[title] for title in titles] for line in lines],
        gap=1 if narrow else 2,
        ends=ends,
    )


def _data(versus: Versus) -> str:
    return f"on {find_suite(versus.suite).title}" if versus.suite else "on your data"


def print_matrix(pairs: Sequence[Versus], names: Sequence[str], metric: str, out: Console) -> None:
    """Row minus column, by task mean; a star where Holm's correction over all pairs leaves it."""
    cells, means = _matrix_cells(pairs), _means(pairs)
    numbers = [f"[{number}]" for number in range(1, len(names) + 1)]
    out.print(f"{metric} × 100 {_data(pairs[0])}, row minus column", style="bold")
    columns = [Column("", right=False), Column("mean"), *map(Column, numbers)]
    rows = [
        [
            Text(f"{number} {row}"),
            Text(f"{100 * means[row]:.2f}"),
            *(cells.get((row, column), Text("")) for column in names),
        ]
        for number, row in zip(numbers, names, strict=True)
    ]
    print_fitting((Grid(columns, rows, gap=gap) for gap in (2, 1)), out)
    tasks = pairs[0].pooled.tasks
    over = tasks[0].task if len(tasks) == 1 else f"task mean over {len(tasks)} tasks"
    out.print(
        f"{over}, {pairs[0].pooled.by_query.queries} queries. *: p < {_SIGNIFICANT} after Holm's "
        f"correction over {len(pairs)} pairs (paired randomisation test).",
        style="dim",
    )


def pair_json(versus: Versus) -> dict[str, object]:
    """Everything of one comparison, values 0 to 1."""
    pooled = versus.pooled
    return {
        "a": versus.a,
        "b": versus.b,
        "tasks": [
            {"task": task.task, **_json(task.comparison), "p_holm": task.p_holm}
            for task in pooled.tasks
        ],
        "pooled": {
            "task_mean": _json(pooled.by_task),
            "query_weighted": _json(pooled.by_query),
        },
    }


def _cells(comparison: Comparison, p_holm: float | None, *, digits: int) -> dict[str, Text]:
    low, high = comparison.interval.low, comparison.interval.high
    style = ("green" if comparison.difference > 0 else "red") if low > 0 or high < 0 else ""
    return {
        "n": Text(str(comparison.queries)),
        "A": Text(f"{100 * comparison.mean_a:.2f}"),
        "B": Text(f"{100 * comparison.mean_b:.2f}"),
        "A-B": Text(f"{100 * comparison.difference:+.2f}", style),
        "95 %": Text(f"{100 * low:+.{digits}f} {100 * high:+.{digits}f}"),
        "p": _p(comparison.p_randomisation),
        "Holm": Text("") if p_holm is None else _p(p_holm),
        "t": _p(comparison.p_t),
        "d": Text(f"{comparison.effect:+.2f}"),
        "w/t/l": Text(f"{comparison.won}/{comparison.tied}/{comparison.lost}"),
    }


def _legend(versus: Versus) -> list[str]:
    many = len(versus.pooled.tasks) > 1
    lines = [
        "× 100. A-B: mean difference; 95 %: its paired bootstrap interval. p: paired randomisation "
        f"test, t: paired t-test, two-sided{'; Holm: p corrected over the tasks' if many else ''}. "
        "d: effect size, mean difference / standard deviation. w/t/l: queries A won, tied, lost."
    ]
    if many:
        lines.append("task mean: each task counts once. all queries: each query counts once.")
    return [*lines, _verdict(versus)]


def _verdict(versus: Versus) -> str:
    """The conclusion in a sentence, as careful as the numbers."""
    pooled, found = versus.pooled, versus.pooled.by_task
    where = "by task mean" if len(pooled.tasks) > 1 else f"on {pooled.tasks[0].task}"
    if found.p_randomisation >= _SIGNIFICANT:
        return f"{where}: A and B cannot be told apart (p = {_number(found.p_randomisation)})."
    better = "A" if found.difference > 0 else "B"
    return f"{where}: {better} is better (p {_relation(found.p_randomisation)})."


def _matrix_cells(pairs: Sequence[Versus]) -> dict[tuple[str, str], Text]:
    adjusted = holm([pair.pooled.by_task.p_randomisation for pair in pairs])
    cells: dict[tuple[str, str], Text] = {}
    for pair, p in zip(pairs, adjusted, strict=True):
        star = "*" if p < _SIGNIFICANT else " "
        for names, sign in (((pair.a, pair.b), 1), ((pair.b, pair.a), -1)):
            value = sign * 100 * pair.pooled.by_task.difference
            style = ("green" if value > 0 else "red") if star == "*" else "dim"
            cells[names] = Text(f"{value:+.2f}{star}", style)
    return cells


def _means(pairs: Sequence[Versus]) -> dict[str, float]:
    means: dict[str, float] = {}
    for pair in pairs:
        means[pair.a] = pair.pooled.by_task.mean_a
        means[pair.b] = pair.pooled.by_task.mean_b
    return means


def _p(value: float) -> Text:
    return Text(_number(value), "bold" if value < _SIGNIFICANT else "")


def _number(value: float) -> str:
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def _relation(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {_number(value)}"


def _json(comparison: Comparison) -> dict[str, object]:
    return {
        "queries": comparison.queries,
        "mean_a": comparison.mean_a,
        "mean_b": comparison.mean_b,
        "difference": comparison.difference,
        "interval": {
            "low": comparison.interval.low,
            "high": comparison.interval.high,
            "confidence": comparison.interval.confidence,
        },
        "p_randomisation": comparison.p_randomisation,
        "p_t": comparison.p_t,
        "effect": comparison.effect,
        "won": comparison.won,
        "tied": comparison.tied,
        "lost": comparison.lost,
    }
