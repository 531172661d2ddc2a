"""The funnel, the check and the probes of a benchmark, on a terminal or a page."""

from __future__ import annotations

from r2med.build.check import BenchmarkCheck
from r2med.build.funnel import Funnel
from r2med.build.judged_texts import AGAINST
from r2med.build.probes import LEAST, MOST, MOST_GAIN, ProbeFigure, ProbeTable
from r2med.errors import plural
from r2med.number_format import MISSING
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Grid, Paper, make_columns


@draw_registered.register
def draw_funnel(funnel: Funnel, out: Paper) -> None:
    """Print the dropped and remaining items of each step."""
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
    failed_by_advice: dict[str, list[str]] = {}
    for verdict in check.failures:
        failed_by_advice.setdefault(verdict.advice, []).append(verdict.check)
    for advice, checks in failed_by_advice.items():
        out.print(f"{', '.join(dict.fromkeys(checks))}: {advice}")
    if not check.failures:
        out.print("All checks that could be measured passed.")


@draw_registered.register
def draw_probes(table: ProbeTable, out: Paper) -> None:
    """Print preferences by the type of document compared with, then gains and shares."""
    out.print(f"{table.name}: rules that do not understand the query", style="bold")
    out.print(
        f"{table.queries:,} queries, {table.positives:,} positives, {table.hard_negatives:,} hard "
        f"negatives ({table.never_positive:,} never positive), {table.background:,} of the "
        "background. 0.50 is chance."
    )
    by_rule: dict[tuple[str, str], dict[str, ProbeFigure]] = {}
    for figure in table.figures:
        if figure.unit == "preference":
            by_rule.setdefault((figure.probe, figure.feature), {})[figure.against] = figure
    rows: list[list[Cell]] = [
        [probe, feature, *(_mark(figures.get(against)) for against in AGAINST)]
        for (probe, feature), figures in by_rule.items()
    ]
    out.print(Grid(make_columns("probe", "rule", ">hard", ">never", ">background"), rows))
    rows = [
        [figure.probe, figure.feature, figure.unit, _mark(figure)]
        for figure in table.figures
        if figure.unit != "preference"
    ]
    out.print(Grid(make_columns("probe", "figure", "unit", ">value"), rows))
    count = len(table.outside)
    out.print(
        f"* outside the limits ({plural(count, 'figure')}): a preference from {LEAST} to {MOST}, a "
        f"gain of nDCG@10 up to {MOST_GAIN}."
    )


def _mark(figure: ProbeFigure | None) -> str:
    if figure is None or figure.value is None:
        return MISSING
    return f"{figure.value:.2f}{'*' if figure.is_outside else ' '}"
