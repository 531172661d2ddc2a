"""What a check of the user's own data found: its problems, or a summary of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group
from rich.text import Text

from r2med.report.table import Cell, Column, Grid, SystemName, pairs, snippet
from r2med.tasks.own_data import Problem
from r2med.tasks.task import Task, counts, statistics


def problem_grid(problems: Sequence[Problem]) -> Group:
    """One row per problem, file by file."""
    parts: list[Grid] = []
    for file in dict.fromkeys(problem.file for problem in problems):
        own = [problem for problem in problems if problem.file == file]
        rows: list[list[Cell]] = [
            [
                "" if each.line is None else f"{each.line}",
                SystemName(snippet(each.id or "", 30)),
                Text(each.problem),
            ]
            for each in own
        ]
        columns = [
            Column("line", fixed=True),
            Column("id", right=False),
            Column("problem", right=False),
        ]
        many = "1 problem" if len(own) == 1 else f"{len(own):,} problems"
        parts.append(Grid(columns, rows, title=f"{many} in {file}"))
    return Group(*parts)


def summary(task: Task) -> Group:
    """What the data is: counts, lengths, positives per query, grades, and what is odd."""
    facts = statistics(task)
    documents, queries = facts["documents_text"], facts["queries_text"]
    positives = facts["relevant_docs"]
    grades, sizes = np.unique(task.judgements.scores, return_counts=True)
    sized = ", ".join(f"{count:,} {what}" for what, count in counts(task).items())
    rows = [
        ("data", sized),
        ("characters", f"{_span(queries)} of a query, {_span(documents)} of a document"),
        (
            "positives per query",
            f"{positives['min_relevant_docs_per_query']:,} to "
            f"{positives['max_relevant_docs_per_query']:,}, "
            f"mean {positives['average_relevant_docs_per_query']:.2f}",
        ),
        ("scores", ", ".join(f"{g} ({n:,})" for g, n in zip(grades, sizes, strict=True))),
        ("hash", task.hash[:12]),
        *(("note", notice) for notice in task.notices),
    ]
    return Group(Text(f"{task.name}: no problems", style="bold"), pairs(rows, indent=2))


def _span(figures: dict[str, float]) -> str:
    return (
        f"{figures['min_text_length']:,} to {figures['max_text_length']:,} "
        f"(mean {figures['average_text_length']:,.0f})"
    )
