"""Comparisons on a terminal: two systems task by task, more as a matrix."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from r2med.measure.significance import SIGNIFICANT, Difference, Pair
from r2med.report.table import (
    Column,
    Grid,
    Paper,
    SystemName,
    fitting,
    p_value,
    points,
    print_fitting,
    task_label,
)
from r2med.results.compare import Comparison
from r2med.tasks.registry import find_suite


def draw(value: Comparison, out: Paper) -> None:
    """Print a comparison: one table for two systems, a matrix for more."""
    if len(value.pairs) == 1:
        _draw_pair(value, value.pairs[0], out)
    else:
        _draw_matrix(value, out)


def _draw_pair(comparison: Comparison, pair: Pair, out: Paper) -> None:
    """One row per task, then both poolings, each under its own name."""
    a, b = comparison.systems
    out.print(f"A = {a}\nB = {b}", style="bold")
    out.print(_data(comparison))
    layouts = (_pair_grid(pair, comparison.metric, left_out) for left_out in _LEFT_OUT)
    grid = fitting(layouts, out.width)
    out.print(grid)
    for line in _legend(pair, {str(column.title) for column in grid.columns}):
        out.print(line, style="dim")


#: Columns that the layouts do without, from wide to narrow; the narrow ones also round more.
_LEFT_OUT = ((), ("n",), ("n", "t"), ("n", "t", "d"))


def _pair_grid(pair: Pair, metric: str, left_out: Sequence[str]) -> Grid:
    narrow = bool(left_out)
    named: list[tuple[str, Difference, float | None]] = [
        (task_label(each.task), each.difference, each.p_holm) for each in pair.tasks
    ]
    ends = frozenset([len(named) - 1]) if len(named) > 1 else frozenset[int]()
    if len(named) > 1:
        named += [("task mean", pair.by_task, None), ("all queries", pair.by_query, None)]
    lines = [
        {metric: Text(name), **_cells(difference, p_holm, digits=1 if narrow else 2)}
        for name, difference, p_holm in named
    ]
    without = {*left_out, *(["Holm"] if len(pair.tasks) == 1 else [])}
    titles = [title for title in lines[0] if title not in without]
    return Grid(
        [Column(title, right=title != metric) for title in titles],
        [[line[title] for title in titles] for line in lines],
        gap=1 if narrow else 2,
        ends=ends,
    )


def _cells(difference: Difference, p_holm: float | None, *, digits: int) -> dict[str, Text | None]:
    low, high = difference.interval.low, difference.interval.high
    significant = (difference.p_randomisation if p_holm is None else p_holm) < SIGNIFICANT
    style = ("green" if difference.difference > 0 else "red") if significant else ""
    gap = f"{100 * difference.difference:+.2f}{'*' if significant else ' '}"
    return {
        "n": Text(str(difference.queries)),
        "A": points(difference.mean_a),
        "B": points(difference.mean_b),
        "A-B": Text(gap, style),
        "95 %": Text(f"{100 * low:+.{digits}f} {100 * high:+.{digits}f}"),
        "p": _p(difference.p_randomisation),
        "Holm": Text("") if p_holm is None else _p(p_holm),
        "t": _p(difference.p_t),
        "d": Text(f"{difference.effect:+.2f}"),
        "w/t/l": Text(f"{difference.won}/{difference.tied}/{difference.lost}"),
    }


def _legend(pair: Pair, shown: set[str]) -> list[str]:
    many = len(pair.tasks) > 1
    corrected = "; Holm: p corrected over the tasks" if many else ""
    which = "Holm's p, of means p," if many else "p"
    t_test = ", t: paired t-test" if "t" in shown else ""
    effect = "d: effect size, mean difference / standard deviation. " if "d" in shown else ""
    lines = [
        f"× 100. A-B: mean difference, *: {which} < {SIGNIFICANT}; 95 %: its t interval, wider "
        f"for heavy tails. p: paired randomisation test{t_test}, two-sided{corrected}. {effect}"
        "w/t/l: queries A won, tied, lost."
    ]
    if many:
        lines.append("task mean: each task counts once. all queries: each query counts once.")
    return [*lines, _verdict(pair)]


def _verdict(pair: Pair) -> str:
    """The conclusion in a sentence, as careful as the numbers."""
    p = pair.by_task.p_randomisation
    where = "by task mean" if len(pair.tasks) > 1 else f"on {pair.tasks[0].task}"
    if p >= SIGNIFICANT:
        return f"{where}: A and B cannot be told apart (p = {p_value(p)})."
    better = "A" if pair.by_task.difference > 0 else "B"
    relation = "< .001" if p < 0.001 else f"= {p_value(p)}"
    return f"{where}: {better} is better (p {relation})."


def _draw_matrix(comparison: Comparison, out: Paper) -> None:
    """Row minus column, by task mean; a star where Holm's correction over all pairs leaves it."""
    pairs = comparison.pairs
    cells, means = _matrix(pairs)
    places = range(len(comparison.systems))
    numbers = [f"[{place + 1}]" for place in places]
    out.print(f"{comparison.metric} × 100 {_data(comparison)}, row minus column", style="bold")
    columns = [Column("", right=False), Column("mean"), *map(Column, numbers)]
    rows = [
        [
            SystemName(f"{numbers[row]} {comparison.systems[row]}"),
            points(means[row]),
            *(cells.get((row, column), Text("")) for column in places),
        ]
        for row in places
    ]
    print_fitting((Grid(columns, rows, gap=gap) for gap in (2, 1)), out)
    tasks = comparison.tasks
    over = tasks[0] if len(tasks) == 1 else f"task mean over {len(tasks)} tasks"
    out.print(
        f"{over}, {pairs[0].by_query.queries} queries. *: p < {SIGNIFICANT} after Holm's "
        f"correction over {len(pairs)} pairs (paired randomisation test).",
        style="dim",
    )


def _matrix(pairs: Sequence[Pair]) -> tuple[dict[tuple[int, int], Text], dict[int, float]]:
    cells: dict[tuple[int, int], Text] = {}
    means: dict[int, float] = {}
    for pair in pairs:
        means[pair.a], means[pair.b] = pair.by_task.mean_a, pair.by_task.mean_b
        significant = pair.p_holm < SIGNIFICANT
        for place, sign in (((pair.a, pair.b), 1), ((pair.b, pair.a), -1)):
            value = sign * 100 * pair.by_task.difference
            style = ("green" if value > 0 else "red") if significant else "dim"
            cells[place] = Text(f"{value:+.2f}{'*' if significant else ' '}", style)
    return cells, means


def _data(comparison: Comparison) -> str:
    return f"on {find_suite(comparison.suite).title}" if comparison.suite else "on your data"


def _p(value: float) -> Text:
    return Text(p_value(value), "bold" if value < SIGNIFICANT else "")
