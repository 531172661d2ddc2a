"""The verification of an archive on a terminal."""

from __future__ import annotations

from rich.text import Text

from r2med.report.drawing import draw_registered
from r2med.report.table import Column, Grid, Paper, SystemName
from r2med.results.pack import Verification

_STYLES = {"confirmed": "green", "different": "red", "damaged": "red", "not measured": "yellow"}


@draw_registered.register
def draw_verification(value: Verification, out: Paper) -> None:
    """Print one row per result, and how many were confirmed."""
    columns = [
        Column("task", right=False, cell=lambda row: SystemName(row.task)),
        Column("system", right=False, cell=lambda row: SystemName(row.system or row.key)),
        Column("outcome", right=False, cell=lambda row: Text(row.outcome, _STYLES[row.outcome])),
        Column("detail", right=False, cell=lambda row: row.detail),
    ]
    out.print(f"{value.archive}: {value.files} files, checksums equal", style="bold")
    out.print(Grid.of(columns, value.results))
    confirmed = sum(result.outcome == "confirmed" for result in value.results)
    out.print(f"{confirmed} of {len(value.results)} results confirmed.")
