"""The queries that moved most between two systems, with snippets that fit the screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from r2med.report.console import visible
from r2med.report.table import snippet
from r2med.results.movement import QueryMovement, Shift
from r2med.tasks.task import Task

_POSITIVES_SHOWN = 5
#: Less than this is rounding, not movement.
_STILL = 1e-12


@dataclass(frozen=True)
class Difference:
    """Two systems on one task, and every query's movement, the largest first."""

    a: str
    b: str
    task: str
    metric: str
    queries: tuple[QueryMovement, ...]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Queries that are better, equal and worse under B."""
        better = sum(each.moved > _STILL for each in self.queries)
        worse = sum(each.moved < -_STILL for each in self.queries)
        return better, len(self.queries) - better - worse, worse


def to_json(difference: Difference) -> dict[str, Any]:
    """Every query, not only those that moved."""
    told = asdict(difference)
    for row, query in zip(told["queries"], difference.queries, strict=True):
        row["moved"] = query.moved
    return told


def print_difference(difference: Difference, task: Task, out: Console, *, limit: int) -> None:
    """A summary and the first `limit` queries that moved at all."""
    out.print(f"A = {difference.a}\nB = {difference.b}", style="bold")
    better, equal, worse = difference.counts
    out.print(
        f"on {difference.task}, {difference.metric} × 100; from A to B "
        f"{better} better, {equal} equal, {worse} worse",
    )
    moved = [query for query in difference.queries if abs(query.moved) > _STILL]
    for query in moved[:limit]:
        out.print()
        _query(query, task, out)
    if len(moved) > limit:
        left = len(moved) - limit
        out.print(f"\n{left} more queries moved; --limit or --json", style="dim")


def _query(query: QueryMovement, task: Task, out: Console) -> None:
    head = (
        f"query {snippet(query.query_id, 30)}: A {100 * query.score_a:.1f}, "
        f"B {100 * query.score_b:.1f} ({100 * query.moved:+.1f})"
    )
    out.print(head, style="green" if query.moved > 0 else "red")
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
    before, after = (str(rank) if rank else "–" for rank in (shift.rank_a, shift.rank_b))
    return f"{before} → {after}"


def _line(label: str, text: str, out: Console) -> None:
    start = f"  {visible(label):<16} "
    out.print(start + snippet(text, out.width - len(start)))


def _document(task: Task, document_id: str) -> str:
    try:
        return f"{document_id}: {task.document(document_id)}"
    except KeyError:
        return f"{document_id}: (not in the corpus)"
