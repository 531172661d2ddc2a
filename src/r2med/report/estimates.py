"""What models used or would use: generations by task, and the work of all models by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from r2med.engine.estimating import Load
from r2med.remote.budget import Estimate
from r2med.report.table import Cell, Column, Grid, columns_of, dollars, scaled

Row = Mapping[str, Any]

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
}
_DONE = {
    "documents": "encode documents",
    "queries": "encode queries",
    "generate": "generate",
    "rerank": "rerank",
}
_BASIS = (
    "Estimated from published counts and mean lengths, or from texts of tasks that are here, at 4 "
    "characters per token. Means do not show which texts are cut at a model's limit, so real "
    "tokens are fewer where texts vary; instructions and templates of local models are not counted."
)
_WIDTH = "Vectors: unknown without --vector-width, and for models that keep several per text."


def generation_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What was written, and where: one row per task, the sum below."""
    files = [Text(f"{row['file']}", overflow="fold") for row in rows]
    return Group(_by_task(rows, title, _WRITTEN), Text("written to", style="dim"), *files)


def estimate_row(part: str, task: str, estimate: Estimate) -> dict[str, object]:
    """What one part would use on one task, for the table and as JSON."""
    return {"part": part, "task": task, **asdict(estimate)}


def estimate_table(rows: Sequence[Row], title: str) -> RenderableType:
    """What would be used."""
    table = _by_task(rows, f"{title}: nothing is asked yet", _ESTIMATED)
    return _noted(table, [f"Estimated: {rows[0]['basis']}."])


def _by_task(rows: Sequence[Row], title: str, columns: Mapping[str, str]) -> Grid:
    """One row per task, then their sums; a sum with an unknown part is unknown."""
    lines: list[list[Cell]] = [
        [row["task"], *(_used(name, [row[name]]) for name in columns)] for row in rows
    ]
    if len(rows) > 1:
        sums = (_used(name, [row[name] for row in rows]) for name in columns)
        lines.append([Text(cell, style="bold") for cell in ("all", *sums)])
    headings = [Column("task", right=False), *map(Column, columns.values())]
    return Grid(headings, lines, gap=1, ends=frozenset([len(rows) - 1]), title=title)


def _used(name: str, values: Sequence[float | None]) -> str:
    if None in values:
        return "unknown"
    total = sum(value or 0 for value in values)
    return dollars(total) if name.endswith("money") else f"{total:,.0f}"


def load_row(load: Load, speed: float, price: float | None) -> dict[str, Any]:
    """What a stage takes of hardware of so many tokens per second, or of a server.

    Hours are those of the hardware: none where a server does the work for money.
    """
    hours = None if load.bill is not None else load.tokens / speed / 3600
    money = load.bill if hours is None else None if price is None else hours * price
    return {**asdict(load), "hours": hours, "money": money, "estimated": True}


def load_table(loads: Sequence[Row], speed: float, price: float | None) -> RenderableType:
    """One row per part and stage over all tasks, then the sum."""
    groups: dict[str, list[Row]] = {}
    for load in loads:
        groups.setdefault(f"{load['part']}: {_DONE[load['stage']]}", []).append(load)
    rows: list[list[Cell]] = [[name, *_work(group)] for name, group in groups.items()]
    rows.append([Text(cell, style="bold") for cell in ("in all", *_work(loads))])
    tasks = list(dict.fromkeys(load["task"] for load in loads))
    over = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    table = Grid(
        columns_of("stage", ">texts", ">tokens", ">hours", ">cost", ">vectors"),
        rows,
        gap=1,
        ends=frozenset([len(rows) - 2]),
        title=f"{over}: an estimate, nothing is run",
    )
    priced = "" if price is None else f", an hour at {dollars(price)}"
    pace = f"Hours: {speed:,.0f} tokens per second, read or new{priced}; new ones take longer."
    unknown = any(load["vector_bytes"] is None for load in loads)
    return _noted(table, [_BASIS, pace, *([_WIDTH] if unknown else [])])


def _work(loads: Sequence[Row]) -> list[str]:
    """The sums of some loads; a sum with an unknown part is unknown, hours of servers are none."""
    hours = [load["hours"] for load in loads if load["hours"] is not None]
    held = [load["vector_bytes"] for load in loads]
    size = sum(value or 0 for value in held)
    return [
        f"{sum(load['texts'] for load in loads):,}",
        scaled(sum(load["tokens"] for load in loads)),
        f"{sum(hours):,.1f}" if hours else "-",
        _used("money", [load["money"] for load in loads]),
        "unknown" if None in held else scaled(size, "B") if size else "-",
    ]


def _noted(table: Grid, notes: Sequence[str]) -> Group:
    return Group(table, *(Text(note, style="dim") for note in notes))
