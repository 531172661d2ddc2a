"""Task pages: prose and facts in the order a reader asks, a group page, and writing them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from r2med.atomic import atomic_file
from r2med.errors import UsageError
from r2med.nano.profiles import group_means
from r2med.report.cards.facts import Facts, Prose, gather, prose_of, readings
from r2med.report.cards.failures import Failure
from r2med.report.formats import Page
from r2med.report.profiles import data_grid, group_parts, retrieval_parts
from r2med.report.table import Column, Grid, columns_of, percent, points
from r2med.results.overlap import StoredAudit
from r2med.results.record import Result
from r2med.tasks.task import Task

SCHEMA = 2
INDEX = "index"
_DEMO = (
    "A task of the demo suite, edition {edition}: original text, small, not comparable with "
    "published figures. The prose is about the R2MED task it is shaped after; the figures are its "
    "own."
)
_OWN = "Data of your own: figures here do not compare with those of R2MED."
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
<footer>Made with r2med tasks card. \
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
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not force:
        raise UsageError(
            f"--out {out} is not empty, and nothing in it was touched.\n"
            "Choose another folder, or --force to write the pages into it (other files stay)."
        )
    group = [gather(task, results, dense=dense, audits=audits, tell=tell) for task in tasks]
    names = page_names([facts.name for facts in group])
    for facts, name in zip(group, names, strict=True):
        prose = prose_of(facts.entry)
        _write(out / name, task_page(facts, prose), _task_json(facts, prose))
    if len(group) == 1:
        return names
    values = {
        "schema": SCHEMA,
        "title": title,
        "tasks": {facts.name: name for facts, name in zip(group, names, strict=True)},
        "means": [asdict(mean) for mean in group_means([facts.profile for facts in group])],
    }
    _write(out / INDEX, group_page(title, group, names), values)
    return [*names, INDEX]


def _write(place: Path, page: Page, values: dict[str, object]) -> None:
    for ending, text in (
        ("md", page.to_markdown() + "\n"),
        ("html", html(page, place.name)),
        ("json", json.dumps(values, indent=1, ensure_ascii=False) + "\n"),
    ):
        with atomic_file(place.with_name(f"{place.name}.{ending}")) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")


def html(page: Page, title: str) -> str:
    """A whole file: no script, nothing loaded, light and dark colours, fit to print."""
    style = (files("r2med.report.cards") / "page.css").read_text(encoding="utf-8")
    return _HTML.format(title=title, style=style, content=page.to_html())


def page_names(tasks: Sequence[str]) -> list[str]:
    """For every task a file name that reads like its own and that no other page has.

    Names that would be the same file, also where case does not count, are numbered.
    """
    names: list[str] = []
    taken = {INDEX}
    for task in tasks:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", task).strip("-.")[:100] or "task"
        name, number = plain, 1
        while name.lower() in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.lower())
        names.append(name)
    return names


def task_page(facts: Facts, prose: Prose) -> Page:
    """The page of one task."""
    page, entry = Page(), facts.entry
    page.print(facts.name, style="title")
    page.print(
        f"{entry.family}, {entry.scenario} · suite {entry.suite}"
        if entry
        else "A retrieval task in a folder."
    )
    page.print("Overview", style="section")
    page.print(prose.overview, entry.description if entry else "", facts.made or "")
    if facts.suite == "demo":
        page.print(_DEMO.format(edition=entry and entry.edition), style="note")
    elif facts.suite is None:
        page.print(_OWN, style="note")
    page.print("What it measures", style="section")
    page.print(prose.measures)
    page.print("Data profile", style="section")
    page.print(data_grid(facts.profile.data))
    page.print("Retrieval behaviour", style="section")
    page.print(*retrieval_parts(facts.profile), _RECALL)
    _print_stored(facts, page)
    page.print("Interpretation", style="section")
    page.print(prose.interpretation)
    page.print(*readings(facts), style="item")
    page.print("Failure modes", style="section")
    page.print(*prose.failures, style="item")
    _print_failures(facts, page)
    page.print("Training and leakage", style="section")
    page.print(prose.training)
    _print_leakage(facts, page)
    page.print("Examples", style="section")
    for pair in facts.pairs:
        page.print(f"Query {pair['query_id']}", style="bold")
        page.print(pair["query"], style="quote")
        page.print(f"positive {pair['document_id']}: {pair['document']}", style="quote")
    page.print("Sources", style="section")
    page.print(*_sources(facts, prose), style="item")
    return page


def group_page(title: str, group: Sequence[Facts], names: Sequence[str]) -> Page:
    """The index of a set of task pages, whose files are `names`."""
    page = Page()
    queries = sum(one.profile.data.queries for one in group)
    positives = sum(one.profile.data.positives for one in group)
    page.print(title, style="title")
    page.print(f"{len(group)} tasks, {queries:,} queries, {positives:,} positives.")
    if all(one.suite == "demo" for one in group):
        page.print("Original text, not comparable with published figures.", style="note")
    page.print("Data", style="section")
    page.print(_group_data(group))
    page.print("Retrieval profiles", style="section")
    page.print(*group_parts([one.profile for one in group], title))
    page.print("Failures", style="section")
    page.print(_group_failures(group))
    page.print("Tasks", style="section")
    for one, name in zip(group, names, strict=True):
        page.print(one.name, style=f"link {name}")
    return page


def _print_stored(facts: Facts, page: Page) -> None:
    if not facts.scored:
        page.print("No result of this data is stored here; r2med eval adds systems to this page.")
        return
    columns = [
        Column("system", right=False, cell=lambda each: each["system"]),
        Column("nDCG@10", cell=lambda each: points(each["ndcg_10"])),
        Column("95 % interval", cell=lambda each: _span(each["interval"])),
        Column("hit@10", cell=lambda each: points(each["hit_10"])),
        Column("recall@100 (macro)", cell=lambda each: points(each["recall_100"])),
    ]
    caption = "Stored results of exactly this data, best first; all values × 100."
    page.print(Grid.of(columns, facts.scored, caption=caption))


def _span(interval: dict[str, float]) -> str:
    return f"{points(interval['low'])} to {points(interval['high'])}"


def _print_failures(facts: Facts, page: Page) -> None:
    page.print(f"What follows is counted and drawn from {facts.failures_of}.")
    for group in facts.failures:
        share = percent(group.affected / max(group.of, 1))
        counted = f"{group.affected:,} of {group.of:,} queries ({share})."
        page.print(f"{group.kind}: {group.open or counted}", style="bold")
        for failure in group.examples:
            page.print(*_failure(facts.texts, failure), style="quote")


def _failure(texts: dict[str, str], failure: Failure) -> list[str]:
    rank = "not" if failure.positive_rank is None else f"rank {failure.positive_rank:,}"
    lines = [f"query {failure.query}: {texts[f'q:{failure.query}']}"]
    if failure.first is not None:
        lines.append(f"rank {failure.first_rank}, {failure.first}: {texts[f'd:{failure.first}']}")
    positive = texts[f"d:{failure.positive}"]
    lines.append(
        f"positive {failure.positive}, {rank} among the {failure.listed:,} listed: {positive}"
    )
    return [*lines, f"what happened: {failure.detail}"]


def _print_leakage(facts: Facts, page: Page) -> None:
    if facts.audits:
        page.print("Overlap with training data, by r2med audit:")
        page.print(*(audit.sentence() for audit in facts.audits), style="item")
    else:
        page.print(
            "Overlap with training data: not audited. "
            f"r2med audit TRAIN... --task {facts.name} does it.",
            style="note",
        )
    page.print(
        f"r2med tasks exclusions {facts.name} --out FILE writes what training must leave out, "
        "as hashes and fingerprints, without the texts."
    )


def _sources(facts: Facts, prose: Prose) -> list[str]:
    entry = facts.entry
    items = [] if facts.suite == "demo" else [prose.sources]
    if entry is not None:
        items += [entry.citation, f"Licence: {entry.licence or 'unknown'}."]
        if entry.hub:
            items.append(f"Hub: {entry.hub.repo}, {entry.hub.revision or 'default branch'}.")
    return [*items, f"Data hash: {facts.hash}."]


def _group_data(group: Sequence[Facts]) -> Grid:
    columns = [
        Column("task", right=False, cell=lambda one: one.name),
        Column("queries", cell=lambda one: f"{one.profile.data.queries:,}"),
        Column("documents", cell=lambda one: f"{one.profile.data.documents:,}"),
        Column("positives", cell=lambda one: f"{one.profile.data.positives:,}"),
        Column("median", cell=lambda one: f"{one.profile.data.positives_median:g}"),
        Column("query chars", cell=lambda one: f"{one.profile.data.query_length_mean:,.0f}"),
        Column("doc chars", cell=lambda one: f"{one.profile.data.document_length_mean:,.0f}"),
    ]
    return Grid.of(columns, group, caption="Median: positives per query. Lengths are means.")


def _group_failures(group: Sequence[Facts]) -> Grid:
    kinds = (">Right body system, wrong diagnosis", ">Surface overlap", ">Positive not retrieved")
    rows = []
    for one in group:
        counts = (
            "unknown" if kind.open else f"{kind.affected:,} of {kind.of:,}" for kind in one.failures
        )
        rows.append([one.name, *counts, one.failures_of])
    return Grid(columns_of("queries affected", *kinds, "drawn from"), rows)


def _task_json(facts: Facts, prose: Prose) -> dict[str, object]:
    entry = facts.entry
    audited = ("training", "rows", "verdict", "reason")
    named = ("source", "family", "scenario", "citation", "licence")
    return {
        "schema": SCHEMA,
        "task": facts.name,
        "suite": facts.suite,
        **{name: getattr(entry, name, None) for name in named},
        "hash": facts.hash,
        "prose": asdict(prose),
        "profile": asdict(facts.profile),
        "results": facts.scored,
        "lead": asdict(facts.lead) if facts.lead else None,
        "failures_of": facts.failures_of,
        "failures": [asdict(failure) for failure in facts.failures],
        "audits": [{name: getattr(audit, name) for name in audited} for audit in facts.audits],
        "examples": facts.pairs,
    }
