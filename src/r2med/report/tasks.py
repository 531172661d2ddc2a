"""Tables about tasks: the list of a suite, one task, verification, and problems of local data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from r2med.errors import plural
from r2med.report.table import (
    Cell,
    Column,
    Grid,
    SystemName,
    make_columns,
    name_value_table,
    snippet,
)
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import Suite, TaskEntry

if TYPE_CHECKING:
    from r2med.tasks.load import Check
    from r2med.tasks.own_data import Problem
    from r2med.tasks.task import Task

_ASPECTS = ("counts", "statistics", "sha256", "profile")
#: Words and styles for equal, different and unknown facts.
_VERDICTS = {False: "DIFFERS", True: "ok", None: "unknown"}
_STYLES = {False: "bold", True: "", None: "dim"}


def suite_table(suite: Suite, entries: Sequence[TaskEntry], by: str) -> Grid:
    """Return one row per task, family or scenario: whether its data is here, and counts."""
    groups: dict[str, list[TaskEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.name if by == "task" else getattr(entry, by), []).append(entry)
    rows: list[list[Cell]] = []
    for name, group in groups.items():
        presence = f"{sum(map(is_present, group))}/{len(group)}"
        about = ", ".join(entry.source for entry in group)
        if by == "task":
            presence, about = "yes" if is_present(group[0]) else "no", group[0].scenario
        rows.append([name, presence, *_shape(group), about])
    about = "scenario" if by == "task" else "tasks"
    columns = make_columns("here", ">queries", ">documents", ">pos/q", about)
    title = f"{suite.title} · suite {suite.name}"
    return Grid([Column(by, right=False, fixed=True), *columns], rows, gap=1, title=title)


def task_details(entry: TaskEntry) -> Group:
    """Return all fields of a task, and the names of the unknown ones."""
    edition = f", edition {entry.edition}" if entry.edition else ""
    hub, queries, documents, positives = entry.hub, *_shape([entry])
    licence = entry.licence or "unknown"
    lengths = (
        f"{_figure(entry.statistics.get(f'{role}_text', {}).get('average_text_length'))} per {noun}"
        for role, noun in (("queries", "query"), ("documents", "document"))
    )
    split = f", split {entry.split}" if entry.split else ""
    judged = _figure(entry.counts.get("judgements"))
    rows = [
        ("aliases", ", ".join(entry.aliases)),
        ("family", entry.family),
        ("scenario", entry.scenario),
        ("queries are", f"a {entry.kind}; {entry.purpose}"),
        ("queries", queries),
        ("documents", documents),
        ("judgements", f"{judged} ({positives} positives per query)"),
        ("characters", ", ".join(lengths)),
        ("data", f"{'here' if is_present(entry) else 'not here'}: {data_folder(entry)}"),
        ("hub", f"{hub.repo}{split}" if hub else "none"),
        *([("revision", hub.revision or "not pinned (default branch)")] if hub else []),
        ("licence", f"{licence} ({entry.licence_source})" if entry.licence_source else licence),
        ("citation", entry.citation),
        ("unknown", "; ".join(entry.unknown) or "nothing"),
    ]
    title = Text(f"{entry.name} · suite {entry.suite}{edition}", style="bold")
    return Group(title, Padding(Text(entry.description), (0, 0, 1, 0)), name_value_table(rows))


def check_summary(entries: Sequence[TaskEntry], checks: Sequence[Check]) -> Grid:
    """Return one row per task: how many of its facts agree with the manifest, by aspect."""
    aspects = [name for name in _ASPECTS if any(check.aspect == name for check in checks)]
    rows: list[list[Cell]] = []
    for entry in entries:
        row = [entry.name]
        for aspect in aspects:
            outcomes = [c.passed for c in checks if c.task == entry.name and c.aspect == aspect]
            counted = ((outcomes.count(passed), word) for passed, word in _VERDICTS.items())
            row.append(", ".join(f"{count} {word}" for count, word in counted if count))
        rows.append([*row])
    return Grid(make_columns("task", *aspects), rows, gap=1)


def check_table(checks: Sequence[Check]) -> Grid:
    """Return one row per checked fact."""
    rows = []
    for check in checks:
        fact = check.fact.replace("_", " ").replace(".", ": ")
        fact = f"sha256: {check.fact}" if check.aspect == "sha256" else fact
        values = (_figure(check.expected), _figure(check.found))
        cells = (check.task, fact, *values, _VERDICTS[check.passed])
        rows.append([Text(cell, _STYLES[check.passed]) for cell in cells])
    columns = make_columns("task", "fact", ">expected", ">found")
    return Grid([*columns, Column("", right=False, fixed=True)], rows, gap=1)


def problem_grids(problems: Sequence[Problem]) -> Iterator[Grid]:
    """Yield one grid per file with the problems of the user's own data, one row each."""
    for file in dict.fromkeys(problem.file for problem in problems):
        number = "row" if file.endswith(".parquet") else "line"
        columns = [Column(number, fixed=True), *make_columns("id", "problem")]
        of_file = [problem for problem in problems if problem.file == file]
        rows: list[list[Cell]] = [
            [
                str(problem.line or ""),
                SystemName(snippet(problem.id or "", 30)),
                Text(problem.problem),
            ]
            for problem in of_file
        ]
        yield Grid(columns, rows, title=f"{plural(len(of_file), 'problem')} in {file}")


def summary(task: Task) -> Group:
    """Summarise data without problems: its profile, grades and notices."""
    from r2med.nano.profiles import data_profile
    from r2med.report.profiles import data_rows

    grades = sorted(Counter(task.judgements.scores.tolist()).items())
    scores = ", ".join(f"{count:,} of score {grade}" for grade, count in grades)
    rows = [
        *data_rows(data_profile(task)),
        ("judgements", scores),
        ("hash", task.hash[:12]),
        *(("note", notice) for notice in task.notices),
    ]
    return Group(Text(f"{task.name}: no problems", style="bold"), name_value_table(rows, indent=2))


def _shape(entries: Sequence[TaskEntry]) -> tuple[str, str, str]:
    """Return queries, documents and positives per query; "?" if a manifest does not say."""
    queries, documents = (
        sum(entry.counts[role] for entry in entries) for role in ("queries", "documents")
    )
    judged = [entry.statistics.get("relevant_docs", {}) for entry in entries]
    positives = [figures.get("num_relevant_docs") for figures in judged]
    mean = "?" if None in positives else f"{sum(positives) / queries:.1f}"
    return f"{queries:,}", f"{documents:,}", mean


def _figure(value: str | int | float | None) -> str:
    if value is None:
        return "?"
    if isinstance(value, str):
        return value if len(value) < 20 else f"{value[:12]}…"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6f}".rstrip("0").rstrip(".")
