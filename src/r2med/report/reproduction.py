"""A reproduction on a terminal: ours, published, difference, verdict, reasons."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from r2med.engine.reproduce import CLOSE, Reproduced, Reproduction
from r2med.report.table import Cell, Grid, Paper, columns_of, mean_of, points, print_fitting, signed

_COLUMNS = columns_of("task", ">n", ">ours", ">published", ">difference", "verdict")
_STYLES = {"equal": "green", "close": "yellow", "different": "red"}


def draw(reproduction: Reproduction, out: Paper) -> None:
    """Print the table, the reasons for differences, and what is missing."""
    system, published, rows = reproduction.system, reproduction.published, reproduction.tasks
    renamed = "" if system == published.system else f", published as {published.system}"
    origins = ", ".join(dict.fromkeys(published.origins.values()))
    out.print(f"{system}{renamed} · {reproduction.metric} × 100", style="bold")
    out.print(f"published in {origins}")
    lines = []
    for row in rows:
        verdict = row.verdict or ("not run" if row.missing else "not published")
        lines.append(_cells(row, Text(verdict, _STYLES.get(verdict, "dim"))))
    if len(rows) > 1:  # over exactly the tasks shown; no mean of ours where a task is missing
        ours = mean_of(row.ours for row in rows)
        mean = Reproduced(
            f"task mean ({len(rows)})",
            mean_of(row.published for row in rows),
            ours,
            queries=sum(row.queries for row in rows) if ours is not None else 0,
        )
        lines.append(_cells(mean, ""))
    ends = frozenset([len(rows) - 1])
    print_fitting((Grid(_COLUMNS, lines, gap, ends) for gap in (2, 1)), out)
    for line in _notes(rows, published.decimals):
        out.print(line)


def _cells(row: Reproduced, verdict: Cell) -> list[Cell]:
    return [
        row.task,
        str(row.queries) if row.queries else "-",
        points(row.ours, 3),
        points(row.published, 3),
        signed(row.difference, 3),
        verdict,
    ]


def _notes(rows: Sequence[Reproduced], decimals: int) -> list[str]:
    lines = [
        f"equal: the same after rounding to the {decimals} published decimals; "
        f"close: within {100 * CLOSE:.1f} points; different: beyond."
    ]
    reasons = dict.fromkeys(reason for row in rows for reason in row.reasons)
    if reasons:
        lines += ["Known reasons for a difference:", *(f"  - {reason}" for reason in reasons)]
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.missing:
            missing.setdefault(row.missing.replace(row.task, "TASK"), []).append(row.task)
    for message, tasks in missing.items():
        lines.append(f"Not run: {', '.join(tasks)}.")
        lines += [f"  {line}" for line in message.splitlines()]
    return lines
