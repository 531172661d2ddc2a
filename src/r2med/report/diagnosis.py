"""A diagnosis on a terminal: causes, the worst queries, weak slices; and one query's whole page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from r2med.errors import plural
from r2med.number_format import format_percent
from r2med.report.aspects import aspect_grids
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Grid, Paper, SystemName, make_columns, snippet
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.findings import Diagnosis, Slice, TaskDiagnosis

if TYPE_CHECKING:
    pass

_QUERIES_SHOWN = 20
_RANKS_SHOWN = 5
#: How many characters of a query's text a table shows.
_LEAST_TEXT, _MOST_TEXT = 12, 100
OPEN = "cannot be detected here: {}"


@draw_registered.register
def draw_diagnosis(value: Diagnosis, out: Paper, *, limit: int = _QUERIES_SHOWN) -> None:
    """Print every task with its causes and worst queries, then the slices."""
    for index, task in enumerate(value.tasks):
        if index:
            out.print()
        _draw_task(task, out, limit)
    if value.slices:
        out.print()
        out.print(_slices(value.slices, value.tasks[0].metric))


def _draw_task(task: TaskDiagnosis, out: Paper, limit: int) -> None:
    score = 100 * fmean(query.score for query in task.queries)
    missed, listed = sum(task.causes.values()), f"not among the {task.depth} listed"
    share = format_percent(task.holes / max(1, task.looked_at))
    out.print(f"{task.task_title} · {snippet(task.system, 60)}", style="bold")
    if task.data_note:
        out.print(f"{task.data_note}.", style="yellow")
    for line in (
        f"{task.metric} × 100 = {score:.2f} over {plural(len(task.queries), 'query', 'queries')}",
        f"positives in the top {TOP}: {task.positives - missed} of {task.positives}",
        f"missed: {missed}, of them {listed}, where no reranker could help: {task.out_of_reach}",
        f"unjudged documents in the top {TOP} (holes): {task.holes} of {task.looked_at} ({share})",
    ):
        out.print(line)
    counts = sorted(task.causes.items(), key=lambda pair: -pair[1])
    if counts:
        out.print()
        rows = [[CAUSES[name].title, str(count), CAUSES[name].meaning] for name, count in counts]
        out.print(Grid(make_columns("cause", ">missed", "that is"), rows))
    if task.aspects is not None:
        out.print()
        for grid in aspect_grids(task.aspects):
            out.print(grid)
    out.print()
    out.print(_queries(task, out.width, limit))
    for line in task.open:
        out.print(OPEN.format(line), style="dim")


def _queries(task: TaskDiagnosis, width: int, limit: int) -> Grid:
    """Return a table of queries, worst first; a dash is a positive that is not in the list."""
    worst = sorted(task.queries, key=lambda query: query.score)
    columns = make_columns("query", f">{task.metric}", "positives at", "cause")
    rows = []
    for query in worst[:limit]:
        ranks = [str(positive.rank or "–") for positive in query.positives]
        shortened = [*ranks[:_RANKS_SHOWN], f"+{len(ranks) - _RANKS_SHOWN}"]
        rows.append(
            [
                snippet(query.query_id, 16),
                f"{100 * query.score:.2f}",
                " ".join(shortened if ranks[_RANKS_SHOWN:] else ranks),
                CAUSES[query.cause].title if query.cause else "all found",
            ]
        )
    room = width - Grid(columns, rows).width - 2
    for row, query in zip(rows, worst, strict=False):
        row.append(snippet(query.text, max(_LEAST_TEXT, min(room, _MOST_TEXT))))
    left = len(worst) - len(rows)
    caption = f"{left} better queries are not shown; --limit, --json or --out" if left else None
    return Grid([*columns, *make_columns("text")], rows, caption=caption)


def _slices(slices: Sequence[Slice], metric: str) -> Grid:
    rows: list[list[Cell]] = []
    ends = {index for index, (a, b) in enumerate(pairwise(slices)) if a.by != b.by}
    for index, group in enumerate(slices):
        span = group.interval
        interval = f"{100 * span.low:.0f} to {100 * span.high:.0f}" if span else ""
        scores = (f"{100 * group.score:.2f}", interval, f"{100 * group.hit:.0f}")
        by = group.by if not index or index - 1 in ends else ""
        rows.append([by, SystemName(group.value), str(group.queries), *scores])
    columns = make_columns("slice", "", ">queries", f">{metric}", ">95 %", f">hit@{TOP}")
    return Grid(columns, rows, ends=frozenset(ends), caption="all values × 100")
