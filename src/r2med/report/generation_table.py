"""What generating used, or would use: one line a task, the sum below, plain words around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from r2med.remote.budget import Estimate

Row = Mapping[str, object]

_WRITTEN = {
    "generations": "texts",
    "truncated": "cut",
    "empty": "empty",
    "refused": "refused",
    "calls": "calls",
    "cached": "reused",
    "completion_tokens": "tokens",
}
_ESTIMATED = {
    "calls": "calls",
    "already_here": "here",
    "prompt_tokens": "prompt tok.",
    "completion_tokens": "new tok.",
}


def generation_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What was written, and where."""
    files = [Text(f"{row['file']}", overflow="fold") for row in rows]
    return Group(_table(rows, title, _WRITTEN), Text("written to", style="dim"), *files)


def estimate_row(task: str, estimate: Estimate, turns: int) -> dict[str, object]:
    """What one task would use, for the table and as JSON."""
    return {
        "task": task,
        "calls": estimate.calls,
        "already_here": estimate.cached,
        "prompt_tokens": estimate.prompt_tokens,
        "completion_tokens": estimate.completion_tokens,
        "money": estimate.money,
        "basis": estimate.basis,
        "most_turns": turns,
    }


def estimate_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What would be used; agents take several turns, and only the first is known beforehand."""
    notes = [Text(f"Estimated: {rows[0]['basis']}.", style="dim")] if rows else []
    turns = max((int(str(row["most_turns"])) for row in rows), default=1)
    if turns > 1:
        told = f"First turns only: an agent takes up to {turns} turns, each with a longer prompt."
        notes.append(Text(told, style="dim"))
    return Group(_table(rows, f"{title}: nothing is asked yet", _ESTIMATED), *notes)


def _table(rows: Sequence[Row], title: str, columns: Mapping[str, str]) -> Table:
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("task", overflow="fold")
    for label in (*columns.values(), "cost"):
        table.add_column(label, justify="right")
    for row in rows:
        table.add_row(Text(str(row["task"])), *_cells(row, columns))
    if len(rows) > 1:
        table.add_section()
        table.add_row("all", *_cells(_sum(rows, columns), columns), style="bold")
    return table


def _cells(row: Row, columns: Mapping[str, str]) -> list[str]:
    money = row["money"]
    cost = "unknown" if money is None else _dollars(float(str(money)))
    return [*(f"{int(str(row[name])):,}" for name in columns), cost]


def _dollars(money: float) -> str:
    """Two decimals; small sums with as many as it takes not to read as nothing."""
    return f"${money:,.2f}" if money == 0 or money >= 0.1 else f"${money:.2g}"


def _sum(rows: Sequence[Row], columns: Mapping[str, str]) -> Row:
    total: dict[str, object] = {name: sum(int(str(row[name])) for row in rows) for name in columns}
    money = [row["money"] for row in rows]
    total["money"] = None if None in money else sum(float(str(value)) for value in money)
    return total
