"""The effect of an expansion, on a terminal: by overlap, by generation, by cause, by word."""

from __future__ import annotations

from collections.abc import Sequence

from r2med.evaluation.reasoning import QueryGroup, ReasoningStudy, missing_generations_hint
from r2med.number_format import format_points, format_range
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    Column,
    Grid,
    Paper,
    SystemName,
    difference_cell,
    score_cell,
    task_label,
)

#: Generated words that a terminal shows.
_WORDS_SHOWN = 10


@draw_registered.register
def draw_reasoning(value: ReasoningStudy, out: Paper) -> None:
    """Print the groups of queries, then causes by family and the words that misled."""
    out.print(f"A = {value.a}\nB = {value.b}\n{value.metric} × 100", style="bold")
    out.print(_groups("words shared with positives", value.quarters))
    if value.naming:
        out.print(_groups("the generated text", value.naming))
    if value.samples:
        out.print(_samples(value))
    if value.misses:
        out.print(_misses(value))
    if value.pulling_words:
        out.print(_words(value))
    if hint := missing_generations_hint(value):
        out.print(hint, style="dim")


def _groups(title: str, groups: Sequence[QueryGroup]) -> Grid:
    columns = [
        Column(title, right=False, cell=lambda row: row.name),
        Column("queries", cell=lambda row: f"{row.queries:,}"),
        Column("A", cell=lambda row: score_cell(row.score_a)),
        Column("B", cell=lambda row: score_cell(row.score_b)),
        Column("A-B", cell=lambda row: difference_cell(row.change)),
        Column("95 %", cell=lambda row: format_range(row.difference.low, row.difference.high)),
    ]
    return Grid.of(columns, groups, gap=2)


def _samples(value: ReasoningStudy) -> Grid:
    columns = [
        Column("samples alone", right=False, cell=lambda row: SystemName(row.system)),
        Column("task", right=False, repeat=True, cell=lambda row: task_label(row.task)),
        Column("scores", right=False, cell=lambda row: _list_scores(row.scores)),
        Column("deviation", cell=lambda row: score_cell(row.variance**0.5)),
    ]
    caption = "Each sample is searched with alone; deviation: standard deviation over samples."
    return Grid.of(columns, value.samples, gap=2, caption=caption)


def _list_scores(scores: Sequence[float]) -> str:
    return ", ".join(format_points(score) for score in scores)


def _misses(value: ReasoningStudy) -> Grid:
    columns = [
        Column("family", right=False, cell=lambda row: row.family),
        Column("cause of missed positives", right=False, cell=lambda row: row.cause),
        Column("A", cell=lambda row: f"{row.a:,}"),
        Column("B", cell=lambda row: f"{row.b:,}"),
    ]
    return Grid.of(columns, value.misses, gap=2)


def _words(value: ReasoningStudy) -> Grid:
    columns = [
        Column("generated word", right=False, cell=lambda row: row.word),
        Column("queries", cell=lambda row: f"{row.queries:,}"),
        Column("wrong documents", cell=lambda row: f"{row.documents:,}"),
        Column("for example", right=False, cell=lambda row: SystemName(row.example)),
    ]
    caption = "Words of the generated text in wrong documents that only A has in its top ten."
    return Grid.of(columns, value.pulling_words[:_WORDS_SHOWN], gap=2, caption=caption)
