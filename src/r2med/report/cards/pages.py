"""Task pages: prose and facts in the order a reader asks, a group page, and writing them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from r2med.atomic import atomic_file
from r2med.errors import UsageError
from r2med.nano.candidates import ROLES, TITLES, Role
from r2med.nano.profiles import group_means
from r2med.report.cards.facts import Facts, Prose, gather, prose_of, readings
from r2med.report.cards.failures import Failure
from r2med.report.cards.render import (
    Block,
    Bullets,
    Grid,
    Links,
    Page,
    Paragraph,
    Quote,
    Section,
    html,
    markdown,
)
from r2med.report.profiles import data_rows, figure_rows, group_scores, subset_figures
from r2med.results.overlap import StoredAudit
from r2med.results.record import Result
from r2med.tasks.task import Task

SCHEMA = 2
INDEX = "index"
_MEANS = (
    "query-weighted mean (each query counts once)",
    "task mean (each task counts once)",
    "published, query-weighted",
    "published, task mean",
)
_SUITE_NOTES = {
    "demo": "A task of the demo suite, edition {edition}: original text, small, not comparable "
    "with published figures. The prose is about the R2MED task it is shaped after; "
    "the figures are its own.",
    None: "Data of your own: figures here do not compare with those of R2MED.",
}


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
    pages: list[tuple[Page, dict[str, object]]] = []
    for facts, name in zip(group, names, strict=True):
        prose = prose_of(facts.entry)
        pages.append((task_page(facts, prose, name), _task_json(facts, prose)))
    if len(group) > 1:
        pages.append((group_page(title, group, names), _group_json(title, group, names)))
    for page, values in pages:
        for ending, text in (
            ("md", markdown(page)),
            ("html", html(page)),
            ("json", json.dumps(values, indent=1, ensure_ascii=False) + "\n"),
        ):
            with atomic_file(out / f"{page.name}.{ending}") as draft:
                draft.write_text(text, encoding="utf-8", newline="\n")
    return [page.name for page, _ in pages]


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


def task_page(facts: Facts, prose: Prose, name: str) -> Page:
    """The page of one task; `name` is its file's."""
    entry = facts.entry
    lead = f"{entry.family}, {entry.scenario} · suite {entry.suite}" if entry else None
    grid = Grid(("", "observed"), tuple(data_rows(facts.profile.data)), words=True)
    examples = tuple(
        Quote(
            f"Query {p.query_id}", (("query", p.query), (f"positive {p.document_id}", p.document))
        )
        for p in facts.pairs
    )
    return Page(
        name=name,
        title=facts.name,
        lead=lead or "A retrieval task in a folder.",
        sections=(
            Section("Overview", tuple(_overview(facts, prose))),
            Section("What it measures", (Paragraph(prose.measures),)),
            Section("Data profile", (grid,)),
            Section("Retrieval behaviour", (_profiles(facts), _stored(facts))),
            Section(
                "Interpretation",
                (Paragraph(prose.interpretation), Bullets(tuple(readings(facts)))),
            ),
            Section("Failure modes", tuple(_failures(facts, prose))),
            Section("Training and leakage", tuple(_leakage(facts, prose))),
            Section("Examples", examples),
            Section("Sources", (_sources(facts, prose),)),
        ),
    )


def group_page(title: str, group: Sequence[Facts], names: Sequence[str]) -> Page:
    """The index of a set of task pages, whose files are `names`."""
    queries = sum(one.profile.data.queries for one in group)
    positives = sum(one.profile.data.positives for one in group)
    lead = f"{len(group)} tasks, {queries:,} queries, {positives:,} positives."
    if all(one.suite == "demo" for one in group):
        lead += " Original text, not comparable with published figures."
    links = tuple((one.name, name) for one, name in zip(group, names, strict=True))
    return Page(
        name=INDEX,
        title=title,
        lead=lead,
        sections=(
            Section("Data", (_group_data(group),)),
            Section("Retrieval profiles", tuple(_group_profiles(group))),
            Section("Failures", (_group_failures(group),)),
            Section("Tasks", (Links(links),)),
        ),
    )


def _overview(facts: Facts, prose: Prose) -> Iterator[Block]:
    yield Paragraph(prose.overview)
    if facts.entry is not None:
        yield Paragraph(facts.entry.description)
    if facts.made is not None:
        yield Paragraph(facts.made)
    if facts.suite in _SUITE_NOTES:
        edition = facts.entry and facts.entry.edition
        yield Paragraph(_SUITE_NOTES[facts.suite].format(edition=edition), note=True)


def _profiles(facts: Facts) -> Grid:
    subsets = list(subset_figures(facts.profile))
    headers = (f"{TITLES[role]}{', published' * published}" for role, published, _ in subsets)
    rows = figure_rows([figures for _, _, figures in subsets])
    sources = (f"{TITLES[row.role]} is {row.source}." for row in facts.profile.retrieval)
    caption = (
        "Candidate subsets, scores × 100: binary judgements, lists scored in their own order. "
        "Micro recall is positives found / positives; macro is the mean over queries. "
        f"{' '.join(sources)}"
    )
    return Grid(("", *headers), tuple(rows), caption)


def _stored(facts: Facts) -> Block:
    if not facts.scored:
        return Paragraph(
            "No result of this data is stored here; r2med eval adds systems to this page."
        )
    rows = tuple(
        (
            scored.system,
            f"{100 * scored.ndcg_10:.2f}",
            f"{100 * scored.interval.low:.2f} to {100 * scored.interval.high:.2f}",
            f"{100 * scored.hit_10:.2f}",
            f"{100 * scored.recall_100:.2f}",
        )
        for scored in facts.scored
    )
    headers = ("system", "nDCG@10", "95 % interval", "hit@10", "recall@100 (macro)")
    return Grid(headers, rows, "Stored results of exactly this data, best first; all values × 100.")


def _failures(facts: Facts, prose: Prose) -> Iterator[Block]:
    yield Bullets(prose.failures)
    yield Paragraph(f"What follows is counted and drawn from {facts.failures_of}.")
    for group in facts.failures:
        share = f"{100 * group.affected / max(group.of, 1):.1f} %"
        counted = f"{group.affected:,} of {group.of:,} queries ({share})."
        open_kind = f"cannot be recognised. {group.open}"
        yield Paragraph(f"{group.kind}: {open_kind if group.open else counted}")
        for failure in group.examples:
            yield _failure(facts, group.kind, failure)


def _failure(facts: Facts, kind: str, failure: Failure) -> Quote:
    rank = (
        f"not among the {failure.listed:,} documents listed"
        if failure.positive_rank is None
        else f"rank {failure.positive_rank:,} of {failure.listed:,} listed"
    )
    parts = [(f"query {failure.query}", facts.texts[f"q:{failure.query}"])]
    if failure.first is not None:
        parts.append(
            (f"rank {failure.first_rank}: {failure.first}", facts.texts[f"d:{failure.first}"])
        )
    parts.append((f"positive {failure.positive}, {rank}", facts.texts[f"d:{failure.positive}"]))
    parts.append(("what happened", failure.detail))
    return Quote(kind, tuple(parts))


def _leakage(facts: Facts, prose: Prose) -> Iterator[Block]:
    yield Paragraph(prose.training)
    if facts.audits:
        yield Paragraph("Overlap with training data, by r2med audit:")
        yield Bullets(tuple(audit.sentence() for audit in facts.audits))
    else:
        yield Paragraph(
            "Overlap with training data: not audited. "
            f"r2med audit TRAIN... --task {facts.name} does it.",
            note=True,
        )
    yield Paragraph(
        f"r2med tasks exclusions {facts.name} --out FILE writes what training must leave out, "
        "as hashes and fingerprints, without the texts."
    )


def _sources(facts: Facts, prose: Prose) -> Block:
    entry = facts.entry
    items = [] if facts.suite == "demo" else [prose.sources]
    if entry is not None:
        items += [entry.citation, f"Licence: {entry.licence or 'unknown'}."]
        if entry.hub:
            items.append(f"Hub: {entry.hub.repo}, {entry.hub.revision or 'default branch'}.")
    items.append(f"Data hash: {facts.hash}.")
    return Bullets(tuple(items))


def _group_data(group: Sequence[Facts]) -> Grid:
    headers = ("task", "queries", "documents", "positives", "median", "query chars", "doc chars")
    rows = tuple(
        (
            one.name,
            f"{data.queries:,}",
            f"{data.documents:,}",
            f"{data.positives:,}",
            f"{data.positives_median:g}",
            f"{data.query_length_mean:,.0f}",
            f"{data.document_length_mean:,.0f}",
        )
        for one in group
        for data in (one.profile.data,)
    )
    return Grid(headers, rows, "Median: positives per query. Lengths are means.")


def _group_profiles(group: Sequence[Facts]) -> Iterator[Block]:
    profiles = [one.profile for one in group]
    roles = [role for role in ROLES if any(one.of(role) for one in profiles)]
    rows = []
    for one in profiles:
        measured = {row.role: row.ndcg_10 for row in one.retrieval}
        best = TITLES[one.best.role] if one.best else "n/a"
        rows.append((one.task, *_scores(measured, roles), best))
    for label, values in zip(_MEANS, group_scores(profiles), strict=True):
        if values:
            rows.append((label, *_scores(values, roles), ""))
    headers = ("nDCG@10", *(TITLES[role] for role in roles), "best")
    yield Grid(headers, tuple(rows), "Candidate subsets, binary judgements, nDCG@10 × 100.")
    for mean in group_means(profiles):
        yield Paragraph(
            f"{TITLES[mean.role]}: hit@10 {100 * mean.hit_10_query_weighted:.2f} query-weighted "
            f"and {100 * mean.hit_10_task_mean:.2f} as task mean; recall@100 "
            f"{100 * mean.recall_100_micro:.2f} micro and "
            f"{100 * mean.recall_100_task_mean:.2f} as task mean; "
            f"{mean.safeguard_rows:,} safeguard rows."
        )


def _scores(values: Mapping[Role, float], roles: Sequence[Role]) -> Iterator[str]:
    return (f"{100 * values[role]:.2f}" if role in values else "n/a" for role in roles)


def _group_failures(group: Sequence[Facts]) -> Grid:
    kinds = ("Right body system, wrong diagnosis", "Surface overlap", "Positive not retrieved")
    rows = tuple(
        (
            one.name,
            *(
                "unknown" if failure.open else f"{failure.affected:,} of {failure.of:,}"
                for failure in one.failures
            ),
            one.failures_of,
        )
        for one in group
    )
    return Grid(("queries affected", *kinds, "drawn from"), rows)


def _task_json(facts: Facts, prose: Prose) -> dict[str, object]:
    entry = facts.entry
    return {
        "schema": SCHEMA,
        "task": facts.name,
        "suite": facts.suite,
        "source": entry.source if entry else None,
        "family": entry.family if entry else None,
        "scenario": entry.scenario if entry else None,
        "hash": facts.hash,
        "prose": asdict(prose),
        "profile": asdict(facts.profile),
        "results": [asdict(scored) for scored in facts.scored],
        "lead": asdict(facts.lead) if facts.lead else None,
        "failures_of": facts.failures_of,
        "failures": [asdict(failure) for failure in facts.failures],
        "audits": [
            {name: getattr(audit, name) for name in ("training", "rows", "verdict", "reason")}
            for audit in facts.audits
        ],
        "examples": [asdict(pair) for pair in facts.pairs],
        "citation": entry.citation if entry else None,
        "licence": entry.licence if entry else None,
    }


def _group_json(title: str, group: Sequence[Facts], names: Sequence[str]) -> dict[str, object]:
    means = group_means([facts.profile for facts in group])
    return {
        "schema": SCHEMA,
        "title": title,
        "tasks": {facts.name: name for facts, name in zip(group, names, strict=True)},
        "means": [asdict(mean) for mean in means],
    }
