"""What generating used, or would use: one row per task, the sum below, plain words around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from r2med.engine.estimating import Paid
from r2med.report.table import Cell, Column, Grid, dollars

Row = Mapping[str, object]

_WRITTEN = {
    "generations": "texts",
    "truncated": "cut",
    "empty": "empty",
    "refused": "refused",
    "calls": "calls",
    "cached": "reused",
    "completion_tokens": "tokens",
    "money": "cost",
}
_ESTIMATED = {
    "calls": "calls",
    "already_here": "here",
    "prompt_tokens": "prompt tok.",
    "completion_tokens": "new tok.",
    "money": "cost",
    "most_tokens": "most tok.",
    "most_money": "at most",
}


def generation_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What was written, and where."""
    files = [Text(f"{row['file']}", overflow="fold") for row in rows]
    return Group(_table(rows, title, _WRITTEN), Text("written to", style="dim"), *files)


def estimate_row(task: str, paid: Paid) -> dict[str, object]:
    """What one part would use on one task, for the table and as JSON."""
    estimate = paid.estimate
    return {
        "part": paid.part,
        "task": task,
        "calls": estimate.calls,
        "already_here": estimate.cached,
        "prompt_tokens": estimate.prompt_tokens,
        "completion_tokens": estimate.completion_tokens,
        "money": estimate.money,
        "most_tokens": estimate.most_tokens,
        "most_money": estimate.most_money,
        "basis": estimate.basis,
        "most_turns": paid.turns,
    }


def estimate_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What would be used; agents take several turns, and only the first is known beforehand."""
    notes = [f"Estimated: {rows[0]['basis']}."] if rows else []
    turns = max((int(str(row["most_turns"])) for row in rows), default=1)
    if turns > 1:
        notes.append(
            f"First turns only, but for the most: an agent takes up to {turns} turns, each with a "
            "longer prompt."
        )
    if any(row["most_tokens"] is None for row in rows):
        notes.append("Nobody knows how long an answer may become: a max_tokens sets a limit.")
    notes.append("At most: every answer as long as it may be, every text of one token per byte.")
    table = _table(rows, f"{title}: nothing is asked yet", _ESTIMATED)
    return Group(table, *(Text(note, style="dim") for note in notes))


def _table(rows: Sequence[Row], title: str, columns: Mapping[str, str]) -> Grid:
    lines: list[list[Cell]] = [[str(row["task"]), *_cells(row, columns)] for row in rows]
    if len(rows) > 1:
        total = ["all", *_cells(_sum(rows, columns), columns)]
        lines.append([Text(cell, style="bold") for cell in total])
    headings = [Column("task", right=False), *(Column(label) for label in columns.values())]
    return Grid(headings, lines, gap=1, ends=frozenset([len(rows) - 1]), title=title)


def _cells(row: Row, columns: Mapping[str, str]) -> list[str]:
    return [_cell(name, row[name]) for name in columns]


def _cell(name: str, value: object) -> str:
    if value is None:
        return "unknown"
    return dollars(float(str(value))) if name.endswith("money") else f"{int(str(value)):,}"


def _sum(rows: Sequence[Row], columns: Mapping[str, str]) -> Row:
    """All rows together; a sum with an unknown part is unknown."""
    total: dict[str, object] = {}
    for name in columns:
        values = [row[name] for row in rows]
        total[name] = None if None in values else sum(float(str(value)) for value in values)
        if not name.endswith("money") and total[name] is not None:
            total[name] = int(float(str(total[name])))
    return total
