"""The page of a group of tasks: one table, both means labelled, links to the tasks."""

from __future__ import annotations

from collections.abc import Sequence

from r2med.nano.candidates import ROLES, TITLES
from r2med.nano.profiles import group_means, published_means
from r2med.report.cards.blocks import Block, Grid, Links, Page, Paragraph, Section
from r2med.report.cards.facts import Facts
from r2med.report.cards.task_page import page_name


def group_page(title: str, group: Sequence[Facts]) -> Page:
    """The index of a set of task pages."""
    return Page(
        name="index",
        title=title,
        lead=_lead(group),
        sections=(
            Section("Data", (_data(group),)),
            Section("Retrieval profiles", tuple(_profiles(group))),
            Section("Failures", (_failures(group),)),
            Section("Leakage", (_audits(group),)),
            Section("Tasks", (Links(tuple((one.name, page_name(one.name)) for one in group)),)),
        ),
    )


def _lead(group: Sequence[Facts]) -> str:
    queries = sum(one.profile.data.queries for one in group)
    positives = sum(one.profile.data.positives for one in group)
    told = f"{len(group)} tasks, {queries:,} queries, {positives:,} positives."
    if all(one.suite == "demo" for one in group):
        told += " Original text, not comparable with published figures."
    return told


def _data(group: Sequence[Facts]) -> Grid:
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
    return Grid(headers, rows, "Median: positives a query. Lengths are means.")


def _profiles(group: Sequence[Facts]) -> list[Block]:
    profiles = [one.profile for one in group]
    roles = [role for role in ROLES if any(one.of(role) for one in profiles)]
    rows = []
    for one in profiles:
        found = [one.of(role) for role in roles]
        best = TITLES[one.best.role] if one.best else "n/a"
        rows.append((one.task, *(f"{row.ndcg_10:.4f}" if row else "n/a" for row in found), best))
    means = {mean.role: mean for mean in group_means(profiles)}
    for label, name in (
        ("query-weighted mean (each query counts once)", "ndcg_10_query_weighted"),
        ("task mean (each task counts once)", "ndcg_10_task_mean"),
    ):
        cells = (f"{getattr(means[role], name):.4f}" if role in means else "n/a" for role in roles)
        rows.append((label, *cells, ""))
    for at, label in ((0, "published, query-weighted"), (1, "published, task mean")):
        known = published_means(profiles)
        if known:
            cells = (f"{known[role][at]:.4f}" if role in known else "n/a" for role in roles)
            rows.append((label, *cells, ""))
    headers = ("nDCG@10", *(TITLES[role] for role in roles), "best")
    return [
        Grid(headers, tuple(rows), "Candidate subsets, binary judgements."),
        *(
            Paragraph(
                f"{TITLES[mean.role]}: hit@10 {mean.hit_10_query_weighted:.4f} query-weighted and "
                f"{mean.hit_10_task_mean:.4f} as task mean; recall@100 "
                f"{mean.recall_100_micro:.4f} micro and {mean.recall_100_task_mean:.4f} as task "
                f"mean; {mean.safeguard_rows:,} safeguard rows."
            )
            for mean in means.values()
        ),
    ]


def _failures(group: Sequence[Facts]) -> Grid:
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


def _audits(group: Sequence[Facts]) -> Grid:
    def told(one: Facts) -> str:
        if one.audit is None:
            return "not audited"
        return "nothing found" if one.audit.clean else "OVERLAP FOUND"

    rows = tuple((one.name, told(one)) for one in group)
    return Grid(("task", "overlap with training data"), rows, words=True)
