"""Tables of what models used (generations by task) and would use (estimates by stage)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from r2med.evaluation.estimate import StageEstimate
from r2med.number_format import format_count, format_dollars
from r2med.report.table import Cell, Column, Grid, make_columns

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
_WORK = {
    "index": "index",
    "documents": "encode documents",
    "queries": "encode queries",
    "encode": "encode",
    "generate": "generate",
    "rerank": "rerank",
    "answer": "answer",
    "judge": "judge",
}
_SPEED = "--tokens-per-second N adds the hours of local models."
_WIDTH = "Disk: unknown without --vector-width N, and for models with several vectors per text."
_PRICE = "Cost: unknown for a model without a price; docs/llms.md tells how to set one."


def generation_table(rows: Sequence[Row], title: str) -> RenderableType:
    """Draw usage with one row per task and the sum, then the files that were written."""
    files = [Text(f"{row['file']}", overflow="fold") for row in rows]
    return Group(_by_task(rows, title, _WRITTEN), Text("written to", style="dim"), *files)


def _by_task(rows: Sequence[Row], title: str, columns: Mapping[str, str]) -> Grid:
    """Return a table with a row per task, then the sums; a sum with an unknown part is unknown."""
    lines: list[list[Cell]] = [
        [row["task"], *(_format_usage(name, [row[name]]) for name in columns)] for row in rows
    ]
    if len(rows) > 1:
        sums = (_format_usage(name, [row[name] for row in rows]) for name in columns)
        lines.append([Text(cell, style="bold") for cell in ("all", *sums)])
    headings = [Column("task", right=False), *map(Column, columns.values())]
    return Grid(headings, lines, gap=1, ends=frozenset([len(rows) - 1]), title=title)


def _format_usage(name: str, values: Sequence[float | None]) -> str:
    if None in values:
        return "unknown"
    total = sum(value or 0 for value in values)
    return format_dollars(total) if name.endswith("money") else f"{total:,.0f}"


def estimate_rows(
    stages: Iterable[StageEstimate], tokens_per_second: float | None, price: float | None
) -> list[dict[str, Any]]:
    """Return one row per stage and task, with hours and cost; shared work is listed once.

    Hours are for work on the user's hardware; work that a server charges for has no hours.
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for stage in stages:
        hours, money = None, stage.money
        if tokens_per_second is not None and stage.needs_hardware:
            hours = stage.tokens / tokens_per_second / 3600
            if price is not None:
                money = hours * price
        key = (stage.task, stage.stage, stage.work)
        rows.setdefault(key, {**asdict(stage), "hours": hours, "money": money})
    return list(rows.values())


def estimate_tables(
    rows: Sequence[Row],
    daily_rows: Sequence[Row],
    queries_per_day: int | None,
    tokens_per_second: float | None,
    price: float | None,
) -> list[RenderableType]:
    """Draw the estimate of one run and, if asked for, of a day's queries."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    over = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    tables: list[RenderableType] = []
    if rows:
        tables.append(_stage_table(rows, f"Estimate for {over}; nothing is run"))
    else:
        tables.append(Text("These systems use no model and build no index."))
    if queries_per_day and daily_rows:
        count = len(tasks)
        title = f"Estimate for {queries_per_day:,} queries per day"
        if count > 1:
            title += f", the mean of {count} tasks"
        tables += [Text(""), _stage_table(_mean_rows(daily_rows, count), title)]
    notes = [_describe_basis(rows)]
    if tokens_per_second is None:
        notes.append(_SPEED)
    else:
        at_price = "" if price is None else f" at {format_dollars(price)} per hour"
        notes.append(f"Hours: {tokens_per_second:,.0f} tokens per second{at_price}.")
    if any(row["disk_bytes"] is None for row in rows):
        notes.append(_WIDTH)
    if any(row["money"] is None for row in rows):
        notes.append(_PRICE)
    return [*tables, *(Text(note, style="dim") for note in notes if note)]


def _stage_table(rows: Sequence[Row], title: str) -> Grid:
    """Draw one row per stage over all tasks, then the total."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row['stage']}: {_WORK[row['work']]}", []).append(row)
    optional = {
        "cached": any(row["cached"] for row in rows),
        "hours": any(row["hours"] is not None for row in rows),
        "disk": any(row["disk_bytes"] != 0 for row in rows),
        "memory": any(row["memory_bytes"] is not None for row in rows),
    }
    names = ("texts", "cached", "tokens", "hours", "cost", "disk", "memory")
    columns = [name for name in names if optional.get(name, True)]

    def cells(group: Sequence[Row]) -> list[str]:
        values = _sum_rows(group)
        return [values[name] for name in columns]

    lines: list[list[Cell]] = [[name, *cells(group)] for name, group in groups.items()]
    lines.append([Text(cell, style="bold") for cell in ("total", *cells(rows))])
    headings = make_columns("stage", *(f">{name}" for name in columns))
    return Grid(headings, lines, gap=1, ends=frozenset([len(lines) - 2]), title=title)


def _sum_rows(rows: Sequence[Row]) -> dict[str, str]:
    """Format the sums of rows; a cost or disk size with an unknown part is unknown.

    For memory, the largest value is used instead of the sum.
    """
    hours = [row["hours"] for row in rows if row["hours"] is not None]
    disk = [row["disk_bytes"] for row in rows]
    memory = [row["memory_bytes"] for row in rows if row["memory_bytes"] is not None]
    tokens = sum(row["tokens"] for row in rows)
    return {
        "texts": f"{sum(row['texts'] for row in rows):,}",
        "cached": f"{sum(row['cached'] for row in rows):,}",
        "tokens": format_count(tokens) if tokens else "-",
        "hours": f"{sum(hours):,.1f}" if hours else "-",
        "cost": _format_usage("money", [row["money"] for row in rows]),
        "disk": "unknown" if None in disk else format_count(sum(disk), "B") if sum(disk) else "-",
        "memory": format_count(max(memory), "B") if memory else "-",
    }


def _mean_rows(rows: Sequence[Row], tasks: int) -> list[Row]:
    """Divide the figures of every row by the number of tasks, so that sums become means."""
    divided: list[Row] = []
    for row in rows:
        figures = {
            name: row[name] if row[name] is None else row[name] / tasks
            for name in ("tokens", "hours", "money")
        }
        divided.append({**row, **figures, "texts": round(row["texts"] / tasks)})
    return divided


def _describe_basis(rows: Sequence[Row]) -> str:
    facts = dict.fromkeys(fact for row in rows for fact in row["basis"].split("; "))
    return f"Basis: {'; '.join(facts)}." if facts else ""
