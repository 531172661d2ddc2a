"""A reproduction on a terminal: ours, published, difference, verdict, reasons."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from r2med.evaluation.reproduce import CLOSE, Reproduced, Reproduction
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    Column,
    Grid,
    Paper,
    difference_cell,
    mean_or_none,
    print_fitting,
    score_cell,
)
from r2med.tasks.registry import group_by_suite

_MEAN = "task mean"
_STYLES = {"equal": "green", "close": "yellow", "different": "red"}


@draw_registered.register
def draw_reproduction(reproduction: Reproduction, out: Paper) -> None:
    """Print the table, the reasons for differences, and missing data."""
    system, published, rows = reproduction.system, reproduction.published, reproduction.tasks
    renamed = "" if system == published.system else f", published as {published.system}"
    origins = ", ".join(dict.fromkeys(published.origins.values()))
    out.print(f"{system}{renamed} · {reproduction.metric} × 100", style="bold")
    out.print(f"published in {origins}")
    columns = [
        Column("task", right=False, cell=lambda row: row.task),
        Column("n", cell=lambda row: str(row.queries) if row.queries else None),
        Column("ours", cell=lambda row: score_cell(row.ours, 3)),
        Column("published", cell=lambda row: score_cell(row.published, 3)),
        Column("difference", cell=lambda row: difference_cell(row.difference, 3)),
        Column("verdict", right=False, cell=_verdict),
    ]
    printed_rows, ends = [*rows], frozenset([len(rows) - 1])
    if len(rows) > 1:  # no mean of ours if a task is missing
        measured_mean, published_mean = (
            mean_or_none([getattr(row, name) for row in rows]) for name in ("ours", "published")
        )
        queries = sum(row.queries for row in rows) if measured_mean is not None else 0
        printed_rows.append(Reproduced(_MEAN, published_mean, measured_mean, queries=queries))
    print_fitting((Grid.of(columns, printed_rows, gap=gap, ends=ends) for gap in (2, 1)), out)
    for line in _notes(rows, published.decimals):
        out.print(line)


def _verdict(row: Reproduced) -> Text:
    if row.task == _MEAN:
        return Text()
    verdict = row.verdict or ("not run" if row.missing else "not published")
    return Text(verdict, _STYLES.get(verdict, "dim"))


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
        text = message.replace("TASK", tasks[0]) if len(tasks) == 1 else message
        lines += [f"  {line}" for line in text.splitlines()]
        command = re.search("`(r2med fetch) TASK(.*?)`", message)
        if len(tasks) > 1 and command:
            lines.append(
                f"  All of them: {command[1]} {' '.join(group_by_suite(tasks))}{command[2]}"
            )
    return lines
