"""Write task pages, each with prose and facts, and the index page of a group of tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

from r2med.nano.profiles import group_means
from r2med.number_format import format_percent
from r2med.paths import require_empty, slug
from r2med.report.cards.facts import EXCERPT, Facts, gather, readings
from r2med.report.formats import Page
from r2med.report.profiles import data_grid, group_parts, retrieval_parts
from r2med.report.table import Cell, Grid, document_text, make_columns, score_cell, snippet
from r2med.results.overlap import StoredAudit
from r2med.results.record import Result
from r2med.storage import write_file
from r2med.tasks.task import Task

SCHEMA = 3
INDEX = "index"
_DEMO = (
    "A task of the demo suite, edition {edition}: original text, small, not comparable with "
    "published figures. The prose is about the R2MED task it is shaped after; the figures are its "
    "own."
)
_OWN = "Data of your own: figures here do not compare with those of R2MED."
_UNKNOWN = "cannot be recognised: the data does not name body systems and answers of its queries."
_RECALL = "Micro recall is positives found / positives; macro is the mean over queries."
_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{content}
</main>
<footer>Made with {command}. \
A research instrument, never a clinical decision system.</footer>
</body>
</html>
"""


def write_cards(
    tasks: Iterable[Task],
    out: Path,
    title: str,
    *,
    results: Sequence[Result],
    audits: Sequence[StoredAudit] = (),
    dense: str | None,
    force: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> list[str]:
    """Write the pages of tasks, and for several a group page; return the names of the pages."""
    require_empty(out, force=force)
    group, pages = [], []
    for task in tasks:
        facts = gather(task, results, dense=dense, audits=audits, tell=tell)
        group.append(facts)
        pages.append(task_page(facts, task))
    names = page_names([facts.task for facts in group])
    for name, page, facts in zip(names, pages, group, strict=True):
        lead = None if facts.lead is None else facts.lead.to_json()
        _write(out / name, page, {**asdict(replace(facts, lead=None)), "lead": lead})
    if len(group) == 1:
        return names
    means = group_means([facts.profile.retrieval for facts in group])
    tasks_of = {facts.task: name for facts, name in zip(group, names, strict=True)}
    values = {"title": title, "tasks": tasks_of, "means": [*map(asdict, means)]}
    _write(out / INDEX, group_page(title, group, names), values)
    return [*names, INDEX]


def _write(path: Path, page: Page, values: Mapping[str, object]) -> None:
    for ending, text in (
        ("md", page.to_markdown() + "\n"),
        ("html", html(page, path.name)),
        ("json", json.dumps({"schema": SCHEMA, **values}, indent=1, ensure_ascii=False) + "\n"),
    ):
        write_file(path.with_name(f"{path.name}.{ending}"), text)


def html(page: Page, title: str, command: str = "r2med tasks card") -> str:
    """Return a complete HTML file: no script, nothing loaded, light and dark colours, printable."""
    style = (files("r2med.report.cards") / "page.css").read_text(encoding="utf-8")
    content = page.to_html()
    return _HTML.format(title=title, style=style, content=content, command=command)


def page_names(tasks: Sequence[str]) -> list[str]:
    """Return for every task a unique file name that resembles its name.

    Names that are equal or differ only in case get a number.
    """
    names: list[str] = []
    used_names = {INDEX}
    for task in tasks:
        name, number = slug(task), 1
        while name.lower() in used_names:
            number += 1
            name = f"{slug(task)}-{number}"
        used_names.add(name.lower())
        names.append(name)
    return names


def task_page(facts: Facts, task: Task) -> Page:
    """Return the page of one task."""
    page, entry, prose = Page(), facts.entry, facts.prose

    def section(title: str, *paragraphs: object) -> None:
        page.print(title, style="section")
        page.print(*paragraphs)

    page.print(facts.task, style="title")
    page.print(
        f"{entry.family}, {entry.scenario} · suite {entry.suite}"
        if entry
        else "A retrieval task in a folder."
    )
    section("Overview", prose["overview"], entry.description if entry else "", facts.origin)
    if facts.suite == "demo":
        page.print(_DEMO.format(edition=entry and entry.edition), style="note")
    elif facts.suite is None:
        page.print(_OWN, style="note")
    section("Measured ability", prose["measures"])
    section("Data profile", data_grid(facts.profile.data))
    section("Retrieval behaviour", *retrieval_parts(facts.profile), _RECALL, _result_rows(facts))
    section("Interpretation", prose["interpretation"])
    page.print(*readings(facts), style="item")
    section("Failure modes")
    page.print(*prose["failures"], style="item")
    _print_failures(facts, task, page)
    section("Training and leakage", prose["training"])
    if facts.audits:
        page.print("Overlap with training data, by r2med audit:")
        page.print(*(audit["sentence"] for audit in facts.audits), style="item")
    else:
        how = f"r2med audit TRAIN... --task {facts.task} does it."
        page.print(f"Overlap with training data: not audited. {how}", style="note")
    page.print(
        f"r2med tasks exclusions {facts.task} --out FILE writes what training must leave out, "
        "as hashes and fingerprints, without the texts."
    )
    section("Examples")
    for pair in facts.examples:
        page.print(f"Query {pair['query_id']}", style="bold")
        page.print(pair["query"], style="quote")
        page.print(f"positive {pair['document_id']}: {pair['document']}", style="quote")
    section("Sources")
    items = [] if facts.suite == "demo" else [prose["sources"]]
    if entry is not None:
        items += [entry.citation, f"Licence: {entry.licence or 'unknown'}."]
        if entry.hub:
            items.append(f"Hub: {entry.hub.repo}, {entry.hub.revision or 'default branch'}.")
    page.print(*items, f"Data hash: {facts.hash}.", style="item")
    return page


def _result_rows(facts: Facts) -> Grid | str:
    if not facts.results:
        return "No result of this data is stored here; r2med eval adds systems to this page."
    rows = []
    for result in facts.results:
        span = (
            f"{score_cell(result['interval']['low'])} to {score_cell(result['interval']['high'])}"
        )
        figures = score_cell(result["hit_10"]), score_cell(result["recall_100"])
        rows.append([result["system"], score_cell(result["ndcg_10"]), span, *figures])
    heads = ("system", ">nDCG@10", ">95 % interval", ">hit@10", ">recall@100 (macro)")
    caption = "Stored results of exactly this data, best first; all values × 100."
    return Grid(make_columns(*heads), rows, caption=caption)


def _print_failures(facts: Facts, task: Task, page: Page) -> None:
    def text_of(document: str) -> str:
        return snippet(document_text(task, document), EXCERPT)

    page.print(f"Counts and examples are from {facts.failures_of}.")
    for group in facts.failures:
        share = format_percent(group.affected / max(group.of, 1))
        counted = f"{group.affected:,} of {group.of:,} queries ({share})."
        page.print(f"{group.title}: {counted if group.of else _UNKNOWN}", style="bold")
        for example in group.examples:
            lines = [f"query {example.query}: {snippet(task.query(example.query), EXCERPT)}"]
            if example.first is not None:
                lines.append(
                    f"rank {example.first_rank}, {example.first}: {text_of(example.first)}"
                )
            position = f"rank {example.positive_rank:,}" if example.positive_rank else "not listed"
            lines.append(f"positive {example.positive}, {position}: {text_of(example.positive)}")
            page.print(*lines, f"what happened: {example.detail}", style="quote")


def group_page(title: str, group: Sequence[Facts], names: Sequence[str]) -> Page:
    """Return the index of task pages; `names` are the names of their files."""
    page, data = Page(), [facts.profile.data for facts in group]
    totals = (
        f"{sum(figures[name] for figures in data):,} {name}" for name in ("queries", "positives")
    )
    page.print(title, style="title")
    page.print(f"{len(group)} tasks, {', '.join(totals)}.")
    if all(facts.suite == "demo" for facts in group):
        page.print("Original text, not comparable with published figures.", style="note")
    page.print("Data", style="section")
    heads = (">queries", ">documents", ">positives", ">median", ">query chars", ">doc chars")
    rows: list[list[Cell]] = []
    for facts, figures in zip(group, data, strict=True):
        counts = (f"{figures[name]:,}" for name in ("queries", "documents", "positives"))
        lengths = (f"{figures[name]['mean']:,.0f}" for name in ("query_length", "document_length"))
        rows.append(
            [facts.task, *counts, f"{figures['positives_per_query']['median']:g}", *lengths]
        )
    caption = "Median: positives per query. Lengths are means."
    page.print(Grid(make_columns("task", *heads), rows, caption=caption))
    page.print("Retrieval profiles", style="section")
    page.print(*group_parts([facts.profile for facts in group], title))
    page.print("Failures", style="section")
    failure_types = (
        ">Right body system, wrong diagnosis",
        ">Surface overlap",
        ">Positive not retrieved",
    )
    rows = []
    for facts in group:
        affected = (f"{f.affected:,} of {f.of:,}" if f.of else "unknown" for f in facts.failures)
        rows.append([facts.task, *affected, facts.failures_of])
    page.print(Grid(make_columns("queries affected", *failure_types, "drawn from"), rows))
    page.print("Tasks", style="section")
    for facts, name in zip(group, names, strict=True):
        page.print(facts.task, style=f"link {name}")
    return page
