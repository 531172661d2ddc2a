"""The funnel and the check of a benchmark that is being built, on a terminal or a page."""

from __future__ import annotations

from r2med.build.check import BenchmarkCheck
from r2med.build.funnel import Funnel
from r2med.errors import plural
from r2med.number_format import MISSING
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


@draw_registered.register
def draw_check(check: BenchmarkCheck, out: Paper) -> None:
    """Print a verdict per check, then advice for those that failed."""
    out.print(f"{check.name}: {plural(check.queries, 'query')}", style="bold")
    words = {True: "passed", False: "FAILED", None: "not measured"}
    rows: list[list[Cell]] = [
        [
            verdict.check,
            verdict.subject,
            MISSING if verdict.value is None else f"{verdict.value:.3g}",
            verdict.threshold,
            words[verdict.passed],
        ]
        for verdict in check.verdicts
    ]
    out.print(Grid(make_columns("check", "of", ">value", "threshold", "verdict"), rows))
    for verdict in check.failures:
        subject = f" ({verdict.subject})" if verdict.subject else ""
        out.print(f"{verdict.check}{subject}: {verdict.advice}")
    if not check.failures:
        out.print("All checks that could be measured passed.")
