"""Answer sets, their scores by condition and the relation to retrieval, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from r2med.answer.correctness import Correctness
from r2med.answer.grading import JudgeCalibration
from r2med.answer.listing import AnswerBoard, StoredAnswerSets
from r2med.answer.relation import Correlation, Relation
from r2med.answer.reporting import AnswerReport
from r2med.answer.scoring import ArmFigures
from r2med.errors import plural
from r2med.judge.agreement import Statistic
from r2med.measure.intervals import Interval
from r2med.measure.significance import is_significant
from r2med.number_format import MISSING, format_p, format_percent, format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    difference_cell,
    format_age,
    make_columns,
)

_TABLE_NOTE = (
    "score × 100 with its 95 % interval; share: of the way from closed-book (floor) to oracle "
    "(ceiling); right to abstain: abstentions without a positive among the passages / abstentions; "
    "citations: precision and recall against the judgements"
)
_GRADED: tuple[Correctness, ...] = ("correct", "partly", "wrong")
_ROLES = {"closed-book": " (floor)", "oracle": " (ceiling)"}


@draw_registered.register
def draw_answer_report(report: AnswerReport, out: Paper, *, brief: bool = False) -> None:
    """Print scores by condition; unless `brief`, also tests, relation, calibration and cost."""
    judge = f", graded by {report.judge}" if report.judge else ""
    title = f"Answers of {report.llm} with {report.k} passages{judge} ({report.name})"
    out.print(title, style="bold")
    for figures in report.tasks:
        out.print()
        out.print(f"{figures.task}: {plural(figures.queries, 'query')}", style="bold")
        out.print(_conditions(figures.rows, caption="" if report.pooled else _TABLE_NOTE))
    if report.pooled:
        out.print()
        out.print(f"Mean of {plural(len(report.tasks), 'task')}", style="bold")
        out.print(_conditions(report.pooled, caption=_TABLE_NOTE))
    sentence = summarise(report)
    if sentence:
        out.print(sentence)
    if not brief:
        _draw_details(report, out)
    for warning in report.warnings:
        out.print(f"Warning: {warning}", style="yellow")


@draw_registered.register
def draw_answer_sets(stored: StoredAnswerSets, out: Paper) -> None:
    """Print the answer sets of a results folder."""
    columns = make_columns(
        "name", "task", "model", ">k", "systems", ">queries", ">samples", ">answers", "judge", "age"
    )
    rows: list[list[Cell]] = [
        [
            row.name,
            row.task,
            SystemName(row.llm),
            str(row.k),
            SystemName(row.systems or MISSING),
            f"{row.queries:,}",
            str(row.samples),
            f"{row.answers:,}",
            row.judge,
            format_age(row.created),
        ]
        for row in stored.rows
    ]
    out.print(Grid(columns, rows))


@draw_registered.register
def draw_answer_board(board: AnswerBoard, out: Paper) -> None:
    """Print answer scores, best first within each task."""
    columns = [
        Column("condition", right=False),
        Column("model", right=False, repeat=True),
        *make_columns(">k", ">queries", ">score", ">share", ">abstained", "judge"),
    ]
    rows: list[list[Cell]] = []
    for index, row in enumerate(board.rows):
        if index == 0 or row.task != board.rows[index - 1].task:
            rows.append([Text(row.task, "bold")])
        rows.append(
            [
                SystemName(_label_arm(row.condition, row.system or "")),
                SystemName(row.llm),
                str(row.k),
                str(row.queries),
                format_figure(row.score, Interval(row.low, row.high)),
                format_percent(row.share),
                format_percent(row.abstained),
                row.judge,
            ]
        )
    caption = "answer score × 100 with its 95 % interval; not a retrieval score"
    out.print(Grid(columns, rows, caption=caption))
    for reason in board.left_out:
        out.print(f"Left out: {reason}", style="yellow")


_NO_WAY = (
    "No share of the way is given: oracle is not significantly above closed-book, so this model "
    "does not use the evidence, or there are too few queries."
)


def summarise(report: AnswerReport) -> str:
    """Return a sentence: how far the best system gets from closed-book to oracle, as a share."""
    shares = [row for row in report.rows if row.share is not None]
    if not shares:
        has_limits = {"closed-book", "retrieved", "oracle"} <= {r.condition for r in report.rows}
        return _NO_WAY if has_limits else ""
    best = max(shares, key=lambda row: row.score)
    reach = ""
    if best.share_interval is not None:
        low, high = best.share_interval.low, best.share_interval.high
        reach = f" (95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
    return (
        f"{best.system} achieves {format_percent(best.share)}{reach} of the way from closed-book "
        "to oracle."
    )


def describe_relation(relation: Relation) -> str:
    """Return a sentence that names the retrieval measure that predicts answer scores best."""
    best = relation.best
    if best is None:
        return "The answer score or every retrieval measure is constant: nothing to correlate."
    clear = (
        "significantly better than the next"
        if relation.is_best_clear
        else "not significantly better than the next"
    )
    return (
        f"{best.measure} predicts answers best: Spearman's rho {format_correlation(best)} over "
        f"{len(relation.points)} points of a query and a system, {clear}."
    )


def format_figure(value: float, interval: Interval) -> str:
    """Return a score × 100 with its interval."""
    low, high = format_points(interval.low, 0), format_points(interval.high, 0)
    return f"{format_points(value, 1)} ({low} to {high})"


def format_correlation(item: Correlation) -> str:
    """Return a correlation with its interval."""
    return format_statistic(Statistic(item.rho, item.interval))


def format_statistic(statistic: Statistic) -> str:
    """Return a statistic with its interval; a dash if it is undefined."""
    if statistic.value is None:
        return MISSING
    interval = statistic.interval
    limits = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"{statistic.value:.2f}{limits}"


def _conditions(rows: Sequence[ArmFigures], *, caption: str) -> Grid:
    has_options = any(row.option is not None for row in rows)
    has_grades = any(row.shares for row in rows)
    has_spread = any(row.spread is not None for row in rows)
    titles = ["condition", ">score", ">share"]
    titles += [">± samples"] if has_spread else []
    titles += [">options"] if has_options else []
    titles += [">correct", ">partly", ">wrong"] if has_grades else []
    titles += [">match", ">F1", ">abstained", ">right to abstain", ">cites: prec.", ">recall"]
    cells: list[list[Cell]] = []
    for row in rows:
        line: list[Cell] = [
            SystemName(_label_arm(row.condition, row.system)),
            format_figure(row.score, row.interval),
            "" if row.condition != "retrieved" else format_percent(row.share),
        ]
        line += [None if row.spread is None else format_points(row.spread, 1)] * has_spread
        line += [format_percent(row.option)] * has_options
        if has_grades:
            line += [format_percent(row.shares.get(grade)) for grade in _GRADED]
        line += [
            format_percent(row.match),
            format_points(row.f1, 1),
            format_percent(row.abstained),
            _right_to_abstain(row),
            format_percent(row.citation_precision),
            format_percent(row.citation_recall),
        ]
        cells.append(line)
    return Grid(make_columns(*titles), cells, caption=caption)


def _label_arm(condition: str, system: str) -> str:
    """Return the name of a condition with its role or its system."""
    return f"{condition}: {system}" if system else f"{condition}{_ROLES.get(condition, '')}"


def _right_to_abstain(row: ArmFigures) -> str:
    if row.abstentions is None:
        return ""
    total = row.abstentions.right + row.abstentions.wrong
    return f"{row.abstentions.right} of {total}"


def _draw_details(report: AnswerReport, out: Paper) -> None:
    if report.comparisons:
        out.print()
        out.print("Paired tests over queries", style="bold")
        out.print(_comparisons(report))
    if report.relation is not None:
        out.print()
        _draw_relation(report.relation, out)
    for calibration in report.calibrations:
        out.print()
        _draw_calibration(calibration, out)
    cost = report.cost
    money = "" if cost.money is None else f", ${cost.money:,.2f}"
    out.print()
    out.print(f"{plural(cost.answers, 'answer')} took {cost.tokens:,} tokens{money}.")


def _comparisons(report: AnswerReport) -> Grid:
    columns = [
        Column("first", right=False),
        Column("second", right=False, repeat=True),
        *make_columns(">difference", ">95 % interval", ">p", ">p (Holm)", ">won, tied, lost"),
    ]
    rows: list[list[Cell]] = []
    for comparison in report.comparisons:
        difference = comparison.difference
        style = "bold" if is_significant(comparison.p_holm) else ""
        low, high = difference.interval.low, difference.interval.high
        rows.append(
            [
                SystemName(comparison.first),
                SystemName(comparison.second),
                difference_cell(difference.difference, 1, style),
                f"{format_points(low, 1)} to {format_points(high, 1)}",
                format_p(difference.p_randomisation),
                Text(format_p(comparison.p_holm), style),
                f"{difference.won}, {difference.tied}, {difference.lost}",
            ]
        )
    caption = "randomisation test; Holm's correction covers all rows; bold: p < .05"
    return Grid(columns, rows, caption=caption)


def _draw_relation(relation: Relation, out: Paper) -> None:
    out.print("Retrieval and answers", style="bold")
    out.print(describe_relation(relation))
    if relation.best is not None:
        columns = make_columns("measure", ">Spearman's rho")
        cells = [[item.measure, format_correlation(item)] for item in relation.correlations]
        out.print(Grid(columns, cells))
    columns = make_columns(
        "system", ">queries", ">no positive shown", ">of these right", ">all positives shown",
        ">of these wrong", ">rho",
    )  # fmt: skip
    rows: list[list[Cell]] = [
        [
            SystemName(row.system),
            str(row.points),
            str(row.without_positive),
            str(row.right_without_positive),
            str(row.with_all),
            str(row.wrong_with_all),
            format_correlation(row.rho),
        ]
        for row in relation.systems
    ]
    caption = (
        "right: a score above 50; bootstrap intervals over queries in parentheses, left out where "
        "scores or measures vary on too few queries"
    )
    out.print(Grid(columns, rows, caption=caption))


def _draw_calibration(calibration: JudgeCalibration, out: Paper) -> None:
    out.print(
        f"{calibration.judge} against labels of people: {plural(calibration.answers, 'answer')}, "
        f"agreement {format_statistic(calibration.agreement)}, "
        f"kappa {format_statistic(calibration.kappa)}",
        style="bold",
    )
    grades = list(calibration.confusion)
    rows: list[list[Cell]] = [
        [label, *(str(row[grade]) for grade in grades)]
        for label, row in calibration.confusion.items()
    ]
    columns = make_columns("people", *(f">{grade}" for grade in grades))
    means = (
        f"columns: grade of the judge; mean score {100 * (calibration.mean_judge or 0):.1f} by the "
        f"judge, {100 * (calibration.mean_people or 0):.1f} by people"
    )
    out.print(Grid(columns, rows, caption=means))
