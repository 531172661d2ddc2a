"""What a benchmark repeats within and between its tasks, as tables and examples."""

from __future__ import annotations

from collections import Counter

from r2med.audit.within import Repeat, SelfAudit
from r2med.report.table import Cell, Column, Grid, Paper, snippet, task_label

_SHOWN = 10


def draw(audit: SelfAudit, out: Paper, *, limit: int = _SHOWN) -> None:
    """Print counts by kind, within and across tasks, and the first `limit` pairs of each."""
    names = ", ".join(map(task_label, audit.tasks))
    out.print(names, style="bold")
    out.print(f"{audit.queries:,} queries, {audit.documents:,} documents")
    groups: dict[tuple[str, str, str], list[Repeat]] = {}
    for repeat in audit.repeats:
        what = "queries" if repeat.role == "query" else "documents"
        groups.setdefault((repeat.issue, what, repeat.kind), []).append(repeat)
    if not groups:
        out.print("Nothing is repeated, and no query names its answer.")
        return
    rows: list[list[Cell]] = []
    for (issue, what, kind), repeats in groups.items():
        across = Counter(repeat.across for repeat in repeats)
        rows.append([issue, what, kind, f"{across[False]:,}", f"{across[True]:,}"])
    columns = [Column(title, right=False) for title in ("found", "among", "how")]
    out.print(Grid([*columns, Column("in a task"), Column("across tasks")], rows))
    width = min(out.width, 160) - 4
    for (issue, what, kind), repeats in groups.items():
        out.print()
        out.print(f"{issue}, {what}, {kind} ({len(repeats):,})", style="bold")
        for repeat in repeats[:limit]:
            other = f" and {task_label(repeat.other_task)} {repeat.other_role} {repeat.other_id}"
            only = f" (positive of query {repeat.query} only)" if repeat.query else ""
            first = f"{task_label(repeat.task)} {repeat.role} {repeat.id}{only}"
            out.print(first + (other if repeat.other_task else f": {repeat.other_text}"))
            out.print(f"  {snippet(repeat.text, width)}", style="dim")
            if kind != "exact" and repeat.other_task:
                out.print(f"  {snippet(repeat.other_text, width)}", style="dim")
