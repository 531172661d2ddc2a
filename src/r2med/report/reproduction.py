"""A reproduction on a terminal: ours, published, difference, verdict, reasons."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from r2med.engine.reproduce import CLOSE, Reproduced, Reproduction
from r2med.report.table import Column, Grid, Paper, points, print_fitting, signed

_STYLES = {"equal": "green", "close": "yellow", "different": "red"}


def draw(reproduction: Reproduction, out: Paper) -> None:
    """Print the table, the reasons for differences, and what is missing."""
    system, published, rows = reproduction.system, reproduction.published, reproduction.tasks
    renamed = "" if system == published.system else f", published as {published.system}"
    origins = ", ".join(dict.fromkeys(published.origins.values()))
    out.print(f"{system}{renamed} · {reproduction.metric} × 100", style="bold")
    out.print(f"published in {origins}")
    columns = [
        Column("task", right=False, cell=lambda row: row.task),
        Column("n", cell=lambda row: str(row.queries) if row.queries else None),
        Column("ours", cell=lambda row: points(row.ours, 3)),
        Column("published", cell=lambda row: points(row.published, 3)),
        Column("difference", cell=lambda row: signed(row.difference, 3)),
        Column("verdict", right=False, cell=_verdict),
    ]
    print_fitting((Grid.of(columns, rows, gap=gap) for gap in (2, 1)), out)
    for line in _notes(rows, published.decimals):
        out.print(line)


def _verdict(row: Reproduced) -> Text:
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
        lines += [f"  {line}" for line in message.splitlines()]
    return lines
