"""Judgement sets, their effects on scores, and agreement, on a terminal or a page."""

from __future__ import annotations

from rich.text import Text

from r2med.errors import plural
from r2med.judge.agreement import AgreementTable, Detection, Statistic
from r2med.judge.calibration import Calibration
from r2med.judge.effects import Figure, JudgeReport
from r2med.judge.listing import StoredSets
from r2med.judge.review_report import ReviewReport
from r2med.measure.intervals import Interval
from r2med.number_format import MISSING, format_percent, format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, format_age, make_columns

_HOLES = (
    "holes are unjudged documents in the top. With all of them relevant or irrelevant the score "
    "is not a bound: a relevant document that only another system retrieved lowers nDCG and recall"
)
_UNCALIBRATED = (
    "No score with added judgements is shown: {judges} was not calibrated on pairs that the "
    "benchmark or people have judged. Judge again with --calibration 100."
)
_REFERENCES = {"benchmark": "the benchmark", "people": "people"}
_ONE_SYSTEM = (
    "Only one system is shown: judging one system's holes alone favours it over all others."
)


@draw_registered.register
def draw_judge_report(report: JudgeReport, out: Paper) -> None:
    """Print scores with and without added judgements, the order of systems, the calibration."""
    out.print(f"{report.task} · {report.metric} × 100, {report.queries} queries", style="bold")
    out.print(f"Judgements: {report.choice.label}.")
    if report.choice.undecided:
        out.print(f"Left undecided: {plural(report.choice.undecided, 'pair')}.")
    out.print()
    out.print(_effects(report))
    if not report.is_calibrated:
        out.print(_UNCALIBRATED.format(judges=", ".join(report.uncalibrated)))
    if len(report.systems) == 1:
        out.print(_ONE_SYSTEM)
    if report.order is not None:
        out.print(_order_sentence(report))
    for calibration in report.calibrations:
        if calibration.pairs:
            out.print()
            _draw_calibration(calibration, out)
    for warning in report.warnings:
        out.print()
        out.print(f"Warning: {warning}", style="yellow")


@draw_registered.register
def draw_stored_sets(stored: StoredSets, out: Paper) -> None:
    """Print the judgement sets of a results folder."""
    columns = make_columns(
        "name", "task", "judge", "rubric", ">pairs", ">relevant", ">undecided", "age"
    )
    rows: list[list[Cell]] = [
        [
            row.name,
            row.task,
            SystemName(", ".join(row.judges)),
            row.rubric,
            f"{row.pairs:,}",
            f"{row.relevant:,}",
            f"{row.undecided:,}",
            format_age(row.created),
        ]
        for row in stored.rows
    ]
    out.print(Grid(columns, rows))


@draw_registered.register
def draw_agreement(table: AgreementTable, out: Paper) -> None:
    """Print agreement of all pairs of raters, and alpha over all of them."""
    out.print(
        f"Krippendorff's alpha of all raters {_statistic(table.alpha)} over "
        f"{plural(table.units, 'pair')} with two labels or more, "
        f"{plural(len(table.raters), 'rater')}.",
        style="bold",
    )
    columns = [
        Column("first", right=False),
        Column("second", right=False, repeat=True),
        *make_columns(">pairs", ">agree", ">kappa", ">weighted kappa"),
    ]
    rows: list[list[Cell]] = [
        [
            SystemName(pair.first),
            SystemName(pair.second),
            str(pair.units),
            _percent(pair.percent.value, pair.percent.interval),
            _statistic(pair.kappa),
            _statistic(pair.weighted_kappa),
        ]
        for pair in table.pairs
    ]
    out.print(Grid(columns, rows, caption="95 % intervals in parentheses; quadratic weights"))


@draw_registered.register
def draw_review(report: ReviewReport, out: Paper) -> None:
    """Print agreement of reviewers and judges, each judge against people, and attention."""
    out.print(
        f"{report.task}: {plural(report.pairs, 'pair')} reviewed, "
        f"{plural(report.disagreements, 'disagreement')} to settle, {report.settled:,} settled",
        style="bold",
    )
    if len(report.attention) > 1:
        out.print(
            f"Krippendorff's alpha of the reviewers {_statistic(report.alpha_of_reviewers)}.",
            style="bold",
        )
    draw_agreement(report.agreement, out)
    if any(check.checked for check in report.attention):
        _draw_attention(report, out)
    if report.open_pairs and report.judges:
        out.print()
        out.print(
            "Without a majority or a settlement, and left out below, which favours the judge: "
            f"{plural(report.open_pairs, 'pair')}."
        )
    for calibration in report.judges:
        if calibration.pairs:
            out.print()
            _draw_calibration(calibration, out)


def _draw_attention(report: ReviewReport, out: Paper) -> None:
    checks: list[list[Cell]] = [
        [SystemName(check.reviewer), str(check.checked), str(check.correct)]
        for check in report.attention
    ]
    out.print()
    columns = make_columns("reviewer", ">known pairs seen", ">labelled right")
    out.print(Grid(columns, checks, caption="pairs that the benchmark judged, to check attention"))


def _effects(report: JudgeReport) -> Grid:
    """Return one row per system; `holes irrelevant` is left out if it always equals `benchmark`."""
    cutoff = report.metric.partition("@")[2]
    differs = any(effect.holes_irrelevant != effect.benchmark for effect in report.systems)
    columns = make_columns(
        "system",
        f">judged@{cutoff}",
        ">benchmark",
        ">with added",
        ">condensed",
        *([">holes irrelevant"] if differs else []),
        ">holes relevant",
    )
    rows: list[list[Cell]] = [
        [
            SystemName(effect.system),
            f"{100 * effect.judged:.0f} → {format_percent(effect.judged_with)}",
            _figure(effect.benchmark),
            _figure(effect.added),
            _figure(effect.condensed),
            *([_figure(effect.holes_irrelevant)] if differs else []),
            _figure(effect.holes_relevant),
        ]
        for effect in report.systems
    ]
    same = "" if differs else "with all holes irrelevant the score is that of the benchmark; "
    caption = f"95 % intervals in parentheses; judged: before and with added; {same}{_HOLES}"
    return Grid(columns, rows, caption=caption)


def _order_sentence(report: JudgeReport) -> str:
    order = report.order
    assert order is not None
    tau = f"Kendall's tau {_statistic(order.tau)}"
    if not order.swaps:
        return f"The order of the systems does not change ({tau})."
    swaps = "; ".join(f"{ahead} was ahead of {behind}" for ahead, behind in order.swaps)
    number = plural(len(order.swaps), "pair")
    return f"The order of {number} of systems changes ({tau}): before, {swaps}."


def _draw_calibration(calibration: Calibration, out: Paper) -> None:
    detection = calibration.detection
    out.print(
        f"Calibration of {calibration.judge} against {_REFERENCES[calibration.reference]}: "
        f"{plural(calibration.pairs, 'pair')}, {calibration.undecided} undecided",
        style="bold",
    )
    out.print(_confusion(calibration))
    out.print()
    rows: list[list[Cell]] = [
        ["all decided pairs", *_detection_cells(detection), _statistic(calibration.kappa)]
    ]
    rows += [
        [part.name, *_detection_cells(part.detection), _statistic(part.kappa)]
        for part in calibration.strata
    ]
    columns = [
        Column("pairs", right=False, fixed=True),
        *make_columns(">n", ">precision", ">recall", ">false alarms", ">kappa"),
    ]
    out.print(Grid(columns, rows, caption=_calibration_caption(detection)))


def _calibration_caption(detection: Detection) -> str:
    """Return a caption that explains the columns and what these pairs cannot show."""
    if not detection.negatives:
        return (
            "precision and recall in %, 95 % intervals in parentheses. No pair here is known to be "
            "not relevant, so only recall tells something about this judge, and nothing tells "
            "whether it is lenient. Have people label a sample: r2med review"
        )
    return (
        "precision, recall and false alarms in %, lengths in characters, 95 % intervals in "
        "parentheses. False alarms: pairs that are not relevant but are judged relevant; a lenient "
        "judge has more of them on long passages and on passages that share words with the query. "
        "Precision depends on the "
        f"share of relevant pairs, here {format_percent(detection.positives / detection.units)}"
    )


def _confusion(calibration: Calibration) -> Grid:
    columns = make_columns("judge's grade", ">not relevant", ">relevant")
    rows: list[list[Cell]] = [
        [str(grade), str(negatives), str(positives)]
        for grade, (negatives, positives) in sorted(calibration.by_grade.items())
    ]
    return Grid(
        columns, rows, caption=f"columns: judgement of {_REFERENCES[calibration.reference]}"
    )


def _detection_cells(detection: Detection) -> list[Cell]:
    return [
        str(detection.units),
        _share(detection.precision, detection.precision_interval()),
        _share(detection.recall, detection.recall_interval()),
        _share(detection.false_alarms, None),
    ]


def _figure(figure: Figure | None) -> Cell:
    if figure is None:
        return None
    low, high = figure.interval.low, figure.interval.high
    return Text(
        f"{format_points(figure.mean)} ({format_points(low, 0)} to {format_points(high, 0)})"
    )


def _percent(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return format_percent(value)
    return f"{format_percent(value)} ({100 * interval.low:.0f} to {100 * interval.high:.0f})"


def _share(value: float | None, interval: Interval | None) -> Cell:
    """Return a share × 100 with its interval; the percent sign is in the caption."""
    if value is None:
        return None
    limits = "" if interval is None else f" ({100 * interval.low:.0f} to {100 * interval.high:.0f})"
    return f"{100 * value:.0f}{limits}"


def _statistic(statistic: Statistic) -> str:
    if statistic.value is None:
        return MISSING
    interval = statistic.interval
    limits = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"{statistic.value:.2f}{limits}"
