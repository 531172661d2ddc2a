"""What moved between two systems: a count per task, and the queries that moved most."""

from __future__ import annotations

from rich.text import Text

from r2med.report.table import Cell, Column, Grid, Paper, points, signed, snippet, task_label
from r2med.results.movement import Movement, QueryMovement, Shift
from r2med.tasks.task import Task

_POSITIVES_SHOWN = 5
_QUERIES_SHOWN = 10
#: A line this long holds a query in one row of a table, text and all.
_WIDE = 200
_TEXT = 100


def draw(movement: Movement, out: Paper, *, limit: int = _QUERIES_SHOWN) -> None:
    """Print a summary, and the first `limit` queries that moved at all, with snippets."""
    tasks = movement.tasks
    out.print(f"A = {movement.a}\nB = {movement.b}", style="bold")
    out.print(f"{movement.metric} × 100, A minus B")
    columns = [Column("task", right=False), *map(Column, ("queries", "A won", "tied", "A lost"))]
    rows: list[list[Cell]] = [_count(task_label(name), own) for name, own in tasks.items()]
    if len(tasks) > 1:
        rows.append(_count("all", movement))
    out.print(Grid(columns, rows, ends=frozenset([len(tasks) - 1])))
    shown = movement.moved[:limit]
    if out.width >= _WIDE:
        out.print(_grid(shown, several=len(tasks) > 1))
    else:
        for query in shown:
            out.print()
            _draw_query(query, out, several=len(tasks) > 1)
    left = len(movement.moved) - limit
    if left > 0:
        out.print(f"{left} more queries moved; --limit shows more, --json all.", style="dim")


def _count(name: str, movement: Movement) -> list[Cell]:
    return [name, str(len(movement.queries)), *map(str, movement.counts)]


def _grid(queries: tuple[QueryMovement, ...], *, several: bool) -> Grid:
    titles = [*(["task"] if several else []), "query", "asked", "A", "B", "A-B"]
    rows: list[list[Cell]] = [
        [
            *([task_label(query.task.name)] if several else []),
            query.query_id,
            snippet(query.text, _TEXT),
            points(query.score_a),
            points(query.score_b),
            signed(query.difference),
        ]
        for query in queries
    ]
    columns = [Column(title, right=title in ("A", "B", "A-B")) for title in titles]
    return Grid(columns, rows, title="The queries that moved most")


def _draw_query(query: QueryMovement, out: Paper, *, several: bool) -> None:
    task = query.task
    of = f" of {task_label(task.name)}" if several else ""
    head = (
        f"query {snippet(query.query_id, 30)}{of}: A {100 * query.score_a:.2f}, "
        f"B {100 * query.score_b:.2f} ({100 * query.difference:+.2f})"
    )
    out.print(Text(head, style="green" if query.difference > 0 else "red"))
    _line("asked", query.text, out)
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


def _line(label: str, text: str, out: Paper) -> None:
    start = f"  {label:<18} "
    out.print(start + snippet(text, out.width - len(start)))


def _document(task: Task, document_id: str) -> str:
    try:
        return f"{document_id}: {task.document(document_id)}"
    except KeyError:
        return f"{document_id}: (not in the corpus)"
