"""The funnel and the check of a benchmark that is being built, on a terminal or a page."""

from __future__ import annotations

from r2med.build.funnel import Funnel
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Grid, Paper, make_columns


@draw_registered.register
def draw_funnel(funnel: Funnel, out: Paper) -> None:
    """Print what was dropped and what remains, step by step."""
    out.print(f"{funnel.name}: from questions to queries", style="bold")
    rows: list[list[Cell]] = [
        [
            step.stage,
            step.step,
            f"{step.dropped:,}" if step.dropped else "",
            f"{step.remaining:,}",
        ]
        for step in funnel.steps
    ]
    out.print(Grid(make_columns("stage", "step", ">dropped", ">remaining"), rows))
    if funnel.missing:
        out.print(f"Not finished: {', '.join(funnel.missing)}.", style="dim")
