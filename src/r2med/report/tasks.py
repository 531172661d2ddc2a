"""Tables about tasks: the list, one in full, what verification found, and data of one's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from r2med.report.table import Cell, Column, Grid, SystemName, columns_of, pairs, plural, snippet
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import Suite, TaskEntry

if TYPE_CHECKING:
    from r2med.tasks.load import Check
    from r2med.tasks.own_data import Problem
    from r2med.tasks.task import Task

_ASPECTS = ("counts", "statistics", "sha256", "profile")
_FACTS = {
    "documents_text": "documents",
    "queries_text": "queries",
    "relevant_docs": "positives",
    "total_text_length": "characters in all",
    "min_text_length": "characters, least",
    "average_text_length": "characters, mean",
    "max_text_length": "characters, most",
    "unique_texts": "distinct texts",
    "num_relevant_docs": "in all",
    "min_relevant_docs_per_query": "per query, least",
    "average_relevant_docs_per_query": "per query, mean",
    "max_relevant_docs_per_query": "per query, most",
    "unique_relevant_docs": "distinct documents",
}
_VERDICTS = {True: "ok", False: "DIFFERS", None: "unknown"}


def suite_table(suite: Suite, entries: Sequence[TaskEntry]) -> Grid:
    """One row per task, family by family."""
    rows: list[list[Cell]] = []
    for family, members in groupby(entries, key=lambda entry: entry.family):
        rows.append([Text(family, style="italic")])
        for entry in members:
            here = "yes" if is_present(entry) else "no"
            rows.append([f" {entry.name}", here, *_shape([entry]), entry.scenario])
    others = columns_of("here", ">queries", ">documents", ">pos/q", "scenario")
    columns = [Column("task", right=False, fixed=True), *others]
    return Grid(columns, rows, gap=1, title=f"{suite.title} · suite {suite.name}")


def group_table(suite: Suite, entries: Sequence[TaskEntry], by: str) -> Grid:
    """One row per family or scenario: its tasks, and their sizes together."""
    groups: dict[str, list[TaskEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.family if by == "family" else entry.scenario, []).append(entry)
    rows: list[list[Cell]] = []
    for name, members in groups.items():
        here = sum(is_present(entry) for entry in members)
        names = ", ".join(entry.source for entry in members)
        rows.append([name, names, f"{here}/{len(members)}", *_shape(members)])
    columns = columns_of(by, "tasks", ">here", ">queries", ">documents", ">pos/q")
    return Grid(columns, rows, gap=1, title=f"{suite.title} · suite {suite.name}")


def task_details(entry: TaskEntry) -> Group:
    """All that is known of one task, and what is not."""
    edition = f", edition {entry.edition}" if entry.edition else ""
    return Group(
        Text(f"{entry.name} · suite {entry.suite}{edition}", style="bold"),
        Padding(Text(entry.description), (0, 0, 1, 0)),
        pairs(_details(entry)),
    )


def check_summary(entries: Sequence[TaskEntry], checks: Sequence[Check]) -> Grid:
    """One row per task: whether its counts, statistics and checksums agree with the manifest."""
    aspects = [name for name in _ASPECTS if any(check.aspect == name for check in checks)]
    rows: list[list[Cell]] = []
    for entry in entries:
        own = [check for check in checks if check.task == entry.name]
        cells = [_verdict([c for c in own if c.aspect == aspect]) for aspect in aspects]
        rows.append([entry.name, *cells])
    return Grid(columns_of("task", *aspects), rows, gap=1)


def check_table(checks: Sequence[Check]) -> Grid:
    """One row per fact."""
    rows = []
    for check in checks:
        values = (_figure(check.expected), _figure(check.found))
        style = {True: "", False: "bold", None: "dim"}[check.passed]
        cells = (check.task, _fact(check), *values, _VERDICTS[check.passed])
        rows.append([Text(cell, style) for cell in cells])
    columns = columns_of("task", "fact", ">expected", ">found")
    return Grid([*columns, Column("", right=False, fixed=True)], rows, gap=1)


def problem_grids(problems: Sequence[Problem]) -> Iterator[Grid]:
    """The problems of the user's own data, one row each, file by file."""
    for file in dict.fromkeys(problem.file for problem in problems):
        number = "row" if file.endswith(".parquet") else "line"
        columns = [Column(number, fixed=True), *columns_of("id", "problem")]
        own = [problem for problem in problems if problem.file == file]
        rows: list[list[Cell]] = [
            [
                "" if each.line is None else f"{each.line}",
                SystemName(snippet(each.id or "", 30)),
                Text(each.problem),
            ]
            for each in own
        ]
        yield Grid(columns, rows, title=f"{plural(len(own), 'problem')} in {file}")


def summary(task: Task) -> Group:
    """What sound data is: counts, lengths, positives per query, grades, and what is odd."""
    from r2med.tasks.task import counts, statistics

    facts = statistics(task)
    positives = facts["relevant_docs"]
    grades = sorted(Counter(task.judgements.scores.tolist()).items())
    lengths = (
        f"{own['min_text_length']:,} to {own['max_text_length']:,} "
        f"(mean {own['average_text_length']:,.0f}) of a {what}"
        for what, own in (("query", facts["queries_text"]), ("document", facts["documents_text"]))
    )
    rows = [
        ("data", ", ".join(f"{count:,} {what}" for what, count in counts(task).items())),
        ("characters", ", ".join(lengths)),
        (
            "positives per query",
            f"{positives['min_relevant_docs_per_query']:,} to "
            f"{positives['max_relevant_docs_per_query']:,}, "
            f"mean {positives['average_relevant_docs_per_query']:.2f}",
        ),
        ("scores", ", ".join(f"{grade} ({count:,})" for grade, count in grades)),
        ("hash", task.hash[:12]),
        *(("note", notice) for notice in task.notices),
    ]
    return Group(Text(f"{task.name}: no problems", style="bold"), pairs(rows, indent=2))


def _fact(check: Check) -> str:
    if check.aspect == "sha256":
        return f"sha256: {check.what}"
    return ": ".join(_FACTS.get(part, part) for part in check.what.split("."))


def _verdict(checks: Sequence[Check]) -> str:
    """How a group of facts fared: differences first, then what could not be compared."""
    differing = sum(check.passed is False for check in checks)
    unknown = sum(check.passed is None for check in checks)
    agreeing = len(checks) - differing - unknown
    if differing:
        return f"{differing} of {len(checks)} DIFFER"
    if not agreeing:
        return "unknown"
    return f"{agreeing} ok, {unknown} unknown" if unknown else f"{agreeing} ok"


def _details(entry: TaskEntry) -> list[tuple[str, str]]:
    hub = entry.hub
    revision = (hub.revision or "not pinned (default branch)") if hub else ""
    queries, documents, positives = _shape([entry])
    judged = entry.counts.get("judgements")
    licence = entry.licence or "unknown"
    return [
        ("aliases", ", ".join(entry.aliases)),
        ("family", entry.family),
        ("scenario", entry.scenario),
        ("queries are", f"a {entry.kind}; {entry.purpose}"),
        ("queries", queries),
        ("documents", documents),
        ("judgements", f"{judged:,} ({positives} positives per query)" if judged else "unknown"),
        ("characters", _lengths(entry.statistics)),
        ("data", f"{'here' if is_present(entry) else 'not here'}: {data_folder(entry)}"),
        ("hub", f"{hub.repo}{f', split {entry.split}' if entry.split else ''}" if hub else "none"),
        *([("revision", revision)] if hub else []),
        ("licence", f"{licence} ({entry.licence_source})" if entry.licence_source else licence),
        ("citation", entry.citation),
        ("unknown", "; ".join(entry.unknown) or "nothing"),
    ]


def _lengths(statistics: Mapping[str, Any]) -> str:
    lengths = []
    for what in ("queries", "documents"):
        mean = statistics.get(f"{what}_text", {}).get("average_text_length")
        each = "query" if what == "queries" else "document"
        lengths.append(f"{mean:,.0f} per {each}" if mean else "")
    return ", ".join(filter(None, lengths)) or "unknown"


def _shape(entries: Sequence[TaskEntry]) -> tuple[str, str, str]:
    """Queries, documents and positives per query; "?" where a manifest does not say."""
    queries = [entry.counts.get("queries") for entry in entries]
    documents = [entry.counts.get("documents") for entry in entries]
    positives = [
        entry.statistics.get("relevant_docs", {}).get("num_relevant_docs") for entry in entries
    ]
    total_queries, total_positives = _sum(queries), _sum(positives)
    mean = f"{total_positives / total_queries:.1f}" if total_positives and total_queries else "?"
    return _figure(total_queries), _figure(_sum(documents)), mean


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _figure(value: str | int | float | None) -> str:
    if value is None:
        return "?"
    if isinstance(value, str):
        return value if len(value) < 20 else f"{value[:12]}…"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6f}".rstrip("0").rstrip(".")
