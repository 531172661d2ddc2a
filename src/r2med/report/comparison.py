"""Comparisons on a terminal: two systems task by task, more as a matrix, and what moved."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from r2med.measure.significance import SIGNIFICANT, Difference, Pair
from r2med.report.table import (
    Column,
    Grid,
    SystemName,
    p_value,
    points,
    print_fitting,
    signed,
    snippet,
    task_label,
)
from r2med.results.compare import Comparison, Movement, QueryMovement, Shift
from r2med.tasks.registry import find_suite
from r2med.tasks.task import Task

_POSITIVES_SHOWN = 5
_QUERIES_SHOWN = 10


def draw(value: Comparison | Movement, out: Console) -> None:
    """Print a comparison: one table for two systems, a matrix for more; or what moved."""
    if isinstance(value, Movement):
        draw_movement(value, out)
    elif len(value.pairs) == 1:
        _draw_pair(value, value.pairs[0], out)
    else:
        _draw_matrix(value, out)


def _draw_pair(comparison: Comparison, pair: Pair, out: Console) -> None:
    """One row per task, then both poolings, each under its own name."""
    a, b = comparison.systems
    out.print(f"A = {a}\nB = {b}", style="bold")
    out.print(_data(comparison))
    layouts = (_pair_grid(pair, comparison.metric, narrow=narrow) for narrow in (False, True))
    print_fitting(layouts, out)
    for line in _legend(pair):
        out.print(line, style="dim")


def _pair_grid(pair: Pair, metric: str, *, narrow: bool) -> Grid:
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
    left_out = {*(["Holm"] if len(pair.tasks) == 1 else []), *(["n"] if narrow else [])}
    titles = [title for title in lines[0] if title not in left_out]
    return Grid(
        [Column(title, right=title != metric) for title in titles],
        [[line[title] for title in titles] for line in lines],
        gap=1 if narrow else 2,
        ends=ends,
    )


def _cells(difference: Difference, p_holm: float | None, *, digits: int) -> dict[str, Text | None]:
    low, high = difference.interval.low, difference.interval.high
    significant = difference.p_randomisation < SIGNIFICANT
    style = ("green" if difference.difference > 0 else "red") if significant else ""
    return {
        "n": Text(str(difference.queries)),
        "A": points(difference.mean_a),
        "B": points(difference.mean_b),
        "A-B": signed(difference.difference, style=style),
        "95 %": Text(f"{100 * low:+.{digits}f} {100 * high:+.{digits}f}"),
        "p": _p(difference.p_randomisation),
        "Holm": Text("") if p_holm is None else _p(p_holm),
        "t": _p(difference.p_t),
        "d": Text(f"{difference.effect:+.2f}"),
        "w/t/l": Text(f"{difference.won}/{difference.tied}/{difference.lost}"),
    }


def _legend(pair: Pair) -> list[str]:
    many = len(pair.tasks) > 1
    corrected = "; Holm: p corrected over the tasks" if many else ""
    lines = [
        "× 100. A-B: mean difference; 95 %: its t interval, wider for heavy tails. p: paired "
        f"randomisation test, t: paired t-test, two-sided{corrected}. "
        "d: effect size, mean difference / standard deviation. w/t/l: queries A won, tied, lost."
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


def _draw_matrix(comparison: Comparison, out: Console) -> None:
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


def draw_movement(movement: Movement, out: Console, *, limit: int = _QUERIES_SHOWN) -> None:
    """A summary, and the first `limit` queries that moved at all, with snippets."""
    out.print(f"A = {movement.a}\nB = {movement.b}", style="bold")
    won, tied, lost = movement.counts
    out.print(
        f"on {movement.task.name}, {movement.metric} × 100, A minus B; of {len(movement.queries)} "
        f"queries A won {won}, tied {tied}, lost {lost}"
    )
    for query in movement.moved[:limit]:
        out.print()
        _draw_query(query, movement.task, out)
    left = len(movement.moved) - limit
    if left > 0:
        out.print(f"\n{left} more queries moved; --limit or --json", style="dim")


def _draw_query(query: QueryMovement, task: Task, out: Console) -> None:
    head = (
        f"query {snippet(query.query_id, 30)}: A {100 * query.score_a:.1f}, "
        f"B {100 * query.score_b:.1f} ({100 * query.difference:+.1f})"
    )
    out.print(head, style="green" if query.difference > 0 else "red")
    _line("asked", task.query(query.query_id), out)
    for shift in query.positives[:_POSITIVES_SHOWN]:
        _line(f"wanted {_ranks(shift)}", _document(task, shift.document_id), out)
    left = len(query.positives) - _POSITIVES_SHOWN
    if left > 0:
        _line("", f"and {left} more positives", out)
    positives = {shift.document_id for shift in query.positives}
    for name, first in (("A", query.first_a), ("B", query.first_b)):
        if first is not None and first not in positives:
            _line(f"{name} first", _document(task, first), out)


def _ranks(shift: Shift) -> str:
    return " | ".join(
        f"{name} {rank or '–'}" for name, rank in (("A", shift.rank_a), ("B", shift.rank_b))
    )


def _line(label: str, text: str, out: Console) -> None:
    start = f"  {label:<18} "
    out.print(start + snippet(text, out.width - len(start)))


def _document(task: Task, document_id: str) -> str:
    try:
        return f"{document_id}: {task.document(document_id)}"
    except KeyError:
        return f"{document_id}: (not in the corpus)"


def _data(comparison: Comparison) -> str:
    return f"on {find_suite(comparison.suite).title}" if comparison.suite else "on your data"


def _p(value: float) -> Text:
    return Text(p_value(value), "bold" if value < SIGNIFICANT else "")
