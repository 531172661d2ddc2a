"""Scores of agents and lists of trace sets, on a terminal or a page."""

from __future__ import annotations

from collections.abc import Callable

from r2med.agents.calibration import ConfidenceCalibration
from r2med.agents.scoring import COUNTS, AgentMean, AgentScores, AgentSummary
from r2med.agents.store import StoredTraceSets
from r2med.number_format import MISSING, format_difference, format_p, format_points, format_range
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Grid, Paper, SystemName, format_age, make_columns

_EVIDENCE = {
    "recall": ">recall",
    "saw_positive": ">saw one",
    "used_positive": ">used one",
    "citation_precision": ">citations right",
    "searches": ">searches",
    "tokens": ">tokens",
}
_ANSWERS = {"correct": ">correct", "mentions": ">mentions", "f1": ">F1", "abstained": ">abstained"}
_EVIDENCE_NOTE = (
    "recall: share of the judged positives among all documents seen; used: cited or in the final "
    "list, of the queries whose agent saw one; first: median search that showed the first "
    "positive; 95 % intervals in parentheses, none for counts that do not vary"
)
_ANSWER_NOTE = (
    "correct: right option, or match of the short answer; mentions: the answer contains it; "
    "calibration error over 10 bins of equal width; bias: mean confidence minus correct"
)


@draw_registered.register
def draw_agents(scores: AgentScores, out: Paper) -> None:
    """Print agents' evidence, answers and confidence, and the differences from the first agent."""
    out.print(f"{scores.task} · agents, scores × 100", style="bold")
    columns = make_columns("agent", ">queries", *_EVIDENCE.values(), ">first")
    rows: list[list[Cell]] = [
        [
            SystemName(agent.name),
            f"{agent.queries}/{agent.task_queries}",
            *(_mean_cell(agent, name) for name in _EVIDENCE),
            _format_number(agent.median_first_positive),
        ]
        for agent in scores.agents
    ]
    out.print(Grid(columns, rows, caption=_EVIDENCE_NOTE))
    out.print()
    columns = make_columns(
        "agent", *_ANSWERS.values(), ">calibration error", ">bias", ">confidences"
    )
    rows = [
        [
            SystemName(agent.name),
            *(_mean_cell(agent, name) for name in _ANSWERS),
            *_calibration_cells(agent.calibration),
        ]
        for agent in scores.agents
    ]
    out.print(Grid(columns, rows, caption=_ANSWER_NOTE))
    if scores.differences:
        out.print()
        _draw_differences(scores, out)
    for agent in scores.agents:
        for problem in _describe_problems(agent):
            out.print(f"{agent.name}: {problem}", style="yellow")


@draw_registered.register
def draw_trace_sets(stored: StoredTraceSets, out: Paper) -> None:
    """Print the trace sets of a results folder."""
    columns = make_columns("name", "task", "format", ">queries", ">traces", ">problems", "age")
    rows: list[list[Cell]] = [
        [
            row.name,
            row.task,
            row.format,
            f"{row.queries:,}",
            f"{row.traces:,}",
            f"{len(row.problems):,}",
            format_age(row.imported),
        ]
        for row in stored.rows
    ]
    out.print(Grid(columns, rows))


def _draw_differences(scores: AgentScores, out: Paper) -> None:
    columns = make_columns("agent", "score", ">difference", ">queries", ">p", ">p (Holm)")
    rows: list[list[Cell]] = [
        [
            SystemName(row.agent),
            row.score,
            f"{format_difference(row.difference.difference, 1)} "
            f"({format_range(row.difference.interval.low, row.difference.interval.high)})",
            str(row.difference.queries),
            format_p(row.difference.p_randomisation),
            format_p(row.p_holm),
        ]
        for row in scores.differences
    ]
    caption = f"difference from {scores.baseline} on the queries of both; paired randomisation test"
    out.print(Grid(columns, rows, caption=caption))


def _describe_problems(agent: AgentSummary) -> list[str]:
    problems = list(agent.problems)
    if agent.incomplete:
        problems.append(f"{agent.incomplete} of {agent.traces} traces end without an answer.")
    return problems


def _mean_cell(agent: AgentSummary, name: str) -> str:
    mean = agent.means.get(name)
    if mean is None:
        return MISSING
    return _format_mean(mean, _format_number if name in COUNTS else _format_share)


def _format_mean(mean: AgentMean, form: Callable[[float], str]) -> str:
    if mean.interval is None:
        return form(mean.value)
    return f"{form(mean.value)} ({form(mean.interval.low)} to {form(mean.interval.high)})"


def _format_share(value: float) -> str:
    return format_points(value, 1)


def _format_number(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _calibration_cells(calibration: ConfidenceCalibration | None) -> list[Cell]:
    if calibration is None:
        return [MISSING, MISSING, "0"]
    return [
        format_points(calibration.error, 1),
        format_difference(calibration.overconfidence, 1),
        str(calibration.answers),
    ]
